"""The frames of a source of reliable broadcasts: those themselves, what is stable, what is skipped.

Theory of operation. A broadcast goes by the tree, or to one branch of one node by the shortest way. Every
copy of it, the first and those sent again, names the same number, audience and skips; only what is
stable is as of now. So a busy source tells what is stable by its broadcasts, and only an idle one sends
`Stable`, 100 ms later. `Skipped` goes straight to the node that it concerns.
"""

from __future__ import annotations

from collections.abc import Sequence

from bmgd.core.broadcast.window import BroadcastWindow, OwnBroadcast
from bmgd.core.context import Context
from bmgd.core.forwarding.branching import Branching
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.timers import TimerKey
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import without
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.bounds import SKIPS_MAX
from bmgd.wire.broadcast_messages import BroadcastPiece, ReliableBroadcast, Skip, Skipped, Stable
from bmgd.wire.routes import NORMAL_PRIORITY, Route

STABLE_NS = 100_000_000
STABLE_TIMER = "broadcast stable"


class BroadcastFrames:
    """Sends what a source has to say."""

    def __init__(
        self,
        context: Context,
        forwarding: Forwarding,
        branching: Branching,
        window: BroadcastWindow,
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._branching = branching
        self._window = window

    def transmit(self, sent: OwnBroadcast, branches: list[Branch]) -> None:
        """Send a broadcast, for the first time or again, to the nodes of some branches."""
        sent.sent_ns = self._context.now_ns
        sent.times += 1
        self._window.told_stable = self._window.stable
        command, piece = sent.command, sent.command.piece
        audience = sent.id_space, sent.exceptions
        route = self._route_to_all(sent.sequence)
        stable = self._window.stable
        rest = (command.topic, command.payload, 0, (), *audience, sent.skips, stable)
        self._branching.send(
            ReliableBroadcast(route, *rest)
            if piece is None
            else BroadcastPiece(route, *rest, piece),
            branches,
        )

    def tell_skips(self, node_id: NodeId, life: Incarnation, skips: Sequence[Skip]) -> None:
        """Tell one node what it need not wait for; with no skips, what is stable."""
        window = self._window
        route = self._forwarding.route_to(
            node_id, tag=incarnation_tag(life), sequence=window.next - 1
        )
        self._forwarding.originate(Skipped(route, tuple(skips[:SKIPS_MAX]), window.stable))

    def tell_own_life(self, node_id: NodeId, life: Incarnation) -> None:
        """Answer who asks a former life of this node: it takes that for the present one.

        Perhaps nothing else tells it of this one; any frame of it does.
        """
        self.tell_skips(node_id, life, ())

    def plan_stable(self) -> None:
        """More is stable: tell it soon, unless a broadcast does before."""
        key = (STABLE_TIMER, 0, 0)
        if key not in self._context.timers:
            self._context.timers.set(key, self._context.now_ns + STABLE_NS)

    def on_stable_timer(self, key: TimerKey) -> None:
        """An idle source tells what is stable; a busy one has told it by its broadcasts."""
        window = self._window
        if window.told_stable >= window.stable:
            return
        window.told_stable = window.stable
        message = Stable(self._route_to_all(window.next - 1), 0, (), window.stable)
        others = without(window.living(), self._context.id)
        self._branching.send(message, [Branch(self._context.id, others)])

    def _route_to_all(self, sequence: int) -> Route:
        route = self._forwarding.route_to(
            self._context.id, sequence=sequence, priority=NORMAL_PRIORITY
        )
        return self._branching.fresh(route)
