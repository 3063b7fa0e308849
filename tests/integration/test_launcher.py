"""The local launcher with real processes: what it starts, shows, keeps, and leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from bmgd.config import CONTROL_PATH_BYTES_MAX
from bmgd.errors import LaunchError
from bmgd.launcher.ports import ReservedPorts, choose_base_port
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.supervisor import AGAIN_S, TERM_MORE_S
from bmgd.profiles import Timing
from tests.integration.ports import free_base_port
from tests.processes import runs

DEADLINE_S = 30.0
STANDIN = Path(__file__).with_name("launcher_standin.py")


def until(what: str, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


def bmgd(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    ran = subprocess.run(
        [sys.executable, "-m", "bmgd", *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    return ran


class Launch:
    """A launcher under test, and what it has printed so far."""

    def __init__(self, run_dir: Path, *command: str) -> None:
        self.run_dir = run_dir
        self._out = run_dir.parent / f"launcher-{time.monotonic_ns()}.out"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *command], stdout=out, stderr=subprocess.STDOUT
            )

    @property
    def text(self) -> str:
        return self._out.read_text()

    def until_shown(self, part: str) -> None:
        def shown() -> bool:
            assert part in self.text or self.process.poll() is None, self.text
            return part in self.text

        until(f"{part!r} in the output", shown)

    @property
    def nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = json.loads((self.run_dir / "cluster.json").read_text())[
            "nodes"
        ]
        return nodes

    @property
    def pids(self) -> list[int]:
        return [node["pid"] for node in self.nodes]

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    """Starts ``bmgd launch`` in a run directory; whatever a test does, nothing is left running."""
    launches: list[Launch] = []

    def start(
        count: int, *more: str, run_dir: Path | None = None, searches: bool = False
    ) -> Launch:
        place = run_dir or tmp_path / "run"
        given = searches or "--base-port" in more
        port = () if given else ("--base-port", str(free_base_port(count)))
        words = ("launch", "-n", str(count), "--run-dir", str(place), *port, *more)
        launches.append(Launch(place, "-m", "bmgd", *words))
        return launches[-1]

    yield start
    for one in launches:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(DEADLINE_S)


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    """Starts the launcher with stand-ins for daemons that behave as they are told."""
    launches: list[Launch] = []

    def start(count: int, behaviour: str) -> Launch:
        place = tmp_path / "run"
        words = (str(count), str(place), str(free_base_port(count)), behaviour)
        launches.append(Launch(place, str(STANDIN), *words))
        return launches[-1]

    yield start
    for one in launches:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(DEADLINE_S)


def gone(pids: list[int]) -> bool:
    """Whether none of the processes runs any more."""
    return not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        return runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


# --- the start ------------------------------------------------------------------------------------


def test_everything_is_there_when_all_have_joined(launch: Callable[..., Launch]) -> None:
    cluster = launch(5, "--cluster", "east")
    cluster.until_shown("ready: 5 daemons joined in ")
    document = json.loads((cluster.run_dir / "cluster.json").read_text())
    assert (document["cluster"], document["size"]) == ("east", 5)
    assert [node["id"] for node in document["nodes"]] == list(range(5))
    for node in document["nodes"]:
        assert psutil.pid_exists(node["pid"])
        assert node["control"] == f"unix:{cluster.run_dir}/node-{node['id']}.sock"
        host, _, port = node["address"].partition(":")
        socket.create_connection((host, int(port)), 5).close()
        assert (cluster.run_dir / f"node-{node['id']}.log").is_file()
        status = bmgd("status", "--control", node["control"], "--json")
        assert json.loads(status.stdout)["pid"] == node["pid"]
    for node_id in range(5):
        assert f"node {node_id} joined\n" in cluster.text
    assert cluster.end() == 0


def test_events_as_json(launch: Callable[..., Launch]) -> None:
    cluster = launch(2, "--json")
    cluster.until_shown('"event":"up"')
    events = [json.loads(line) for line in cluster.text.splitlines()]
    assert sorted(e["id"] for e in events if e["event"] == "ready") == [0, 1]
    assert cluster.end() == 0


def test_a_daemon_is_a_process_of_its_own(launch: Callable[..., Launch]) -> None:
    with socket.socket() as foreign:
        os.set_inheritable(foreign.fileno(), True)
        cluster = launch(3, "--cluster", "east")
        cluster.until_shown("ready:")
        for node_id, pid in enumerate(cluster.pids):
            process = psutil.Process(pid)
            assert process.cmdline()[0] == f"bmgd: node {node_id} of 3 (east)"
            assert process.name() == f"bmgd-{node_id}"
            assert os.getsid(pid) == pid
            assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
            for fd in (1, 2):
                assert os.readlink(f"/proc/{pid}/fd/{fd}").endswith(f"/node-{node_id}.log")
            assert process.num_threads() == 1
            zygote = process.parent()
            assert zygote is not None
            assert zygote.ppid() == cluster.process.pid
    assert len({psutil.Process(pid).ppid() for pid in cluster.pids}) == 1


def test_a_second_launch_is_refused(launch: Callable[..., Launch]) -> None:
    cluster = launch(2)
    cluster.until_shown("ready:")
    second = bmgd("launch", "-n", "2", "--run-dir", str(cluster.run_dir))
    assert second.returncode == 1
    assert "runs in" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert bmgd("status", "--run-dir", str(cluster.run_dir), "--id", "1").returncode == 0


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    base = free_base_port(3)
    with socket.create_server(("127.0.0.1", base + 1)):
        words = ("--base-port", str(base), "--run-dir", str(tmp_path / "run"))
        ran = bmgd("launch", "-n", "3", *words)
        assert (ran.returncode, f"port {base + 1} is in use" in ran.stderr) == (1, True)


def test_ports_are_searched_upwards() -> None:
    above = free_base_port(16)
    first = choose_base_port(4, None, above)
    with socket.create_server(("127.0.0.1", first + 2)):
        assert choose_base_port(2, None, above) == first
        assert choose_base_port(4, None, above) > first + 2


def test_ports_of_a_launch_are_found_by_no_other_until_it_ends() -> None:
    above = free_base_port(16)
    first, second, third = ReservedPorts(), ReservedPorts(), ReservedPorts()
    assert [ports.choose(4, None, above) for ports in (first, second)] == [above, above + 4]
    # Nobody listens there yet.
    assert choose_base_port(4, None, above) == above
    first.close()
    assert [third.choose(4, None, above) for _ in range(2)] == [above, above + 8]
    for ports in (second, third):
        ports.close()


def test_ports_that_are_named_are_given_though_another_uses_their_udp_ports() -> None:
    base = free_base_port(3)
    reserved = ReservedPorts()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", base + 1))
        assert reserved.choose(3, base) == base
    reserved.close()


def test_launches_at_once_find_different_ports(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    clusters = [launch(3, run_dir=tmp_path / f"run-{i}", searches=True) for i in range(4)]
    for cluster in clusters:
        cluster.until_shown("ready:")
    assert len({node["address"] for cluster in clusters for node in cluster.nodes}) == 12
    assert [cluster.end() for cluster in clusters] == [0] * 4


def test_more_ports_than_there_are() -> None:
    with pytest.raises(LaunchError):
        choose_base_port(40_000, None)


def test_a_run_dir_that_is_too_deep_for_sockets(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    deep = tmp_path / ("x" * CONTROL_PATH_BYTES_MAX)
    cluster = launch(2, run_dir=deep)
    cluster.until_shown("ready:")
    control = Path(cluster.nodes[1]["control"].removeprefix("unix:"))
    assert len(str(control)) <= CONTROL_PATH_BYTES_MAX
    assert control.parent.stat().st_mode & 0o777 == 0o700
    words = ("--run-dir", str(deep))
    assert bmgd("status", *words, "--id", "1").returncode == 0
    assert bmgd("kill", "--hard", *words, "--id", "1").returncode == 0
    assert bmgd("launch", "--restart", "1", *words).returncode == 0
    assert cluster.end() == 0
    assert not control.parent.exists()


def test_a_run_dir_that_others_can_write_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    place.chmod(0o777)
    ran = bmgd("launch", "-n", "2", "--run-dir", str(place))
    assert (ran.returncode, "others can write" in ran.stderr) == (1, True)


def test_the_default_run_dir_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    from bmgd.launcher.rundir import default_run_dir

    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert default_run_dir() == "/run/user/7/bmgd"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_run_dir() == f"/tmp/bmgd-{os.getuid()}"


def test_what_a_killed_launcher_left_is_cleared(launch: Callable[..., Launch]) -> None:
    first = launch(3)
    first.until_shown("ready:")
    pids = first.pids
    first.end(signal.SIGKILL)
    until("all daemons died with the launcher", lambda: gone(pids))
    assert (first.run_dir / "node-2.sock").exists()
    second = launch(2)
    second.until_shown("ready:")
    assert not (second.run_dir / "node-2.sock").exists()
    assert not (second.run_dir / "node-2.log").exists()
    assert second.end() == 0


# --- deaths ---------------------------------------------------------------------------------------


def test_a_killed_daemon_is_reported_and_can_be_started_again(
    launch: Callable[..., Launch],
) -> None:
    cluster = launch(4)
    cluster.until_shown("ready:")
    words = ("--run-dir", str(cluster.run_dir))
    pid = cluster.pids[2]
    assert bmgd("kill", "--hard", *words, "--id", "2").stdout == f"process {pid} was killed\n"
    cluster.until_shown(f"node 2 was ended by SIGKILL (pid {pid})")
    for other in (0, 1, 3):
        cluster.until_shown(f"node {other} hears that node 2 is excluded")
    until("cluster.json is current", lambda: cluster.pids[2] is None)
    assert bmgd("status", *words, "--id", "2").returncode == 3
    again = bmgd("launch", "--restart", "2", *words, "--json")
    assert again.returncode == 0
    assert cluster.pids[2] == json.loads(again.stdout)["pid"] != pid
    assert bmgd("status", *words, "--id", "2").returncode == 0
    assert bmgd("ping", "2", *words, "--id", "0").returncode == 0
    assert cluster.end() == 0


def test_a_restart_right_after_the_kill(launch: Callable[..., Launch]) -> None:
    cluster = launch(4)
    cluster.until_shown("ready:")
    words = ("--run-dir", str(cluster.run_dir))
    for _ in range(3):
        os.kill(cluster.pids[1], signal.SIGKILL)
        assert bmgd("launch", "--restart", "1", *words).returncode == 0


def test_restarts_that_cannot_be(launch: Callable[..., Launch]) -> None:
    cluster = launch(2)
    cluster.until_shown("ready:")
    words = ("--run-dir", str(cluster.run_dir))
    running = bmgd("launch", "--restart", "1", *words)
    assert (running.returncode, "runs already" in running.stderr) == (1, True)
    unknown = bmgd("launch", "--restart", "2", *words)
    assert (unknown.returncode, "out of range" in unknown.stderr) == (1, True)


def test_a_graceful_end_is_a_leave(launch: Callable[..., Launch]) -> None:
    cluster = launch(3)
    cluster.until_shown("ready:")
    words = ("--run-dir", str(cluster.run_dir))
    assert bmgd("kill", *words, "--id", "1").returncode == 0
    cluster.until_shown("node 1 ended with 0")
    cluster.until_shown("node 0 hears that node 1 is left")


def test_a_stopped_daemon_can_be_killed(launch: Callable[..., Launch]) -> None:
    cluster = launch(2)
    cluster.until_shown("ready:")
    os.kill(cluster.pids[0], signal.SIGSTOP)
    words = ("--run-dir", str(cluster.run_dir), "--id", "0")
    assert bmgd("kill", "--hard", *words).returncode == 0
    cluster.until_shown("node 0 was ended by SIGKILL")


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_and_keeps_the_logs(launch: Callable[..., Launch], number: int) -> None:
    cluster = launch(4)
    cluster.until_shown("ready:")
    pids = cluster.pids
    assert cluster.end(number) == 0
    assert gone(pids)
    left = sorted(path.name for path in cluster.run_dir.iterdir())
    assert left == ["lock", *(f"node-{i}.log" for i in range(4))]
    assert "Traceback" not in cluster.text


@pytest.mark.parametrize("name", ["again", "x" * CONTROL_PATH_BYTES_MAX])
def test_end_of_a_launch_leaves_the_files_of_another_that_has_made_its_directory_anew(
    launch: Callable[..., Launch], tmp_path: Path, name: str
) -> None:
    place = RunDir.at(str(tmp_path / name))
    former = launch(2, run_dir=Path(place.path))
    former.until_shown("ready:")
    # Its lock goes with it, so nothing keeps another one from beginning there.
    shutil.rmtree(place.path)
    present = launch(2, run_dir=Path(place.path))
    present.until_shown("ready:")
    document = (present.run_dir / "cluster.json").read_text()
    assert former.end() == 0
    assert (present.run_dir / "cluster.json").read_text() == document
    words = ("--run-dir", str(present.run_dir))
    assert bmgd("status", *words, "--id", "1").returncode == 0
    assert bmgd("kill", "--hard", *words, "--id", "1").returncode == 0
    assert bmgd("restart", "1", *words).returncode == 0
    assert present.end() == 0
    assert not (present.run_dir / "cluster.json").exists()


@pytest.mark.parametrize("behaviour", ["deaf", "stopped"])
def test_who_does_not_end_is_killed(standin: Callable[..., Launch], behaviour: str) -> None:
    cluster = standin(3, behaviour)
    cluster.until_shown("up")
    pids = cluster.pids
    assert cluster.end() == 0
    assert gone(pids)


def test_a_second_signal_kills_at_once(standin: Callable[..., Launch]) -> None:
    cluster = standin(2, "deaf")
    cluster.until_shown("up")
    began_s = time.monotonic()
    cluster.process.send_signal(signal.SIGINT)
    cluster.until_shown("stopping")
    time.sleep(2 * AGAIN_S)
    assert cluster.end() == 0
    # By the first signal alone they are killed after `leave_ms` and some more: eight seconds.
    assert time.monotonic() - began_s < TERM_MORE_S + Timing().leave_ms / 1000 - 1


def test_two_signals_at_once_are_one(launch: Callable[..., Launch]) -> None:
    cluster = launch(3)
    cluster.until_shown("ready:")
    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.end(signal.SIGINT) == 0
    assert "SIGKILL" not in cluster.text
    assert cluster.text.count("ended with 0") == 3


@pytest.mark.parametrize("name", ["node-0.sock", "node-0.log"])
def test_what_cannot_be_removed_is_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    tmp_path.chmod(0o700)
    refused = bmgd("launch", "-n", "2", "--run-dir", str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr == f"bmgd launch: cannot remove {tmp_path / name}: Is a directory\n"


def test_all_die_with_the_launcher(launch: Callable[..., Launch]) -> None:
    cluster = launch(4)
    cluster.until_shown("ready:")
    zygote = psutil.Process(cluster.pids[0]).ppid()
    pids = [*cluster.pids, zygote]
    assert cluster.end(signal.SIGKILL) == -signal.SIGKILL
    until("nothing is left", lambda: gone(pids))
    assert gone(pids)


def test_all_die_with_the_zygote(launch: Callable[..., Launch]) -> None:
    cluster = launch(4)
    cluster.until_shown("ready:")
    pids = cluster.pids
    os.kill(psutil.Process(pids[0]).ppid(), signal.SIGKILL)
    assert cluster.process.wait(DEADLINE_S) == 1
    until("nothing is left", lambda: gone(pids))
    assert cluster.text.splitlines()[-1] == "bmgd launch: the zygote ended, and all daemons with it"
    assert not (cluster.run_dir / "cluster.json").exists()


def test_a_daemon_that_ends_before_it_joined_ends_the_launch(
    standin: Callable[..., Launch],
) -> None:
    cluster = standin(3, "fails")
    assert cluster.process.wait(DEADLINE_S) == 1
    assert "ended before it joined" in cluster.text
    assert "node 1 fails on purpose" in (cluster.run_dir / "node-1.log").read_text()


def test_a_daemon_that_raises_leaves_its_traceback_in_its_log(
    standin: Callable[..., Launch],
) -> None:
    cluster = standin(2, "raises")
    assert cluster.process.wait(DEADLINE_S) == 1
    assert "Traceback" not in cluster.text
    assert "RuntimeError: on purpose" in (cluster.run_dir / "node-1.log").read_text()


def test_events_are_dropped_while_nobody_reads_them(standin: Callable[..., Launch]) -> None:
    cluster = standin(2, "chatty")
    cluster.until_shown("up")
    os.kill(cluster.process.pid, signal.SIGSTOP)
    try:
        log = cluster.run_dir / "node-0.log"
        until("a daemon has gone on without its audience", lambda: "said it all" in log.read_text())
    finally:
        os.kill(cluster.process.pid, signal.SIGCONT)
    assert cluster.end() == 0


def test_launch_whose_output_nobody_reads_is_complete_and_ends(tmp_path: Path) -> None:
    out, printed = os.pipe()
    os.set_blocking(printed, False)
    with suppress(BlockingIOError):
        while os.write(printed, b"." * 4096):
            pass
    os.set_blocking(printed, True)
    place = tmp_path / "run"
    words = ("launch", "-n", "3", "--run-dir", str(place), "--base-port", str(free_base_port(3)))
    process = subprocess.Popen([sys.executable, "-m", "bmgd", *words], stdout=printed)
    os.close(printed)
    try:
        until("all have joined", (place / "cluster.json").exists)
        assert bmgd("kill", "--hard", "--run-dir", str(place), "--id", "1").returncode == 0
        assert bmgd("restart", "1", "--run-dir", str(place)).returncode == 0
        process.send_signal(signal.SIGINT)
        until("the daemons have ended", lambda: not (place / "cluster.json").exists())
        with open(out, "rb", closefd=False) as read:
            text = read.read().decode()
        assert process.wait(DEADLINE_S) == 0
    finally:
        os.close(out)
        process.kill()
        process.wait(DEADLINE_S)
    assert "ready: 3 daemons joined in" in text
    assert "node 2 ended with 0" in text


def test_run_dir_paths_are_stable(tmp_path: Path) -> None:
    deep = str(tmp_path / ("y" * 120))
    assert RunDir.at(deep) == RunDir.at(deep)
    assert RunDir.at(deep).sockets != RunDir.at(deep + "z").sockets
    assert RunDir.at(str(tmp_path)).sockets == str(tmp_path)
