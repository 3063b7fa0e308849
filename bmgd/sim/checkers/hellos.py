"""What cores are told of hellos is what the bytes of these hellos say."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.hellobytes import HelloBytes
from bmgd.sim.host import Host


class HellosMeanWhatTheySay(Checker):
    """Who dials and who listens come, byte by byte, to what their cores are told."""

    name: ClassVar[str] = "hellos-mean-what-they-say"
    events: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        network = scene.network
        random = Random(f"hellos of {network.size}")
        network.wires.hellos.hello_bytes = HelloBytes(network.settings, random, self._on_difference)

    def _on_difference(self, host: Host, text: str) -> None:
        self.violate(self.scene.journals.get(host.where), text)
