"""The link layer: frames between the sockets and the core, once for the daemon and the simulator."""

from bmgd.linklayer.contract import LinkEngine
from bmgd.linklayer.layer import LinkLayer, LinkState

__all__ = ["LinkEngine", "LinkLayer", "LinkState"]
