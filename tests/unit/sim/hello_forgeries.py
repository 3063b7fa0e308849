"""What no simulated network tells: hellos of which their bytes say something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bmgd.core.effects import Dial
from bmgd.core.events import Greeted
from bmgd.sim.host import End
from bmgd.sim.joining import event_of_hello
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.hello import Refusal
from tests.unit.core.clusters import S

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER = NodeId(4)
LINK = LinkId(10**6)


def _dial(f: Forger) -> Dial:
    return Dial(PEER, "sim4:7400", f.life, 99, S)


def hello_of_another_life(f: Forger) -> None:
    hello = event_of_hello(f.host, _dial(f), LINK, "")
    assert isinstance(hello, Greeted)
    other = replace(hello, incarnation=Incarnation(hello.incarnation + 1))
    hello_bytes = f.network.wires.hellos.hello_bytes
    assert hello_bytes is not None
    hello_bytes.dialled(f.host, End(f.network.hosts[PEER], LINK, life=f.life), _dial(f), hello)
    assert f.scene.violations == []
    hello_bytes.dialled(f.host, End(f.network.hosts[PEER], LINK, life=f.life), _dial(f), other)


def refusal_that_nobody_has_a_reason_for(f: Forger) -> None:
    hello_bytes = f.network.wires.hellos.hello_bytes
    assert hello_bytes is not None
    peer = f.network.hosts[PEER]
    hello_bytes.rejected(f.host, peer, _dial(f), Refusal.WRONG_CLUSTER, proven=True)


def refusal_of_a_stranger_that_is_told_as_proven(f: Forger) -> None:
    hello_bytes, peer = f.network.wires.hellos.hello_bytes, f.network.hosts[PEER]
    assert hello_bytes is not None
    f.host.keys = peer.keys = ("secret",)
    peer.squatter = "cluster"
    hello_bytes.rejected(f.host, peer, _dial(f), Refusal.WRONG_CLUSTER, proven=False)
    assert f.scene.violations == []
    hello_bytes.rejected(f.host, peer, _dial(f), Refusal.WRONG_CLUSTER, proven=True)


FORGERIES_OF_HELLOS: list[tuple[str, Callable[[Forger], None]]] = [
    ("hellos-mean-what-they-say", hello_of_another_life),
    ("hellos-mean-what-they-say", refusal_that_nobody_has_a_reason_for),
    ("hellos-mean-what-they-say", refusal_of_a_stranger_that_is_told_as_proven),
]
