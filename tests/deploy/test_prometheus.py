"""Metrics, alert rules and dashboard, by Prometheus' own tools and by a real one that scrapes."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.cluster import launched, until
from tests.integration.ports import free_base_port

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "bmgd-alerts.yml"
DASHBOARD: Final = DEPLOY / "grafana" / "bmgd.json"
PROMTOOL: Final = shutil.which("promtool")
PROMETHEUS: Final = shutil.which("prometheus")
TOKEN: Final = "0123456789abcdef0123"
SIZE: Final = 4

pytestmark = pytest.mark.skipif(
    PROMTOOL is None or PROMETHEUS is None, reason="needs Debian's prometheus"
)


def promtool(*words: str, given: str | None = None) -> str:
    """Run promtool; what it says. Fails when it complains."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], input=given, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expressions(value: object) -> list[str]:
    """Every query of a dashboard's panels."""
    match value:
        case {"expr": str(expr)}:
            return [expr]
        case dict():
            return [expr for item in value.values() for expr in expressions(item)]
        case list():
            return [expr for item in value for expr in expressions(item)]
    return []


def test_prometheus_rules_are_valid_and_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))
    tested = promtool("test", "rules", str(RULES.with_name("bmgd-alerts-test.yml")))
    assert "SUCCESS" in tested
    config = str(RULES.with_name("prometheus.yml"))
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", config)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    async def get(self, path: str, **params: str) -> Any:
        """The data of one answer of its API."""
        url = f"{self._base}/{path}?{urllib.parse.urlencode(params)}"

        def fetch() -> Any:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            try:
                with opener.open(url, timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                text = error.read().decode(errors="replace")
                # While it reads what it kept it answers 503 with words, not with JSON.
                if error.code == 503 and not text.startswith("{"):
                    return {"status": "error", "error": text}
                return json.loads(text)
            except OSError as error:
                return {"status": "error", "error": str(error)}

        document = await asyncio.to_thread(fetch)
        assert isinstance(document, dict)
        return document

    async def value(self, expr: str) -> list[float]:
        """The values of an instant query; [] while it cannot be asked."""
        answer = await self.get("query", query=expr)
        rows = answer.get("data", {}).get("result", [])
        return [float(row["value"][1]) for row in rows]


@asynccontextmanager
async def scraping(directory: Path, targets: list[str]) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes these every second, with the project's rules."""
    assert PROMETHEUS is not None
    port = free_base_port(1)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "bmgd",
                "authorization": {"credentials_file": str(directory / "token")},
                "static_configs": [{"targets": targets}],
            }
        ],
    }
    path = directory / "prometheus.yml"
    path.write_text(json.dumps(config))
    words = [
        f"--config.file={path}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(PROMETHEUS, *words, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
        assert process.returncode is None, (directory / "prometheus.log").read_text()[-2000:]
    finally:
        process.terminate()
        await process.wait()


async def test_prometheus_scrapes_a_cluster_and_the_dashboard_has_its_names(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    port = free_base_port(SIZE)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    flags = ("--http", str(port), "--http-token-file", str(token))
    async with launched(SIZE, run_dir, *flags) as cluster:
        await cluster.at_rest()
        targets = [f"127.0.0.1:{port + i}" for i in range(SIZE)]
        async with scraping(tmp_path, targets) as prometheus:

            async def holds(expr: str, wanted: list[float]) -> None:
                async def condition() -> list[str]:
                    found = await prometheus.value(expr)
                    return [] if found == wanted else [f"{expr} is {found}, not {wanted}"]

                await until(expr, condition, 60.0)

            await holds('sum(up{job="bmgd"})', [SIZE])
            await holds("sum(bmgd_ready)", [SIZE])
            await holds('count(count_values("digest", bmgd_membership_digest))', [1])
            await holds("sum(bmgd_links_missing)", [0])
            names = set((await prometheus.get("label/__name__/values"))["data"])
            queries = expressions(json.loads(DASHBOARD.read_text()))
            assert len(queries) > 20
            for query in queries:
                filled = (
                    query.replace("$__rate_interval", "10s")
                    .replace("$instance", ".*")
                    .replace("$job", "bmgd")
                )
                answer = await prometheus.get("query", query=filled)
                assert answer["status"] == "success", (query, answer)
                assert set(re.findall(r"\b(?:bmgd|process)_[a-z_]+", query)) <= names, query
            used = set(re.findall(r"\b(?:bmgd|process)_[a-z_]+(?=[{\s\[)])", RULES.read_text()))
            assert len(used) > 8
            assert used - {"bmgd_alerts"} <= names
            # A body that promtool finds fault with would be a fault of every scrape.
            promtool("check", "metrics", given=await _metrics(port))

            await cluster.kill(2)
            await holds('sum(up{job="bmgd"})', [SIZE - 1])
            await holds('max(bmgd_members{status="dead"})', [1])
            await holds('count(ALERTS{alertname="BmgdDown"})', [1])
            await holds('count(count_values("digest", bmgd_membership_digest))', [1])


async def _metrics(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /metrics?links=1 HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    writer.write(head.encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]
