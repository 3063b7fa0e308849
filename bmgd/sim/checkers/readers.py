"""What readers get: each message once and in order, again what another one left, long ones whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bmgd.core.commands import Consumed, MulticastTo, PutSegment, SendTo, Subscribe, Unsubscribe
from bmgd.core.effects import Deliver, Effect, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Event
from bmgd.core.topics.inboxes import is_inbox
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.messages import Owner
from bmgd.sim.checkers.multicasts import copy_of
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.host import Host
from bmgd.types import NodeId
from bmgd.wire.batch import unpack_messages

NAME_BYTES: Final = 8
"""A long message begins with its number, of so many bytes."""


@dataclass(slots=True)
class _Hands:
    """What the readers of one process have in their hands.

    Args:
        handed: all that was ever handed out; begun: long messages of which a piece was.
        topics: of each reader.
        unconsumed: of each reader, in the order in which it got them.
        left: of each topic, what readers that went away had not consumed, in order.
    """

    host: Host
    handed: set[bytes] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    topics: dict[int, str] = field(default_factory=dict)
    unconsumed: dict[int, deque[bytes]] = field(default_factory=dict)
    left: dict[str, deque[bytes]] = field(default_factory=dict)


class ReadersGetEachOnce(Checker):
    """What is handed out was not handed out before, unless it is marked so, and is in order.

    A long message has its place in the order where its first piece comes.

    What a reader had not consumed when it went away is the next that readers of its topic get, marked.
    """

    name: ClassVar[str] = "readers-get-each-once"
    events: ClassVar[Kinds] = (CommandIssued,)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Deliver,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._hands: dict[NodeId, _Hands] = {}
        self._numbers: dict[bytes, tuple[Owner, int]] = {}
        self._latest: dict[tuple[NodeId, Owner], int] = {}

    def on_boot(self, journal: Journal) -> None:
        # Who is given another id keeps its queues and its readers.
        hands = self._hands.get(journal.place)
        if hands is None or hands.host is not journal.host:
            self._hands[journal.place] = _Hands(journal.host)

    def before(self, journal: Journal, event: Event) -> None:
        if not isinstance(event, CommandIssued):
            return
        me, life = journal.host.id, journal.inside.context.incarnation
        hands, request = self._hands[journal.place], event.request
        match event.command:
            case SendTo(destination, topic, payload):
                self._number(payload, (me, life, (destination, topic)))
            case MulticastTo(destinations, topic, payload, reliable=True):
                for each in ids_in(destinations):
                    to = NodeId(each)
                    self._number(copy_of(payload, to), (me, life, (to, topic)))
            case PutSegment(count, body) if count:
                streams = [s for s in journal.inside.streams_out() if s.owner == request]
                if streams and not streams[0].best_effort:
                    for payload in unpack_messages(body, count):
                        self._number(payload, (me, life, request))
            case PutSegment(body=body, size=size, first=True) if size:
                streams = [s for s in journal.inside.streams_out() if s.owner == request]
                if streams and not streams[0].inbox:
                    self._number(_beginning(body), (me, life, request))
            case Subscribe(topic):
                hands.topics[request] = topic
            case Consumed(count, long) if not long:
                unconsumed = hands.unconsumed.get(request, deque())
                for _ in range(min(count, len(unconsumed))):
                    unconsumed.popleft()
            case Unsubscribe():
                topic = hands.topics.pop(request, "")
                left = hands.left.setdefault(topic, deque())
                left.extendleft(reversed(hands.unconsumed.pop(request, ())))

    def _number(self, payload: bytes, owner: Owner) -> None:
        self._numbers.setdefault(payload, (owner, len(self._numbers)))

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver) and effect.count:
                self._check_whole(journal, effect)
            # Questions are not handed out again, and answers not told apart by what they say.
            if isinstance(effect, Deliver) and effect.count and not _is_of_request(effect):
                self._on_handed(journal, effect)
            if isinstance(effect, Deliver) and effect.long and not _is_of_request(effect):
                self._on_piece(journal, effect)

    def _on_piece(self, journal: Journal, piece: Deliver) -> None:
        begun = self._hands[journal.place].begun
        if piece.long not in begun and not piece.aborted:
            begun.add(piece.long)
            self._check_order(journal, _beginning(piece.body))

    def _check_whole(self, journal: Journal, deliver: Deliver) -> None:
        """Whole messages are no pieces; numbers of questions are told of questions."""
        of_piece = deliver.long, deliver.size, deliver.last, deliver.aborted
        if of_piece != (0, 0, False, "") or bool(deliver.inbox) != bool(deliver.question):
            self.violate(journal, f"hands out messages of {deliver.source} as {deliver!r}")

    def _on_handed(self, journal: Journal, deliver: Deliver) -> None:
        hands = self._hands[journal.place]
        left = hands.left.get(deliver.topic)
        unconsumed = hands.unconsumed.setdefault(deliver.request, deque())
        for payload in unpack_messages(deliver.body, deliver.count):
            unconsumed.append(payload)
            if (payload in hands.handed) != deliver.redelivered:
                text = "again, and is not marked" if payload in hands.handed else "as if again"
                self.violate(journal, f"hands out a message of {deliver.source} {text}")
            hands.handed.add(payload)
            if left and payload == left[0]:
                left.popleft()
            elif left:
                text = f"before {len(left)} that a reader left without having consumed them"
                self.violate(journal, f"hands out a message of {deliver.source} {text}")
            if not deliver.redelivered:
                self._check_order(journal, payload)

    def _check_order(self, journal: Journal, payload: bytes) -> None:
        copy = copy_of(payload, journal.host.id)
        known = self._numbers.get(payload) or self._numbers.get(copy)
        if known is None:
            return
        owner, index = known
        latest = self._latest.get((journal.place, owner), -1)
        if index < latest:
            self.violate(journal, f"hands out a message of {owner[0]} out of order")
        self._latest[journal.place, owner] = max(latest, index)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            hands = self._hands[journal.place]
            for topic in hands.topics.values():
                if count := len(hands.left.get(topic, ())):
                    text = f"{count} messages of {topic!r} that a reader left do not come again"
                    self.violate(journal, text)


def _beginning(body: bytes) -> bytes:
    """The name of a long message, which no short one has: it begins with its number."""
    return b"long " + body[:NAME_BYTES]


def _is_of_request(deliver: Deliver) -> bool:
    return bool(deliver.inbox) or is_inbox(deliver.topic)


@dataclass(slots=True)
class _Whole:
    """A long message as its program put it, and as a reader had it."""

    source: NodeId
    destination: NodeId
    body: bytearray = field(default_factory=bytearray)
    size: int = 0
    first_number: int = 0
    last_number: int = 0
    taken: bool = False
    given_up: bool = False


@dataclass(slots=True)
class _Read:
    """A long message as it comes to a reader."""

    request: int
    body: bytearray = field(default_factory=bytearray)
    unconsumed: int = 0
    complete: bool = False


class LongMessagesAreWhole(Checker):
    """Pieces come to one reader, each once and in order; confirmed is what the reader has consumed.

    It is the reader that its node bound the message to: no other one could say that it has consumed it.

    Nobody waits for the rest of one whose source is dead.
    """

    name: ClassVar[str] = "long-messages-are-whole"
    events: ClassVar[Kinds] = (CommandIssued,)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Deliver, StreamMoved, StreamEnded)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._whole: dict[bytes, _Whole] = {}
        self._putting: dict[tuple[NodeId, int], _Whole] = {}
        self._numbers: dict[tuple[NodeId, int], int] = {}
        self._unconfirmed: dict[tuple[NodeId, int], list[_Whole]] = {}
        self._reads: dict[NodeId, dict[int, _Read]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._reads[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        if not isinstance(event, CommandIssued):
            return
        key = journal.host.id, event.request
        match event.command:
            case PutSegment() as put:
                self._numbers[key] = self._numbers.get(key, 0) + 1
                if put.size:
                    self._on_put(journal, key, put)
            case Consumed(count, long) if long:
                read = self._reads[journal.place].get(long)
                if read is not None:
                    read.unconsumed -= count
                    if read.complete and read.unconsumed <= 0:
                        whole = self._whole.get(bytes(read.body[:NAME_BYTES]))
                        if whole is not None:
                            whole.taken = True

    def _on_put(self, journal: Journal, key: tuple[NodeId, int], put: PutSegment) -> None:
        streams = [s for s in journal.inside.streams_out() if s.owner == key[1]]
        if not streams:
            return
        if put.first:
            number = self._numbers[key]
            whole = _Whole(
                journal.host.id, streams[0].destination, size=put.size, first_number=number
            )
            self._putting[key] = self._whole[put.body[:NAME_BYTES]] = whole
        whole = self._putting[key]
        whole.body += put.body
        if put.last:
            whole.last_number = self._numbers[key]
        if put.last and not whole.given_up:
            self._unconfirmed.setdefault(key, []).append(whole)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver() if effect.long:
                    self._on_piece(journal, effect)
                case StreamMoved(request, following):
                    told = {*effect.withdrawn, *effect.doubted}
                    self._on_confirmed(journal, request, following, told)
                case StreamEnded(request, following):
                    self._on_confirmed(journal, request, following, set())
                case _:
                    pass

    def _on_piece(self, journal: Journal, piece: Deliver) -> None:
        reads = self._reads[journal.place]
        read = reads.setdefault(piece.long, _Read(piece.request))
        if piece.redelivered:
            self.violate(journal, "a piece is marked as if another reader had had it")
        if piece.aborted:
            del reads[piece.long]
            return
        if read.request != piece.request:
            self.violate(journal, "a long message goes to two readers")
        elif journal.inside.bound_to(piece.long) not in (None, piece.request):
            self.violate(journal, "a piece goes to another reader than its message is bound to")
        at = len(read.body)
        read.body += piece.body
        read.unconsumed += 1
        read.complete = piece.last
        whole = self._whole.get(bytes(read.body[:NAME_BYTES]))
        if whole is None:
            self.violate(journal, f"a long message that {piece.source} never sent")
        elif whole.body[at : len(read.body)] != piece.body:
            self.violate(journal, f"a piece of {piece.source}'s long message is not the next one")
        elif piece.last != (len(read.body) == whole.size):
            self.violate(journal, f"the end of {piece.source}'s long message is not its end")

    def _on_confirmed(self, journal: Journal, request: int, following: int, told: set[int]) -> None:
        key = journal.host.id, request
        putting = self._putting.get(key)
        if putting is not None and not putting.last_number:
            # What its daemon gives up of a message it gives up whole; the rest may be on its way to it.
            putting.given_up |= any(number >= putting.first_number for number in told)
        waiting = self._unconfirmed.get(key)
        if not waiting:
            return
        for whole in list(waiting):
            if whole.last_number in told:
                waiting.remove(whole)
            elif whole.last_number < following:
                waiting.remove(whole)
                if not whole.taken:
                    self.violate(journal, "a long message was confirmed before it was read")

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            inside = journal.inside
            for long in inside.topics.longs.by_stream.values():
                if not long.complete and inside.membership.is_gone(long.source):
                    self.violate(
                        journal, f"waits for a long message of {long.source}, which is dead"
                    )
