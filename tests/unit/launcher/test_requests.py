"""What others ask of a launcher, over its socket."""

from __future__ import annotations

import select
import threading
from pathlib import Path

from bmgd.launcher.requests import RequestServer, ask_grow
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.zygote import LAUNCH_MAX


def test_growth_by_all_that_a_launch_may_have_is_answered_whole(tmp_path: Path) -> None:
    poll = select.poll()
    server = RequestServer(RunDir.at(str(tmp_path)).launcher_socket, poll)
    ids = list(range(1_000_000_000, 1_000_000_000 + LAUNCH_MAX))

    def serve() -> None:
        while True:
            requests = server.on_ready({fd for fd, _ in poll.poll(10_000)})
            if requests:
                server.answer(requests[0], {"ids": ids, "seconds": 1.0})
                return

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        assert ask_grow(str(tmp_path), LAUNCH_MAX)["ids"] == ids
    finally:
        serving.join()
