"""Who is connected, what runs, what was refused and why."""

from __future__ import annotations

from dashboards.kit import HERE, Page, Panel, Query, Row, rate, total


def page() -> Page:
    """The page."""
    return Page(
        "sessions-and-limits",
        "Sessions and limits",
        "WebSockets, lanes and turns now, how they end, and what limits refuse.",
        (now(), use(), refused()),
    )


def now() -> Row:
    """What is open and runs."""
    return Row(
        "Now",
        (
            Panel(
                "Which versions run?",
                "Instances by version.",
                "suffix:instances",
                (Query(f"count by (version) (loopline_build_info{{{HERE}}})", "{{version}}"),),
                "number",
                width=6,
            ),
            Panel(
                "How many WebSockets are open?",
                "All instances.",
                "suffix:sockets",
                (Query(total("loopline_session_open"), "open"),),
                "number",
                width=6,
            ),
            Panel(
                "How many lanes are in use?",
                "Lanes of the WebSockets that are open.",
                "suffix:lanes",
                (Query(total("loopline_lane_open"), "in use"),),
                "number",
                width=6,
            ),
            Panel(
                "How many turns run?",
                "Over WebSocket, over HTTP and in the background.",
                "suffix:turns",
                (Query(total("loopline_turn_running"), "running"),),
                "number",
                width=6,
            ),
            Panel(
                "How did sockets, lanes and turns go up and down?",
                "All instances. Many sockets with few turns is normal: an agent's tools run in between.",
                "short",
                (
                    Query(total("loopline_session_open"), "sockets"),
                    Query(total("loopline_lane_open"), "lanes"),
                    Query(total("loopline_turn_running"), "turns"),
                ),
            ),
            Panel(
                "Why do WebSockets end?",
                "Ends a second by close code: 1000 and 1001 are clean, 1006 broke off, 1008 was a policy, 1009 too "
                "large, 1011 an error of ours, 1012 a restart.",
                "suffix:ends/s",
                (Query(rate("loopline_session_ended_total", "code"), "{{code}}"),),
                "stacked",
            ),
        ),
    )


def use() -> Row:
    """What clients make of the protocol."""
    return Row(
        "Use",
        (
            Panel(
                "Do clients warm up, fork and steer?",
                "A second: turns with `generate: false`, turns that continue another response than their lane's "
                "latest, steers that were accepted.",
                "ops",
                (
                    Query(rate("loopline_turn_warm_ups_total"), "warm-ups"),
                    Query(rate("loopline_turn_forks_total"), "forks"),
                    Query(rate("loopline_turn_steers_total"), "steers"),
                ),
            ),
            Panel(
                "Who gives turns up?",
                "Turns cancelled a second: by request, or because the client left.",
                "suffix:turns/s",
                (Query(rate("loopline_turn_cancels_total", "by"), "{{by}}"),),
                "stacked",
            ),
        ),
    )


def refused() -> Row:
    """What went wrong, by whose fault."""
    return Row(
        "Limits and errors",
        (
            Panel(
                "Which limits are hit?",
                "Refusals a second by the setting that limits.",
                "suffix:refusals/s",
                (Query(rate("loopline_limit_hits_total", "limit"), "{{limit}}"),),
                "stacked",
                width=8,
            ),
            Panel(
                "Why do turns fail?",
                "Turns that failed or were refused, a second, by kind of failure.",
                "suffix:turns/s",
                (Query(rate("loopline_turn_errors_total", "kind"), "{{kind}}"),),
                "stacked",
                width=8,
            ),
            Panel(
                "Who sends what is no HTTP?",
                "Requests a second that could not be read: scanners, or a client that speaks TLS to a plain port.",
                "reqps",
                (Query(rate("loopline_http_unreadable_total", "reason"), "{{reason}}"),),
                "stacked",
                width=8,
            ),
        ),
    )
