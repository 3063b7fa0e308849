"""How long each deadline of a core is away when it is set, read a second time.

A wait that is half or twice as long as it should be shows in no single run: something else comes
first, or all takes a little longer. So the purposes of deadlines stand here again, and how far ahead
each may lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bmgd.core import lifecycle
from bmgd.core.broadcast import frames, orphans, programs, source, watermarks
from bmgd.core.forwarding import probing
from bmgd.core.joining import eviction, growth
from bmgd.core.membership import contests, notices, retirement
from bmgd.core.neighbors import detector, healing_policy, observer, redialling, relayout
from bmgd.core.settings import Settings
from bmgd.core.streams import acknowledging, finding, inbound
from bmgd.core.topics import topics
from bmgd.wire.bounds import TRACE_MS_MAX
from bmgd.wire.control import TIMEOUT_S_MAX

Span = tuple[int, int]
"""The shortest and the longest wait, in nanoseconds."""
_MS: Final = 1_000_000
_LATE: Final = 3
"""How many timeouts a node that is late itself waits longer, at most."""


@dataclass(frozen=True, slots=True)
class Node:
    """What waits depend on.

    Args:
        settings: of the node.
        stretch_ns: how much longer it waits for others, from its own recent lag.
    """

    settings: Settings
    stretch_ns: int

    def patience(self, wait_ns: int, legs: int) -> Span:
        """So long, and longer by the node's own lag for each process that an answer passes."""
        most_ns = _LATE * self.settings.timeout_ns
        return wait_ns, wait_ns + min(legs * self.stretch_ns, most_ns)


Spans = Callable[[Node], tuple[Span, ...]]


def _exactly(*waits_ns: int) -> tuple[Span, ...]:
    return tuple((wait_ns, wait_ns) for wait_ns in waits_ns)


def _up_to(wait_ns: int) -> tuple[Span, ...]:
    return ((0, wait_ns),)


def _about(*waits_ns: int) -> tuple[Span, ...]:
    """By chance a quarter more or less."""
    return tuple((wait_ns * 3 // 4, wait_ns * 5 // 4) for wait_ns in waits_ns)


def _ask(node: Node) -> tuple[Span, ...]:
    """Who does not answer for three quarters of the time is asked again, and waited for to its end."""
    shortest_ns, longest_ns = node.patience(node.settings.ask_ns, detector.ASK_LEGS)
    first = shortest_ns - shortest_ns // 4, longest_ns - longest_ns // 4
    # How late the node was when it began to ask is not known any more.
    return first, (0, (node.settings.ask_ns + _LATE * node.settings.timeout_ns) // 4 + 1)


def _dial(node: Node) -> tuple[Span, ...]:
    """Who knows another daemon with the own id is dialled again when half of the time to ask is over."""
    return _up_to(max(node.settings.backoff_max_ns, node.settings.ask_ns // 2) * 5 // 4)


def _silence(node: Node) -> tuple[Span, ...]:
    _, timeout_ns = node.patience(node.settings.timeout_ns, 1)
    # Of a heartbeat that is not echoed it waits for a heartbeat longer, but looks sooner.
    return _up_to(timeout_ns)


def _relayout(node: Node) -> tuple[Span, ...]:
    least_ns = node.settings.relayout_ns
    most_ns = max(least_ns + relayout.RELAYOUT_SPREAD_MAX_NS, relayout.STREAK_PAUSE_MAX_NS)
    return ((least_ns, most_ns),)


def _heal(_: Node) -> tuple[Span, ...]:
    pause_ns = healing_policy.PAUSE_NS
    return _exactly(*(n * pause_ns for n in range(1, healing_policy.PAUSES_MAX + 2)))


def _redial(node: Node) -> tuple[Span, ...]:
    redial_ns = node.settings.redial_ns
    return _about(redial_ns, redial_ns // redialling.ALONE_PACE)


def _search(node: Node) -> tuple[Span, ...]:
    pause_ns = node.settings.join_ns // redialling.SEARCHES_PER_JOIN
    return _about(pause_ns, pause_ns // 2)


def _remind(_: Node) -> tuple[Span, ...]:
    return _exactly(*(watermarks.REMIND_NS << n for n in range(4)))


def _join_ask(_: Node) -> tuple[Span, ...]:
    longest_ns = max(growth.ASK_MAX_NS, growth.JOINS_OPEN_MAX * growth.ASK_EACH_NS)
    return _up_to(longest_ns * 5 // 4)


OF_NOBODY: Final[dict[str, Spans]] = {
    "acknowledge": lambda _: _up_to(acknowledging.ANSWER_PAUSE_NS),
    "assign": lambda _: _exactly(growth.GATHER_NS),
    "beat": lambda node: ((node.settings.heartbeat_ns // 2, node.settings.heartbeat_ns),),
    "broadcast orphans": lambda _: _up_to(max(orphans.ORPHAN_NS, orphans.TELL_AGAIN_NS)),
    "broadcast resend": lambda _: _exactly(200 * _MS, source.RESEND_MORE_NS),
    "broadcast send": lambda _: _exactly(0, source.SEND_MORE_NS, source.LOOK_AGAIN_NS),
    "broadcast stable": lambda _: _exactly(frames.STABLE_NS),
    "expiry": lambda _: _up_to(topics.EXPIRY_NS),
    "heal": _heal,
    "leave": lambda _: _exactly(0, lifecycle.LEAVE_POLL_NS),
    "linger": lambda _: _exactly(relayout.LINGER_NS),
    "notices": lambda _: _up_to(notices.GATHER_NS),
    "programs": lambda _: _up_to(programs.ASK_AGAIN_MAX_NS),
    "quorum": lambda node: _exactly(node.settings.ask_ns),
    "redial": _redial,
    "relayout": _relayout,
    "renew": lambda node: _about(node.settings.backoff_max_ns),
    "retire": lambda _: _up_to(
        max(retirement.GONE_NS, retirement.LEFT_NS, retirement.LOOK_AGAIN_NS)
    ),
    "search": _search,
    "silence": _silence,
    "start deadline": lambda node: _exactly(node.settings.start_ns),
    "work": lambda _: _exactly(0),
}
"""Those of which a core has one each."""
OF_ONE: Final[dict[str, Spans]] = {
    "accused": lambda node: _exactly(node.settings.timeout_ns),
    "answer": lambda node: (node.patience(node.settings.ask_ns // 2, observer.PING_LEGS),),
    "ask": _ask,
    "broadcast report": lambda _: _up_to(int(TIMEOUT_S_MAX * 1_000) * _MS),
    "contested life": lambda _: _exactly(contests.CONTEST_NS),
    "dial": _dial,
    "digest": lambda _: _exactly(detector.FIRST_MISMATCH_NS),
    "evict": lambda _: _up_to(max(eviction.ASK_AGAIN_NS, eviction.CONFIRM_NS)),
    "find readers": lambda _: _up_to(finding.AGAIN_NS),
    "gone source": lambda _: _exactly(inbound.GONE_NS),
    "grant": lambda _: _exactly(growth.PAGE_PATIENCE_NS),
    "held": lambda node: _exactly(node.settings.ask_ns, node.settings.dial_ns),
    "join": lambda node: _about(node.settings.join_ns),
    "join ask": _join_ask,
    "probe": lambda _: _up_to(probing.AGAIN_NS),
    "stream": lambda _: _up_to(int(TIMEOUT_S_MAX * 1_000) * _MS),
    "trace": lambda _: _up_to(2 * TRACE_MS_MAX * _MS),
}
"""Those of one peer, link, stream, or request."""
OF_LIVES: Final[dict[str, Spans]] = {
    "broadcast remind": _remind,
    "broadcast watermark": lambda _: _exactly(watermarks.WATERMARK_NS),
}
"""Those of one life of a source."""
