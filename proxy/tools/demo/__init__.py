"""One agent loop, sent in two ways over one simulated link: what Loopline saves, and where the rest of the time goes.

    report = await run(Options(turns=20, rtt_ms=40, up_mbit_s=20))
    print(render(report))

Client → link → Loopline → upstream, all in this process; only the way of sending differs. See `docs/demo.md`.

    options, agent     what is asked for; the agent and its tool          pure
    accounting         where the time of a run went                       pure
    report             the table and the JSON                             pure
    client             the two ways of sending                            I/O
    running, command   starts everything, runs both; the command          I/O
"""

from .accounting import Report, Run
from .client import DemoError
from .command import main
from .options import Options
from .report import render, to_json
from .running import Progress, run

__all__ = ["DemoError", "Options", "Progress", "Report", "Run", "main", "render", "run", "to_json"]
