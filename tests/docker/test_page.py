"""The page and the metrics of the containers, and a container that is cut off from everybody."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.docker.compose import SIZE, composed
from tests.integration.ports import free_base_port

pytestmark = [pytest.mark.docker, pytest.mark.long]

TOKEN = "0123456789abcdef0123"
PAGE = ("docker-compose.yml", "docker-compose.page.yml")


def fetch(url: str) -> tuple[int, str]:
    """The status and the body of an answer; 0 while nobody answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def test_page_of_one_container_shows_all_and_who_is_cut_off_is_not_healthy(
    image: str, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    secret, token = secrets / "bmgd", secrets / "http-token"
    secret.write_text("0123456789abcdef" * 4 + "\n")
    token.write_text(TOKEN)
    for path in (secret, token):
        # The container's user is another one; the directory keeps this machine's users out.
        path.chmod(0o644)
    port = free_base_port(1)
    variables = {"OVERLAY_HTTP_PORT": str(port)}
    with composed(image, secret, files=PAGE, variables=variables) as cluster:
        cluster.settled()
        base = f"http://127.0.0.1:{port}"

        def disagreement() -> list[str]:
            status, body = fetch(f"{base}/api/cluster")
            if status != 200:
                return [f"{status} {body}"]
            document = json.loads(body)
            found = (document["summary"]["agree"], len(document["reports"]))
            return [] if found == ("yes", SIZE) else [str(document["summary"])]

        cluster.until(disagreement)
        assert fetch(f"{base}/readyz") == (200, "ready\n")
        assert f'bmgd_members{{status="alive"}} {SIZE}' in fetch(f"{base}/metrics")[1]
        assert "<title>bmgd</title>" in fetch(f"{base}/")[1]

        cluster.healthy()
        cluster.cut_off(4)

        def still_healthy() -> list[str]:
            health = cluster.inspect(4, "{{.State.Health.Status}}")
            return [] if health == "unhealthy" else [f"node 4 is {health}"]

        cluster.until(still_healthy, 120.0)
        status = cluster.status(4)
        assert status is not None
        assert (status["state"], status["isolated"]) == ("ready", True)
        # It runs on: a restart would not connect it.
        assert cluster.inspect(4, "{{.State.Running}} {{.RestartCount}}") == "true 0"
        cluster.reconnect(4)
        cluster.settled()
