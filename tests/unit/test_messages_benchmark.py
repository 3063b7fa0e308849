"""What the benchmark of messages counts as CPU time."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from benchmarks.messages import _cpu_s

_WORKS_IN_A_THREAD = textwrap.dedent(
    """
    import sys, threading, time

    def work():
        while time.thread_time() < 0.2:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print("worked", flush=True)
    sys.stdin.read()
    """
)


def test_cpu_time_is_of_all_threads_of_a_process_ended_ones_too() -> None:
    words = [sys.executable, "-c", _WORKS_IN_A_THREAD]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"worked\n"
        spent_s = _cpu_s([process.pid])
    assert 0.2 <= spent_s < 2.0
