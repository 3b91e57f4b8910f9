"""Any bytes from a client or an upstream: what was captured, with things wrong, and what nobody would send."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import harness, seeds

# What is drawn is one number: the events are as long as real ones, and shrinking them takes longer than reading them.
RANDOMS = st.integers(0, 2**64).map(Random)
EXAMPLES = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])


@given(RANDOMS)
@EXAMPLES
def test_a_request_with_things_wrong_is_carried_or_refused(random: Random) -> None:
    harness.one_request(seeds.mutated(random.choice(seeds.requests()), seeds.requests(), random))


@given(RANDOMS, st.sampled_from(["chat", "responses"]))
@EXAMPLES
def test_a_stream_with_things_wrong_is_told_or_fails_by_name(random: Random, dialect: str) -> None:
    streams = seeds.answers()[dialect]
    sent = seeds.mutated(random.choice(streams), streams, random)
    harness.one_stream(seeds.heads(dialect, random) + sent)


@given(st.binary(max_size=200), st.binary(max_size=200))
@EXAMPLES
def test_any_bytes_are_told_or_fail_by_name(request: bytes, stream: bytes) -> None:
    harness.one_request(request)
    harness.one_stream(stream)
