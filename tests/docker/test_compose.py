"""docker-compose.yml for real: join, send, kill, start again, cut off, come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmgd.topology import BinomialGraph
from tests.docker.compose import CONTROL, SIZE, Cluster, helper
from tests.docker.engine import logs_of, output_of

pytestmark = [pytest.mark.docker, pytest.mark.long]

VICTIM = 3
DETECTION_S = 2.5
"""What silence may take to be found at default settings."""
MARGIN_S = 2.5
"""For Docker to act, and for nine containers to share two processors with everything else."""
PAYLOAD = b"to be or not to be, " * 3000


def far_from(node: int) -> int:
    """A node that is more than one hop away."""
    graph = BinomialGraph(SIZE)
    return next(other for other in range(SIZE) if graph.hops(node, other) > 1)


def test_containers_become_ready_and_healthy(cluster: Cluster) -> None:
    cluster.healthy()
    shown = cluster.compose("exec", "-T", "node0", "bmgd", "status", "--control", CONTROL)
    assert shown.startswith("node 0 is ready")
    assert output_of("docker", "exec", cluster.container(0), "id", "-u") == "7400"
    status = cluster.status(0)
    assert status is not None
    assert (status["backend"], status["loop"]) == ("c", "uvloop")


def test_messages_between_containers(cluster: Cluster) -> None:
    for node in cluster.ids:
        assert cluster.carried(node, far_from(node), PAYLOAD, "far") == PAYLOAD


def test_a_killed_container_is_healed_around_and_rejoins(cluster: Cluster) -> None:
    before = cluster.status(VICTIM)
    assert before is not None
    began_s = cluster.kill(VICTIM)
    cluster.settled(dead=[VICTIM])
    for witness in set(cluster.ids) - {VICTIM}:
        told_s = cluster.recorded_after_s(witness, VICTIM, "excluded", began_s)
        assert told_s < DETECTION_S + MARGIN_S, f"node {witness} heard of it after {told_s:.3f} s"
    assert cluster.carried(VICTIM - 1, VICTIM + 1, b"over the gap", "healed") == b"over the gap"

    cluster.start(VICTIM)
    cluster.settled()
    after = cluster.status(VICTIM)
    assert after is not None
    assert after["incarnation"] >> 32 > before["incarnation"] >> 32
    assert cluster.carried(far_from(VICTIM), VICTIM, b"welcome back", "rejoined") == b"welcome back"
    assert cluster.carried(VICTIM, far_from(VICTIM), b"thank you", "rejoined") == b"thank you"


def test_a_container_rejoins_under_another_address(cluster: Cluster) -> None:
    before = cluster.address(VICTIM)
    cluster.kill(VICTIM)
    cluster.settled(dead=[VICTIM])
    with helper(cluster, "--entrypoint", "sleep", command=["infinity"]) as thief:
        shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        assert output_of("docker", "inspect", "--format", shown, thief) == before
        cluster.start(VICTIM)
        assert cluster.address(VICTIM) not in ("", before)
        cluster.settled()
        assert cluster.carried(far_from(VICTIM), VICTIM, b"found you", "moved") == b"found you"


def test_a_container_that_is_cut_off_comes_back(cluster: Cluster) -> None:
    before = cluster.status(VICTIM)
    assert before is not None
    began_s = cluster.cut_off(VICTIM)
    cluster.settled(dead=[VICTIM])
    for witness in set(cluster.ids) - {VICTIM}:
        told_s = cluster.recorded_after_s(witness, VICTIM, "excluded", began_s)
        assert told_s < DETECTION_S + MARGIN_S, f"node {witness} heard of it after {told_s:.3f} s"
    cluster.until(lambda: _not_alone(cluster))

    cluster.reconnect(VICTIM)
    cluster.settled()
    after = cluster.status(VICTIM)
    assert after is not None
    # It never died: the same life refutes what was said of it.
    assert after["incarnation"] == before["incarnation"]
    assert after["version"] > before["version"]
    assert (
        cluster.carried(far_from(VICTIM), VICTIM, b"can you hear me?", "reconnected")
        == b"can you hear me?"
    )
    assert cluster.carried(VICTIM, far_from(VICTIM), b"yes", "reconnected") == b"yes"


def _not_alone(cluster: Cluster) -> list[str]:
    status = cluster.status(VICTIM)
    if status is None:
        return [f"node {VICTIM} does not answer"]
    complaints = [] if status["alive"] == [VICTIM] else [f"alive is {status['alive']}"]
    return complaints + ([f"links are {status['links']}"] if status["links"] else [])


def test_a_stopped_container_leaves_and_returns(cluster: Cluster) -> None:
    cluster.compose("stop", f"node{VICTIM}")
    assert cluster.inspect(VICTIM, "{{.State.ExitCode}}") == "0"
    cluster.settled(left=[VICTIM])
    cluster.start(VICTIM)
    cluster.settled()
    assert cluster.carried(far_from(VICTIM), VICTIM, b"again", "returned") == b"again"


def test_a_container_with_another_secret_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kill(VICTIM)
    cluster.settled(dead=[VICTIM])
    wrong = tmp_path / "wrong"
    wrong.write_text("guessed\n")
    wrong.chmod(0o644)
    options = [
        *("--network-alias", f"node{VICTIM}"),
        *("--volume", f"{wrong}:/run/secrets/bmgd:ro"),
        *("--env", "BMGD_CLUSTER=compose", "--env", f"BMGD_SIZE={SIZE}"),
        *("--env", "BMGD_PEERS=node{id}:7400", "--env", "BMGD_SECRET_FILE=/run/secrets/bmgd"),
    ]
    with helper(cluster, *options, command=["--id", str(VICTIM)]) as intruder:
        # It ends by itself: every neighbor refuses it.
        assert output_of("docker", "wait", intruder) == "1"
        assert any("refuses this node" in line for line in logs_of(intruder))
        cluster.settled(dead=[VICTIM])
