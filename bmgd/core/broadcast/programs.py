"""Registered programs: those of this node, and those of all others as far as is known here.

Theory of operation. A node's life counts the starts and ends of its programs from 1: the *revision*. Each
goes to everybody as a reliable broadcast of the empty topic, which programs cannot use, so those of
one life come in order. Of every life this node keeps which programs run, up to a revision.

    news of the next revision --> applied, and shown
    news beyond a gap, or broadcasts that this node skips (`broadcast/delivery.py`) --> wanted
    wanted --ask its node, again after 0.5 s and later--> a list, in pages --> taken, the difference shown

What a joiner, a new life or a returned node was not told by broadcasts it skips, by each source that ever
sent any; so it asks exactly those, and nobody is asked at the start of a cluster. A list is of one
revision: news that came while it was on its way, and is not in it, makes it wanted again. So does
something skipped meanwhile: a list is enough if it was asked for after the last skip.

The programs of a node are *shown* while it is held alive in that life. When it is held dead they end,
with an unknown exit; when the same life is alive again, what it is known to run starts again. A new life
of this node tells its programs anew, under revisions from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bmgd.core.broadcast.source import BroadcastSource
from bmgd.core.context import Context, RecordMoved
from bmgd.core.effects import ProgramChange, ProgramsChanged, Reply
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.timers import TimerKey
from bmgd.errors import BmgdError, LeavingError, ProtocolError, RequestError
from bmgd.types import Incarnation, NodeId, NodeState, Status, incarnation_tag
from bmgd.wire.ask_messages import ProgramAsk, ProgramList
from bmgd.wire.bounds import PROGRAMS_BYTES_MAX
from bmgd.wire.program_news import (
    EXIT_MAX,
    NAME_BYTES_MAX,
    Ended,
    Started,
    pack_news,
    pack_starts,
    unpack_news,
)
from bmgd.wire.routes import NORMAL_PRIORITY

REGISTERED_MAX: Final = 1024
"""Programs that are registered at one node."""
KNOWN_MAX: Final = 131_072
"""Programs of all other nodes; of nodes beyond it the latest are not known until others end."""
UNTOLD_MAX: Final = 4096
"""Own starts and ends that wait for room in the window; beyond it no program starts."""
ASK_SOON_NS: Final = 5_000_000
ASK_AGAIN_NS: Final = 500_000_000
ASK_AGAIN_MAX_NS: Final = 8_000_000_000
ASKED_PER_STEP_MAX: Final = 64
PROGRAMS_TIMER: Final = "programs"


@dataclass(slots=True, eq=False)
class _Row:
    """What is known of one life of another node.

    Args:
        revision: up to which `names` holds all.
        seen: the highest of which news came.
        names: of the programs that run, by the revisions of their starts.
        wanted: whether a list is asked for. asked_ns, times: when last, and how often in a row.
        page, page_revision: what came of it, up to now.
        ask: the number of its asks. It grows when this node is told that it skips something, and an
            answer repeats it; that of a daemon that repeats none has 0.
        shown: whether programs of this node see its programs.
    """

    life: Incarnation
    revision: int = 0
    seen: int = 0
    names: dict[int, str] = field(default_factory=dict)
    wanted: bool = False
    asked_ns: int = 0
    times: int = 0
    page: dict[int, str] = field(default_factory=dict)
    page_revision: int = 0
    ask: int = 1
    shown: bool = False


class Programs:
    """The registry of one node."""

    def __init__(self, context: Context, forwarding: Forwarding, source: BroadcastSource) -> None:
        self._context = context
        self._forwarding = forwarding
        self._source = source
        self._own: dict[int, Started] = {}
        """By the request that registered it."""
        self._own_revision = 0
        self._rows: dict[NodeId, _Row] = {}
        self._known = 0
        self._wanted: dict[NodeId, None] = {}
        self._revision = 0

    @property
    def registered(self) -> int:
        """How many programs are registered here."""
        return len(self._own)

    # --- programs of this node ----------------------------------------------------------------

    def register(self, request: int, name: str) -> None:
        """A program starts, and is told to everybody; answered at once."""
        error = self._refusal(name)
        if error is not None:
            self._context.emit(Reply(request, error=error))
            return
        self._own_revision += 1
        started = self._own[request] = Started(self._own_revision, name)
        self._context.emit(Reply(request))
        self._source.tell(pack_news(started))
        self._show([self._change(self._context.id, self._context.incarnation, name, started=True)])

    def _refusal(self, name: str) -> BmgdError | None:
        context = self._context
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            return RequestError(f"a program's name has 1 to {NAME_BYTES_MAX} bytes")
        if context.state is NodeState.LEAVING:
            return LeavingError(context.id, "this daemon is leaving, and takes no new programs")
        if any(own.name == name for own in self._own.values()):
            return RequestError(f"a program of the name {name!r} is registered here")
        if len(self._own) >= REGISTERED_MAX:
            return RequestError(f"more than {REGISTERED_MAX} programs are registered here")
        if len(self._source.window.waiting) >= UNTOLD_MAX:
            return RequestError("too many programs start and end here")
        return self._source.window.reach_refusal()

    def unregister(self, request: int, exit_code: int | None) -> None:
        """A program ended; nothing happens where it is not registered."""
        started = self._own.pop(request, None)
        if started is None:
            return
        if exit_code is not None and not -EXIT_MAX <= exit_code <= EXIT_MAX:
            exit_code = None
        self._own_revision += 1
        self._source.tell(pack_news(Ended(self._own_revision, started.revision, exit_code)))
        context = self._context
        change = self._change(
            context.id, context.incarnation, started.name, started=False, exit_code=exit_code
        )
        self._show([change])

    def on_own_new_life(self, former: Incarnation) -> None:
        """This node leads another life: its programs are told anew, under it."""
        context, changes = self._context, []
        self._own_revision = 0
        for request, own in list(self._own.items()):
            self._own_revision += 1
            self._own[request] = Started(self._own_revision, own.name)
            self._source.tell(pack_news(self._own[request]))
            changes.append(self._change(context.id, former, own.name, started=False))
            changes.append(self._change(context.id, context.incarnation, own.name, started=True))
        self._show(changes)

    def inherit(self, former: Programs) -> None:
        """Take over the programs of the node that this process was before."""
        for request, own in former._own.items():
            self._own_revision += 1
            self._own[request] = Started(self._own_revision, own.name)
            self._source.tell_in_next_step(pack_news(self._own[request]))

    # --- what is shown ------------------------------------------------------------------------

    def show(self) -> dict[str, Any]:
        """``{"revision":…, "programs":[{"id", "incarnation", "name"}, …]}``, sorted by id."""
        me, life = self._context.id, self._context.incarnation
        shown = {node_id: (r.life, r.names) for node_id, r in self._rows.items() if r.shown}
        shown[me] = life, {own.revision: own.name for own in self._own.values()}
        programs = [
            {"id": node_id, "incarnation": shown[node_id][0], "name": name}
            for node_id in sorted(shown)
            for name in shown[node_id][1].values()
        ]
        return {"revision": self._revision, "programs": programs}

    @staticmethod
    def _change(
        node_id: NodeId,
        life: Incarnation,
        name: str,
        *,
        started: bool,
        exit_code: int | None = None,
    ) -> ProgramChange:
        return ProgramChange(node_id, life, name, started, exit_code)

    def _show(self, changes: list[ProgramChange]) -> None:
        if changes:
            self._revision += 1
            self._context.emit(ProgramsChanged(tuple(changes), self._revision))

    def _all_of(self, node_id: NodeId, row: _Row, *, started: bool) -> list[ProgramChange]:
        return [
            self._change(node_id, row.life, name, started=started) for name in row.names.values()
        ]

    def _is_to_be_shown(self, node_id: NodeId, row: _Row) -> bool:
        membership = self._context.membership
        return not membership.is_gone(node_id) and row.life >= membership.incarnation(node_id)

    def _look(self, node_id: NodeId, row: _Row) -> None:
        """Begin or end to show a node's programs, by what is believed of it."""
        is_to_be = self._is_to_be_shown(node_id, row)
        if is_to_be != row.shown:
            row.shown = is_to_be
            self._show(self._all_of(node_id, row, started=is_to_be))
            if not is_to_be:
                # Who is gone does not answer; it is asked when it returns.
                self._want_no_more(node_id)

    def on_record_moved(self, moved: RecordMoved) -> None:
        """Another node died, returned, left, or began a new life."""
        row = self._rows.get(moved.id)
        if row is None:
            return
        believed = moved.after.incarnation
        has_left = moved.after.status is Status.LEFT and row.life == believed
        if row.life < believed or has_left:
            self._drop(moved.id, row)
            return
        self._look(moved.id, row)
        if row.wanted and row.shown:
            self._want(moved.id, row)

    # --- what comes ---------------------------------------------------------------------------

    def _row_of(self, node_id: NodeId, life: Incarnation) -> _Row | None:
        """What is known of a life; None of a former one."""
        row = self._rows.get(node_id)
        if row is not None and life < row.life <= self._context.membership.incarnation(node_id):
            return None
        if row is not None and row.life != life:
            self._drop(node_id, row)
            row = None
        if row is None:
            membership = self._context.membership
            record = membership.get(node_id)
            if record is None or membership.incarnation(node_id) > life:
                return None
            if record.status is Status.LEFT and record.incarnation == life:
                # Of an earlier life that left this is no news: the record of the next may be slower.
                return None
            row = self._rows[node_id] = _Row(life)
            row.shown = self._is_to_be_shown(node_id, row)
        return row

    def _drop(self, node_id: NodeId, row: _Row) -> None:
        """Its life is over for good."""
        if row.shown:
            self._show(self._all_of(node_id, row, started=False))
        self._known -= len(row.names)
        del self._rows[node_id]
        self._want_no_more(node_id)

    def on_told(self, source: NodeId, life: Incarnation, payload: bytes) -> None:
        """A source's next broadcast about its programs came."""
        row = self._row_of(source, life)
        if row is None:
            return
        try:
            news = unpack_news(payload)
        except ProtocolError as error:
            self._context.observe("bad programs", source, life, str(error))
            return
        changes = []
        for one in news:
            row.seen = max(row.seen, one.revision)
            if one.revision == row.revision + 1 and not self._is_full(one):
                row.revision = one.revision
                changes += self._apply(source, row, one)
        if row.shown:
            self._show(changes)
        if row.seen > row.revision:
            self._want(source, row)

    def _is_full(self, news: Started | Ended) -> bool:
        return isinstance(news, Started) and self._known >= KNOWN_MAX

    def _apply(self, source: NodeId, row: _Row, news: Started | Ended) -> list[ProgramChange]:
        if isinstance(news, Started):
            row.names[news.revision] = news.name
            self._known += 1
            return [self._change(source, row.life, news.name, started=True)]
        name = row.names.pop(news.started, None)
        if name is None:
            return []
        self._known -= 1
        return [self._change(source, row.life, name, started=False, exit_code=news.exit)]

    def on_skipped(self, source: NodeId, life: Incarnation) -> None:
        """This node does not get some broadcasts of a source: they may have been about programs."""
        row = self._row_of(source, life)
        if row is not None:
            row.ask += 1
            self._want(source, row)

    # --- lists --------------------------------------------------------------------------------

    def _want(self, node_id: NodeId, row: _Row) -> None:
        if not row.wanted:
            row.wanted, row.times = True, 0
            row.asked_ns = 0
        self._wanted[node_id] = None
        self._wake_at(self._context.now_ns + ASK_SOON_NS)

    def _want_no_more(self, node_id: NodeId) -> None:
        """A list came, or its node is gone: without any that is wanted there is no deadline."""
        self._wanted.pop(node_id, None)
        if not self._wanted:
            self._context.timers.cancel((PROGRAMS_TIMER, 0, 0))

    def _wake_at(self, at_ns: int) -> None:
        timers, key = self._context.timers, (PROGRAMS_TIMER, 0, 0)
        planned_ns = timers.due_ns(key)
        if planned_ns is None or planned_ns > at_ns:
            timers.set(key, at_ns)

    def on_timer(self, key: TimerKey) -> None:
        """Ask for the lists that are wanted, a bounded number of them in a step."""
        now_ns, asked, next_ns = self._context.now_ns, 0, 0
        for node_id in list(self._wanted):
            row = self._rows.get(node_id)
            if row is None or not row.wanted or not row.shown:
                # It came to be wanted while its node was held dead.
                del self._wanted[node_id]
                continue
            pause_ns = min(ASK_AGAIN_NS << min(row.times, 8), ASK_AGAIN_MAX_NS) if row.times else 0
            at_ns = row.asked_ns + pause_ns
            if at_ns <= now_ns:
                if asked >= ASKED_PER_STEP_MAX:
                    next_ns = now_ns + ASK_SOON_NS
                    break
                asked += 1
                row.times += 1
                self._ask(node_id, row, after=0)
                at_ns = now_ns + min(ASK_AGAIN_NS << min(row.times, 8), ASK_AGAIN_MAX_NS)
            next_ns = min(next_ns or at_ns, at_ns)
        if next_ns:
            self._wake_at(next_ns)

    def _ask(self, node_id: NodeId, row: _Row, after: int) -> None:
        row.asked_ns = self._context.now_ns
        tag = incarnation_tag(row.life)
        route = self._forwarding.route_to(node_id, tag=tag, sequence=row.ask)
        self._forwarding.originate(ProgramAsk(route, after))

    def on_ask(self, message: ProgramAsk) -> None:
        """Another node wants the list of this one's programs: a page of it."""
        route = message.route
        if route.destination_tag not in (0, self._context.own_tag):
            self._source.frames.tell_own_life(route.source, route.source_incarnation)
            return
        starts = (own for own in self._own.values() if own.revision > message.after)
        body, is_last = pack_starts(starts, PROGRAMS_BYTES_MAX)
        tag = incarnation_tag(route.source_incarnation)
        back = self._forwarding.route_to(
            route.source, tag=tag, sequence=route.sequence, priority=NORMAL_PRIORITY
        )
        answer = ProgramList(back, self._own_revision, message.after, is_last, body)
        self._forwarding.originate(answer)

    def on_list(self, message: ProgramList) -> None:
        """A page of the list of another node's programs."""
        route = message.route
        row = self._rows.get(route.source)
        if row is None or not row.wanted or row.life != route.source_incarnation:
            return
        if message.after == 0:
            row.page, row.page_revision = {}, message.revision
        last = max(row.page, default=0)
        if message.revision != row.page_revision or message.after != last:
            return
        try:
            starts = unpack_news(message.starts)
        except ProtocolError as error:
            self._context.observe("bad programs", route.source, row.life, str(error))
            return
        row.page |= {each.revision: each.name for each in starts if isinstance(each, Started)}
        if len(row.page) > REGISTERED_MAX:
            row.page = {}
            detail = f"a list of more than {REGISTERED_MAX} programs"
            self._context.observe("bad programs", route.source, row.life, detail)
        elif not message.is_last:
            self._ask(route.source, row, after=max(row.page, default=0))
        elif message.revision >= row.revision:
            self._take(route.source, row, is_enough=route.sequence in (0, row.ask))

    def _take(self, node_id: NodeId, row: _Row, *, is_enough: bool) -> None:
        """A list is whole: what differs is shown."""
        if self._known - len(row.names) + len(row.page) > KNOWN_MAX:
            # It is asked for again, later and later, until there is room.
            return
        changes = [
            self._change(node_id, row.life, name, started=False)
            for number, name in row.names.items()
            if number not in row.page
        ]
        changes += [
            self._change(node_id, row.life, name, started=True)
            for number, name in row.page.items()
            if number not in row.names
        ]
        self._known += len(row.page) - len(row.names)
        row.names, row.page = row.page, {}
        row.revision = row.page_revision
        row.seen = max(row.seen, row.revision)
        # News may have come that is not in it, or something was skipped since it was asked for.
        row.wanted = row.seen > row.revision or not is_enough
        if row.wanted:
            row.times = 0
            self._want(node_id, row)
        else:
            self._want_no_more(node_id)
        if row.shown:
            self._show(changes)
