"""The house rules that a reader of one file cannot see: who imports whom, who does I/O, who starts tasks.

Each rule is a function from one module's source to its breaches, so that it is itself tested on small sources.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Lower levels know nothing of higher ones. The longest matching name counts.
LEVELS = {
    "proxy": 0,  # the package itself: the version
    "proxy.errors": 0,
    "proxy.settings": 1,
    "proxy.wire": 1,
    "proxy.http_client": 1,
    "proxy.files": 1,
    "proxy.caching": 0,
    "proxy.telemetry": 1,  # the package itself: empty
    "proxy.telemetry.caches": 0,
    "proxy.telemetry.observer": 1,
    "proxy.models": 2,
    "proxy.conversation": 2,
    "proxy.rendering": 2,
    "proxy.translate": 2,
    "proxy.safety": 2,
    "proxy.access": 2,
    "proxy.upstream": 2,
    "proxy.state_folder": 2,
    "proxy.session": 3,
    "proxy.server": 4,
    "proxy.telemetry.numbers": 1,
    "proxy.telemetry.lines": 2,
    "proxy.telemetry.lag": 2,
    "proxy.telemetry.recent": 2,
    "proxy.telemetry.span_attributes": 2,
    "proxy.telemetry.writer": 1,
    "proxy.telemetry.families": 2,
    "proxy.telemetry.exposition": 2,
    "proxy.telemetry.health": 3,
    "proxy.telemetry.metrics": 4,
    "proxy.telemetry.logging": 4,
    "proxy.telemetry.tracing": 4,
    "proxy.workers": 5,
    "proxy.app": 5,
    "proxy.wiring": 5,
    "proxy.tools": 6,
    "proxy.keys_cli": 7,
    "proxy.cli": 7,
    "proxy.__main__": 8,
}
# Packages of one level do not import each other, but for these.
SIBLINGS = {
    ("proxy.translate", "proxy.models"),
    ("proxy.app", "proxy.workers"),
    ("proxy.app", "proxy.wiring"),
    ("proxy.telemetry.observer", "proxy.http_client"),
    ("proxy.caching", "proxy.telemetry.caches"),
}

IO_MODULES = {
    "aiohttp", "asyncio", "fcntl", "multiprocessing", "redis", "select", "selectors", "signal", "socket", "sqlite3",
    "ssl", "subprocess", "tempfile", "threading", "time", "uvloop", "websockets",
}  # fmt: skip
MAY_DO_IO = (
    "proxy/app.py",
    "proxy/cli.py",
    "proxy/workers.py",
    "proxy/state_folder.py",
    "proxy/files.py",
    "proxy/access/key_file.py",
    "proxy/session/turn.py",
    "proxy/session/session.py",
    "proxy/session/registry.py",
    "proxy/session/outbox.py",
    "proxy/session/reading.py",
    "proxy/session/signal.py",
    "proxy/session/stopping.py",
    "proxy/session/tasks.py",
    "proxy/upstream/aiohttp_client.py",
    "proxy/upstream/connecting.py",
    "proxy/upstream/connection.py",
    "proxy/upstream/http.py",
    "proxy/upstream/relay.py",
    "proxy/server/*",
    "proxy/telemetry/health.py",
    "proxy/telemetry/metrics.py",
    "proxy/telemetry/lag.py",
    "proxy/telemetry/writer.py",
    "proxy/telemetry/logging.py",
    "proxy/telemetry/tracing.py",
    "proxy/tools/*",
)
MAY_USE = {
    "proxy/wiring.py": {"time.monotonic", "time.time"},
    "proxy/models/cache.py": {"asyncio.Lock", "asyncio.timeout"},
    "proxy/session/portions.py": {"asyncio.Lock", "asyncio.sleep"},
    "proxy/settings/certificate.py": {  # can this pair be used?
        "ssl.SSLContext",
        "ssl.SSLError",
        "ssl.PROTOCOL_TLS_SERVER",
        "ssl.TLSVersion",
        "ssl.TLSVersion.TLSv1_2",
        "ssl.TLSVersion.TLSv1_3",
    },
    "proxy/settings/reading.py": {"ssl.create_default_context", "ssl.SSLError"},  # is the CA bundle one?
}
MAY_START_TASKS = ("proxy/session/tasks.py", "proxy/tools/*")
MAY_PRINT = ("proxy/cli.py", "proxy/keys_cli.py", "proxy/app.py", "proxy/tools/*")
MAY_IMPORT_PROMETHEUS = ("proxy/telemetry/exposition.py", "proxy/tools/*")


class Module(NamedTuple):
    """One source file. `path` is relative to the project: `proxy/wire/sse.py`."""

    path: str
    source: str

    @property
    def name(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    def is_any_of(self, globs: tuple[str, ...]) -> bool:
        return any(fnmatch(self.path, glob) for glob in globs)

    def at(self, node: ast.AST, message: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 0)}: {message}"


Rule = Callable[[Module], Iterator[str]]


def imports(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Every imported name in full: `from proxy.wire import sse` gives `proxy.wire.sse`."""
    package = module.name.split(".") if module.path.endswith("/__init__.py") else module.name.split(".")[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node, f"{stem}.{alias.name}") for alias in node.names)


def row(name: str) -> str | None:
    """The row of `LEVELS` for a module; None for one that the table does not have."""
    parts = name.split(".")
    known = next((prefix for n in range(len(parts), 0, -1) if (prefix := ".".join(parts[:n])) in LEVELS), None)
    return known if known != "proxy" or len(parts) == 1 or parts[1].startswith("__version") else None


def imports_only_downwards(module: Module) -> Iterator[str]:
    mine = row(module.name)
    if mine is None:
        yield f"{module.path}: {module.name} has no row in LEVELS: decide its level"
        return
    for node, name in imports(module):
        if name.split(".")[0] == "proxy":
            theirs = row(name)
            if theirs is None:
                yield module.at(node, f"imports {name}, which has no row in LEVELS: decide its level")
            elif not _may_import(mine, theirs):
                yield module.at(
                    node,
                    f"imports {name}: {mine} (level {LEVELS[mine]}) may not know {theirs} (level {LEVELS[theirs]})",
                )


def _may_import(mine: str, theirs: str) -> bool:
    return mine == theirs or LEVELS[theirs] < LEVELS[mine] or (mine, theirs) in SIBLINGS or theirs == "proxy"


def does_no_io(module: Module) -> Iterator[str]:
    if module.is_any_of(MAY_DO_IO):
        return
    allowed = MAY_USE.get(module.path, set())
    for node, name in imports(module):
        top = name.split(".")[0]
        if top in IO_MODULES and name not in allowed and not any(use.startswith(f"{name}.") for use in allowed):
            yield module.at(
                node, f"imports {name}: only the files of MAY_DO_IO do I/O; take `now` or a protocol instead"
            )
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and allowed:
            used = ast.unparse(node)
            if used.split(".")[0] in IO_MODULES and used not in allowed:
                yield module.at(node, f"uses {used}: of I/O it may use {', '.join(sorted(allowed))} alone")


def imports_prometheus_in_one_place(module: Module) -> Iterator[str]:
    if not module.is_any_of(MAY_IMPORT_PROMETHEUS):
        for node, name in imports(module):
            if name.split(".")[0] == "prometheus_client":
                yield module.at(node, "imports prometheus_client: report through Observer instead")


def starts_no_stray_task(module: Module) -> Iterator[str]:
    """`create_task` of a task group is fine; of asyncio or of a loop it is not."""
    if module.is_any_of(MAY_START_TASKS):
        return
    for node, name in imports(module):
        if name in ("asyncio.create_task", "asyncio.ensure_future"):
            yield module.at(node, f"imports {name}: use a TaskGroup or proxy.session.tasks")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
            owner = ast.unparse(node.value)
            if owner == "asyncio" or owner.removesuffix("()").lower().endswith("loop"):
                yield module.at(node, f"uses {owner}.{node.attr}: use a TaskGroup or proxy.session.tasks")


def explains_broad_excepts(module: Module) -> Iterator[str]:
    explained = set(_commented_lines(module.source))
    for node in ast.walk(module.tree):
        if _is_broad(node):
            line = getattr(node, "lineno", 0)
            if not {line, line - 1} & explained:
                yield module.at(node, "catches everything: name the exceptions, or say why in a comment here")


def _is_broad(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or _names_everything(node.type)
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and any(map(_names_everything, node.args))
    )


def _names_everything(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id in ("Exception", "BaseException") for part in ast.walk(node))


def _commented_lines(source: str) -> Iterator[int]:
    """Lines with a comment that is not only an instruction to a tool."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("# ")
        if token.type == tokenize.COMMENT and not text.startswith(("noqa", "type:", "pragma", "fmt:")):
            yield token.start[0]


def prints_nothing(module: Module) -> Iterator[str]:
    if module.is_any_of(MAY_PRINT):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield module.at(node, "prints: log it, or return it to the command line")


RULES: tuple[Rule, ...] = (
    imports_only_downwards,
    does_no_io,
    imports_prometheus_in_one_place,
    starts_no_stray_task,
    explains_broad_excepts,
    prints_nothing,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps(rule: Rule) -> None:
    files = sorted((ROOT / "proxy").rglob("*.py"))
    assert files, "no sources found: is the test in the right place?"
    modules = (Module(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in files)
    breaches = [breach for module in modules for breach in rule(module)]
    if breaches:
        pytest.fail("\n".join([f"{len(breaches)} breach(es) of {rule.__name__}:", *breaches]), pytrace=False)


GOOD = [
    (imports_only_downwards, "proxy/translate/chat.py", "from proxy.models.config import ModelConfig"),
    (
        imports_only_downwards,
        "proxy/translate/chat/translator.py",
        "from proxy.translate import base\nfrom proxy.wire import sse",
    ),
    (imports_only_downwards, "proxy/wire/sse.py", "from . import codec\nfrom .codec import loads"),
    (imports_only_downwards, "proxy/wire/__init__.py", "from .codec import loads"),
    (imports_only_downwards, "proxy/upstream/http.py", "import proxy.errors\nfrom proxy import __version__"),
    (imports_only_downwards, "proxy/session/turn.py", "from proxy.telemetry.observer import Observer"),
    (imports_only_downwards, "proxy/cli.py", "def serve():\n    from proxy.app import serve"),
    (does_no_io, "proxy/tools/simulate/stream.py", "import asyncio, time, socket"),
    (does_no_io, "proxy/models/cache.py", "import asyncio\nlock = asyncio.Lock()"),
    (does_no_io, "proxy/models/cache.py", "from asyncio import Lock"),
    (starts_no_stray_task, "proxy/session/turn.py", "group.create_task(f())"),
    (starts_no_stray_task, "proxy/session/tasks.py", "asyncio.create_task(f())"),
    (explains_broad_excepts, "proxy/app.py", "try: f()\nexcept Exception:  # the report must not fail\n    pass"),
    (explains_broad_excepts, "proxy/app.py", "try: f()\nexcept (KeyError, ValueError):\n    pass"),
    (prints_nothing, "proxy/cli.py", "print(1)"),
]
BAD = [
    (imports_only_downwards, "proxy/wire/sse.py", "from proxy.settings import Settings", "proxy/wire/sse.py:1: "),
    (
        imports_only_downwards,
        "proxy/models/cache.py",
        "\nfrom proxy.translate import chat",
        "proxy/models/cache.py:2: ",
    ),
    (imports_only_downwards, "proxy/upstream/pool.py", "from proxy.conversation.chain import Node", "may not know"),
    (imports_only_downwards, "proxy/session/turn.py", "from proxy.telemetry import metrics", "level 4"),
    (imports_only_downwards, "proxy/session/turn.py", "from proxy import server", "proxy.server"),
    (imports_only_downwards, "proxy/app.py", "def f():\n    import proxy.tools.simulate", "proxy.tools"),
    (imports_only_downwards, "proxy/wire/sse.py", "from ..session import turn", "imports proxy.session.turn"),
    (imports_only_downwards, "proxy/wire/__init__.py", "from ..models import cache", "imports proxy.models.cache"),
    (imports_only_downwards, "proxy/novel.py", "", "decide its level"),
    (does_no_io, "proxy/wire/sse.py", "import time", "MAY_DO_IO"),
    (does_no_io, "proxy/conversation/memory.py", "from asyncio import Lock", "MAY_DO_IO"),
    (does_no_io, "proxy/models/cache.py", "import asyncio\nasyncio.sleep(1)", "asyncio.Lock, asyncio.timeout alone"),
    (does_no_io, "proxy/models/cache.py", "from asyncio import sleep", "MAY_DO_IO"),
    (imports_prometheus_in_one_place, "proxy/session/turn.py", "from prometheus_client import Counter", "Observer"),
    (starts_no_stray_task, "proxy/session/turn.py", "asyncio.create_task(f())", "TaskGroup"),
    (starts_no_stray_task, "proxy/session/turn.py", "asyncio.get_running_loop().create_task(f())", "TaskGroup"),
    (starts_no_stray_task, "proxy/server/websocket.py", "self._loop.create_task(f())", "TaskGroup"),
    (starts_no_stray_task, "proxy/app.py", "from asyncio import ensure_future", "TaskGroup"),
    (explains_broad_excepts, "proxy/app.py", "try: f()\nexcept:\n    pass", "say why"),
    (
        explains_broad_excepts,
        "proxy/app.py",
        "try: f()\nexcept (KeyError, Exception):  # noqa: BLE001\n    pass",
        "why",
    ),
    (explains_broad_excepts, "proxy/app.py", "with contextlib.suppress(Exception): f()", "say why"),
    (prints_nothing, "proxy/session/turn.py", "print(1)", "log it"),
]


@pytest.mark.parametrize(("rule", "path", "source"), GOOD)
def test_rule_allows(rule: Rule, path: str, source: str) -> None:
    assert list(rule(Module(path, source))) == []


@pytest.mark.parametrize(("rule", "path", "source", "says"), BAD)
def test_rule_finds(rule: Rule, path: str, source: str, says: str) -> None:
    breaches = list(rule(Module(path, source)))
    assert len(breaches) == 1
    assert says in breaches[0]
