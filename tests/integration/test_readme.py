"""README's example is a program that runs as it stands."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import bmgd
from tests.integration.cluster import DEADLINE_S, launched
from tests.processes import started

README = Path(__file__).parents[2] / "README.md"


async def test_readme_example_runs_against_launch_of_8(tmp_path: Path) -> None:
    program, _ = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert "bmgd launch -n 8" in README.read_text(encoding="utf-8")
    async with launched(8, tmp_path) as cluster:
        # The default run directory of this environment is the one of the cluster.
        (tmp_path / "runtime").mkdir()
        (tmp_path / "runtime" / "bmgd").symlink_to(cluster.directory)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "runtime")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    lines = out.decode().splitlines()
    assert lines[0] == "node 3 sent b'payload'"
    assert lines[1] == "the answer is b'4'"
    assert [line.split()[1] for line in lines[2:]] == [str(i) for i in range(8)]


async def test_readme_example_without_asyncio_answers_against_launch_of_8(tmp_path: Path) -> None:
    _, program = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    async with launched(8, tmp_path) as cluster:
        (tmp_path / "runtime").mkdir()
        (tmp_path / "runtime" / "bmgd").symlink_to(cluster.directory)
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
        async with (
            started(sys.executable, "-c", program, env=environment),
            bmgd.connect(cluster.control(3)) as asker,
            asyncio.timeout(DEADLINE_S),
        ):
            while 6 not in await asker.readers("jobs"):
                pass
            assert await asker.request(6, b"2 + 2", topic="jobs") == b"4"
