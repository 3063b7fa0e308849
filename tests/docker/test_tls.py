"""docker-compose.tls.yml for real: with certificates the containers join, kill and heal as without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.certificates import Root
from tests.docker.compose import SIZE, Cluster, composed, helper
from tests.docker.engine import logs_of, output_of

pytestmark = [pytest.mark.docker, pytest.mark.long]

VICTIM, WITNESS = 3, 1
DETECTION_S = 5.0
"""As without TLS: 2.5 s of silence, and as much for Docker and nine containers on two processors."""
TLS = ("docker-compose.yml", "docker-compose.tls.yml")


def certified(directory: Path) -> None:
    """A directory with certificate, key and root for each node, as the overlay mounts them."""
    root = Root(directory)
    for i in range(SIZE):
        made = root.sign(f"compose/{i}", name=f"made-{i}")
        place = directory / f"node{i}"
        place.mkdir()
        for path, name in ((made.cert, "cert.pem"), (made.key, "key.pem"), (made.ca, "ca.pem")):
            # The container's user is another one; the directory keeps this machine's users out.
            shutil.copy(path, place / name)
            (place / name).chmod(0o644)


def fingerprints(cluster: Cluster, node: int) -> set[str]:
    """What a node's links are made under."""
    status = cluster.status(node)
    assert status is not None
    return {link["key"] for link in status["links"]}


def test_containers_with_certificates_join_kill_and_heal(image: str, tmp_path: Path) -> None:
    certified(tmp_path)
    secret = tmp_path / "secrets" / "bmgd"
    secret.parent.mkdir()
    secret.write_text("0123456789abcdef" * 4 + "\n")
    secret.chmod(0o644)
    variables = {"OVERLAY_TLS": str(tmp_path)}
    with composed(image, secret, files=TLS, variables=variables) as cluster:
        cluster.settled()
        cluster.healthy()
        for node in cluster.ids:
            (key,) = fingerprints(cluster, node)
            assert key.count("+") == 1, f"node {node} has links under {key}, not secret and root"
        assert cluster.carried(0, VICTIM, b"whole", "before") == b"whole"

        began_s = cluster.kill(VICTIM)
        cluster.settled(dead=[VICTIM])
        told_s = cluster.recorded_after_s(WITNESS, VICTIM, "excluded", began_s)
        assert told_s < DETECTION_S, f"node {WITNESS} heard of it after {told_s:.3f} s"
        assert cluster.carried(VICTIM - 1, VICTIM + 1, b"over the gap", "healed") == b"over the gap"
        refused_is_who_has_no_certificate(cluster, secret)

        cluster.start(VICTIM)
        cluster.settled()
        cluster.healthy()
        assert cluster.carried(VICTIM, 0, b"back", "rejoined") == b"back"


def refused_is_who_has_no_certificate(cluster: Cluster, secret: Path) -> None:
    """A container in the victim's place with the secret, and without TLS, ends and says why."""
    options = [
        *("--network-alias", f"node{VICTIM}", "--volume", f"{secret.parent}:/run/secrets:ro"),
        *("--env", "BMGD_CLUSTER=compose", "--env", f"BMGD_SIZE={SIZE}"),
        *("--env", "BMGD_PEERS=node{id}:7400", "--env", "BMGD_SECRET_FILE=/run/secrets/bmgd"),
    ]
    with helper(cluster, *options, command=["--id", str(VICTIM)]) as intruder:
        assert output_of("docker", "wait", intruder) == "1"
        assert any("wrong tls" in line for line in logs_of(intruder)), logs_of(intruder)
    cluster.settled(dead=[VICTIM])
