"""Messages between two programs: through one relay, between neighbors, and through a broker beside it.

    python -m benchmarks.messages                       all, five rounds
    python -m benchmarks.messages --only 64B --rounds 3 --json out.json

Six daemons, each program a process of its own: ids 0 and 3 have one relay between them, 0 and 1
none. Where nats-server is installed (Debian has a package of that name) the same is measured in the
same run, with nats-py in a virtual environment that this benchmark makes in its work directory; rounds
are interleaved, medians are shown.

A receiver counts from its first message to its last one; nats-py's is a plain subscription, at most
once, and `request` where a single message is confirmed, or asks for an answer. There `cpu_us` is the CPU
time of all processes together for each message: of both programs, and of the six daemons or the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

RELAYED, NEIGHBOR = 3, 1
SIZE: Final = 6
LONG_BYTES: Final = 2**30
PROGRAM: Final = "_program"

CASES: Final[dict[str, tuple[int, int, int]]] = {
    "64B take": (64, 400_000, RELAYED),
    "64B for": (64, 400_000, RELAYED),
    "1KiB": (1024, 150_000, RELAYED),
    "64KiB": (65_536, 6_000, RELAYED),
    "1GiB": (LONG_BYTES, 1, RELAYED),
    "send": (64, 2_000, NEIGHBOR),
    "request": (64, 2_000, RELAYED),
    "200 requests": (64, 20_000, RELAYED),
}
"""Bytes of a message, how many, and to which id."""
ANSWERED: Final = ("send", "request", "200 requests")
"""The cases that the sender measures, and nats-py's `request` beside each."""
AT_A_TIME: Final = 200
_SCHEDULED: Final = 2
"""In a clock's number: to the nanosecond, as the scheduler counts."""


# --- the programs, each in a process of its own -------------------------------------------------------


def _tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def _bmgd_receiver(case: str, address: str, size: int, count: int, topic: str) -> None:
    import bmgd

    async with bmgd.connect(address) as daemon:
        subscription = daemon.subscribe(topic, credit_bytes=8 * 2**20, max_message=2**20)
        async with subscription as messages:
            _tell(ready=True)
            if "request" in case:
                while taken := await messages.take(1000):
                    for message in taken:
                        await message.reply_soon(b"")
                return
            first = await anext(messages)
            began = time.perf_counter()
            got = 1
            if case == "1GiB":
                got = 0
                async for part in first.parts():
                    got += len(part)
                count = size
            elif case == "64B for":
                while got < count:
                    async for _ in messages:
                        got += 1
                        if got == count:
                            break
            else:
                while got < count:
                    got += len(await messages.take(1000))
            _tell(seconds=time.perf_counter() - began, got=got)
            if case == "1GiB":
                # Taking the next one says that this one is read.
                try:
                    async with asyncio.timeout(1):
                        await anext(messages)
                except TimeoutError:
                    pass


async def _bmgd_sender(case: str, address: str, size: int, count: int, topic: str, to: int) -> None:
    import bmgd

    payload = bytes(size)
    async with bmgd.connect(address) as daemon:
        if case == "1GiB":
            await daemon.send(to, payload, topic=topic, timeout=600)
        elif case == "send":
            await _measure_one_by_one(count, lambda: daemon.send(to, payload, topic=topic))
        elif case == "request":
            await _measure_one_by_one(count, lambda: daemon.request(to, payload, topic=topic))
        elif case in ANSWERED:
            await _measure_together(count, lambda: daemon.request(to, payload, topic=topic))
        else:
            async with daemon.stream(to, topic) as stream:
                for _ in range(count):
                    await stream.write(payload)


async def _measure_one_by_one(count: int, ask: Callable[[], Awaitable[object]]) -> None:
    await ask()
    _tell(begins=True)
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - began)
    percentiles = statistics.quantiles(took, n=100)
    _tell(median_ms=statistics.median(took) * 1e3, p99_ms=percentiles[98] * 1e3)


async def _measure_together(count: int, ask: Callable[[], Awaitable[object]]) -> None:
    """So many requests, `AT_A_TIME` of them at a time."""

    async def some() -> None:
        for _ in range(count // AT_A_TIME):
            await ask()

    await ask()
    _tell(begins=True)
    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(AT_A_TIME)))
    _tell(per_s=count / (time.perf_counter() - began))


async def _nats_receiver(case: str, address: str, size: int, count: int, topic: str) -> None:
    import nats  # type: ignore[import-not-found]

    connection = await nats.connect(address)
    if case in ANSWERED:

        async def answer(message: Any) -> None:
            await message.respond(b"")

        await connection.subscribe(topic, cb=answer)
        await connection.flush()
        _tell(ready=True)
        await asyncio.Event().wait()
    limits = {"pending_msgs_limit": -1, "pending_bytes_limit": -1}
    subscription = await connection.subscribe(topic, **limits)
    await connection.flush()
    _tell(ready=True)
    got, began = 0, 0.0
    async for _ in subscription.messages:
        got += 1
        if got == 1:
            began = time.perf_counter()
        if got == count:
            break
    _tell(seconds=time.perf_counter() - began, got=got)


async def _nats_sender(case: str, address: str, size: int, count: int, topic: str) -> None:
    import nats

    payload = bytes(size)
    connection = await nats.connect(address)
    if case in ANSWERED:
        measured = _measure_together if case == "200 requests" else _measure_one_by_one
        await measured(count, lambda: connection.request(topic, payload, timeout=10))
        return
    for _ in range(count):
        await connection.publish(topic, payload)
    await connection.flush(timeout=120)
    await connection.close()


def _program(args: list[str]) -> None:
    system, role, case, address, size, count, to, topic = args
    what = int(size), int(count), topic
    programs: dict[tuple[str, str], Callable[[], Awaitable[None]]] = {
        ("bmgd", "receiver"): lambda: _bmgd_receiver(case, address, *what),
        ("bmgd", "sender"): lambda: _bmgd_sender(case, address, *what, int(to)),
        ("nats", "receiver"): lambda: _nats_receiver(case, address, *what),
        ("nats", "sender"): lambda: _nats_sender(case, address, *what),
    }
    asyncio.run(_run(programs[system, role]))


async def _run(program: Callable[[], Awaitable[None]]) -> None:
    await program()


# --- one measurement -----------------------------------------------------------------------------------


def _cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU that these processes have used; ended ones too, until they are reaped."""
    # `schedstat` of a process is of its first thread alone, and nats-server has many.
    return sum(time.clock_gettime_ns(_cpu_clock(pid)) for pid in pids) / 1e9


def _cpu_clock(pid: int) -> int:
    """The kernel's clock of the CPU time of all threads of a process (clock_getcpuclockid(3))."""
    return ~pid << 3 | _SCHEDULED


def measure(
    python: str, system: str, case: str, receiver_at: str, sender_at: str, servers: Iterable[int]
) -> dict[str, float]:
    """One round of one case; what came of it by name.

    Args:
        servers: the process ids of the daemons, or of the broker.
    """
    size, count, to = CASES[case]
    # What a former round left unread must not come in this one.
    topic = f"measured-{time.time_ns()}"
    common = [case, size, count, to, topic]

    def command(role: str, address: str) -> list[str]:
        name, *numbers = map(str, common)
        script = str(Path(__file__).resolve())
        return [python, script, PROGRAM, system, role, name, address, *numbers]

    receiver = subprocess.Popen(command("receiver", receiver_at), stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    try:
        assert json.loads(receiver.stdout.readline())["ready"]
        sender = subprocess.Popen(command("sender", sender_at), stdout=subprocess.PIPE, text=True)
        assert sender.stdout is not None
        if case in ANSWERED:
            processes = [receiver.pid, sender.pid, *servers]
            assert json.loads(sender.stdout.readline())["begins"]
            before_s = _cpu_s(processes)
            told: dict[str, float] = json.loads(sender.stdout.readline())
            told["cpu_us"] = (_cpu_s(processes) - before_s) / count * 1e6
        if sender.wait(900) != 0:
            raise SystemExit(f"the sender of {case!r} failed")
        if case in ANSWERED:
            return told
        came = json.loads(receiver.stdout.readline())
    finally:
        receiver.kill()
        receiver.wait()
    seconds = came["seconds"]
    return {"per_s": count / seconds, "mb_per_s": size * count / seconds / 1e6}


# --- what is measured -----------------------------------------------------------------------------


@contextmanager
def nats(work: Path) -> Iterator[tuple[str, str, int] | None]:
    """A Python that has nats-py, a broker's address and process; None where none is installed."""
    server = shutil.which("nats-server")
    if server is None:
        yield None
        return
    home = work / "nats-py"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "nats-py"], check=True)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    broker = subprocess.Popen(
        [server, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        _until_it_listens(port)
        yield python, f"nats://127.0.0.1:{port}", broker.pid
    finally:
        broker.terminate()
        broker.wait()


def _until_it_listens(port: int) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}


def run(rounds: int, only: str) -> dict[str, Any]:
    """Measure; the medians of each case for both."""
    # Not above: the broker's client runs this file in an environment of its own.
    from benchmarks.launched import launched

    cases = [case for case in CASES if only in case]
    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    with (
        tempfile.TemporaryDirectory() as work,
        nats(Path(work)) as broker,
        launched(SIZE, ("--without-secret",)) as cluster,
    ):

        def at(node_id: int) -> str:
            return f"unix:{cluster.run_dir / f'node-{node_id}.sock'}"

        for _ in range(rounds):
            for case in cases:
                receiver, daemons = at(CASES[case][2]), cluster.pids().values()
                here = measure(sys.executable, "bmgd", case, receiver, at(0), daemons)
                rows.setdefault(("bmgd", case), []).append(here)
                # The broker takes no message above 1 MiB.
                if broker is not None and CASES[case][0] <= 2**20:
                    python, address, pid = broker
                    there = measure(python, "nats", case, address, address, [pid])
                    rows.setdefault(("nats", case), []).append(there)
    report: dict[str, Any] = {}
    for (system, case), measured in rows.items():
        report.setdefault(case, {})[system] = _medians(measured)
    for found in report.values():
        if "nats" in found:
            found["ratio"] = {
                key: round(value / found["nats"][key], 3) for key, value in found["bmgd"].items()
            }
    return report


def main() -> None:
    """Run as a command."""
    if sys.argv[1:2] == [PROGRAM]:
        _program(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--json", type=Path, help="write the report there")
    args = parser.parse_args()
    report = run(args.rounds, args.only)
    for case, found in report.items():
        for system, values in found.items():
            shown = "  ".join(f"{key} {value:,}" for key, value in values.items())
            print(f"{case:10} {system:6} {shown}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
