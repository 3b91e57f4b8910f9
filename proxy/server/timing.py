"""What an HTTP answer says of its own time, with the numbers of the log line and of the metrics. Pure."""

from __future__ import annotations

from proxy.telemetry.observer import TurnRecord

_ONLY_WHOLE = frozenset({"store", "send"})


def timing_headers(record: TurnRecord, now: float) -> dict[str, str]:
    """`Server-Timing`, the response's id, and the milliseconds that were ours, until `now`.

    At the head of a stream the upstream's part is what it took until it accepted; a whole answer tells every part.
    """
    whole = record.ended_s is not None
    stages = record.stages(now)
    parts = [
        f"{name};dur={_ms(took_s)}"
        for name, took_s in zip(stages._fields, stages, strict=True)
        if took_s and (whole or name not in _ONLY_WHOLE)
    ]
    total_s = sum(stages)
    if whole:
        parts.append(f"total;dur={_ms(total_s)}")
    return {
        "Server-Timing": ", ".join(parts),
        "x-loopline-response-id": record.response,
        "x-loopline-overhead-ms": _ms(total_s - stages.upstream - stages.stall),
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"
