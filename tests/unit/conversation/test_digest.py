"""When two items mean the same: what clients drop and alter on a resend does not count, everything else does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation import digest
from proxy.conversation.digest import canonical, item_digest, rolled, same
from proxy.wire.items import Item, parse_item
from tests.golden import corpus
from tests.unit.strategies import json_values
from tests.unit.translate.histories import histories

Json = dict[str, Any]
CACHES = (Path(__file__).parents[3] / "docs" / "caches.md").read_text()


def item(members: Json, **how: Any) -> Item:
    return parse_item(json.dumps(members, **how).encode())


def _content(change: Callable[[Any], Any]) -> Callable[[Json], Json]:
    def changed(members: Json) -> Json:
        return {name: change(value) if name in ("content", "output") else value for name, value in members.items()}

    return changed


def _texts(kind: str) -> Callable[[Any], Any]:
    def parts(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        named = ("input_text", "output_text")
        return [{**part, "type": kind} if part.get("type") in named else part for part in value]

    return parts


def _one_part(value: Any) -> Any:
    return [{"type": "input_text", "text": value}] if isinstance(value, str) else value


def _noted(value: Any) -> Any:
    return [{**part, "annotations": [], "logprobs": []} for part in value] if isinstance(value, list) else value


def _rewritten(members: Json) -> Json:
    """Arguments read, and written anew without a space."""
    try:
        arguments = json.dumps(json.loads(members["arguments"]), separators=(",", ":"), ensure_ascii=False)
    except (KeyError, ValueError, TypeError):
        return members
    return {**members, "arguments": arguments}


def _parsed(value: Any) -> Any:
    return [{**part, "parsed": {"a": 1}} for part in value] if isinstance(value, list) else value


def _without_id(members: Json) -> Json:
    return {name: value for name, value in members.items() if name != "id"}


# What clients do between turns; each is named for who was seen doing it (clients/README.md).
ALTERATIONS: dict[str, Callable[[Json], Json]] = {
    "codex drops the id": _without_id,
    "vercel drops the status": lambda members: {
        name: value for name, value in members.items() if (name, value) != ("status", "completed")
    },
    "agents-js says that an output is completed": lambda members: {"status": "completed", **members},
    "openai-python dumps nulls": lambda members: {**members, "namespace": None, "phase": None},
    "openai-python says what it has parsed": lambda members: _content(_parsed)(
        {**members, "parsed_arguments": {"a": 1}}
    ),
    "vercel writes arguments anew": _rewritten,
    "openai-python gives ids of its own": lambda members: {**members, "id": "other"},
    "texts as one part": _content(_one_part),
    "answers as input": _content(_texts("input_text")),
    "inputs as answers": _content(_texts("output_text")),
    "empty annotations and logprobs": _content(_noted),
    "members in another order": lambda members: dict(reversed(members.items())),
    "the type of a message left out": lambda members: {
        name: value for name, value in members.items() if (name, value) != ("type", "message")
    },
}
_ITEMS = histories(hosted=False).flatmap(st.sampled_from).filter(
    lambda members: members.get("type", "message") in digest.READ
)  # fmt: skip


@given(members=_ITEMS, changes=st.lists(st.sampled_from(sorted(ALTERATIONS))), ascii_only=st.booleans(),
       indent=st.sampled_from([None, 2]))  # fmt: skip
def test_what_clients_alter_on_a_resend_is_the_same_item(
    members: Json, changes: list[str], ascii_only: bool, indent: int | None
) -> None:
    altered = members
    for name in changes:
        altered = ALTERATIONS[name](altered)
    again = item(altered, ensure_ascii=ascii_only, indent=indent)
    assert same(item(members), again)
    assert item_digest(item(members)) == item_digest(again)


@given(members=_ITEMS, name=st.sampled_from(["call_id", "name", "arguments", "input", "role", "unheard_of"]),
       value=st.one_of(st.text(min_size=1, max_size=3), st.integers()))  # fmt: skip
def test_any_other_member_counts(members: Json, name: str, value: Any) -> None:
    raw = json.dumps({**members, name: value}).encode()
    before = item(members)
    call_id = str(value) if name == "call_id" else before.call_id
    after = Item(before.kind, raw, before.role, call_id, before.unfinished)
    if members.get(name) != value:
        assert not same(before, after)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "a"}, {"role": "user", "content": "b"}),
        ({"role": "user", "content": "a"}, {"role": "developer", "content": "a"}),
        ({"role": "user", "content": "ab"},
         {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}),
        ({"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "refusal", "refusal": "a"}]}),
        ({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
         {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "status": "incomplete"}),
        ({"type": "apply_patch_call_output", "call_id": "1", "status": "completed"},
         {"type": "apply_patch_call_output", "call_id": "1", "status": "failed"}),
        ({"type": "reasoning", "summary": [], "encrypted_content": "a"},
         {"type": "reasoning", "summary": [], "encrypted_content": "b"}),
        ({"type": "compaction", "id": "1", "encrypted_content": "a"},
         {"type": "compaction", "id": "2", "encrypted_content": "a"}),
        ({"type": "local_shell_call_output", "id": "1", "output": "a"},
         {"type": "local_shell_call_output", "id": "2", "output": "a"}),
        ({"role": "user", "content": "a", "unheard_of": 1}, {"role": "user", "content": "a", "unheard_of": True}),
    ],
)  # fmt: skip
def test_what_means_something_else_is_another_item(one: Json, other: Json) -> None:
    assert not same(item(one), item(other))


def _call(arguments: object) -> Item:
    return item({"type": "function_call", "call_id": "1", "name": "f", "arguments": arguments})


def test_arguments_count_by_what_they_say() -> None:
    asked = _call('{"city": "Oslo", "days": [1, 2], "note": "\\u00e9"}')
    assert same(asked, _call('{"note":"é","city":"Oslo","days":[1,2]}'))
    for other in (
        '{"city": "Oslo", "days": [2, 1], "note": "é"}',
        '{"city":"Oslo"}',
        '{"city"',
        "",
        None,
        {"city": "Oslo"},
    ):
        assert not same(asked, _call(other))
    assert not same(_call('"x"'), _call("x"))
    assert not same(_call('{"a'), _call('{"a '))


def test_numbers_count_by_their_value_and_opaque_items_whole() -> None:
    one, other = (parse_item(b'{"type":"unknown","id":"1","n":%b}' % number) for number in (b"1", b"1.0e0"))
    assert same(one, other)
    assert not same(one, parse_item(b'{"type":"unknown","id":"2","n":1}'))
    huge = [parse_item(b'{"role":"user","content":"","n":%b}' % n) for n in (b"9007199254740993", b"9007199254740992")]
    assert not same(*huge)


def test_a_cut_call_that_was_answered_is_not_the_one_that_was_not() -> None:
    cut = item({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{", "status": "incomplete"})
    assert not same(cut, replace(cut, unfinished=False))


@given(value=json_values("type", "role", "content", "output", "id", "status"))
def test_any_json_has_a_form(value: Any) -> None:
    canonical(Item("message", json.dumps(value).encode(), "user"))


@pytest.mark.parametrize("raw", [b'{"content":"\\ud800"}', b"[" * 100_000, b"nonsense", b'{"content":1e999}'])
def test_what_cannot_be_read_counts_as_it_is(raw: bytes) -> None:
    assert canonical(Item("message", raw, "user")) == raw


@pytest.mark.parametrize("kind", [b"message", b"unknown"])
def test_what_is_nested_too_deeply_counts_as_it_is(kind: bytes) -> None:
    raw = b'{"type":"%b","content":[{"v":%b}]}' % (kind, b"[" * 950 + b"]" * 950)
    assert canonical(Item(kind.decode(), raw)) == raw


def test_no_two_items_of_one_request_of_the_corpus_are_taken_for_one_another() -> None:
    for path in corpus.cases("requests"):
        items = corpus.create_of(json.loads(path.read_text())).items
        for one in items:
            alike = [other for other in items if same(one, other)]
            assert all(json.loads(one.raw).get("role") == json.loads(other.raw).get("role") for other in alike)


def test_a_prefix_is_the_order_of_its_items() -> None:
    one, other = b"1" * 16, b"2" * 16
    assert list(rolled([one, other])) != list(rolled([other, one]))
    first, second = rolled([one, other])
    assert list(rolled([other], first)) == [second]


def test_the_table_in_the_documents_is_the_code() -> None:
    for heading, names in (
        ("members of an item dropped", digest.DROPPED),
        ("members of a part dropped", digest.DROPPED_OF_PARTS),
        ("members that are JSON in a text", digest.WRITTEN),
        ("statuses that count", digest.TELLING),
        ("a text or its one part", digest.SAID),
        ("types of a text", digest.TEXTS),
        ("items that are read", digest.READ),
    ):
        [line] = re.findall(rf"^\| {heading} \| (.*?) \|$", CACHES, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", line)) == names
