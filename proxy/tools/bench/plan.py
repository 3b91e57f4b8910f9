"""How much each scene does: in full, quickly, or on a real engine, which takes its time for every token; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

MB = 1_000_000
DEEP_BYTES = (10_000, 100_000, 1_000_000, 4_000_000)


@dataclass(frozen=True, slots=True)
class Loop:
    """The agent loop and its link. History grows from `history_kb[0]` to `history_kb[1]`, 1,000 bytes each."""

    tool_calls: int = 30
    history_kb: tuple[int, int] = (200, 1000)
    rtt_ms: float = 40.0
    up_mbit_s: float = 20.0
    down_mbit_s: float = 100.0
    tool_ms: float = 20.0
    ttft_ms: int = 30
    answer_tokens: int = 60

    def __post_init__(self) -> None:
        start, end = self.history_kb
        if not 1 <= self.tool_calls <= 1000:
            raise ValueError("--tool-calls must be 1 to 1000")
        if not 1 <= start < end:
            raise ValueError("--history-kb must be two numbers like 200..1000, the second the larger")
        if min(self.rtt_ms, self.up_mbit_s, self.down_mbit_s) < 0:
            raise ValueError("--rtt-ms, --up-mbit and --down-mbit must not be negative")

    @property
    def result_bytes(self) -> int:
        """What one tool call adds."""
        start, end = self.history_kb
        return 1000 * (end - start) // self.tool_calls


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and counts of every scene. `answer_tokens` bounds a real engine's answers; 0: the bench's own upstream."""

    warm_up: int = 20
    chain_turns: int = 40
    chain_repeats: int = 5
    text_bytes: int = 4000
    deep_bytes: tuple[int, ...] = DEEP_BYTES
    deep_turns: int = 20
    depths: tuple[int, ...] = (10, 100, 1000)
    # Tokens in an answer, and how many answers.
    batched: tuple[tuple[int, int], ...] = ((100, 50), (5000, 4))
    one_a_write: tuple[tuple[int, int], ...] = ((100, 50), (5000, 4))
    sessions: int = 64
    session_turns: int = 15
    session_tokens: int = 50
    idle_sockets: int = 1000
    idle_turns: bool = True
    idle_s: float = 3.0
    rate_streams: tuple[int, ...] = (1, 10, 20, 40, 60, 80, 120, 160)
    rate_s: float = 2.0
    burst_s: float = 1.0
    observed_starts: int = 3
    observed_rounds: int = 15
    observed_turns: int = 40
    loop: Loop = field(default_factory=Loop)
    answer_tokens: int = 0
    # How often each scene is played, the contestants taking turns.
    rounds: Mapping[str, int] = field(default_factory=dict)

    @property
    def own_upstream(self) -> bool:
        """Whether answers are made to order."""
        return self.answer_tokens == 0

    def turns(self, scene: str) -> int:
        """The turns of one contestant in all rounds of a scene."""
        return TURNS[scene](self) * self.rounds.get(scene, 1)


def quick(plan: Plan) -> Plan:
    """Seconds instead of minutes: enough to see that everything works."""
    start, end = plan.loop.history_kb
    return replace(
        plan,
        warm_up=3,
        rounds={scene: min(2, rounds) for scene, rounds in plan.rounds.items()},
        chain_turns=min(10, plan.chain_turns),
        chain_repeats=1,
        deep_bytes=plan.deep_bytes[:2],
        deep_turns=min(4, plan.deep_turns),
        depths=plan.depths[:1],
        batched=((100, 4), (1000, 1)) if plan.own_upstream else plan.batched,
        one_a_write=((100, 4),) if plan.own_upstream else (),
        sessions=min(8, plan.sessions),
        session_turns=3,
        idle_sockets=min(50, plan.idle_sockets),
        idle_s=0.5,
        rate_streams=plan.rate_streams[:2],
        rate_s=0.5,
        burst_s=min(0.25, plan.burst_s),
        observed_starts=1,
        observed_rounds=min(5, plan.observed_rounds),
        observed_turns=min(4, plan.observed_turns),
        loop=replace(
            plan.loop, tool_calls=min(4, plan.loop.tool_calls), history_kb=(start, start + (end - start) // 8)
        ),
    )


def on_a_real_engine(plan: Plan, answer_tokens: int) -> Plan:
    """Few tokens, fewer turns, histories that fit a context of 16,000 tokens."""
    loop = plan.loop
    if loop == Loop():
        loop = replace(loop, tool_calls=8, history_kb=(4, 20))
    return replace(
        plan,
        warm_up=1,
        chain_turns=10,
        chain_repeats=1,
        text_bytes=400,
        deep_bytes=(5_000, 20_000) if plan.deep_bytes == DEEP_BYTES else plan.deep_bytes,
        deep_turns=3,
        depths=(5,),
        batched=((answer_tokens * 4, 3),),
        one_a_write=(),
        sessions=8,
        session_turns=2,
        session_tokens=answer_tokens,
        idle_turns=False,
        rate_streams=(),
        burst_s=0.0,
        observed_starts=1,
        observed_rounds=3,
        observed_turns=3,
        loop=loop,
        answer_tokens=answer_tokens,
    )


# What a scene takes, in turns of one contestant: for the progress bar. In the order in which they run: memory that
# other scenes have freed would hide what a socket takes.
TURNS: Mapping[str, Callable[[Plan], int]] = {
    "idle": lambda plan: plan.idle_sockets * (1 + plan.idle_turns + plan.idle_turns),
    "chain": lambda plan: plan.chain_turns * plan.chain_repeats,
    "deep": lambda plan: (
        len(plan.deep_bytes) * (plan.deep_turns + 1) + sum(depth + plan.deep_turns for depth in plan.depths)
    ),
    "stream": lambda plan: sum(turns for _, turns in (*plan.batched, *plan.one_a_write)),
    "many": lambda plan: plan.sessions * plan.session_turns,
    "rates": lambda plan: (plan.burst_s > 0) + sum(plan.rate_streams),
    "agent-loop": lambda plan: plan.loop.tool_calls + 1,
    "observability": lambda plan: (
        (2 + plan.own_upstream) * plan.observed_starts * plan.observed_rounds * plan.observed_turns
    ),
}
SCENES = tuple(TURNS)
# A socket's memory counts in a process that had none before, an agent loop takes as long as many rounds, and
# observability has rounds of its own.
IN_ROUNDS = tuple(scene for scene in SCENES if scene not in ("idle", "agent-loop", "observability"))
