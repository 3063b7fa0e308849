"""The programs of a simulated cluster that ask each other, and answer.

Every daemon has a program that asks, with an inbox, and one that reads a topic and answers what it gets:
after a while, or never, and it may go away with questions in its hands. A source picks by chance who asks
whom, dead or alive, and how many questions go into one segment. An answer repeats its question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bmgd.chaos.plan import Workload
from bmgd.core.commands import (
    CloseStream,
    Command,
    Consumed,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    PutSegment,
    Settled,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.effects import Deliver, Effect, Reply, StreamEnded, StreamMoved
from bmgd.core.events import Event
from bmgd.core.topics.questions import Asker
from bmgd.errors import RequestError
from bmgd.sim.arrivals import Arrivals
from bmgd.sim.host import Host
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher
from bmgd.sim.readers import JOINING_NS, NUMBER_BYTES, reading_ns_max
from bmgd.types import NodeId
from bmgd.wire.answers import ANSWER, FAILED, answer_head, read_head
from bmgd.wire.batch import pack_messages, unpack_messages

ASKED: Final = "rpc"
SHARE: Final = 0.25
"""Segments of questions, for each message to one."""
QUESTIONS_MAX: Final = 4
"""In one segment."""
HANGS_UP: Final = 0.02
"""So often an asker goes away instead of asking."""
CREDITS: Final = (2, 8)
CREDIT_BYTES: Final = 1 << 20
STAYS_NS: Final = 3_000_000_000
AWAY_NS: Final = 500_000_000
THINKS_NS: Final = 200_000_000
AGAIN_NS: Final = 5_000_000
"""An answer for which there is no credit is put again so soon."""
ANSWERS_TWICE: Final = 0.05
"""So often a program answers a question twice in one segment; the first answer counts."""
LONG_BYTES: Final = 100_000
_FIRST_NUMBER: Final = 1 << 41
"""So that no question is also a message of another kind."""


@dataclass(slots=True)
class _Stream:
    """A stream of questions, or of answers.

    Args:
        credit: up to which cost it may put, once the daemon has told it.
        put_cost: of what it has put.
        next: number of the segment that it puts next.
        first: of a stream of questions, the number of the next one.
        segments: what is in each segment that is not done: questions by number.
        waiting: of a stream of answers that opens, what is to be answered by it.
    """

    host: Host
    credit: int | None = None
    put_cost: int = 0
    next: int = 1
    first: int = 0
    segments: dict[int, list[int]] = field(default_factory=dict)
    questions: set[int] = field(default_factory=set)
    waiting: list[tuple[int, bytes]] = field(default_factory=list)


class Askers(Watcher):
    """Those who ask, and those who answer.

    Args:
        network: the cluster.
        random: the programs' own chance.
        workload: how many messages, how large.
    """

    def __init__(self, network: Network, random: Random, workload: Workload) -> None:
        self._network = network
        self._random = random
        self._workload = workload
        self._number = _FIRST_NUMBER
        self._until_ns = 0
        self._arrivals = Arrivals(
            network, random, workload.messages_per_second * SHARE, self._ask_any
        )
        self._inboxes: dict[Host, tuple[int, int]] = {}
        self._opening: dict[int, Host] = {}
        self._readers: dict[int, Host] = {}
        self._asking: dict[tuple[Host, NodeId], int] = {}
        self._streams: dict[int, _Stream] = {}
        self._open: dict[tuple[Host, int], int] = {}
        """Questions without an outcome, and their streams."""
        self._answering: dict[tuple[int, Asker], int] = {}
        self._longs: dict[tuple[Host, int], bytes] = {}
        self._texts: dict[tuple[int, int], bytes] = {}
        """Answers that were put, by their stream and question."""

    @property
    def underway(self) -> int:
        """How many questions have no outcome yet."""
        return len(self._open)

    # --- who is there -------------------------------------------------------------------------

    def boot(self, host: Host) -> None:
        # Who takes a new id after another life took its own keeps its programs.
        if self._workload.messages_per_second > 0 and host not in self._inboxes:
            self._network.timeline.plan(self._network.now_ns, self._begin, host)

    def _begin(self, host: Host) -> None:
        if host in self._inboxes or not self._can_act(host, self._begin):
            return
        self._open_inbox(host)
        if self._random.random() < 0.8:
            self._subscribe(host)

    def _open_inbox(self, host: Host) -> None:
        request = self._network.next_request()
        self._opening[request] = host
        self._network.issue_as(host, request, OpenInbox(CREDIT_BYTES))

    def _can_act(self, host: Host, action: Callable[..., None], *args: object) -> bool:
        """Whether a process can act now; it does so later when it can then."""
        if not host.alive or self._network.hosts.get(host.where) is not host:
            return False
        if host.stopped:
            host.held_back.append((action, (host, *args)))
            return False
        if host.joiner is not None:
            at_ns = self._network.now_ns + JOINING_NS
            self._network.timeline.plan(at_ns, action, host, *args)
            return False
        return True

    def _subscribe(self, host: Host) -> None:
        if not self._can_act(host, self._subscribe):
            return
        network, request = self._network, self._network.next_request()
        self._readers[request] = host
        credit = self._random.choice(CREDITS)
        network.issue_as(host, request, Subscribe(ASKED, credit, CREDIT_BYTES, takes_long=True))
        stays_ns = self._random.randrange(1, STAYS_NS)
        network.timeline.plan(network.now_ns + stays_ns, self._go_away, host, request)

    def _go_away(self, host: Host, request: int) -> None:
        network = self._network
        if network.now_ns >= self._until_ns or request not in self._readers:
            return
        if not self._can_act(host, self._go_away, request):
            return
        del self._readers[request]
        for (reader, asker), stream in list(self._answering.items()):
            # One that is closed can end another of them in the same step.
            if reader == request and self._answering.pop((reader, asker), None) is not None:
                self._streams.pop(stream, None)
                network.issue_as(host, stream, CloseStream(abandon=self._random.random() < 0.5))
        network.issue_as(host, request, Unsubscribe())
        away_ns = self._random.randrange(1, AWAY_NS)
        network.timeline.plan(network.now_ns + away_ns, self._subscribe, host)

    # --- asking -------------------------------------------------------------------------------

    def start(self, until_ns: int) -> None:
        """Ask until then."""
        self._until_ns = until_ns
        self._arrivals.start(until_ns)

    def _ask_any(self) -> None:
        there = [host for host in self._network.hosts.values() if host.joiner is None]
        if there:
            host, destination = self._random.choice(there), self._random.choice(there).id
            if host.alive and not host.stopped and host in self._inboxes:
                if self._random.random() < HANGS_UP:
                    self._hang_up(host)
                else:
                    self._ask(host, destination)

    def _hang_up(self, host: Host) -> None:
        """A program that asks goes away, with its questions, and another one comes."""
        for (asker, destination), request in list(self._asking.items()):
            # The daemon may end in the step in which one is closed, and all others with it.
            if asker is host and self._asking.pop((asker, destination), None) is not None:
                self._streams.pop(request, None)
                self._network.issue_as(host, request, CloseStream(abandon=True))
        for key in [key for key in self._open if key[0] is host]:
            del self._open[key]
        if host in self._inboxes:
            self._network.issue_as(host, self._inboxes.pop(host)[0], Unsubscribe())
            self._open_inbox(host)

    def _ask(self, host: Host, destination: NodeId) -> None:
        network, random = self._network, self._random
        request = self._asking.get((host, destination))
        if request is None:
            request = network.next_request()
            self._asking[host, destination] = request
            self._streams[request] = _Stream(host)
            command = OpenQuestions(destination, ASKED, 2, self._inboxes[host][1])
            network.issue_as(host, request, command)
        stream = self._streams.get(request)
        if stream is None or stream.credit is None:
            return
        payloads = [self._new_payload() for _ in range(random.randint(1, QUESTIONS_MAX))]
        puts = [PutSegment(len(payloads), pack_messages(payloads), timeout_ns=self._timeout_ns)]
        if random.random() < 0.1:
            puts, payloads = self._long(), payloads[:1]
        numbers = list(range(stream.first, stream.first + len(payloads)))
        cost = sum(len(put.body) + 256 for put in puts)
        if stream.put_cost + cost > stream.credit:
            return
        stream.first += len(numbers)
        stream.questions.update(numbers)
        for number in numbers:
            self._open[host, number] = request
            at_ns = network.now_ns + self._timeout_ns
            network.timeline.plan(at_ns, self._give_up, host, number)
        for put in puts:
            if request not in self._streams or (host, numbers[0]) not in self._open:
                return
            stream.put_cost += len(put.body) + 256
            # A long one is lost with any of its pieces.
            stream.segments[stream.next] = numbers
            stream.next += 1
            network.issue_as(host, request, put)

    @property
    def _timeout_ns(self) -> int:
        return int(self._workload.timeout_s * 1e9)

    def _new_payload(self) -> bytes:
        self._number += 1
        return self._number.to_bytes(NUMBER_BYTES, "big")

    def _long(self) -> list[PutSegment]:
        """A long question in two pieces; its beginning names it."""
        whole = self._new_payload() + self._random.randbytes(LONG_BYTES - NUMBER_BYTES)
        half = LONG_BYTES // 2
        ns = self._timeout_ns
        return [
            PutSegment(0, whole[:half], LONG_BYTES, first=True, timeout_ns=ns),
            PutSegment(0, whole[half:], LONG_BYTES, last=True, timeout_ns=ns),
        ]

    def _give_up(self, host: Host, number: int) -> None:
        if (host, number) in self._open and self._can_act(host, self._give_up, number):
            self._settle(host, 0, [number])

    def _settle(self, host: Host, count: int, numbers: list[int]) -> None:
        """So many messages of the inbox are taken, and these questions have their outcome."""
        done = []
        for number in numbers:
            request = self._open.pop((host, number), None)
            if request is not None:
                done.append(number)
                if request in self._streams:
                    self._streams[request].questions.discard(number)
        if count or done:
            self._later(host, self._inboxes[host][0], Settled(count, tuple(done)))

    def _later(self, host: Host, request: int, command: Command) -> None:
        """A program says something after a moment."""
        reading_ns = max(1, reading_ns_max(self._network, self._until_ns))
        at_ns = self._network.now_ns + self._random.randrange(reading_ns)
        self._network.timeline.plan(at_ns, self._issue, host, request, command)

    def _issue(self, host: Host, request: int, command: Command) -> None:
        if self._can_act(host, self._issue, request, command):
            self._network.issue_as(host, request, command)

    # --- what comes of it ---------------------------------------------------------------------

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    self._on_reply(host, effect)
                case Deliver() if effect.request in self._readers:
                    self._on_question(host, effect)
                case Deliver() if (host in self._inboxes) and (
                    effect.request == self._inboxes[host][0]
                ):
                    self._on_answers(host, effect)
                case StreamMoved() if effect.request in self._streams:
                    self._on_moved(effect)
                case StreamEnded() if effect.request in self._streams:
                    self._on_ended(effect.request)
                case _:
                    pass

    def _on_reply(self, host: Host, reply: Reply) -> None:
        opening = self._opening.pop(reply.request, None)
        if opening is not None and reply.error is None:
            self._inboxes[host] = reply.request, reply.result["inbox"]
        stream = self._streams.get(reply.request)
        if stream is None:
            return
        if reply.error is not None:
            self._on_ended(reply.request)
            return
        stream.credit = reply.result["credit"]
        stream.first = reply.result.get("first", 0)
        if stream.waiting:
            waiting, stream.waiting = stream.waiting, []
            self._network.timeline.plan(
                self._network.now_ns, self._put_answers, host, reply.request, waiting
            )

    def _on_moved(self, moved: StreamMoved) -> None:
        stream = self._streams[moved.request]
        if stream.credit is not None:
            stream.credit = moved.credit
        is_asking = moved.request in self._asking.values()
        for number in (*moved.withdrawn, *moved.doubted):
            questions = stream.segments.pop(number, [])
            if is_asking:
                self._settle(stream.host, 0, list(questions))
            elif number in moved.withdrawn and moved.error != RequestError.__name__:
                self._answer_again(stream.host, moved.request, questions)
        for number in [n for n in stream.segments if n < moved.next]:
            del stream.segments[number]

    def _on_ended(self, request: int) -> None:
        stream = self._streams.pop(request)
        self._asking = {key: r for key, r in self._asking.items() if r != request}
        self._answering = {key: r for key, r in self._answering.items() if r != request}
        if stream.questions:
            self._settle(stream.host, 0, sorted(stream.questions))

    def _on_answers(self, host: Host, deliver: Deliver) -> None:
        numbers = [read_head(each)[1] for each in unpack_messages(deliver.body, deliver.count)]
        self._settle(host, deliver.count, numbers)

    # --- answering ----------------------------------------------------------------------------

    def _on_question(self, host: Host, deliver: Deliver) -> None:
        if deliver.aborted:
            self._longs.pop((host, deliver.long), None)
            return
        consumed = Consumed(deliver.count or 1, deliver.long)
        if self._random.random() < 0.3:
            # It has them in its hands while it thinks.
            at_ns = self._network.now_ns + self._random.randrange(THINKS_NS)
            self._network.timeline.plan(at_ns, self._issue, host, deliver.request, consumed)
        else:
            self._later(host, deliver.request, consumed)
        if deliver.long:
            begun = self._longs.pop((host, deliver.long), deliver.body[:NUMBER_BYTES])
            if not deliver.last:
                self._longs[host, deliver.long] = begun
                return
            payloads = [begun]
        else:
            payloads = unpack_messages(deliver.body, deliver.count)
        asker = Asker(deliver.source, deliver.incarnation, deliver.inbox)
        for at, payload in enumerate(payloads):
            number, random = deliver.question + at, self._random
            if random.random() < 0.05:
                continue
            kind = FAILED if random.random() < 0.05 else ANSWER
            thinks_ns = random.randrange(1, THINKS_NS) if random.random() < 0.5 else 1
            answer = number, answer_head(kind, number) + payload
            answers = [answer, answer] if random.random() < ANSWERS_TWICE else [answer]
            at_ns = self._network.now_ns + thinks_ns
            self._network.timeline.plan(at_ns, self._answer, host, deliver.request, asker, answers)

    def _answer(
        self, host: Host, reader: int, asker: Asker, answers: list[tuple[int, bytes]]
    ) -> None:
        if reader not in self._readers or not self._can_act(
            host, self._answer, reader, asker, answers
        ):
            return
        network = self._network
        request = self._answering.get((reader, asker))
        if request is None:
            request = network.next_request()
            self._answering[reader, asker] = request
            self._streams[request] = _Stream(host, waiting=answers)
            command = OpenAnswers(asker.source, asker.incarnation, asker.inbox, reader)
            network.issue_as(host, request, command)
        elif self._streams[request].credit is None:
            self._streams[request].waiting += answers
        else:
            self._put_answers(host, request, answers)

    def _put_answers(self, host: Host, request: int, answers: list[tuple[int, bytes]]) -> None:
        stream = self._streams.get(request)
        if stream is None or not self._can_act(host, self._put_answers, request, answers):
            return
        body = pack_messages([answer for _, answer in answers])
        if stream.put_cost + len(body) + 256 > (stream.credit or 0):
            at_ns = self._network.now_ns + AGAIN_NS
            self._network.timeline.plan(at_ns, self._put_answers, host, request, answers)
            return
        numbers = tuple(number for number, _ in answers)
        stream.segments[stream.next] = list(numbers)
        stream.next += 1
        stream.put_cost += len(body) + 256
        self._texts.update({(request, number): answer for number, answer in answers})
        timeout_ns = self._random.choice((0, AGAIN_NS, self._timeout_ns))
        put = PutSegment(len(answers), body, timeout_ns=timeout_ns, answers=numbers)
        self._network.issue_as(host, request, put)

    def _answer_again(self, host: Host, request: int, numbers: list[int]) -> None:
        """What was not sent in time is owed again."""
        at_ns = self._network.now_ns + AGAIN_NS
        answers = [(number, self._texts[request, number]) for number in numbers]
        if answers:
            self._network.timeline.plan(at_ns, self._put_answers, host, request, answers)

    def ended(self, host: Host) -> None:
        # Whoever asked or answered by a daemon that ended, or took a new id, learns nothing more.
        for request in [r for r, stream in self._streams.items() if stream.host is host]:
            self._on_ended(request)
        if host.alive:
            return
        self._inboxes.pop(host, None)
        for table in (self._readers, self._opening):
            for request in [r for r, there in table.items() if there is host]:
                del table[request]
        for key in [key for key in self._open if key[0] is host]:
            del self._open[key]
