"""What the upstreams do: whether they are there, what they carry, how fast they are, what they reuse."""

from __future__ import annotations

from dashboards.kit import ENDPOINT, HERE, MODEL, RATE, Choice, Page, Panel, Query, Row, rate, total


def page() -> Page:
    """The page."""
    return Page(
        "upstreams",
        "Upstreams",
        "Endpoints: health, load, failures, speed, tokens, and what was passed on.",
        (health(), speed(), translation()),
        (
            Choice("endpoint", "loopline_turn_ended_total"),
            Choice("model", "loopline_turn_ended_total"),
        ),
    )


def health() -> Row:
    """Whether they answer, and what they carry."""
    return Row(
        "Health and load",
        (
            Panel(
                "Which endpoints answer?",
                "How the last attempt went: 1 answered, 0 could not be reached, broke off, or said that it cannot "
                "serve. The lowest of all instances; without traffic it stays as it was.",
                "short",
                (Query(f"min by (endpoint) (loopline_upstream_up{{{ENDPOINT}}})", "{{endpoint}}"),),
                width=8,
                maximum=1,
            ),
            Panel(
                "How many turns does each endpoint carry?",
                "Turns that run there now.",
                "suffix:turns",
                (Query(total("loopline_upstream_in_flight", "endpoint", ENDPOINT), "{{endpoint}}"),),
                "stacked",
                width=8,
            ),
            Panel(
                "What fails upstream?",
                "Failures a second by endpoint and kind.",
                "suffix:failures/s",
                (
                    Query(
                        rate("loopline_upstream_errors_total", "endpoint, kind", ENDPOINT),
                        "{{endpoint}} {{kind}}",
                    ),
                ),
                "stacked",
                width=8,
            ),
            Panel(
                "How many requests does each endpoint get?",
                "Requests of turns a second, those that failed too. More than one a turn means that kept connections "
                "were found dead.",
                "reqps",
                (Query(rate("loopline_upstream_attempts_total", "endpoint", ENDPOINT), "{{endpoint}}"),),
                width=8,
            ),
            Panel(
                "How much is sent to each endpoint?",
                "Bodies of turns, bytes a second.",
                "Bps",
                (Query(rate("loopline_upstream_sent_bytes_total", "endpoint", ENDPOINT), "{{endpoint}}"),),
                width=8,
            ),
            Panel(
                "How long does connecting take?",
                "95th percentile of turns that had to wait for a connection; those that found a kept one are not in "
                "it.",
                "s",
                (
                    Query(
                        "histogram_quantile(0.95, sum by (le) (rate("
                        f'loopline_turn_part_seconds_bucket{{{HERE}, part="connect"}}[{RATE}])))',
                        "p95",
                    ),
                ),
                width=8,
            ),
        ),
    )


def speed() -> Row:
    """How fast they are, and what they count."""
    return Row(
        "Speed and tokens",
        (
            Panel(
                "Which model is slow to start?",
                "Time to the first token, 95th percentile, by endpoint and model.",
                "s",
                (_p95("loopline_turn_first_token_seconds"),),
            ),
            Panel(
                "Which model is slow to go on?",
                "Mean time between the tokens of a turn, 95th percentile of turns, by endpoint and model.",
                "s",
                (_p95("loopline_turn_token_interval_seconds"),),
            ),
            Panel(
                "How many tokens go in and out?",
                "Tokens a second as upstreams counted them; `cached` are part of `input`.",
                "suffix:tokens/s",
                (Query(rate("loopline_turn_tokens_total", "direction", MODEL), "{{direction}}"),),
            ),
            Panel(
                "How much of the input was in the upstream's own cache?",
                "Cached tokens of input tokens, by endpoint and model. 0 as well where a server does not tell.",
                "percentunit",
                (
                    Query(
                        rate("loopline_turn_tokens_total", "endpoint, model", MODEL + ', direction="cached"')
                        + " / "
                        + rate("loopline_turn_tokens_total", "endpoint, model", MODEL + ', direction="input"'),
                        "{{endpoint}} {{model}}",
                    ),
                ),
                maximum=1,
            ),
        ),
    )


def translation() -> Row:
    """What could not be told, and what was passed on undecoded."""
    return Row(
        "Translation and passthrough",
        (
            Panel(
                "What could upstreams not be told?",
                "Things left out of requests, and calls that were not allowed, a second. The log names them "
                "(`left_out`).",
                "suffix:things/s",
                (Query(rate("loopline_translate_left_out_total", "what"), "{{what}}"),),
                "stacked",
            ),
            Panel(
                "What became of requests that were passed on?",
                "Requests to other paths under /v1 a second, by outcome and class of status.",
                "reqps",
                (Query(rate("loopline_passthrough_total", "outcome, status"), "{{outcome}} {{status}}"),),
                "stacked",
            ),
        ),
    )


def _p95(family: str) -> Query:
    buckets = rate(f"{family}_bucket", "le, endpoint, model", MODEL)
    return Query(f"histogram_quantile(0.95, {buckets})", "{{endpoint}} {{model}}")
