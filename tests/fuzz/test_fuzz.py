"""Any bytes from a client or an upstream: what was captured, with things wrong, and what nobody would send."""

from __future__ import annotations

from random import Random

import pytest
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


_GROWS = ("output_text", "refusal", "reasoning_text", "reasoning_summary_text", "function_call_arguments")
_KINDS = [f"{grows}.{verb}" for grows in (*_GROWS, "custom_tool_call_input") for verb in ("delta", "done")]
_KINDS += [f"{part}_part.{verb}" for part in ("content", "reasoning_summary") for verb in ("added", "done")]


@pytest.mark.parametrize("kind", [*_KINDS, "output_text.annotation.added", "output_item.added", "output_item.done"])
@pytest.mark.parametrize("broken", ['"item_id"}', '"output_index":"0","delta":"x"}', '"delta":"\\ud83d"}', '"part":{}'])
@pytest.mark.parametrize("steer_after", [0, 20])
def test_what_a_faithful_upstream_gets_wrong_within_an_item_is_its_own_affair(
    kind: str, broken: str, steer_after: int
) -> None:
    payloads = [
        '{"type":"response.created","sequence_number":0,"response":{"id":"up"}}',
        '{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"type":"message"}}',
        '{"type":"response.output_text.delta","sequence_number":3,"output_index":0,"content_index":0,"delta":"Hi"}',
        f'{{"type":"response.{kind}","sequence_number":4,{broken}',
        '{"type":"response.completed","sequence_number":5,"response":{"id":"up","status":"completed"}}',
    ]
    frames = [b"data: %b\n\n" % payload.encode() for payload in payloads]
    reads = sum(map(len, frames[:-1])) // 20 + 1 if steer_after else 0  # the 20th holds the start of the last event
    harness.one_stream(harness.head_of("openai", "responses", 0, reads, steer_after) + b"".join(frames))
