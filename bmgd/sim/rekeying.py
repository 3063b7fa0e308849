"""Secrets that change while a cluster runs: on one host after the other, in two rounds.

In the first each host gets the new secret before the old one, in the second the old one goes. So each two
hosts have one in common at any time, as operators are told to do it. Half of the rounds are made by hand,
in the others a tool comes to all hosts at about the same moment.
"""

from __future__ import annotations

from random import Random
from typing import Final

from bmgd.sim.network import Network

_SHARE: Final = 0.4
"""Of a round, in which all hosts have their turn; the rest of it is for links."""
_BY_TOOL_NS: Final = 3_000_000
"""In so short a time a tool comes to all hosts: dials are underway in it."""


class Rekeying:
    """The operators of a cluster.

    Args:
        network: the cluster; no host has begun.
        random: says whose turn comes when.
        count: how often the secret changes; 0 for links without any.
    """

    def __init__(self, network: Network, random: Random, count: int) -> None:
        self._network = network
        self._random = random
        self._count = count
        if count:
            network.keys = ("secret 0",)

    def start(self, until_ns: int) -> None:
        """Let secrets change until then."""
        round_ns = until_ns // max(1, 2 * self._count)
        for number in range(2 * self._count):
            newest = number // 2 + 1
            keys = (newest,) if number % 2 else (newest, newest - 1)
            named = tuple(f"secret {key}" for key in keys)
            self._network.timeline.plan(number * round_ns, self._begin, named, round_ns)

    def _begin(self, keys: tuple[str, ...], round_ns: int) -> None:
        network = self._network
        network.keys = keys
        span_ns = max(1, int(_SHARE * round_ns))
        if self._random.random() < 0.5:
            span_ns = min(span_ns, _BY_TOOL_NS)
        for number in sorted(network.hosts):
            at_ns = network.now_ns + self._random.randrange(span_ns)
            network.timeline.plan(at_ns, self._change, number, keys)

    def _change(self, number: int, keys: tuple[str, ...]) -> None:
        if number in self._network.hosts:
            self._network.rekey(number, keys)
