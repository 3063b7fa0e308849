"""The parts of which one node consists, made in the order in which they build on each other.

Theory of operation. A part gets those below it when it is made, and keeps them. What it has to tell to
those above it, it tells as a fact (`reactions.py`). So this is the whole of who calls whom.
"""

from __future__ import annotations

from random import Random

from bmgd.core.broadcast.to_many import ToMany
from bmgd.core.context import Context
from bmgd.core.draining import Draining
from bmgd.core.forwarding.flood import Flood
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.forwarding.probing import Probing
from bmgd.core.joining.claims import Claims
from bmgd.core.joining.eviction import Eviction
from bmgd.core.joining.growth import Growth
from bmgd.core.joining.older import Older
from bmgd.core.lifecycle import Lifecycle
from bmgd.core.links import Links
from bmgd.core.membership.comparison import Comparison, in_order
from bmgd.core.membership.contests import Contests
from bmgd.core.membership.notices import Notices
from bmgd.core.membership.quorum import Quorum
from bmgd.core.membership.retirement import Retirement
from bmgd.core.neighbors.detector import Detector
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.neighbors.greeting import Greeting
from bmgd.core.neighbors.healing_policy import Healing
from bmgd.core.neighbors.meeting import Meeting
from bmgd.core.neighbors.observer import Observer
from bmgd.core.neighbors.redialling import Redialling
from bmgd.core.neighbors.relayout import Relayout
from bmgd.core.neighbors.renewal import Renewal
from bmgd.core.own_id import OwnId
from bmgd.core.requests import Requests
from bmgd.core.settings import Settings
from bmgd.core.streams.asking import Asking
from bmgd.core.streams.finding import Finding
from bmgd.core.streams.inbound import Inbound
from bmgd.core.streams.outbound import Outbound
from bmgd.core.survey import Survey
from bmgd.core.topics.topics import Topics
from bmgd.core.work import Work
from bmgd.types import Incarnation, NodeId, Record


class Parts:
    """The parts of one node; each attribute is named after its class.

    Args:
        settings: the configuration.
        incarnation: this life, its counter above any that is persisted.
        random: the only source of randomness.
        now_ns: monotonic nanoseconds.
        records, retired: what a contact told a joiner, sorted by id.
    """

    def __init__(
        self,
        settings: Settings,
        incarnation: Incarnation,
        random: Random,
        now_ns: int,
        records: tuple[tuple[NodeId, Record], ...],
        retired: tuple[tuple[NodeId, NodeId], ...],
    ) -> None:
        context = self.context = Context(settings, incarnation, random)
        context.now_ns = context.began_ns = now_ns
        self._take_members(records, retired)
        work = self.work = Work(context)
        links = self.links = Links(context)
        notices = self.notices = Notices(context, links)
        comparison = self.comparison = Comparison(context, links, notices)
        self.retirement = Retirement(context, notices)
        forwarding = self.forwarding = Forwarding(context, links)
        self.quorum = Quorum(context)
        healing = self.healing = Healing(context, notices)
        detector = self.detector = Detector(
            context, links, notices, comparison, forwarding, healing
        )
        self.observer = Observer(context, links, forwarding, detector)
        dialling = self.dialling = Dialling(context, links, detector, OwnId(context))
        redialling = self.redialling = Redialling(context, links, dialling)
        self.flood = Flood(context)
        self.older = Older(context, links)
        self.claims = Claims(context, detector, dialling)
        self.contests = Contests(context, notices)
        self.renewal = Renewal(context, links, dialling)
        greeting = self.greeting = Greeting(context, links, dialling)
        topics = self.topics = Topics(context, work)
        outbound = self.outbound = Outbound(context, forwarding, topics, work)
        inbound = self.inbound = Inbound(context, forwarding, topics, work)
        to_many = self.to_many = ToMany(context, links, forwarding, topics, outbound, inbound)
        self.probing = Probing(context, forwarding)
        relayout = self.relayout = Relayout(context, links, dialling)
        lifecycle = self.lifecycle = Lifecycle(
            context,
            links,
            notices,
            detector,
            dialling,
            redialling,
            relayout,
            outbound,
            inbound,
            to_many,
            Draining(context, outbound, topics, to_many),
        )
        self.meeting = Meeting(context, links, notices, detector, dialling, greeting, lifecycle)
        self.eviction = Eviction(context, notices, forwarding, dialling)
        self.growth = Growth(context, links, notices, comparison, forwarding, work)
        self.survey = self._make_survey()
        self.asking = Asking(context, topics, outbound)
        self.finding = Finding(context, forwarding, topics, work)
        self.requests = self._make_requests()

    def _take_members(
        self,
        records: tuple[tuple[NodeId, Record], ...],
        retired: tuple[tuple[NodeId, NodeId], ...],
    ) -> None:
        """Begin with the members that a contact told, and with this node."""
        context, membership = self.context, self.context.membership
        for first, last, record in in_order(records, retired):
            if record is not None:
                membership.join(first, record)
            else:
                membership.retire_run(first, last)
        if membership.get(context.id) is None:
            membership.join(context.id, context.own_record())
        membership.allowance.limit(context.now_ns)

    def _make_survey(self) -> Survey:
        return Survey(
            self.context,
            self.links,
            self.forwarding,
            self.probing,
            self.detector,
            self.dialling,
            self.outbound,
            self.topics,
            self.relayout,
            self.quorum,
        )

    def _make_requests(self) -> Requests:
        return Requests(
            self.context,
            self.links,
            self.dialling,
            self.outbound,
            self.topics,
            self.probing,
            self.lifecycle,
            self.eviction,
            self.relayout,
            self.quorum,
            self.survey,
            self.to_many,
            self.asking,
            self.finding,
            self.inbound,
        )
