"""A network of cores in virtual time.

Theory of operation. Every happening (bytes that arrive, a deadline, a dial's outcome) is an entry of
one heap, ordered by its virtual time and, at equal times, by when it was planned; so a run is a
function of its seed. Hosts run the daemon's own `Node`. Messages pass through the real codec, and
each host's arriving bytes through the real frame splitter with the snapshot that its core published
last, so relays behave as in the daemon. Connections keep their order and deliver until they break.

What a host can suffer: `kill` (connections close, dials are refused), `stop` and `resume` (nothing is
read, the kernel still accepts), `cut` between two hosts, one way or both (dials are not answered, and
what TCP would send again arrives when the cut is mended), `boot` (a new life at the same address).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from bmgd.core.commands import Command, ShowStatus
from bmgd.core.effects import (
    Close,
    Deliver,
    Dial,
    Effect,
    Exit,
    ForwardingChanged,
    Observed,
    RecordChanged,
    Refuse,
    Renewed,
    Reply,
    Send,
    Welcome,
)
from bmgd.core.events import (
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    Heard,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.routing import Snapshot
from bmgd.types import Evidence, Incarnation, LinkId, NodeId
from bmgd.wire.codec import decode, encode

DELAY_NS = 100_000
"""How long bytes travel, and how long the network takes to answer a dial."""

PEERS = PeerList(template="sim{id}:7400")


@dataclass(slots=True, eq=False)
class _End:
    """One end of a connection."""

    host: Host
    link: LinkId
    other: _End | None = None
    open: bool = True
    dial: Dial | None = None
    up: bool = False


@dataclass(slots=True, eq=False)
class Host:
    """One simulated machine with its daemon's core.

    Attributes:
        ends: its open connections by link id.
        delivered: the `Deliver` effects of its core, in order.
        replies: the last `Reply` for each request.
        observed: what its core wanted an operator to see, with virtual times.
    """

    id: NodeId
    node: Node
    alive: bool = True
    stopped: bool = False
    wake_planned_ns: int | None = None
    snapshot: Snapshot | None = None
    ends: dict[LinkId, _End] = field(default_factory=dict)
    held_back: deque[Callable[[], None]] = field(default_factory=deque)
    delivered: list[Deliver] = field(default_factory=list)
    replies: dict[int, Reply] = field(default_factory=dict)
    observed: list[tuple[int, Observed]] = field(default_factory=list)
    records: list[RecordChanged] = field(default_factory=list)
    exit: Exit | None = None


class Network:
    """Hosts 0..size-1, all founders.

    Args:
        size: the founding size.
        seed: decides everything that is random.
        settings: changes to the core's default settings.
        start: whether all hosts start at time 0; else call `boot` for each.
    """

    def __init__(self, size: int, seed: int = 0, *, start: bool = True, **settings: Any) -> None:
        self.now_ns = 0
        self.random = Random(seed)
        self.hosts: dict[NodeId, Host] = {}
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self._size = size
        self._changes = settings
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._held_back: list[tuple[Host, Callable[[], None]]] = []
        self._count = 0
        self._link_count = 0
        self._request_count = 0
        if start:
            for number in range(size):
                self.boot(number)

    # --- what tests and plans do --------------------------------------------------------------

    def boot(self, number: int, counter: int = 1) -> Host:
        """Start a host, or start it again in a new life."""
        node_id = NodeId(number)
        settings = Settings(
            id=node_id,
            founding_size=self._size,
            peers=PEERS,
            address=PEERS.address_of(node_id),
        )
        incarnation = Incarnation(counter << 32 | self.random.getrandbits(32))
        node = Node(
            replace(settings, **self._changes),
            incarnation,
            Random(self.random.getrandbits(64)),
            self.now_ns,
        )
        host = self.hosts[node_id] = Host(node_id, node)
        self._plan_wake(host)
        return host

    def kill(self, number: int) -> None:
        """End a host at once: its connections close, dials to it are refused."""
        host = self.hosts[NodeId(number)]
        host.alive = False
        host.held_back.clear()
        for end in list(host.ends.values()):
            self._break(end, Evidence.EOF)

    def stop(self, number: int) -> None:
        """Let a host do nothing, as SIGSTOP does."""
        self.hosts[NodeId(number)].stopped = True

    def resume(self, number: int) -> None:
        """Let a stopped host go on: first it reads what waits, then its deadlines count."""
        host = self.hosts[NodeId(number)]
        host.stopped = False
        waiting, host.held_back = list(host.held_back), deque()
        for happening in waiting:
            happening()
        host.wake_planned_ns = None
        self._plan_wake(host)

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Hold back everything from a to b, and from b to a unless `one_way`."""
        self.cuts.add((NodeId(a), NodeId(b)))
        if not one_way:
            self.cuts.add((NodeId(b), NodeId(a)))

    def mend(self) -> None:
        """Undo all cuts; what was held back arrives."""
        self.cuts.clear()
        held_back, self._held_back = self._held_back, []
        for host, happening in held_back:
            self._plan_for(host, DELAY_NS, happening)

    def issue(self, number: int, command: Command) -> int:
        """Let a program ask its daemon; returns the request's number."""
        self._request_count += 1
        request = self._request_count
        self._step(self.hosts[NodeId(number)], CommandIssued(request, command))
        return request

    def status(self, number: int) -> dict[str, Any]:
        """What `bmgd status --json` would show (the core's part)."""
        request = self.issue(number, ShowStatus())
        result: dict[str, Any] = self.hosts[NodeId(number)].replies[request].result
        return result

    def run(self, duration_s: float) -> None:
        """Let virtual time pass."""
        until_ns = self.now_ns + int(duration_s * 1e9)
        while self._heap and self._heap[0][0] <= until_ns:
            self.now_ns, _, happening = heapq.heappop(self._heap)
            happening()
        self.now_ns = until_ns

    def run_until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> float:
        """Let time pass until a condition holds; returns the virtual seconds that it took.

        Raises:
            TimeoutError: it did not hold within `limit_s` virtual seconds.
        """
        began_ns = self.now_ns
        until_ns = began_ns + int(limit_s * 1e9)
        while not condition():
            if not self._heap or self._heap[0][0] > until_ns:
                raise TimeoutError(f"not within {limit_s} virtual seconds")
            self.now_ns, _, happening = heapq.heappop(self._heap)
            happening()
        return (self.now_ns - began_ns) / 1e9

    # --- time ---------------------------------------------------------------------------------

    def _plan(self, delay_ns: int, happening: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ns + delay_ns, self._count, happening))

    def _plan_for(self, host: Host, delay_ns: int, happening: Callable[[], None]) -> None:
        """Plan something that the host must be running to notice."""

        def arrive() -> None:
            if not host.alive:
                return
            if host.stopped:
                host.held_back.append(happening)
            else:
                happening()

        self._plan(delay_ns, arrive)

    def _carry(self, sender: Host, host: Host, happening: Callable[[], None]) -> None:
        """Plan what one host's bytes do at another, now or when the cut between them is mended."""
        if self._is_cut(sender.id, host.id):
            self._held_back.append((host, happening))
        else:
            self._plan_for(host, DELAY_NS, happening)

    def _plan_wake(self, host: Host) -> None:
        deadline_ns = host.node.deadline_ns
        if deadline_ns is None or host.exit is not None:
            return
        at_ns = max(deadline_ns, self.now_ns)
        if host.wake_planned_ns is not None and host.wake_planned_ns <= at_ns:
            return
        host.wake_planned_ns = at_ns

        def wake() -> None:
            if not host.alive or host.stopped or host.wake_planned_ns != at_ns:
                return
            host.wake_planned_ns = None
            due_ns = host.node.deadline_ns
            if due_ns is not None and due_ns <= self.now_ns:
                self._step(host, DeadlineReached())
            else:
                self._plan_wake(host)

        self._plan(at_ns - self.now_ns, wake)

    # --- cores --------------------------------------------------------------------------------

    def _step(self, host: Host, event: Event) -> None:
        if not host.alive or host.exit is not None:
            return
        for effect in host.node.step(self.now_ns, event):
            self._carry_out(host, effect)
        self._plan_wake(host)

    def _carry_out(self, host: Host, effect: Effect) -> None:
        match effect:
            case Send(link, message):
                self._transmit(host, link, encode(message))
            case Dial():
                self._dial(host, effect)
            case Welcome(link, known):
                self._welcome(host, link, known)
            case Refuse(link):
                self._refuse(host, link, effect)
            case Close(link):
                end = host.ends.get(link)
                if end is not None:
                    self._break(end, Evidence.GOODBYE)
            case ForwardingChanged(snapshot):
                host.snapshot = snapshot
            case Deliver():
                host.delivered.append(effect)
            case Reply(request):
                host.replies[request] = effect
            case Observed():
                host.observed.append((self.now_ns, effect))
            case RecordChanged():
                host.records.append(effect)
            case Exit():
                host.exit = effect
                self.kill(host.id)
            case Renewed():
                pass

    # --- connections --------------------------------------------------------------------------

    def _dial(self, host: Host, dial: Dial) -> None:
        target = self.hosts.get(NodeId(int(dial.address[3:].partition(":")[0])))
        if self._is_cut(host.id, dial.peer) or (target and self._is_cut(dial.peer, host.id)):
            self._fail(host, dial, dial.timeout_ns, Evidence.NO_ANSWER)
        elif target is None or not target.alive:
            self._fail(host, dial, DELAY_NS, Evidence.REFUSED)
        else:
            mine = _End(host, self._new_link(), dial=dial)
            theirs = _End(target, self._new_link(), other=mine)
            mine.other = theirs
            host.ends[mine.link] = mine
            target.ends[theirs.link] = theirs
            greeted = Greeted(
                theirs.link,
                host.id,
                host.node.incarnation,
                PEERS.address_of(host.id),
                dial.known,
                dial.dial_number,
            )
            self._plan_for(target, DELAY_NS, lambda: self._greet(theirs, greeted))
            self._plan_for(host, dial.timeout_ns, lambda: self._time_out(mine))

    def _new_link(self) -> LinkId:
        self._link_count += 1
        return LinkId(self._link_count)

    def _fail(self, host: Host, dial: Dial, delay_ns: int, evidence: Evidence) -> None:
        failed = DialFailed(dial.peer, evidence)
        self._plan_for(host, delay_ns, lambda: self._step(host, failed))

    def _greet(self, end: _End, greeted: Greeted) -> None:
        if end.open:
            self._step(end.host, greeted)

    def _time_out(self, end: _End) -> None:
        if end.open and not end.up and end.dial is not None:
            self._forget(end)
            if end.other is not None:
                self._break(end.other, Evidence.EOF)
            self._step(end.host, DialFailed(end.dial.peer, Evidence.NO_ANSWER))

    def _welcome(self, host: Host, link: LinkId, known: Incarnation) -> None:
        end = host.ends.get(link)
        if end is None or end.other is None:
            return
        end.up = True
        mine, acceptor = end.other, host.node.incarnation

        def arrive() -> None:
            dial = mine.dial
            if not mine.open or dial is None:
                return
            mine.up = True
            up = LinkUp(mine.link, dial.peer, acceptor, dial.address, known, dial.dial_number)
            self._step(mine.host, up)

        self._plan_for(mine.host, DELAY_NS, arrive)

    def _refuse(self, host: Host, link: LinkId, refuse: Refuse) -> None:
        end = host.ends.get(link)
        if end is None or end.other is None or end.other.dial is None:
            return
        mine, dial = end.other, end.other.dial
        self._forget(end)
        failed = DialFailed(dial.peer, Evidence.REJECTED, refuse.refusal, refuse.known)

        def arrive() -> None:
            if mine.open:
                self._forget(mine)
                self._step(mine.host, failed)

        self._plan_for(mine.host, DELAY_NS, arrive)

    def _is_cut(self, a: NodeId, b: NodeId) -> bool:
        return (a, b) in self.cuts

    def _forget(self, end: _End) -> None:
        end.open = False
        end.host.ends.pop(end.link, None)

    def _break(self, end: _End, evidence: Evidence) -> None:
        """Close one end now; the other end learns of it after what is underway to it."""
        self._forget(end)
        other = end.other
        if other is None or not other.open:
            return

        def arrive() -> None:
            if not other.open:
                return
            self._forget(other)
            if other.dial is not None and not other.up:
                self._step(other.host, DialFailed(other.dial.peer, Evidence.EOF))
            else:
                self._step(other.host, LinkDown(other.link, evidence))

        self._carry(end.host, other.host, arrive)

    def _reset(self, sender: _End, by: Host) -> None:
        """Bytes came to an end that is closed: its kernel says so."""

        def arrive() -> None:
            if sender.open:
                self._forget(sender)
                self._step(sender.host, LinkDown(sender.link, Evidence.RESET))

        self._carry(by, sender.host, arrive)

    # --- bytes --------------------------------------------------------------------------------

    def _transmit(self, host: Host, link: LinkId, data: bytes) -> None:
        end = host.ends.get(link)
        if end is None or end.other is None:
            return
        other = end.other
        self._carry(host, other.host, lambda: self._arrive(end, other, data))

    def _arrive(self, sender: _End, end: _End, data: bytes) -> None:
        host, snapshot = end.host, end.host.snapshot
        if not end.open:
            self._reset(sender, host)
            return
        if snapshot is None:
            return
        buffer = bytearray(data)
        _, runs, bodies, error = snapshot.split(buffer, len(buffer), sender.host.id)
        assert error is None, error
        if runs:
            self._step(host, Heard((end.link,)))
        for out, run in runs:
            self._transmit(host, LinkId(out), run)
        for body in bodies:
            self._step(host, Received(end.link, decode(body)))
