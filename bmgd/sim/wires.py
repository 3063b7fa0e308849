"""Connections between simulated hosts: what they say, and how they end; `hellos.py` has how they begin.

What one end does reaches the other by `ways.py`, which keeps the order, and loses what a broken
connection loses. Once a hello is over the link belongs to the host's link layer, the daemon's own, and
`pipes.py` carries its bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from bmgd.core.events import Event, LinkDown
from bmgd.errors import InvariantError
from bmgd.linkevents import LinkEvents
from bmgd.linklayer import LinkEngine, LinkLayer, contract
from bmgd.linklayer.outbox import BULK_BYTES_MAX
from bmgd.sim.blockade import Blockade
from bmgd.sim.conditions import Conditions
from bmgd.sim.framebytes import kind_of_put
from bmgd.sim.hellos import Hellos, forget
from bmgd.sim.host import End, Host
from bmgd.sim.joining import event_of_failure
from bmgd.sim.malformed_frames import MalformedFrames
from bmgd.sim.pipes import Pipes
from bmgd.sim.timeline import Timeline
from bmgd.sim.ways import Ways
from bmgd.types import Evidence, LinkId, NodeId
from bmgd.wire.link_messages import Goodbye, Notice
from bmgd.wire.messages import Message

CLOSING_NS: Final = 1_000_000_000
_ERRNO_OF: Final = {
    Evidence.EOF: 0,
    Evidence.RESET: errno.ECONNRESET,
    Evidence.TIMED_OUT: errno.ETIMEDOUT,
}


class Wires:
    """All connections.

    Args:
        timeline: virtual time.
        random: for delays and losses.
        conditions: what the network is like.
        blockade: who does not hear whom.
        emit_all: tells a host's core events, then what its links have to tell; writes at last.
        malformed: what members gone wrong have said.

    Attributes:
        make_layer: makes a host's link layer.
        hellos: the connections that are no links yet.
    """

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        conditions: Conditions,
        blockade: Blockade,
        emit_all: Callable[[Host, Iterable[Event]], None],
        malformed: MalformedFrames,
    ) -> None:
        self.make_layer: Callable[[Host], LinkEngine] = self._plain_layer
        self._timeline = timeline
        self._random = random
        self._conditions = conditions
        self._emit_all = emit_all
        self._ways = Ways(timeline, random, conditions, blockade, self._on_given_up)
        self._carry = self._ways.carry
        self._pipes = Pipes(
            timeline, random, conditions, self._ways, self._turn, self._close_other, malformed
        )
        self._polled = frozenset(
            (self._pipes.read, self._pipes.make_room, self._finish, self._close_other)
        )
        self.hellos = Hellos(
            timeline, random, conditions, blockade, self._ways, self._emit, self._close_other
        )

    def _emit(self, host: Host, event: Event) -> None:
        self._emit_all(host, (event,))

    def _turn(self, host: Host) -> None:
        """Let a host look at what its links have to tell."""
        self._emit_all(host, ())

    def equip(self, host: Host) -> None:
        """A process begins at a host: it has no links."""
        host.layer = self.make_layer(host)
        host.layer.publish(host.snapshot)
        host.link_events = LinkEvents(
            host.layer,
            lambda link: self._on_link_gone(host, link),
            lambda link: self._on_link_written(host, link),
            self._pipes.decode,
            self._pipes.encode,
        )

    # --- ending -------------------------------------------------------------------------------

    def close(self, host: Host, link: LinkId, reason: str) -> None:
        """Say goodbye; what is underway from the other end is still read."""
        end = host.ends.get(link)
        if end is None:
            return
        forget(end)
        if not end.up:
            self._carry(end, 0, self._close_other, end, Evidence.EOF)
            return
        host.layer.shut(link, self._pipes.encode(Goodbye(reason)))
        end.closing = True
        host.closing[link] = end
        at_ns = self._timeline.now_ns + CLOSING_NS
        self._timeline.plan(at_ns, self._ways.tell, host, self._stop_closing, end)

    def _stop_closing(self, end: End) -> None:
        if end.closing and end.host.link_events is not None:
            self._emit_all(end.host, end.host.link_events.end(end.link))

    def _on_link_gone(self, host: Host, link: LinkId) -> None:
        """The process has closed its socket."""
        end = host.ends.pop(link, None) or host.closing.pop(link, None)
        if end is None:
            return
        end.open = end.closing = False
        if not end.over:
            self._carry(end, 0, self._close_other, end, Evidence.EOF)

    def _on_link_written(self, host: Host, link: LinkId) -> None:
        """Its goodbye is out: the other end reads that nothing follows."""
        # Told in the poll that follows the flush that wrote it: nothing has ended the link in between.
        end = host.closing[link]
        self._carry(end, 0, self._finish, end, Evidence.EOF)

    def _finish(self, sender: End, evidence: Evidence) -> None:
        """The other end has read that nothing follows."""
        end = sender.other
        assert end is not None
        end.host.layer.finish(end.link, _ERRNO_OF[evidence])
        self._turn(end.host)

    def end_all(self, host: Host, *, abruptly: bool) -> None:
        """A process ended: its kernel closes its connections.

        Args:
            host: whose process it was.
            abruptly: killed; else it had time to write what it wanted to.
        """
        self.hellos.leave_all(host)
        for end in (*host.closing.values(), *host.ends.values()):
            if end.up and not abruptly:
                self._pipes.write_all(end)
        for end in list(host.closing.values()):
            end.closing = False
            self._break(end, abruptly)
        host.closing.clear()
        for end in list(host.ends.values()):
            forget(end)
            self._break(end, abruptly)

    def _break(self, end: End, abruptly: bool) -> None:
        """The other end learns of it after what is underway, of which a suffix may be lost."""
        evidence = Evidence.EOF
        if abruptly and self._conditions.loses_suffix and self._random.random() < 0.5:
            evidence = Evidence.RESET
            self._ways.lose_suffix(end)
        if end.other is not None:
            self._ways.carry_past_loss(end, self._close_other, end, evidence)

    def break_link(self, end: End) -> None:
        """Reset a connection at both ends; each may miss a suffix of what was sent to it."""
        other = end.other
        if other is None:
            return
        for one in (end, other):
            self._ways.lose_suffix(one)
        for one in (end, other):
            self._ways.carry_past_loss(one, self._close_other, one, Evidence.RESET)

    def _close_other(self, sender: End, evidence: Evidence) -> None:
        """The other end learns that the connection is over."""
        end = sender.other
        assert end is not None
        if not (end.open or end.closing):
            return
        end.over = True
        if end.up:
            self._finish(sender, evidence)
        else:
            forget(end)
            self._say_broken(end, evidence)

    def may_wait_for_poll(self, action: Callable[..., None]) -> bool:
        """Whether what came over a link that is up may be told at the host's next poll, with more."""
        return action in self._polled

    def _on_given_up(self, end: End) -> None:
        end.over = True
        if end.up:
            assert end.other is not None
            self._ways.tell(end.host, self._finish, end.other, Evidence.TIMED_OUT)
            return
        forget(end)
        self._ways.tell(end.host, self._say_broken, end, Evidence.TIMED_OUT)

    def release(self, ends: list[End]) -> None:
        """What was held for these ends, in a fixed order, is sent again where nothing holds it."""
        self._ways.release(ends)

    def _say_broken(self, end: End, evidence: Evidence) -> None:
        if end.dial is not None and not end.up:
            self._emit(end.host, event_of_failure(end.dial, evidence))
        else:
            self._emit(end.host, LinkDown(end.link, evidence))

    # --- bytes --------------------------------------------------------------------------------

    def send(self, host: Host, link: LinkId, message: Message) -> None:
        """Put a message onto a link; it is written at the end of the host's turn."""
        end = host.ends.get(link)
        if end is None or not end.up:
            return
        assert host.link_events is not None
        host.sent_messages += 1
        events = host.link_events.send(link, message)
        if events or not host.stepping:
            self._emit_all(host, events)

    def say(self, host: Host, link: LinkId, frame: bytes) -> bool:
        """Put a frame onto a link that is up, though no core has ordered it; whether it has room."""
        has_room = host.layer.put(link, frame, kind_of_put(frame)) == contract.PUT
        self._turn(host)
        return has_room

    def happened(self, host: Host) -> list[Event]:
        """The core's events for what a host's links have to tell."""
        if host.link_events is None:
            return []
        happened = host.layer.poll(host.local_ns(self._timeline.now_ns))
        if not happened:
            return []
        for link, what, detail in happened:
            if what == contract.MALFORMED:
                raise InvariantError(f"link {link} of node {host.id} brought no frames: {detail!r}")
        return host.link_events.of(happened)

    def absorbed(self, host: Host) -> list[Event]:
        """What a core has to be told before any other event: the heartbeats that it did not see."""
        return [] if host.link_events is None else host.link_events.absorbed()

    def absorb_heartbeats(self, host: Host, digest: int, links: tuple[LinkId, ...]) -> None:
        """Heartbeats with this digest on these links of a host are absorbed from now on."""
        if host.link_events is not None:
            host.link_events.absorb_heartbeats(digest, links)

    def overlook(self, host: Host, notice: Notice) -> None:
        """A core has not looked at a notice: from another link it still counts."""
        events = [] if host.link_events is None else host.link_events.overlook(notice)
        if events:
            self._emit_all(host, events)

    def flush(self, host: Host, links_max: int | None = None) -> bool:
        """Write what waits on the links of a host whose core has nothing to do; whether they have news.

        Args:
            host: whose links.
            links_max: of so many links at most, for a process that dies in the midst of it.
        """
        if host.link_events is not None:
            host.link_events.end_turn()
        for link in host.layer.waiting()[:links_max]:
            end = host.ends.get(LinkId(link)) or host.closing.get(LinkId(link))
            if end is not None:
                self._pipes.write(end)
        return host.layer.flush()

    def heard(self, host: Host) -> list[Event]:
        """Of which links the core has not heard, though bytes came."""
        return [] if host.link_events is None else host.link_events.heard()

    def _plain_layer(self, _: Host) -> LinkEngine:
        return LinkLayer(self._conditions.bulk_bytes_max or BULK_BYTES_MAX)

    def watch_frames(
        self, written: Callable[[Message, bytes], None], read: Callable[[bytes, Message], None]
    ) -> None:
        """Be told of each frame that a host makes of a message, and of new ones that hosts read."""
        self._pipes.on_written, self._pipes.on_read = written, read

    @property
    def on_chunk(self) -> Callable[[Host, Host, bytes], None] | None:
        """Called with each chunk's sender, receiver and bytes (for a trace); None for nobody."""
        return self._pipes.on_chunk

    @on_chunk.setter
    def on_chunk(self, on_chunk: Callable[[Host, Host, bytes], None] | None) -> None:
        self._pipes.on_chunk = on_chunk


def ends_between(a: Host, b_id: NodeId) -> list[End]:
    """The ends at one host of its connections with another, oldest first."""
    return [
        end for end in a.ends.values() if end.other is not None and end.other.host.where == b_id
    ]
