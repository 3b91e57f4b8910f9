"""The files in config/ that a deployment starts from: valid, accepted by Loopline, and in agreement with it."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec.models import ComposeSpecification

from proxy.settings import Settings, load

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
DEFAULTS = load(None, {}, {})
GRACE_S = DEFAULTS.server.drain_grace_s
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((CONFIG / "kubernetes.yaml").read_text()))
COMPOSE: dict[str, Any] = yaml.safe_load((CONFIG / "compose.yaml").read_text())
UNIT = (CONFIG / "loopline.service").read_text()
SIZES = {"g": 2**30, "Gi": 2**30}


def manifest(kind: str) -> dict[str, Any]:
    """The one manifest of a kind."""
    (found,) = [each for each in MANIFESTS if each["kind"] == kind]
    return found


def read(environment: Mapping[str, str], secrets: Path) -> Settings:
    """The settings of an environment whose files lie in a folder of secrets."""
    moved = {name: re.sub(r"^/(etc/loopline|run/secrets)", str(secrets), text) for name, text in environment.items()}
    return load(None, {}, moved)


def bytes_of(text: str) -> int:
    """`5Gi` in bytes."""
    number, unit = re.fullmatch(r"(\d+)([a-zA-Z]+)", text).groups()  # type: ignore[union-attr]
    return int(number) * SIZES[unit]


def fits(settings: Settings, limit: str) -> bool:
    """Do the counted bytes, and half as much again, stay below the process's limit?"""
    counted = settings.limits.memory_bytes + settings.store.memory_bytes + settings.prefix.memory_bytes + 160 * 2**20
    return counted * 1.5 + 100 * 2**20 < bytes_of(limit)


@pytest.mark.parametrize("document", MANIFESTS, ids=lambda document: str(document["kind"]))
def test_a_manifest_is_one(document: dict[str, Any]) -> None:
    for version in ("1.30", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_manifests_are_accepted_and_agree_with_each_other(tmp_path: Path) -> None:
    key = base64.b64encode(bytes(32)).decode()
    (tmp_path / "sealing-keys").write_text(f"k1:{key}\n")
    (tmp_path / "tenant-secret").write_text(f"{key}\n")
    settings = read(manifest("ConfigMap")["data"], tmp_path)
    pod = manifest("Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": settings.server.port, "admin": settings.server.admin_port}
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(settings.server.admin_port)
    pause_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > settings.server.drain_grace_s + pause_s
    probe = container["readinessProbe"]
    assert pause_s > probe["periodSeconds"] * probe["failureThreshold"], "it drains before it is out of the Service"
    assert fits(settings, container["resources"]["limits"]["memory"])
    labels = pod["metadata"]["labels"]
    assert manifest("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert [port["targetPort"] for port in manifest("Service")["spec"]["ports"]] == ["http"]


def test_the_images_user_is_the_manifests() -> None:
    (user,) = re.findall(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert manifest("Deployment")["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == int(user)


def test_the_compose_file_is_one_and_is_accepted(tmp_path: Path) -> None:
    ComposeSpecification.model_validate(COMPOSE)
    service = COMPOSE["services"]["loopline"]
    environment = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", text) for name, text in service["environment"].items()}
    settings = read({**environment, "LOOPLINE_HOST": "0.0.0.0"}, tmp_path)
    assert fits(settings, service["mem_limit"])
    assert int(service["stop_grace_period"].rstrip("s")) > settings.server.drain_grace_s
    assert service["ports"] == [f"127.0.0.1:8780:{settings.server.port}"]
    assert set(service["secrets"]) == set(COMPOSE["secrets"])
    assert {volume.partition(":")[0] for volume in service["volumes"]} == set(COMPOSE["volumes"])
    for path in (service["build"], Path(COMPOSE["secrets"]["keys"]["file"]).parent):
        assert (CONFIG / path / "Dockerfile").is_file()


def test_the_unit_leaves_time_to_drain() -> None:
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(stop_s) > GRACE_S
    (state,) = re.findall(r"^Environment=LOOPLINE_STATE_FOLDER=/var/lib/(\w+)$", UNIT, re.MULTILINE)
    assert f"\nStateDirectory={state}\n" in UNIT


def test_the_unit_is_one(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "loopline.service"
    unit.write_text(UNIT.replace("/opt/loopline/bin/loopline", "/bin/true"))
    done = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "loopline.service" in line]


@pytest.mark.parametrize(
    ("name", "pattern", "least_s"),
    [
        ("nginx.conf", r"proxy_read_timeout (\d+)s", DEFAULTS.server.lifetime_s),
        ("nginx.conf", r"client_body_timeout (\d+)s", DEFAULTS.server.receive_s),
        ("haproxy.cfg", r"timeout tunnel +(\d+)s", DEFAULTS.server.lifetime_s),
        ("haproxy.cfg", r"timeout server +(\d+)s", DEFAULTS.upstream.first_byte_timeout_s),
        ("haproxy.cfg", r"timeout http-request +(\d+)s", DEFAULTS.server.head_s),
        ("Caddyfile", r"response_header_timeout (\d+)s", DEFAULTS.upstream.first_byte_timeout_s),
    ],
)
def test_a_proxy_is_as_patient_as_loopline(name: str, pattern: str, least_s: float) -> None:
    (found,) = re.findall(pattern, (CONFIG / name).read_text())
    assert int(found) >= least_s
