"""A core, and what surrounds it: random events, as a shell could tell them.

Only what the shell can give is given: a dial is answered once, a link is up before it is down, a frame of
a link that the core has closed may still come, a program consumes no more than it was given. What the
core orders is checked: every message that it sends can be written and read again.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from random import Random

from benchmarks.arbitrary.commands import Commands
from benchmarks.arbitrary.messages import Messages
from benchmarks.arbitrary.values import MS
from bmgd.core.commands import (
    AskReports,
    Command,
    Consumed,
    ConsumedAnnouncements,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    OpenStream,
    SendReport,
    Settled,
    Subscribe,
)
from bmgd.core.effects import (
    Announce,
    Close,
    Deliver,
    Dial,
    Displaced,
    Effect,
    Exit,
    Grant,
    Refuse,
    Renewed,
    Reply,
    ReportWanted,
    Send,
    StreamEnded,
    TellMissed,
    Welcome,
)
from bmgd.core.events import (
    AbsorbedBeat,
    Backlog,
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    Heard,
    HeartbeatsAbsorbed,
    JoinAsked,
    KeysChanged,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.policy import HealingPolicy
from bmgd.types import Evidence, Incarnation, LinkId, NodeId
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.hello import Refusal

LAST_SHOWN = 12
POLICIES = ("every-death", "after:3", "overhead:20%", "overhead:2", "off")
PLAIN = ("every-death", "off")
"""Of clusters so large that ways cannot be measured within a step."""
SIZES = (1, 2, 3, 5, 8, 9, 16, 33, 64, 300, 5000, 2**31)
LINKS_MAX = 40
_KEPT = (OpenStream, Subscribe, OpenInbox, OpenQuestions, OpenAnswers)
"""Requests that go on."""


@dataclass(slots=True)
class _Request:
    """What the shell keeps of a program's request."""

    command: Command
    unread: int = 0
    unread_pieces: int = 0
    unread_broadcasts: int = 0
    longs: int = 0


class World:
    """A core, and all that surrounds it: only what a shell can tell is told.

    Args:
        seed: decides the settings, the events and their times.
    """

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.size = random.choice(SIZES)
        is_joiner = random.random() < 0.15
        own = NodeId(
            self.size + 2
            if is_joiner and self.size < 2**30
            else random.randrange(min(self.size, 64))
        )
        self.arbitrary = Messages(random, own, min(self.size, 64))
        self.commands = Commands(self.arbitrary)
        self.settings = Settings(
            id=own,
            founding_size=self.size,
            peers=PeerList(template="127.0.0.1:{7400+id}"),
            address=f"127.0.0.1:{7400 + own}",
            healing=HealingPolicy.parse(random.choice(POLICIES if self.size < 10_000 else PLAIN)),
            reconstructs=random.random() < 0.1,
            refutes=random.random() < 0.9,
            proxied=random.random() < 0.2,
            quorum=random.random() < 0.3,
            takes_new_id=own >= self.size,
        )
        self.now_ns = random.randrange(1, 10**12)
        self.last: deque[Event] = deque(maxlen=LAST_SHOWN)
        self.counts: Counter[str] = Counter()
        self.slowest: tuple[int, Event | None] = 0, None
        self._link = self._request = 0
        self._begin(
            Incarnation(
                (random.choice((1, 1, 2, 2**31, 2**32 - 1)) << 32) + random.getrandbits(32)
            ),
            None,
        )

    def _begin(self, incarnation: Incarnation, former: Node | None) -> None:
        """A core in place of the former one."""
        self.node = Node(
            self.settings, incarnation, Random(self.random.getrandbits(64)), self.now_ns
        )
        if former is not None:
            self.node.inherit(former)
        self.arbitrary.lives.append(incarnation)
        self._up: dict[LinkId, NodeId] = {}
        self._closed: deque[LinkId] = deque(maxlen=8)
        self._hellos: dict[LinkId, NodeId] = {}
        self._joiners: dict[LinkId, None] = {}
        self._dials: list[Dial] = []
        self._requests: dict[int, _Request] = {}
        self._queue: deque[Event] = deque([DeadlineReached()])
        self._wanted: list[ReportWanted] = []

    # --- steps ------------------------------------------------------------------------------------

    def run(self, events: int) -> None:
        """Give the core so many events.

        Raises:
            Exception: whatever the core raised; `last` holds the events that led to it.
        """
        for _ in range(events):
            event = self._queue.popleft() if self._queue else self._event()
            self.last.append(event)
            self.counts[type(event).__name__] += 1
            if isinstance(event, Received):
                self.counts[type(event.message).__name__] += 1
            began_ns = time.thread_time_ns()
            effects = self.node.step(self.now_ns, event)
            took_ns = time.thread_time_ns() - began_ns
            if took_ns > self.slowest[0]:
                self.slowest = took_ns, event
            for effect in effects:
                if self._carry_out(effect):
                    break

    def _event(self) -> Event:
        """Whatever may happen next."""
        random = self.random
        chosen = random.random()
        deadline_ns = self.node.deadline_ns
        if deadline_ns is not None and (deadline_ns <= self.now_ns or chosen < 0.15):
            late_ns = random.choice((0, 0, 0, 0, MS, 60 * MS, 5000 * MS)) if chosen < 0.05 else 0
            self.now_ns = max(self.now_ns, deadline_ns) + late_ns
            return DeadlineReached()
        self.now_ns += random.choice((0, 0, 1, 1000, MS // 10, MS))
        if chosen < 0.65 and self._up:
            return self._received()
        if chosen < 0.83:
            return self._command()
        return random.choice(
            (self._dialled, self._dialled, self._greeted, self._greeted, self._lost, self._rare)
        )()

    def _received(self) -> Event:
        arbitrary = self.arbitrary
        message = arbitrary.like() if arbitrary.chance(0.4) else arbitrary.message()
        if self._joiners and arbitrary.chance(0.02):
            return Received(self.random.choice(list(self._joiners)), message)
        if self._closed and arbitrary.chance(0.02):
            return Received(self.random.choice(self._closed), message)
        link = self.random.choice(list(self._up))
        if arbitrary.chance(0.02):
            return Heard((link, LinkId(999_999)))
        if arbitrary.chance(0.05):
            sequence, echo = arbitrary.number(1), arbitrary.number()
            beat = AbsorbedBeat(link, self.now_ns, sequence, echo, arbitrary.random.randrange(1, 9))
            return HeartbeatsAbsorbed((beat,))
        return Received(link, message)

    def _life(self) -> Incarnation:
        life = Incarnation(max(1, self.arbitrary.life()))
        self.arbitrary.lives.append(life)
        return life

    def _known_of_me(self) -> Incarnation:
        return self.node.incarnation if self.arbitrary.chance(0.8) else self.arbitrary.life()

    def _next_link(self) -> LinkId:
        self._link += 1
        return LinkId(self._link)

    def _greeted(self) -> Event:
        arbitrary, link = self.arbitrary, self._next_link()
        if arbitrary.chance(0.2):
            self._joiners[link] = None
            claimed = None if arbitrary.chance(0.7) else arbitrary.id()
            return JoinAsked(link, claimed, self._life(), arbitrary.address())
        peer = self._hellos[link] = arbitrary.other()
        key, renews = self.random.choice(("", "a", "b")), arbitrary.chance(0.2)
        number = arbitrary.number(0, 2**32 - 1)
        known = self._known_of_me()
        return Greeted(
            link,
            peer,
            self._life(),
            arbitrary.address(),
            known,
            number,
            key,
            renews,
            arbitrary.features(),
        )

    def _dialled(self) -> Event:
        """A dial is answered, if there is one."""
        if not self._dials:
            return self._greeted()
        dial = self._dials.pop(self.random.randrange(len(self._dials)))
        arbitrary = self.arbitrary
        if arbitrary.chance(0.6) and dial.peer != self.settings.id:
            link = self._next_link()
            self._up[link] = dial.peer
            known, key = self._known_of_me(), self.random.choice(("", "a", "b"))
            address = arbitrary.address()
            return LinkUp(
                link,
                dial.peer,
                self._life(),
                address,
                known,
                dial.dial_number,
                key,
                dial.renews,
                arbitrary.features(),
            )
        evidence = self.random.choice(tuple(Evidence))
        if evidence is Evidence.REJECTED:
            refusal = self.random.choice(tuple(Refusal))
            return DialFailed(dial.peer, evidence, refusal, arbitrary.life())
        return DialFailed(dial.peer, evidence)

    def _lost(self) -> Event:
        """A link, or a hello that waits, goes away."""
        waiting = [*self._hellos, *self._joiners, *self._up]
        if not waiting:
            return self._greeted()
        link = self.random.choice(waiting[-LINKS_MAX:])
        self._forget(link)
        return LinkDown(link, self.random.choice(tuple(Evidence)))

    def _rare(self) -> Event:
        if self._up and self.arbitrary.chance(0.5):
            return Backlog(self.random.choice(list(self._up)), self.random.getrandbits(24))
        keys = self.random.choice(((), ("a",), ("a", "b"), ("b", "a")))
        return KeysChanged(keys)

    # --- programs ---------------------------------------------------------------------------------

    def _command(self) -> Event:
        arbitrary = self.arbitrary
        if self._wanted and arbitrary.chance(0.5):
            wanted = self._wanted.pop()
            return self._issued(SendReport(wanted.asker, wanted.tag, wanted.number, b"{}"))
        if arbitrary.chance(0.02):
            return self._issued(AskReports(arbitrary.ids(40)))
        if not self._requests or arbitrary.chance(0.4):
            return self._issued(self.commands.request())
        number = self.random.choice(list(self._requests))
        request = self._requests[number]
        command: Command = self.commands.follow_up()
        if isinstance(request.command, Subscribe | OpenInbox):
            command = self._consumed(request) or command
        return CommandIssued(number, command)

    def _issued(self, command: Command) -> Event:
        self._request += 1
        if isinstance(command, Subscribe):
            self.commands.readers.append(self._request)
        if isinstance(command, _KEPT):
            self._requests[self._request] = _Request(command)
            if len(self._requests) > 60:
                del self._requests[next(iter(self._requests))]
        return CommandIssued(self._request, command)

    def _consumed(self, request: _Request) -> Command | None:
        """As much as the shell lets through."""
        random = self.random
        if request.unread and random.random() < 0.5:
            count = random.randrange(1, min(request.unread, 9) + 1)
            request.unread -= count
            if isinstance(request.command, OpenInbox):
                numbers = (self.arbitrary.number(1) for _ in range(random.randrange(4)))
                return Settled(count, tuple(numbers))
            return Consumed(count)
        if request.unread_pieces and random.random() < 0.5:
            count = random.randrange(1, min(request.unread_pieces, 9) + 1)
            request.unread_pieces -= count
            return Consumed(count, random.choice((request.longs, request.longs, 1, 2**48)))
        if request.unread_broadcasts and random.random() < 0.5:
            count = random.randrange(1, min(request.unread_broadcasts, 9) + 1)
            request.unread_broadcasts -= count
            return ConsumedAnnouncements(count)
        return None

    # --- effects ----------------------------------------------------------------------------------

    def _forget(self, link: LinkId) -> None:
        self._up.pop(link, None)
        self._joiners.pop(link, None)
        self._hellos.pop(link, None)

    def _carry_out(self, effect: Effect) -> bool:
        """What the shell does; True where the core is over."""
        match effect:
            case Send(_, message):
                body = encode(message)[LENGTH_BYTES:]
                assert decode(body) == message, message
                self.arbitrary.note(message)
            case Dial():
                self._dials.append(effect)
            case Welcome(link):
                if link in self._hellos:
                    self._up[link] = self._hellos.pop(link)
                else:
                    self._queue.append(LinkDown(link, Evidence.EOF))
            case Grant(link):
                if link not in self._joiners:
                    self._queue.append(LinkDown(link, Evidence.NO_ANSWER))
            case Refuse(link) | Close(link):
                self._forget(link)
                self._closed.append(link)
            case Deliver(request):
                self._note_delivered(request, effect)
            case Announce(request) | TellMissed(request):
                if request in self._requests:
                    self._requests[request].unread_broadcasts += 1
            case StreamEnded(request):
                self._requests.pop(request, None)
            case Reply(request, _, error) if error is not None:
                self._requests.pop(request, None)
            case Reply(result={"inbox": int(inbox)}):
                self.commands.inboxes.append(inbox)
            case ReportWanted():
                self._wanted.append(effect)
            case Renewed(incarnation):
                self.arbitrary.lives.append(incarnation)
            case Exit() | Displaced():
                life = Incarnation(min(self.node.incarnation + (1 << 32), 2**64 - 1))
                self.counts[type(effect).__name__] += 1
                self._begin(life, self.node if isinstance(effect, Displaced) else None)
                return True
        return False

    def _note_delivered(self, number: int, deliver: Deliver) -> None:
        request = self._requests.get(number)
        if request is None:
            return
        request.unread += deliver.count
        if deliver.long:
            request.unread_pieces += 1
            request.longs = deliver.long
