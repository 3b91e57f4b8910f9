"""What `loopline bench` is asked for; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .plan import SCENES, Plan, on_a_real_engine, quick
from .turns import BenchError

DIALECTS = ("chat", "responses")
_ANSWER_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Other:
    """Another server to measure: `NAME=URL[,PID]`, or `URL[,PID]`. `pid` 0 is not known."""

    name: str
    url: str
    pid: int = 0

    @classmethod
    def parse(cls, text: str, *, name: str = "") -> Other:
        """Raises BenchError. With a `name` the text has none."""
        given, equals, rest = text.partition("=") if not name else (name, "=", text)
        url, _, pid = rest.partition(",")
        if not (equals and given.strip() and "://" in url and (pid.isdigit() or "," not in rest)):
            wanted = "URL[,PID]" if name else "NAME=URL[,PID]"
            raise BenchError(
                f"{text!r} is not {wanted}, for example {'' if name else 'other='}http://127.0.0.1:4100/v1,1234"
            )
        return cls(given.strip(), url.rstrip("/"), int(pid or 0))


@dataclass(frozen=True, slots=True)
class Options:
    """One run. Without `upstream` and `target` the bench brings its own upstream and its own Loopline.

    `dialects` are those of the upstream that Loopline is measured in; `auto` is for a user's own.
    """

    scenes: tuple[str, ...] = SCENES
    target: Other | None = None
    upstream: str = ""
    model: str = ""
    dialects: tuple[str, ...] = ("chat",)
    api_key_env: str = ""
    versus: tuple[Other, ...] = ()
    quick: bool = False
    plan: Plan = field(default_factory=Plan)
    json: Path | None = None
    html: Path | None = None
    svg: Path | None = None

    def __post_init__(self) -> None:
        for scene in self.scenes:
            if scene not in SCENES:
                raise ValueError(f"there is no scene {scene!r}: choose from {', '.join(SCENES)}")
        if not self.scenes:
            raise ValueError(f"no scene is left: choose from {', '.join(SCENES)}")
        if self.target and self.upstream:
            raise ValueError("--target is a Loopline that runs, --upstream starts one: leave one of them out")
        if self.target and self.scenes == ("observability",):
            raise ValueError("observability sets a Loopline that the bench starts against itself: leave out --target")
        if not self.played:
            raise ValueError("rates needs the bench's own upstream: leave out --target and --upstream")
        if not 1 <= self.plan.idle_sockets <= 10_000:
            raise ValueError("--sockets must be 1 to 10000")

    @property
    def own_upstream(self) -> bool:
        """Whether answers are made to order: only the bench's own upstream does that."""
        return not self.upstream and not self.target

    @property
    def played(self) -> tuple[str, ...]:
        """Those of `scenes` that can be: `rates` needs the bench's own upstream, observability its own Loopline."""
        plan = self.sized()
        return tuple(
            scene for scene in self.scenes if plan.turns(scene) and not (self.target and scene == "observability")
        )

    def sized(self) -> Plan:
        """The plan of this run."""
        plan = self.plan if self.own_upstream else on_a_real_engine(self.plan, _ANSWER_TOKENS)
        return quick(plan) if self.quick else plan
