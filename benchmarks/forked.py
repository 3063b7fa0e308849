"""Daemons forked from one process, and daemons that end while they broadcast.

The process has imported everything before the first fork, so a daemon is there within milliseconds. One
that is to end midway has one method of its shell replaced: when it has put a reliable broadcast onto so
many links, it writes what its outboxes hold and kills itself. Nothing else of it is changed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bmgd.types import LinkId
from bmgd.wire.broadcast_messages import ReliableBroadcast
from bmgd.wire.messages import Message

NEVER = -1


class Forked:
    """The daemons of one cluster on this machine.

    Args:
        size: how many founders.
        base_port: of node 0; the others follow.
        place: where sockets and logs lie.
    """

    def __init__(self, size: int, base_port: int, place: Path) -> None:
        self.size = size
        self.place = place
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.forked", str(size), str(base_port), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(self, node_id: int, copies: int = NEVER) -> int:
        """Start a daemon; returns its process id.

        Args:
            node_id: its id.
            copies: it ends when it has sent so many copies of a reliable broadcast; `NEVER`.
        """
        return int(self._ask({"start": node_id, "copies": copies})["pid"])

    def wait(self, pid: int) -> int:
        """Wait until a daemon has ended; returns the signal that ended it, or 0."""
        return int(self._ask({"wait": pid})["signal"])

    def kill(self, pid: int) -> None:
        """SIGKILL a daemon, and wait for its end."""
        os.kill(pid, signal.SIGKILL)
        self.wait(pid)

    def control(self, node_id: int) -> str:
        """Where programs reach a daemon."""
        return f"unix:{self.place}/{node_id}.sock"

    def _ask(self, question: dict[str, int]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def stop(self) -> None:
        """End all daemons."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _end_after(copies: int) -> None:
    """Let this process end when it has sent so many copies of a reliable broadcast."""
    from bmgd.shell.links import Links

    send, left = Links.send, copies

    def send_counted(links: Links, link: LinkId, message: Message) -> None:
        nonlocal left
        if not isinstance(message, ReliableBroadcast) or message.route.source != own_source[0]:
            send(links, link, message)
            return
        if left:
            send(links, link, message)
            left -= 1
        if not left:
            links.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    own_source = [int(os.environ["BROADCAST_SOURCE"])]
    setattr(Links, "send", send_counted)  # noqa: B010 (a method is replaced)


def _become_daemon(words: Sequence[str], log: Path, copies: int) -> None:
    from bmgd.cli import main

    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if copies != NEVER:
        _end_after(copies)
    os._exit(main(words))


def serve(size: int, base_port: int, place: Path) -> None:
    """Fork daemons as they are asked for, until nobody asks any more."""
    import bmgd.shell.run  # noqa: F401 (before the first fork)

    children: set[int] = set()
    for line in sys.stdin.buffer:
        question = json.loads(line)
        if "wait" in question:
            pid = question["wait"]
            _, status = os.waitpid(pid, 0)
            children.discard(pid)
            answer = {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}
        else:
            node_id = question["start"]
            words = ["run", "--id", str(node_id), "--size", str(size)]
            words += ["--peers", f"127.0.0.1:{{{base_port}+id}}", "--profile", "local"]
            words += ["--control", f"unix:{place}/{node_id}.sock", "--cluster", f"b{base_port}"]
            pid = os.fork()
            if not pid:
                os.environ["BROADCAST_SOURCE"] = str(node_id)
                _become_daemon(words, place / f"{node_id}.log", question["copies"])
            children.add(pid)
            answer = {"pid": pid}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
    for pid in children:
        os.kill(pid, signal.SIGTERM)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
