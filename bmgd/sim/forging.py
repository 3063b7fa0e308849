"""Lies about members, as a defect of one daemon tells them, or an attacker who is a member.

A record is believed for what it says, whoever says it, and so is the life that a message names. So whom
it is about has to answer: with a higher version, with a higher life, or after it has looked whether
somebody else leads its id. Here lies come over links of a running cluster, as if their other ends had
told them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Final

from bmgd.chaos.history import EvictAsked, Fact, LieTold
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life, sent_to
from bmgd.sim.network import PEERS, Network
from bmgd.sim.readers import TOPIC
from bmgd.types import (
    Incarnation,
    LinkId,
    NodeId,
    NodeState,
    Record,
    Status,
    counter_of,
    incarnation_tag,
)
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.broadcast_messages import Watermark
from bmgd.wire.link_messages import Notice
from bmgd.wire.messages import Message
from bmgd.wire.routes import NORMAL_PRIORITY, Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Segment, SegmentFlag

_NOWHERE: Final = 1000
"""Nobody has an id so high, so nobody listens at its address."""

_BEYOND_CLAIMS: Final = 8 << 32
"""What a life is more of which no claim tells."""

_GOES_ON: Final = 0.15
LIVES: Final = 14
_INSISTS_NS: Final = 100_000_000
"""How often a lie to whom it is about is told again and again, how many times, and after how long."""

_TO_ITSELF: Final = 0.5
"""Of the lies about records, those that come to whom they are about."""

_EXAGGERATED: Final = 10
"""Acknowledgements of more than there is, for each other lie: seldom has anybody all that was sent."""


class Forger:
    """Who lies.

    Args:
        network: the cluster.
        random: chooses whom a lie is told, by whom it is about, and what it is.
        count: how many lies there are.
        note: takes the truth for the history.
    """

    def __init__(
        self, network: Network, random: Random, count: int, note: Callable[[Fact], None]
    ) -> None:
        self._note = note
        self._network = network
        self._random = random
        # A copy, so that the other lies are those that there would be without these.
        self._exaggerating = deepcopy(random)
        self._count = count
        self._lies: tuple[Callable[[Host, Host], Message], ...] = (
            self._claim,
            self._claim,
            self._death,
            self._named_life,
            self._named_life,
        )

    def start(self, until_ns: int) -> None:
        """Let lies be told until then."""
        for _ in range(self._count):
            self._network.timeline.plan(self._random.randrange(max(1, until_ns)), self._lie)
            for _ in range(_EXAGGERATED):
                at_ns = self._exaggerating.randrange(max(1, until_ns))
                self._network.timeline.plan(at_ns, self._exaggerate)

    def _lie(self) -> None:
        there = self._network.members()
        if len(there) < 2:
            return
        told, about = self._random.sample(there, 2)
        message = self._random.choice(self._lies)(told, about)
        if isinstance(message, Notice) and self._random.random() < _TO_ITSELF:
            # Others that believe a later life close their links to this one, and tell it nothing.
            told = about
        links = [end.link for end in told.ends.values() if self._network.can_come(end)]
        if links:
            self._note(LieTold(self._network.now_ns, about.id, told.id))
            self._network.lied_about.add(about.id)
            self._network.blink(about.where)
            if isinstance(message, Notice) and message.records[0][1].status is Status.LEFT:
                self._note(EvictAsked(self._network.now_ns, about.id, told.id))
            elif isinstance(message, Notice) and told is about and self._random.random() < _GOES_ON:
                self._insist(about, LIVES)
            link = LinkId(self._random.choice(links))
            self._network.let_come(told, link, message)
            self._ask_about(told, link, about)

    def _ask_about(self, told: Host, link: LinkId, about: Host) -> None:
        """Who has told a lie asks as well whether he whom it was about is heard."""
        end = told.ends.get(link)
        if end is None or end.other is None or not self._network.can_come(end):
            return
        asker = end.other.host
        if asker.id in (about.id, told.id) or told is about:
            return
        tag = incarnation_tag(told.node.incarnation)
        route = Route(told.id, asker.id, asker.node.incarnation, tag)
        self._network.let_come(told, link, Ask(route, about.id, about.node.incarnation))

    def _exaggerate(self) -> None:
        """Who has all that a source has sent acknowledges more, as if told that more is stable."""
        there = self._network.members()
        pairs = [
            (told, about, sent)
            for told in there
            for about in there
            if (sent := sent_to(told.node, about.id, about.node.incarnation))
        ]
        if not pairs:
            return
        told, about, sent = self._exaggerating.choice(pairs)
        tag = incarnation_tag(told.node.incarnation)
        watermark = sent + self._exaggerating.randint(1, 5)
        route = Route(told.id, about.id, about.node.incarnation, tag, watermark)
        links = [end.link for end in told.ends.values() if self._network.can_come(end)]
        if links:
            message = Watermark(route, watermark, watermark, asks=False)
            self._network.let_come(told, LinkId(self._exaggerating.choice(links)), message)

    def _insist(self, about: Host, times: int) -> None:
        """Another life of it has died, again and again: more often than it begins new ones."""
        links = [end.link for end in about.ends.values() if self._network.can_come(end)]
        if links and about.node.state is NodeState.READY:
            record = Record(self._life_above(about), 0, Status.DEAD, about.address)
            link = LinkId(self._random.choice(links))
            self._network.let_come(about, link, Notice(((about.id, record),)))
        if times:
            at_ns = self._network.now_ns + _INSISTS_NS
            self._network.timeline.plan(at_ns, self._insist_on, about, times - 1)

    def _insist_on(self, about: Host, times: int) -> None:
        if about.alive and not about.pauses and about.joiner is None:
            self._insist(about, times)

    def _life_above(self, about: Host) -> Incarnation:
        counter = counter_of(about.node.incarnation) + self._random.randint(0, 2)
        life = Incarnation(counter << 32 | self._random.getrandbits(32))
        return max(life, Incarnation(about.node.incarnation + 1))

    def _claim(self, told: Host, about: Host) -> Message:
        """A later life of it lives: there, where another listens, or where nobody does."""
        others = about.address, told.address, PEERS.address_of(NodeId(_NOWHERE))
        status = self._random.choice((Status.ALIVE, Status.ALIVE, Status.DEAD, Status.EXCLUDED))
        record = Record(self._life_above(about), 0, status, self._random.choice(others))
        return Notice(((about.id, record),))

    def _death(self, told: Host, about: Host) -> Message:
        """The life that it leads is over, or has left."""
        status = self._random.choice((Status.DEAD, Status.EXCLUDED, Status.DEAD, Status.LEFT))
        version = self._random.choice((0, 1, 7))
        record = Record(about.node.incarnation, version, status, about.address)
        return Notice(((about.id, record),))

    def _named_life(self, told: Host, about: Host) -> Message:
        """A message names another life of it than the one that it leads.

        Who knows none yet would believe this one for as long as it hears no other, and confirm nothing.
        """
        if not known_life(told.node, about.id):
            return self._death(told, about)
        # Above all those that claims tell of.
        life = Incarnation(self._life_above(about) + _BEYOND_CLAIMS)
        route = Route(told.id, about.id, life, incarnation_tag(told.node.incarnation))
        if self._random.random() < 0.5:
            return Answer(route, about.id, life, alive=False)
        # The first segment of a stream, for whoever takes it.
        body = packed(b"of a life that nobody has told of")
        route = replace(route, sequence=1 << 32 | 1, priority=NORMAL_PRIORITY)
        return Segment(route, SegmentFlag.OPEN, TOPIC, 0, 1, 1, 0, body)
