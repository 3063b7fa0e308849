"""The launcher with stand-ins for daemons: ``launcher_standin.py COUNT RUN_DIR PORT BEHAVIOUR``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bmgd.config import Config
from bmgd.errors import LaunchError
from bmgd.launcher.launch import launch
from bmgd.launcher.planning import Wanted
from bmgd.launcher.zygote import Report, Target


def behave(behaviour: str) -> Target:
    """What the stand-ins do."""

    def target(config: Config, report: Report) -> int:
        if config.id == 1 and behaviour == "fails":
            print(f"node {config.id} fails on purpose")
            return 3
        if config.id == 1 and behaviour == "raises":
            raise RuntimeError("on purpose")
        if behaviour == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        report([{"event": "ready"}])
        if behaviour == "stopped" and config.id == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        if behaviour == "chatty":
            signal.signal(signal.SIGUSR1, lambda *_: None)
            for number in range(20_000):
                report([{"event": "notice", "peer": number, "status": "x" * 200}])
            print("said it all", flush=True)
        while True:
            signal.pause()

    return target


def main() -> int:
    """Launch them."""
    count, run_dir, port, behaviour = sys.argv[1:]

    def show(event: dict[str, Any]) -> None:
        if event["event"] != "notice":
            print(event["event"], event, flush=True)

    try:
        return launch(
            Wanted(int(count), base_port=int(port)),
            run_dir,
            show=show,
            flush=lambda: False,
            load=lambda: behave(behaviour),
        )
    except LaunchError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
