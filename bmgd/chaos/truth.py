"""What was true of each node and link at each moment, put together from a history's truths.

Checkers ask it whether something that a daemon said was so, or may be excused by a fault that the
daemon could not see through.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from bmgd.chaos.faults import Cut, HalfOpen, Hog, Mend, Partition, Slow, read_fault
from bmgd.chaos.history import (
    Began,
    Died,
    Disturbed,
    EvictAsked,
    Exited,
    History,
    JoinAsked,
    LeaveAsked,
    LieTold,
    LinkOpened,
    Mended,
    Renewed,
    Resumed,
    Stopped,
)
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId

FOREVER_NS: Final = 1 << 62
AFTERMATH_NS: Final = 8_000_000_000
"""How long after a fault what it caused may still be seen: a stretched detection and its veto."""

Pair = tuple[NodeId, NodeId]


@dataclass(slots=True)
class Span:
    """A time during which something was so: `from_ns` <= t < `to_ns`."""

    from_ns: int
    to_ns: int = FOREVER_NS

    def meets(self, from_ns: int, to_ns: int) -> bool:
        """Whether the two spans have a moment in common."""
        return self.from_ns <= to_ns and from_ns < self.to_ns


@dataclass(slots=True)
class Life:
    """One life of a node: a span, and which incarnation."""

    incarnation: Incarnation
    span: Span
    ended_by_itself: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nothing has been told of its end."""
        return self.span.to_ns == FOREVER_NS


@dataclass(slots=True)
class Truth:
    """The truths of one history; `of` makes it.

    Attributes:
        lives: of each node, oldest first.
        sent_away: when each node was asked to leave, or another to evict it.
        stops: when each node was stopped.
        unmet: when each process had begun, and had been linked to nobody.
        impairments: when something was wrong with the link of a pair, lower id first.
        slow_nodes: when all links of a node were slow.
        hogged: when processor time was taken away.
        lies: when something was said of each node that is not so.
        steps: the moment and JSON object of every fault.
        given_twice: ids that two processes had at a time, whose facts nobody can tell apart.
        joiners_from: the number by which plans call the first joiner, which may be given another id;
            None where they are called by their ids.
        ends_ns: the last fact's time.
    """

    lives: dict[NodeId, list[Life]] = field(default_factory=lambda: defaultdict(list))
    sent_away: dict[NodeId, list[int]] = field(default_factory=lambda: defaultdict(list))
    stops: dict[NodeId, list[Span]] = field(default_factory=lambda: defaultdict(list))
    unmet: dict[NodeId, list[Span]] = field(default_factory=lambda: defaultdict(list))
    impairments: dict[Pair, list[Span]] = field(default_factory=lambda: defaultdict(list))
    slow_nodes: dict[NodeId, list[Span]] = field(default_factory=lambda: defaultdict(list))
    hogged: list[Span] = field(default_factory=list)
    lies: dict[NodeId, list[int]] = field(default_factory=lambda: defaultdict(list))
    steps: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    given_twice: set[NodeId] = field(default_factory=set)
    joiners_from: NodeId | None = None
    ends_ns: int = 0

    @classmethod
    def of(cls, history: History) -> Truth:
        """Read a history from its beginning to its end. Complexity: O(facts + pairs parted)."""
        truth = cls()
        for fact in history:
            truth.ends_ns = max(truth.ends_ns, fact.at_ns)
            truth._take(fact)
        return truth

    def _take(self, fact: object) -> None:
        match fact:
            case Began(at_ns, node, incarnation) | Renewed(at_ns, node, incarnation):
                if isinstance(fact, Began) and self._runs(node):
                    self.given_twice.add(node)
                if isinstance(fact, Began):
                    self.unmet[node].append(Span(at_ns))
                self._end_life(node, at_ns)
                self.lives[node].append(Life(incarnation, Span(at_ns)))
            case Died(at_ns, node, incarnation) | Exited(at_ns, node, incarnation):
                if incarnation == UNKNOWN_INCARNATION and not self._runs(node):
                    # It ended before anybody could read its beginning.
                    self.lives[node].append(Life(incarnation, Span(at_ns)))
                self._end_life(node, at_ns)
                _close(self.unmet[node], at_ns)
                if isinstance(fact, Exited) and self.lives[node]:
                    self.lives[node][-1].ended_by_itself = True
            case LinkOpened(at_ns, node):
                _close(self.unmet[node], at_ns)
            case JoinAsked(_, place, _):
                self.joiners_from = min(place, self.joiners_from or place)
            case LeaveAsked(at_ns, node) | EvictAsked(at_ns, node):
                self.sent_away[node].append(at_ns)
            case LieTold(at_ns, node):
                self.lies[node].append(at_ns)
            case Stopped(at_ns, node):
                self.stops[node].append(Span(at_ns))
            case Resumed(at_ns, node):
                _close(self.stops[node], at_ns)
            case Disturbed(at_ns, text):
                row = json.loads(text)
                self.steps.append((at_ns, row))
                self._disturb(at_ns, row)
            case Mended(at_ns):
                self._mend(at_ns, None)
                for spans in self.stops.values():
                    _close(spans, at_ns)
                _close(self.hogged, at_ns)

    def _runs(self, node: NodeId) -> bool:
        return bool(self.lives[node]) and self.lives[node][-1].is_open

    def _end_life(self, node: NodeId, at_ns: int) -> None:
        if self.lives[node]:
            span = self.lives[node][-1].span
            span.to_ns = min(span.to_ns, at_ns)
        _close(self.stops[node], at_ns)

    def _disturb(self, at_ns: int, row: dict[str, Any]) -> None:
        match read_fault({key: value for key, value in row.items() if key != "at"}):
            case Cut(links) | HalfOpen(links):
                self._impair(at_ns, links)
            case Slow(links, nodes):
                self._impair(at_ns, links)
                for node in nodes:
                    self.slow_nodes[node].append(Span(at_ns))
            case Partition(groups):
                for here, there in combinations(groups, 2):
                    self._impair(at_ns, [(a, b) for a in here for b in there])
            case Mend(links):
                self._mend(at_ns, links)
            case Hog(_, seconds):
                self.hogged.append(Span(at_ns, at_ns + int(seconds * 1e9)))
            case _:
                pass

    def _impair(self, at_ns: int, links: Iterable[Pair]) -> None:
        for a, b in links:
            spans = self.impairments[min(a, b), max(a, b)]
            if not (spans and spans[-1].to_ns == FOREVER_NS):
                spans.append(Span(at_ns))

    def _mend(self, at_ns: int, links: Sequence[Pair] | None) -> None:
        if links is None:
            for spans in (*self.impairments.values(), *self.slow_nodes.values()):
                _close(spans, at_ns)
            return
        for a, b in links:
            _close(self.impairments.get((min(a, b), max(a, b)), []), at_ns)

    # --- questions ----------------------------------------------------------------------------

    @property
    def nodes(self) -> list[NodeId]:
        """Every node that ever lived, sorted."""
        return sorted(node for node, lives in self.lives.items() if lives)

    def life_at(self, node: NodeId, at_ns: int) -> Life | None:
        """The life of a node at a moment; None when it did not run."""
        for life in reversed(self.lives.get(node, ())):
            if life.span.from_ns <= at_ns < life.span.to_ns:
                return life
        return None

    def is_over(self, node: NodeId, incarnation: Incarnation) -> bool:
        """Whether this life of a node has ended when the history does."""
        return any(
            life.incarnation == incarnation and life.span.to_ns <= self.ends_ns
            for life in self.lives.get(node, ())
        )

    def is_ending(self, node: NodeId, life: Life, at_ns: int) -> bool:
        """Whether a life that ended by itself had been asked for that by then."""
        asked = (asked_ns for asked_ns in self.sent_away[node] if asked_ns <= at_ns)
        return life.ended_by_itself and any(life.span.from_ns <= asked_ns for asked_ns in asked)

    def ended_within(self, node: NodeId, from_ns: int, to_ns: int) -> bool:
        """Whether a life of a node ended in a span."""
        return any(from_ns <= life.span.to_ns <= to_ns for life in self.lives.get(node, ()))

    def stopped_within(self, node: NodeId, from_ns: int, to_ns: int) -> bool:
        """Whether a node was stopped at some moment of a span."""
        return any(span.meets(from_ns, to_ns) for span in self.stops.get(node, ()))

    def met_nobody(self, node: NodeId, at_ns: int) -> bool:
        """Whether a process had been linked to nobody by then: it knows the founders alone."""
        return any(span.meets(at_ns, at_ns) for span in self.unmet.get(node, ()))

    def lied_about_within(self, node: NodeId, from_ns: int, to_ns: int) -> bool:
        """Whether something that is not so was said of a node in a span."""
        return any(from_ns <= at_ns <= to_ns for at_ns in self.lies.get(node, ()))

    def runs_through(self, node: NodeId, from_ns: int, to_ns: int) -> bool:
        """Whether one life of a node ran, never stopped, during a whole span."""
        life = self.life_at(node, from_ns)
        runs = life is not None and life.span.to_ns > to_ns
        return runs and not self.stopped_within(node, from_ns, to_ns)

    def impaired_within(self, from_ns: int, to_ns: int) -> list[Pair]:
        """The pairs whose link was impaired at some moment of a span."""
        return [
            pair
            for pair, spans in self.impairments.items()
            if any(span.meets(from_ns, to_ns) for span in spans)
        ]

    def is_impaired(self, node: NodeId, pairs: Sequence[Pair]) -> bool:
        """Whether a node is in one of the pairs, or a joiner that a plan may have called otherwise."""
        is_joiner = self._is_joiner(node)
        return any(is_joiner or node in pair for pair in pairs)

    def _is_joiner(self, node: NodeId) -> bool:
        return self.joiners_from is not None and node >= self.joiners_from

    def is_slow_within(self, node: NodeId, from_ns: int, to_ns: int) -> bool:
        """Whether all links of a node were slow at some moment of a span.

        Of a joiner it is so when any joiner was slow: a plan may have called it otherwise.
        """
        return any(
            span.meets(from_ns, to_ns)
            for slow, spans in self.slow_nodes.items()
            if slow == node or (self._is_joiner(slow) and self._is_joiner(node))
            for span in spans
        )

    def hogged_within(self, from_ns: int, to_ns: int) -> bool:
        """Whether processor time was taken away at some moment of a span."""
        return any(span.meets(from_ns, to_ns) for span in self.hogged)


def _close(spans: list[Span], at_ns: int) -> None:
    # Several may be open: what is slow can be made slow again.
    for span in spans:
        span.to_ns = min(span.to_ns, at_ns)
