"""Many cores in virtual time: the daemon's own core, the real codec, the real frame splitter."""

from bmgd.sim.network import Network

__all__ = ["Network"]
