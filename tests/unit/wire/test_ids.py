import os
import re

import pytest

from proxy.wire import ids


def test_an_id_is_ours_and_short_enough_for_clients() -> None:
    made = ids.response_id()
    assert re.fullmatch(r"resp_lp1[0-9a-z]{4}[0-9a-f]{40}", made)
    assert len(made) <= 64
    assert ids.is_ours(made)


def test_ids_never_repeat() -> None:
    assert len({ids.response_id() for _ in range(1000)}) == 1000


def test_a_chain_shares_its_root_and_nothing_else() -> None:
    first = ids.response_id()
    second = ids.response_id(first)
    third = ids.response_id(second)
    assert first[12:20] == second[12:20] == third[12:20]
    assert len({ids.seed(each) for each in (first, second, third)}) == 3


@pytest.mark.parametrize("parent", [None, "", "resp_68a1", "resp_lp1" + "0" * 43, "x" * 10_000])
def test_a_parent_that_is_not_ours_gives_a_new_root(parent: str | None) -> None:
    assert ids.is_ours(ids.response_id(parent))


@pytest.mark.parametrize(
    "mangle", [str.upper, lambda s: s + "\n", lambda s: s[:-1], lambda s: s + "0", lambda s: " " + s]
)
def test_only_the_exact_form_is_ours(mangle: object) -> None:
    assert callable(mangle)
    assert not ids.is_ours(mangle(ids.response_id()))


def test_the_worker_can_be_read_from_the_id() -> None:
    assert ids.response_id(worker="0a9z")[8:12] == "0a9z"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_two_processes_never_mint_the_same_ids() -> None:
    ids.response_id()  # random bits are at hand, which a child would inherit
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "\n".join(ids.response_id() for _ in range(300)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        theirs = set(told.read().split())
    os.waitpid(child, 0)
    assert len(theirs) == 300
    assert not theirs & {ids.response_id() for _ in range(300)}
