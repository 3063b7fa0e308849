"""What a core is told when it begins: the configuration, in the core's own units."""

from __future__ import annotations

from dataclasses import field

from bmgd.config import Config, advertised_address
from bmgd.dataclass import dataclass
from bmgd.peers import PeerList
from bmgd.policy import HealingPolicy
from bmgd.types import NO_ID, NodeId
from bmgd.wire.features import SPOKEN

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The core's configuration.

    Args:
        id: this node's id.
        founding_size: 1..2**31.
        peers: where the founders are.
        address: what this node advertises.
        healing: when the dead leave the layout.
        reconstructs: whether healing makes all links anew (the naive method), not only those that differ.
        refutes: whether a node that is held dead answers with a higher version, or ends.
        proxied: whether a dial that is refused may have been refused in the peer's place.
        quorum: whether a side without the majority stands aside.
        takes_new_id: whether another life of this node's id makes it ask for a new id (a joiner), or
            ends it.
        features: what this node can do, see `bmgd.wire.features`.
        queue_messages: messages that one topic holds for a reader that has not come.
        heartbeat_ns, timeout_ns, ask_ns, dial_ns, join_ns, start_ns, backoff_min_ns,
        backoff_max_ns, redial_ns, leave_ns, relayout_ns: see `bmgd.profiles.Timing`.
    """

    id: NodeId
    founding_size: int
    peers: PeerList
    address: str
    healing: HealingPolicy = field(default_factory=HealingPolicy)
    reconstructs: bool = False
    refutes: bool = True
    proxied: bool = False
    quorum: bool = False
    takes_new_id: bool = False
    features: int = SPOKEN
    queue_messages: int = 1024
    heartbeat_ns: int = 500 * _MS
    timeout_ns: int = 1500 * _MS
    ask_ns: int = 400 * _MS
    dial_ns: int = 1000 * _MS
    join_ns: int = 1000 * _MS
    start_ns: int = 15_000 * _MS
    backoff_min_ns: int = 8 * _MS
    backoff_max_ns: int = 1000 * _MS
    redial_ns: int = 4000 * _MS
    leave_ns: int = 5000 * _MS
    relayout_ns: int = 1 * _MS

    @classmethod
    def of(cls, config: Config) -> Settings:
        """The core's part of a daemon's configuration."""
        own = NO_ID if config.id < 0 else NodeId(config.id)
        timing = config.timing
        return cls(
            id=own,
            founding_size=config.size,
            peers=config.peers,
            address=advertised_address(config),
            healing=HealingPolicy.parse(config.healing),
            reconstructs=config.reconstruction == "naive",
            quorum=config.quorum == "majority",
            takes_new_id=bool(config.join) and config.id < 0,
            refutes=config.on_declared_dead == "refute",
            proxied=config.proxied,
            queue_messages=config.queue_messages,
            heartbeat_ns=timing.heartbeat_ms * _MS,
            timeout_ns=timing.timeout_ms * _MS,
            ask_ns=timing.ask_ms * _MS,
            dial_ns=timing.dial_ms * _MS,
            join_ns=timing.join_ms * _MS,
            start_ns=timing.start_ms * _MS,
            backoff_min_ns=timing.backoff_min_ms * _MS,
            backoff_max_ns=timing.backoff_max_ms * _MS,
            redial_ns=timing.redial_ms * _MS,
            leave_ns=timing.leave_ms * _MS,
            relayout_ns=timing.relayout_ms * _MS,
        )
