"""One rank of an MPI job whose middle one kills itself; run by `mpirun`, in an environment with mpi4py.

    mpirun --with-ft ulfm -n SIZE python rank.py DIRECTORY

The survivors wait in a receive from anybody. It fails when the library knows of the death: they are told.
Then they make a communicator without the dead rank: the job can go on. Rank 0 prints one JSON object: the
milliseconds from just before SIGKILL until the first and the last survivor was told, and until the last
had the new communicator.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

REST_S = 0.5
"""From the last rank's start until the kill."""


def main() -> None:
    """Take part, as the victim or as a survivor."""
    world = MPI.COMM_WORLD
    world.Set_errhandler(MPI.ERRORS_RETURN)
    killed = Path(sys.argv[1]) / "killed"
    victim = world.size // 2
    world.Barrier()
    if world.rank == victim:
        time.sleep(REST_S)
        killed.write_text(str(time.monotonic_ns()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        world.Recv(bytearray(1), source=MPI.ANY_SOURCE)
    except MPI.Exception:
        told_ns = time.monotonic_ns()
    else:
        raise SystemExit("nobody sends anything here")
    world.Ack_failed()
    survivors = world.Shrink()
    done_ns = time.monotonic_ns()
    if survivors.size != world.size - 1:
        raise SystemExit(f"{survivors.size} of {world.size} go on")
    began_ns = int(killed.read_text())
    times = survivors.gather(((told_ns - began_ns) / 1e6, (done_ns - began_ns) / 1e6), root=0)
    if survivors.rank == 0:
        told, done = zip(*times, strict=True)
        row = {"first_told_ms": min(told), "last_told_ms": max(told), "last_done_ms": max(done)}
        print(json.dumps(row), flush=True)


main()
