"""What one death costs the cores: calls of Python functions, counted, so the same on every machine.

    python -m benchmarks.death_cost [--size 64] [--victim 5] [--top 25] [--json]

A cluster in virtual time comes to rest; then one node is killed, and calls are counted until the
links are exact again. Only what the cores do is counted, not the simulator around them. `--top` lists
where the calls are.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
from pathlib import Path

from bmgd.core.effects import Effect
from bmgd.core.events import Event
from bmgd.core.node import Node
from bmgd.sim import Network
from bmgd.types import NodeId


def count(size: int, victim: int) -> tuple[pstats.Stats, int, int, int]:
    """The profile of one death; with its calls, the steps and the effects of all survivors."""
    network = Network(size, seed=1)
    network.run(5.0)
    profile, steps, effects = cProfile.Profile(), 0, 0
    plain = Node.step

    def counted(self: Node, now_ns: int, event: Event) -> list[Effect]:
        nonlocal steps, effects
        profile.enable()
        try:
            found = plain(self, now_ns, event)
        finally:
            profile.disable()
        steps += 1
        effects += len(found)
        return found

    Node.step = counted  # type: ignore[method-assign]
    try:
        network.kill(NodeId(victim))
        network.run(0.4)
    finally:
        Node.step = plain  # type: ignore[method-assign]
    stats = pstats.Stats(profile)
    return stats, stats.total_calls, steps, effects  # type: ignore[attr-defined]


def main() -> None:
    """Print what a death costs each survivor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--victim", type=int, default=5)
    parser.add_argument("--top", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    stats, calls, steps, effects = count(options.size, options.victim)
    survivors = options.size - 1
    row = {
        "size": options.size,
        "calls": round(calls / survivors, 1),
        "steps": round(steps / survivors, 1),
        "effects": round(effects / survivors, 1),
    }
    if options.json:
        print(json.dumps(row))
    else:
        print(
            f"N={row['size']}: of one death, each survivor: {row['calls']} calls,"
            f" {row['steps']} steps, {row['effects']} effects"
        )
    if options.top:
        rows = sorted(
            stats.stats.items(),  # type: ignore[attr-defined]
            key=lambda item: -item[1][2],
        )
        for (path, line, name), (_, number, own_s, _, _) in rows[: options.top]:
            where = f"{Path(path).name}:{line} {name}" if line else name
            print(f"{number / survivors:10.1f} {own_s * 1e6 / survivors:8.1f} us  {where}")


if __name__ == "__main__":
    main()
