"""Where the time of an agent's loop goes, and what a WebSocket saves of it."""

from __future__ import annotations

from dashboards.kit import HERE, MODEL, Choice, Page, Panel, Query, Row, percentiles, rate

_STAGES = "loopline_loop_stage_seconds"
_PARTS = "loopline_turn_part_seconds"
_OURS = HERE + ', part!~"upstream|stall"'
_ROUNDS = rate(f"{_STAGES}_count", where=HERE + ', stage="upstream"')
_LOOP = HERE + ', stage!="idle"'
_SAVED_IN_ALL = f"sum (increase(loopline_turn_history_saved_bytes_total{{{HERE}}}[$__range]))"
_SENT_IN_ALL = f'sum (increase(loopline_turn_bytes_total{{{HERE}, transport="websocket", direction="in"}}[$__range]))'
_SAVED = rate("loopline_turn_history_saved_bytes_total")


def page() -> Page:
    """The page."""
    return Page(
        "agent-loop",
        "Agent loop",
        "Of each round of an agent's loop: what the client took for its tools, what Loopline took, what the upstream "
        "took, and what clients did not have to send.",
        (loop(), tokens(), saved()),
        (
            Choice("endpoint", "loopline_turn_ended_total"),
            Choice("model", "loopline_turn_ended_total"),
        ),
    )


def loop() -> Row:
    """Three stages, and our own parts."""
    return Row(
        "The loop",
        (
            Panel(
                "Where does the time of a round go?",
                "Mean seconds of a round of the loop by stage: `client` runs tools (or makes no room for events), "
                "`proxy` is Loopline, `upstream` the model. The stack's height is the time from one turn's end to the "
                "next one's. Time that a person takes between answers is not in it.",
                "s",
                (
                    Query(
                        f"{rate(f'{_STAGES}_sum', 'stage', _LOOP)} / on () group_left () {_ROUNDS}",
                        "{{stage}}",
                    ),
                ),
                "stacked",
            ),
            Panel(
                "Which of our own parts takes the time?",
                "Mean seconds of a turn in each part that is Loopline's. `queue` and `connect` are waits: for the "
                "lane's turn before, for a connection. docs/metrics.md says what each part is.",
                "s",
                (Query(f"{rate(f'{_PARTS}_sum', 'part', _OURS)} / on () group_left () {_ROUNDS}", "{{part}}"),),
                "stacked",
            ),
            Panel(
                "What does Loopline add to a turn?",
                "All parts that are ours, waits included, per turn. Alerts count turns above 25 ms.",
                "s",
                percentiles(_STAGES, HERE + ', stage="proxy"'),
                width=8,
            ),
            Panel(
                "What share of the loop is whose?",
                "Each stage's share of all rounds' time.",
                "percentunit",
                (
                    Query(
                        f"{rate(f'{_STAGES}_sum', 'stage', _LOOP)} / on () group_left () "
                        f"{rate(f'{_STAGES}_sum', where=_LOOP)}",
                        "{{stage}}",
                    ),
                ),
                "stacked",
                width=8,
                maximum=1,
            ),
            Panel(
                "How do turns end?",
                "Turns a second by outcome, warm-ups included. `refused`: no response began.",
                "suffix:turns/s",
                (Query(rate("loopline_turn_ended_total", "outcome", MODEL), "{{outcome}}"),),
                "stacked",
                width=8,
            ),
        ),
    )


def tokens() -> Row:
    """How fast answers come."""
    return Row(
        "Answers",
        (
            Panel(
                "How long until the first token?",
                "From the create's arrival to the first output.",
                "s",
                percentiles("loopline_turn_first_token_seconds", MODEL, exemplars=True),
                width=8,
            ),
            Panel(
                "How long does a turn take?",
                "From the create's arrival to the terminal event.",
                "s",
                percentiles("loopline_turn_duration_seconds", MODEL, exemplars=True),
                width=8,
            ),
            Panel(
                "How long between two tokens?",
                "The mean of each turn, one observation a turn.",
                "s",
                percentiles("loopline_turn_token_interval_seconds", MODEL),
                width=8,
            ),
        ),
    )


def saved() -> Row:
    """What clients did not have to send."""
    return Row(
        "What the WebSocket saves",
        (
            Panel(
                "What share of the history did clients not send?",
                "Of the bytes of requests over WebSockets, history included: those that Loopline had kept.",
                "percentunit",
                (Query(f"{_SAVED_IN_ALL} / ({_SAVED_IN_ALL} + {_SENT_IN_ALL})", "saved"),),
                "number",
                width=4,
            ),
            Panel(
                "How much was saved in this time?",
                "Bytes of history sent upstream that no client had to send, over the time shown.",
                "bytes",
                (Query(_SAVED_IN_ALL, "saved"),),
                "number",
                width=4,
            ),
            Panel(
                "How do sent and saved compare?",
                "Bytes a second: what clients sent and were sent, by transport, and the history that they did not "
                "have to send.",
                "Bps",
                (
                    Query(rate("loopline_turn_bytes_total", "transport, direction"), "{{transport}} {{direction}}"),
                    Query(_SAVED, "saved"),
                ),
                width=8,
            ),
            Panel(
                "How many turns come over a WebSocket?",
                "Turns a second by transport.",
                "suffix:turns/s",
                (Query(rate("loopline_turn_ended_total", "transport", MODEL), "{{transport}}"),),
                "stacked",
                width=8,
            ),
        ),
    )
