"""What programs ask of the node: each command goes to the part that can do it."""

from __future__ import annotations

from bmgd.core.broadcast.to_many import ToMany
from bmgd.core.commands import (
    AskReports,
    BroadcastTo,
    CloseStream,
    Command,
    Consumed,
    ConsumedAnnouncements,
    Evict,
    FindReaders,
    Leave,
    MulticastTo,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    OpenStream,
    ProbeTo,
    PutSegment,
    Register,
    SendReport,
    SendTo,
    Settled,
    ShowLinks,
    ShowMembers,
    ShowPrograms,
    ShowReport,
    ShowStatus,
    Subscribe,
    TraceFrom,
    Unregister,
    Unsubscribe,
    Withdraw,
)
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.forwarding.probing import Probing
from bmgd.core.joining.eviction import Eviction
from bmgd.core.lifecycle import Lifecycle
from bmgd.core.links import Links
from bmgd.core.membership.quorum import Quorum
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.neighbors.relayout import Relayout
from bmgd.core.show import SHOWN_IDS_MAX, is_isolated, show_links, show_members, show_status
from bmgd.core.streams.asking import Asking
from bmgd.core.streams.finding import Finding
from bmgd.core.streams.inbound import Inbound
from bmgd.core.streams.outbound import Outbound
from bmgd.core.survey import Survey
from bmgd.core.topics.topics import Topics
from bmgd.dataclass import dataclass
from bmgd.errors import RequestError


@dataclass(frozen=True, slots=True)
class Requests:
    """Hands commands on; those that only look are answered here."""

    context: Context
    links: Links
    dialling: Dialling
    outbound: Outbound
    topics: Topics
    probing: Probing
    lifecycle: Lifecycle
    eviction: Eviction
    relayout: Relayout
    quorum: Quorum
    survey: Survey
    to_many: ToMany
    asking: Asking
    finding: Finding
    inbound: Inbound

    def _acknowledge_with(self, request: int) -> None:
        """A stream of answers has one to send."""
        stream = self.outbound.table.owned.get(request)
        if stream is not None:
            self.inbound.acknowledging.on_answer_put(stream.destination)

    def on_command(self, request: int, command: Command) -> None:
        """Do what a program asks; see `bmgd.core.commands` for the answers."""
        match command:
            case ShowStatus() | ShowMembers() | ShowLinks() | ShowReport():
                self._show(request, command)
            case SendTo() | OpenStream() | PutSegment() | Withdraw() | CloseStream():
                self._send(request, command)
            case OpenQuestions() | OpenAnswers() | OpenInbox() | Settled() | FindReaders():
                self._ask(request, command)
            case Subscribe() | Consumed() | Unsubscribe():
                self._read(request, command)
            case (
                BroadcastTo()
                | MulticastTo()
                | ConsumedAnnouncements()
                | Register()
                | Unregister()
                | ShowPrograms()
            ):
                self.to_many.on_command(request, command)
            case ProbeTo():
                self.probing.start(request, command)
            case Evict():
                self.eviction.start(request, command)
            case AskReports(ids):
                self.survey.ask(ids)
            case SendReport():
                self.survey.send(command)
            case TraceFrom():
                self.survey.trace(request, command)
            case Leave(timeout_ns):
                self.lifecycle.leave(request, timeout_ns)

    def _show(
        self, request: int, command: ShowStatus | ShowMembers | ShowLinks | ShowReport
    ) -> None:
        context = self.context
        match command:
            case ShowStatus():
                context.emit(self.status(request))
            case ShowMembers() if context.membership.known_count > SHOWN_IDS_MAX:
                context.emit(_too_many(request))
            case ShowMembers():
                context.emit(Reply(request, show_members(context)))
            case ShowLinks():
                context.emit(Reply(request, show_links(context, self.links)))
            case ShowReport():
                context.emit(Reply(request, self.survey.describe()))

    def status(self, request: int) -> Reply:
        """The answer to `ShowStatus`."""
        if self.context.membership.known_count > SHOWN_IDS_MAX:
            return _too_many(request)
        status = show_status(self.context, self.links) | {
            "quorum": self.quorum.show(),
            "underway": self.outbound.underway,
            "waiting": self.topics.table.waiting(),
            "requests": self.topics.inboxes.underway,
            "owed": len(self.topics.questions),
            "neighbors": list(self.dialling.wanted),
            "healing": self.relayout.show(),
            "to_many": self.to_many.show(),
            "isolated": is_isolated(self.links, self.quorum.counted),
        }
        return Reply(request, status)

    def _send(
        self, request: int, command: SendTo | OpenStream | PutSegment | Withdraw | CloseStream
    ) -> None:
        match command:
            case SendTo():
                self.outbound.send(request, command)
            case OpenStream():
                self.outbound.open(request, command)
            case PutSegment():
                if command.answers:
                    self._acknowledge_with(request)
                self.outbound.put(request, command)
            case Withdraw():
                self.outbound.withdraw(request, command)
            case CloseStream():
                self.outbound.close(request, command)

    def _ask(
        self,
        request: int,
        command: OpenQuestions | OpenAnswers | OpenInbox | Settled | FindReaders,
    ) -> None:
        match command:
            case OpenQuestions():
                self.asking.open_questions(request, command)
            case OpenAnswers():
                self.asking.open_answers(request, command)
            case OpenInbox(credit_bytes):
                if not self.topics.open_inbox(request, credit_bytes):
                    self._refuse_subscription(request)
            case Settled(count, questions):
                self.topics.settled(request, count, questions)
            case FindReaders():
                self.finding.start(request, command)

    def _read(self, request: int, command: Subscribe | Consumed | Unsubscribe) -> None:
        match command:
            case Subscribe(topic, credit, credit_bytes, takes_long):
                if self.topics.subscribe(request, topic, credit, credit_bytes, takes_long):
                    self.to_many.announcements.subscribe(request, topic)
                else:
                    self._refuse_subscription(request)
            case Consumed(count, long):
                self.topics.consumed(request, count, long)
            case Unsubscribe():
                self.topics.unsubscribe(request)
                self.to_many.announcements.unsubscribe(request)

    def _refuse_subscription(self, request: int) -> None:
        self.context.emit(Reply(request, error=RequestError("too many subscriptions, or topics")))


def _too_many(request: int) -> Reply:
    return Reply(request, error=RequestError(f"lists hold at most {SHOWN_IDS_MAX} ids"))
