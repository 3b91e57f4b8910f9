"""Sealed reasoning: whole for its tenant, nothing for anybody or anything else."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access import sealing
from proxy.access.sealing import Sealer

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
SEALER = Sealer({"old": OLD})
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))  # lone surrogates too
# As OpenAI's own items look: a Fernet token.
FOREIGN = "gAAAAABo" + base64.urlsafe_b64encode(bytes(range(200))).decode()


@given(ANY_TEXT, ANY_TEXT)
def test_what_was_sealed_opens_for_its_tenant(tenant: str, text: str) -> None:
    assert SEALER.open(tenant, SEALER.seal(tenant, text)) == text


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_for_another_tenant_it_does_not_open(tenant: str, other: str, text: str) -> None:
    if tenant != other:
        assert SEALER.open(other, SEALER.seal(tenant, text)) is None


@given(st.text(max_size=60), st.data())
def test_a_changed_character_anywhere_fails(text: str, data: st.DataObject) -> None:
    sealed = SEALER.seal("tenant", text)
    at = data.draw(st.integers(0, len(sealed) - 1))
    instead = data.draw(st.one_of(st.sampled_from("ABab01-_.=+/ \n"), st.characters()))
    if instead != sealed[at]:
        assert SEALER.open("tenant", sealed[:at] + instead + sealed[at + 1 :]) is None


def test_every_character_counts() -> None:
    # Two bytes beyond a multiple of three leave bits in the last character that decode to nothing.
    for text in ("", "a", "ab"):
        sealed = SEALER.seal("tenant", text)
        for at, was in enumerate(sealed):
            for instead in "ABCDabcd0189-_.=":
                if instead != was:
                    assert SEALER.open("tenant", sealed[:at] + instead + sealed[at + 1 :]) is None


@given(st.text(max_size=60), st.data())
def test_a_part_of_it_or_more_than_it_fails(text: str, data: st.DataObject) -> None:
    sealed = SEALER.seal("tenant", text)
    cut = data.draw(st.integers(0, len(sealed) - 1))
    assert SEALER.open("tenant", sealed[:cut]) is None
    assert SEALER.open("tenant", sealed[cut + 1 :]) is None
    assert SEALER.open("tenant", sealed + data.draw(st.text(min_size=1, max_size=5))) is None


@given(st.one_of(ANY_TEXT, ANY_TEXT.map("lpr1.old.{}".format), ANY_TEXT.map("lpr1.{}".format)))
def test_no_text_raises_and_none_opens(text: str) -> None:
    assert SEALER.open("tenant", text) is None


def test_an_item_of_openai_is_foreign_and_never_opened() -> None:
    assert not SEALER.is_ours(FOREIGN)
    assert SEALER.open("tenant", FOREIGN) is None


@pytest.mark.parametrize("text", ["", "lpr", "lpr1", "LPR1.x", " lpr1.x", "lprx.y", "gAAAAlpr1."])
def test_foreign_texts_are_not_ours(text: str) -> None:
    assert not SEALER.is_ours(text)


def test_ours_is_ours_whether_or_not_it_opens() -> None:
    sealed = Sealer({"gone": NEW}).seal("tenant", "text")
    assert SEALER.is_ours(sealed)
    assert SEALER.is_ours("lpr2.of.another-release")
    assert SEALER.open("tenant", sealed) is None


def test_after_a_rotation_old_and_new_open_and_the_new_key_seals() -> None:
    before = SEALER.seal("tenant", "before")
    rotated = Sealer({"new": NEW, "old": OLD})
    assert rotated.open("tenant", before) == "before"
    after = rotated.seal("tenant", "after")
    assert after.startswith("lpr1.new.")
    assert rotated.open("tenant", after) == "after"
    assert SEALER.open("tenant", after) is None
    assert Sealer({"new": NEW}).open("tenant", before) is None


def test_a_key_by_another_id_or_another_key_by_this_id_does_not_open() -> None:
    sealed = SEALER.seal("tenant", "text")
    assert Sealer({"new": OLD}).open("tenant", sealed.replace(".old.", ".new.")) is None
    assert Sealer({"old": NEW}).open("tenant", sealed) is None


def test_it_is_one_url_safe_word_with_key_id_and_nonce_in_front() -> None:
    nonce = bytes(range(100, 112))
    sealed = Sealer({"old": OLD}, nonce=lambda size: nonce[:size]).seal("tenant", "Thinking of 'ü'.")
    assert re.fullmatch(r"lpr1\.old\.[A-Za-z0-9_-]+", sealed)
    assert base64.urlsafe_b64decode(sealed.split(".")[2] + "==").startswith(nonce)
    assert SEALER.open("tenant", sealed) == "Thinking of 'ü'."


def test_the_same_text_is_never_sealed_alike() -> None:
    assert SEALER.seal("tenant", "text") != SEALER.seal("tenant", "text")


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MAX_TEXT_BYTES", 10)
    sealed = SEALER.seal("tenant", "ten bytes.")
    with pytest.raises(ValueError, match="too long"):
        SEALER.seal("tenant", "eleven byte")
    monkeypatch.setattr(sealing, "MAX_SEALED_CHARS", len(sealed))
    assert SEALER.open("tenant", sealed) == "ten bytes."
    monkeypatch.setattr(sealing, "MAX_SEALED_CHARS", len(sealed) - 1)
    assert SEALER.open("tenant", sealed) is None


def test_the_longest_text_that_is_sealed_can_be_opened() -> None:
    head = len("lpr1.") + 32 + len(".")
    assert head + -(-(sealing.MAX_TEXT_BYTES + 28) * 4 // 3) <= sealing.MAX_SEALED_CHARS


@pytest.mark.parametrize("keys", [{}, {"short": b"1" * 31}, {"old": OLD, "long": b"1" * 33}])
def test_a_sealer_needs_whole_keys(keys: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer(keys)


def test_its_repr_shows_no_key() -> None:
    assert repr(Sealer({"new": NEW, "old": OLD})) == "Sealer(new, old)"
