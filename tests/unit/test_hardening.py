"""What confines a daemon where it is installed: the unit, containers, pods, the image's downloads."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
EXPOSURE_MAX: Final = 2.0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_unit_is_exposed_little() -> None:
    units = sorted((ROOT / "deploy").glob("*.service"))
    assert units
    for unit in units:
        ran = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", ran.stdout)
        assert found is not None, ran.stderr
        assert float(found[1]) <= EXPOSURE_MAX, ran.stdout


def test_compose_containers_are_confined() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    shared = text[text.index("x-node: &node") : text.index("\nservices:")]
    for line in (
        'user: "7400:7400"',
        "read_only: true",
        "cap_drop: [ALL]",
        "no-new-privileges:true",
    ):
        assert line in shared
    services = text[text.index("\nservices:") :]
    assert services.count("<<: *node") == len(re.findall(r"^  node\d+:", services, re.MULTILINE))
    assert "privileged" not in services
    assert ":/run/secrets:ro" in shared, "a mounted file would not be seen when it is replaced"


def test_pods_are_restricted() -> None:
    text = (ROOT / "deploy" / "kubernetes.yaml").read_text()
    for line in (
        "runAsNonRoot: true",
        "runAsUser: 7400",
        "seccompProfile: {type: RuntimeDefault}",
        "allowPrivilegeEscalation: false",
        "readOnlyRootFilesystem: true",
        "capabilities: {drop: [ALL]}",
        "automountServiceAccountToken: false",
    ):
        assert line in text, line


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_image_downloads_what_has_a_known_hash(name: str) -> None:
    lines_of = (ROOT / "deploy" / "Dockerfile").read_text().split("\n")
    dockerfile = "\n".join(line for line in lines_of if not line.startswith("#"))
    for command in re.findall(r"-m pip (?:wheel|install)[^;]*;", dockerfile):
        assert "--require-hashes" in command or "--no-deps --no-build-isolation" in command, command
    assert f"deploy/{name}" in dockerfile
    pinned = (ROOT / "deploy" / name).read_text().split("\n")
    lines = [line for line in pinned if line and not line.startswith("#")]
    for at, line in enumerate(lines):
        if not line.startswith(" "):
            assert re.fullmatch(r"[a-z]+==[0-9.]+ \\", line), line
            assert "--hash=sha256:" in lines[at + 1]


def test_security_page_names_tests_that_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    assert len(files) >= 10
    for file in sorted(files):
        assert (ROOT / file).exists(), file
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in sources, name
