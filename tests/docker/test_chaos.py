"""`bmgd chaos` on the containers of docker-compose.yml."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.docker.compose import SIZE, Cluster
from tests.docker.engine import run
from tests.docker.test_compose import pytestmark as pytestmark

PLAN = f"""{{"version": 1, "nodes": {SIZE}, "seconds": 22, "steps": [
    {{"at": 1, "fault": "kill", "nodes": [3]}},
    {{"at": 5, "fault": "restart", "nodes": [3]}},
    {{"at": 8, "fault": "stop", "nodes": [5]}},
    {{"at": 12, "fault": "continue", "nodes": [5]}},
    {{"at": 14, "fault": "leave", "nodes": [7]}},
    {{"at": 18, "fault": "restart", "nodes": [7]}}
]}}"""


def chaos(cluster: Cluster, plan: Path) -> tuple[int, str, str]:
    """Run the command from this checkout; its exit code and what it wrote."""
    words = ("-m", "bmgd", "chaos", "--compose", cluster.project, "--plan", plan, "--json")
    done = run(sys.executable, *words, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_chaos_on_containers(cluster: Cluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN)
    code, output, errors = chaos(cluster, plan)
    assert code == 0, output + errors
    found = json.loads(output)
    assert found["faults"] == {"continue": 1, "kill": 1, "leave": 1, "restart": 2, "stop": 1}
    assert (found["false_deaths"], found["alone"], found["links_exact"]) == (0, 0, True)
    for kind in ("kill", "stop", "leave"):
        assert found["detection_ms"][kind]["all"]["count"] == 1, kind
    cluster.settled()


def test_chaos_on_containers_refuses_faults_of_links(cluster: Cluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    steps = '[{"at": 1, "fault": "cut", "links": [[0, 1]]}]'
    plan.write_text(f'{{"version": 1, "nodes": {SIZE}, "seconds": 5, "steps": {steps}}}')
    code, _, errors = chaos(cluster, plan)
    assert code == 2
    assert "step 1" in errors
    cluster.settled()
