"""What is kept in memory, what it finds, and how the process is."""

from __future__ import annotations

from dashboards.kit import HERE, RATE, Page, Panel, Query, Row, percentiles, rate, total


def page() -> Page:
    """The page."""
    return Page(
        "caches-and-memory",
        "Caches and memory",
        "What caches find and let go, how near the memory budget is, and the health of the process.",
        (caches(), memory(), process()),
    )


def caches() -> Row:
    """Every cache."""
    hits, misses = rate("loopline_cache_hits_total", "cache"), rate("loopline_cache_misses_total", "cache")
    return Row(
        "Caches",
        (
            Panel(
                "How often do caches find what they are asked for?",
                "Hits of look-ups. `store`: stored responses; `catalog`: what upstreams serve; `terms` and `tools`: "
                "what clients repeat; the others: whole histories that clients send again.",
                "percentunit",
                (Query(f"{hits} / ({hits} + {misses})", "{{cache}}"),),
                width=8,
                maximum=1,
            ),
            Panel(
                "How often are caches asked?",
                "Look-ups a second.",
                "suffix:look-ups/s",
                (Query(f"{hits} + {misses}", "{{cache}}"),),
                width=8,
            ),
            Panel(
                "What do caches let go, and why?",
                "Evictions a second. `full`: to make room, so a larger bound would find more; `old`: of age.",
                "suffix:evictions/s",
                (Query(rate("loopline_cache_evictions_total", "cache, reason"), "{{cache}} {{reason}}"),),
                width=8,
            ),
            Panel(
                "How much do caches hold?",
                "Bytes, all instances.",
                "bytes",
                (Query(total("loopline_cache_bytes", "cache"), "{{cache}}"),),
                "stacked",
            ),
            Panel(
                "How many entries do caches hold?",
                "Entries, all instances.",
                "suffix:entries",
                (Query(total("loopline_cache_entries", "cache"), "{{cache}}"),),
            ),
        ),
    )


def memory() -> Row:
    """The budget, and what the system sees."""
    used, limit = f"loopline_memory_used_bytes{{{HERE}}}", f"loopline_memory_limit_bytes{{{HERE}}}"
    return Row(
        "Memory",
        (
            Panel(
                "How near is the memory budget?",
                "Used share of `limits.memory_bytes` by instance. At 1 new work gets 503.",
                "percentunit",
                (Query(f"{used} / ({limit} > 0)", "{{instance}}"),),
                width=8,
                maximum=1,
            ),
            Panel(
                "What do running turns and lanes hold?",
                "Bytes that the budget counts, and the budget.",
                "bytes",
                (Query(used, "{{instance}} used"), Query(limit, "{{instance}} budget")),
                width=8,
            ),
            Panel(
                "How much memory has the process?",
                "Resident bytes, as the system sees them: budget, caches and the interpreter.",
                "bytes",
                (Query(f"process_resident_memory_bytes{{{HERE}}} * on (instance) {_ONE}", "{{instance}}"),),
                width=8,
            ),
        ),
    )


def process() -> Row:
    """The event loop, CPU, file descriptors, errors of our own."""
    return Row(
        "The process",
        (
            Panel(
                "How late is the event loop?",
                "How late a timer fires that is set once a second: what every stream waits. Above some 10 ms the "
                "process has too much to do.",
                "s",
                percentiles("loopline_process_loop_lag_seconds", HERE),
                width=8,
            ),
            Panel(
                "How busy is the process?",
                "CPU seconds a second. A process uses one core: near 1 it needs a second one beside it.",
                "percentunit",
                (
                    Query(
                        f"rate(process_cpu_seconds_total{{{HERE}}}[{RATE}]) * on (instance) {_ONE}",
                        "{{instance}}",
                    ),
                ),
                width=8,
            ),
            Panel(
                "Do tasks end?",
                "Tasks of the event loop: a few for the process, one a WebSocket, one a running turn. A line that only "
                "rises is a leak.",
                "short",
                (Query(f"loopline_process_tasks{{{HERE}}}", "{{instance}}"),),
                width=8,
            ),
            Panel(
                "How many file descriptors are left?",
                "Open ones of those allowed. A WebSocket takes one, a turn up to one more.",
                "percentunit",
                (
                    Query(
                        f"process_open_fds{{{HERE}}} / process_max_fds{{{HERE}}} * on (instance) {_ONE}",
                        "{{instance}}",
                    ),
                ),
                width=12,
                maximum=1,
            ),
            Panel(
                "Did Loopline itself fail?",
                "Errors of Loopline's own in the time shown; each has a traceback in the log. Anything but 0 is a bug.",
                "short",
                (Query(f"sum (increase(loopline_process_crashes_total{{{HERE}}}[$__range]))", "errors"),),
                "number",
                width=12,
            ),
        ),
    )


# Keeps of process_*, which every program has, the instances that are Loopline.
_ONE = f"group_left () max by (instance) (loopline_build_info{{{HERE}}})"
