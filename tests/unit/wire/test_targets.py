"""Which request targets may be passed on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import LooplineError
from proxy.wire.targets import check_target, plain_path


@pytest.mark.parametrize(
    "target", ["/v1/files", "/v1/a.b-c_d~e", "/v1/%E4%BD?x=../..&y=//", "/v1/a%20b%2Fc", "/", "/v1/?"]
)
def test_plain_targets_pass(target: str) -> None:
    check_target("GET", target)


@pytest.mark.parametrize("layers", range(8))
@pytest.mark.parametrize("what", ["%2e", "%2E%2e", "%2f/", "%2F%2f", "%5c", "%00", "%0a", "%7f"])
def test_what_servers_read_in_two_ways_is_refused_however_often_it_is_encoded(what: str, layers: int) -> None:
    for _ in range(layers):
        what = what.replace("%", "%25")
    with pytest.raises(LooplineError, match="refused"):
        check_target("GET", f"/v1/a{what}b")


@pytest.mark.parametrize(
    "target", ["/v1/..", "/v1/.", "/v1/a//b", "/v1\\a", "/v1/é", "/v1/a#b", "v1", "*", "http://h/v1"]
)
def test_other_targets_are_refused(target: str) -> None:
    with pytest.raises(LooplineError, match="refused"):
        check_target("GET", target)


@given(st.text(alphabet="/.%\\25eEfFcCab;?#", max_size=12))
def test_a_target_that_passes_has_the_same_segments_for_every_reader(rest: str) -> None:
    target = "/v1/" + rest
    try:
        check_target("GET", target)
    except LooplineError:
        return
    segments = plain_path(target).split("/")
    assert not {".", ".."} & set(segments)
    assert "" not in segments[1:-1]
    assert "\\" not in target


def test_a_path_is_compared_decoded_in_lower_case_and_without_parameters() -> None:
    assert plain_path("/v1/%52esponses;a=b/X%2541?q") == "/v1/responses/xa"
