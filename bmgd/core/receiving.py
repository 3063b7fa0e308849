"""What becomes of each message that a node receives.

Theory of operation. A *link message* is for this end of the link that it came over; of a link that has
been lost since, only what is told to everybody, or to a joiner, still counts. A *routed message* is for
its destination: taken here, or sent on. Most of what is sent on never comes here, the engine relays it.
A neighbor that sends more than it may is not listened to (`forwarding/flood.py`).
"""

from __future__ import annotations

from typing import assert_never

from bmgd.core.context import Link
from bmgd.core.effects import Overlooked
from bmgd.core.parts import Parts
from bmgd.types import LinkId
from bmgd.wire.ask_messages import (
    Answer,
    Ask,
    JoinGrant,
    JoinRequest,
    Probe,
    ProbeReply,
    ReadersAnswer,
    ReadersAsk,
    Report,
    ReportAsk,
    TraceAnswer,
    TraceAsk,
)
from bmgd.wire.link_messages import (
    Buckets,
    Goodbye,
    Heartbeat,
    Notice,
    OlderMembers,
    PageAsk,
    Ping,
    Pong,
    Pull,
    RecordPage,
    Unwanted,
    Watermarks,
)
from bmgd.wire.messages import LinkMessage, Message, RoutedMessage
from bmgd.wire.stream_messages import Segment, SegmentAck, SharedSegment, StreamReset, Unreachable


class Receiving:
    """Takes each message that comes to the part of one node that it is for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def on_received(self, link_id: LinkId, message: Message) -> None:
        """A message came over a link, which may have been lost since."""
        parts = self._parts
        parts.context.counts.received[type(message)] += 1
        link = parts.links.get(link_id)
        if link is not None:
            parts.detector.heard(link)
            if not parts.flood.admits(link, message):
                if isinstance(message, Notice):
                    parts.context.emit(Overlooked(message))
                return
        if isinstance(message, LinkMessage):
            if link is not None:
                self._on_link_message(link, message)
            elif isinstance(message, Notice):
                parts.notices.on_notice(None, message)
            elif isinstance(message, RecordPage):
                parts.comparison.on_page(link_id, message)
            elif isinstance(message, PageAsk):
                parts.growth.on_page_ask(link_id, message)
        elif message.route.destination == parts.context.id:
            self._on_routed_message(message)
        elif isinstance(message, SharedSegment):
            # The link that it was to leave by has closed. It never searches.
            parts.to_many.multicasting.pass_on(message)
        elif not parts.forwarding.relay(message, None if link is None else link.peer):
            self._on_no_way(message)

    def _on_link_message(self, link: Link, message: LinkMessage) -> None:
        parts = self._parts
        match message:
            case Heartbeat():
                parts.detector.on_heartbeat(link, message)
            case Notice():
                parts.notices.on_notice(link, message)
            case Ping():
                parts.links.on_ping(link, message)
            case Pong(nonce):
                parts.greeting.on_pong(link, nonce)
                parts.links.on_pong(link, message)
            case Buckets():
                parts.comparison.on_buckets(link, message)
            case PageAsk():
                parts.comparison.on_page_ask(link, message)
            case RecordPage():
                parts.comparison.on_page(link.id, message)
            case Unwanted(digest):
                link.unwanted = digest
                parts.relayout.unsettled = True
            case OlderMembers():
                parts.older.on_message(link, message)
            case Watermarks() | Pull():
                parts.to_many.on_link_message(link, message)
            case Goodbye():
                # The shell turns a goodbye into LinkDown before it comes here.
                pass
            case _:
                assert_never(message)

    def _on_no_way(self, message: RoutedMessage) -> None:
        """A search of this node's own came back without having found its destination."""
        route = message.route
        if isinstance(message, Segment) and route.source == self._parts.context.id:
            self._parts.outbound.answers.on_unreachable(Unreachable(route, route.destination))

    def _on_routed_message(self, message: RoutedMessage) -> None:
        parts = self._parts
        match message:
            case Segment():
                parts.inbound.on_segment(message)
            case SegmentAck():
                parts.outbound.answers.on_ack(message)
            case StreamReset():
                parts.outbound.answers.on_reset(message)
            case Unreachable():
                parts.outbound.answers.on_unreachable(message)
            case Probe():
                parts.probing.on_probe(message)
            case ProbeReply():
                parts.probing.on_reply(message)
            case Ask():
                parts.observer.on_ask(message)
            case Answer():
                parts.detector.on_answer(message)
                if message.suspect == message.route.source:
                    parts.context.standing(message.suspect, message.incarnation)
                    parts.eviction.on_life_learned(message.suspect)
            case JoinRequest():
                parts.growth.on_request(message)
            case JoinGrant(_, incarnation, node_id):
                parts.growth.on_grant(incarnation, node_id)
            case ReadersAsk():
                parts.finding.on_ask(message)
            case ReadersAnswer():
                parts.finding.on_answer(message)
            case ReportAsk():
                parts.survey.on_ask(message)
            case Report():
                parts.survey.on_report(message)
            case TraceAsk():
                parts.survey.on_trace_ask(message)
            case TraceAnswer():
                parts.survey.on_trace_answer(message)
            case _:
                parts.to_many.on_message(message)
