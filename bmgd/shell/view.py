"""The whole cluster as this daemon sees it: members, reports of the others, and a timeline of events.

Theory of operation. While somebody looks (a page is open, or `bmgd top` asked a moment ago) every node
in the layout is asked for a report once in a period, a part of them in each tick, so that asks are
spread and bounded; for a while after a change of the membership the period is shorter. While nobody
looks there is no timer, no ask and no report; only the timeline of this node's own events is kept.

    nobody looks --hold() or lease()--> asking --release() and the lease is over--> nobody looks
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from bmgd.core.commands import AskReports, Command, ShowMembers
from bmgd.core.effects import Observed, RecordChanged
from bmgd.shell.foreign_report import parse_report
from bmgd.shell.shared_settings import differing
from bmgd.types import NodeId

TICK_S: Final = 0.1
PERIOD_S: Final = 1.0
HASTY_PERIOD_S: Final = 0.3
"""The period for `HASTE_S` after a change."""
HASTE_S: Final = 3.0
ASKS_PER_S: Final = 256
"""In a larger cluster the period grows."""
LEASE_S: Final = 5.0
TIMELINE_MAX: Final = 1024
SHOWN_NODES_MAX: Final = 4096
"""Nodes that are shown and asked: the living before those that have left, then the lowest ids."""
SUMMARIES_PER_PERIOD: Final = 10
"""How often everything is summed up: that takes the longer the more nodes there are."""
STALE_PERIODS: Final = 3
"""A node that has not reported for so many periods is silent."""
_FORGOTTEN: Final = ("excluded", "left")
"""Nodes of which no report is kept."""
_QUIET: Final = frozenset({"link up", "link down", "backlog", "relayout", "links exact"})
"""Events of this node that the timeline leaves out: what they tell is seen in the reports."""

Issue = Callable[[Command, Callable[[Any], None] | None], None]
Publish = Callable[[str, object], None]


class ClusterView:
    """What the page and `bmgd top` show.

    Args:
        own_id: of this daemon's node.
        issue: gives the core a command, and its result to a function if there is one.
        own_report: makes this node's report.
        publish: takes every change, as a named JSON value.

    Attributes:
        bad_reports: those that came and were none.
    """

    def __init__(
        self,
        own_id: NodeId,
        issue: Issue,
        own_report: Callable[[Callable[[dict[str, Any]], None]], None],
        publish: Publish,
    ) -> None:
        self.own_id = own_id
        self.bad_reports = 0
        self._issue = issue
        self._own_report = own_report
        self._publish = publish
        self._members: dict[int, dict[str, Any]] = {}
        self._reports: dict[int, dict[str, Any]] = {}
        self._heard_s: dict[int, float] = {}
        self._timeline: deque[dict[str, Any]] = deque(maxlen=TIMELINE_MAX)
        self._event_count = 0
        self._summary: dict[str, Any] = {}
        self._held = 0
        self._leased_until_s = 0.0
        self._hasty_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._turn: deque[int] = deque()
        self._turn_began_s = 0.0
        self._asked_last = -1
        self._asked_s = 0.0
        self._summarise_at_s = 0.0
        self._asking_since_s = 0.0
        self._differ_since_s: float | None = None

    # --- who looks ----------------------------------------------------------------------------

    @property
    def is_asking(self) -> bool:
        """Whether somebody looks."""
        return self._timer is not None

    def hold(self) -> None:
        """Somebody looks until `release`."""
        self._held += 1
        self._begin()

    def release(self) -> None:
        """Somebody has gone."""
        self._held -= 1

    def lease(self) -> None:
        """Somebody looks for `LEASE_S`."""
        self._leased_until_s = time.monotonic() + LEASE_S
        self._begin()

    def close(self) -> None:
        """Stop for good."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        if self._timer is not None:
            return
        self._reports.clear()
        self._heard_s.clear()
        self._members.clear()
        self._asked_s = self._asking_since_s = time.monotonic()
        self._hasty_until_s = self._asked_s + HASTE_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._issue(ShowMembers(), self._on_members)
        self._begin_turn(self._asked_s)
        self._ask(len(self._turn))

    def _on_members(self, result: dict[str, Any]) -> None:
        own_id = int(self.own_id)
        members = sorted(
            result["members"], key=lambda m: (m["id"] != own_id, m["status"] == "left")
        )
        for member in sorted(members[:SHOWN_NODES_MAX], key=lambda m: int(m["id"])):
            self._members[member["id"]] = _shown(member)

    def _has_room_for(self, node_id: int) -> bool:
        """Whether this node is shown; one that has left makes room for it if there is none."""
        members = self._members
        if node_id not in members and len(members) >= SHOWN_NODES_MAX:
            left = next((i for i, member in members.items() if member["status"] == "left"), None)
            if left is None:
                return False
            del members[left]
        return True

    # --- asking -------------------------------------------------------------------------------

    @property
    def period_s(self) -> float:
        """How long it takes to ask everybody once."""
        hasty = time.monotonic() < self._hasty_until_s
        return max(HASTY_PERIOD_S if hasty else PERIOD_S, len(self._members) / ASKS_PER_S)

    def _tick(self) -> None:
        now_s = time.monotonic()
        if not self._held and now_s > self._leased_until_s:
            self._timer = None
            return
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        if not self._turn and now_s - self._turn_began_s >= self.period_s:
            self._begin_turn(now_s)
        share = (now_s - self._asked_s) / self.period_s
        self._ask(max(1, round(share * len(self._to_ask()))))
        self._asked_s = now_s
        if now_s >= self._summarise_at_s:
            self._summarise_at_s = now_s + self.period_s / SUMMARIES_PER_PERIOD
            self._summarise()

    def _begin_turn(self, now_s: float) -> None:
        """Everybody once, first those behind who was asked last: changes cut turns short."""
        ids = sorted(self._to_ask())
        at = bisect_right(ids, self._asked_last)
        self._turn = deque(ids[at:] + ids[:at])
        self._turn_began_s = now_s
        self._own_report(self._keep)

    def _to_ask(self) -> list[int]:
        return [
            i
            for i, member in self._members.items()
            if i != self.own_id and member["status"] in ("expected", "alive", "dead")
        ]

    def _ask(self, count: int) -> None:
        count = min(count, len(self._turn), round(ASKS_PER_S * TICK_S * 2))
        if count > 0:
            ids = tuple(NodeId(self._turn.popleft()) for _ in range(count))
            self._asked_last = ids[-1]
            self._issue(AskReports(ids), None)

    # --- what comes ---------------------------------------------------------------------------

    def on_reported(self, source: NodeId, body: bytes) -> None:
        """A report came."""
        if not self.is_asking:
            return
        if self._members.get(source, {}).get("status") in _FORGOTTEN:
            # It was asked before, and nobody asks it again: its digest would stand for ever.
            return
        report = parse_report(source, body)
        if report is None or source not in self._members:
            self.bad_reports += 1
        else:
            self._keep(report)

    def _keep(self, report: dict[str, Any]) -> None:
        source = report["id"]
        former = self._reports.get(source)
        self._reports[source] = report
        self._heard_s[source] = time.monotonic()
        if former is not None:
            self._tell_differences(former, report)
        member = self._members.get(source)
        if member is not None and member["status"] == "expected":
            member["status"] = "alive"
            self._publish("member", member)
        self._publish("report", report)

    def _tell_differences(self, former: dict[str, Any], report: dict[str, Any]) -> None:
        node = report["id"]
        before, after = _peers(former), _peers(report)
        if before != after:
            self._happened(
                "links", node, added=sorted(after - before), removed=sorted(before - after)
            )
        for peer in sorted(set(report["suspects"]) - set(former["suspects"])):
            self._happened("suspects", node, peer=peer)
        for what in ("isolated", "stands_aside"):
            if bool(report[what]) != bool(former[what]):
                self._happened(what, node, detail="yes" if report[what] else "no longer")
        if report["state"] != former["state"]:
            self._happened("state", node, detail=str(report["state"]))

    def on_observed(self, observed: Observed) -> None:
        """This node's core observed something."""
        if observed.event not in _QUIET:
            self._happened(
                observed.event, int(self.own_id), peer=observed.peer, detail=observed.detail
            )

    def on_record_changed(self, change: RecordChanged) -> None:
        """What is believed of a node has changed: look at everybody sooner."""
        record, status = change.record, change.record.status.name.lower()
        self._happened("record", int(change.id), status=status)
        if not self.is_asking or not self._has_room_for(int(change.id)):
            return
        self._hasty_until_s = time.monotonic() + HASTE_S
        member = {
            "id": int(change.id),
            "status": status,
            "incarnation": str(record.incarnation),
            "version": record.version,
            "address": record.address,
        }
        self._members[change.id] = member
        self._turn.clear()
        self._turn_began_s = 0.0
        if status in _FORGOTTEN:
            self._reports.pop(change.id, None)
            self._heard_s.pop(change.id, None)
        self._publish("member", member)

    def _happened(self, kind: str, node: int, **details: object) -> None:
        self._event_count += 1
        event = {
            "n": self._event_count,
            "t": round(time.time() * 1000),
            "kind": kind,
            "node": node,
            **{key: value for key, value in details.items() if value not in (None, "", [])},
        }
        self._timeline.append(event)
        self._publish("event", event)

    # --- what is shown ------------------------------------------------------------------------

    def _summarise(self) -> None:
        summary = self.summary()
        if summary != self._summary:
            agreed = self._summary.get("agree")
            self._summary = summary
            if agreed is not None and summary["agree"] != agreed:
                self._happened("agreement", int(self.own_id), detail=summary["agree"])
            self._publish("summary", summary)

    def summary(self) -> dict[str, Any]:
        """The state of the whole cluster: who lives, who is silent, whether all agree."""
        now_s = time.monotonic()
        patience_s = STALE_PERIODS * max(self.period_s, PERIOD_S / 2)
        statuses = [member["status"] for member in self._members.values()]
        asked = [*self._to_ask(), int(self.own_id)]
        stale = {i for i in asked if now_s - self._heard_s.get(i, 0.0) > patience_s}
        silent = [i for i in stale if self._members.get(i, {}).get("status") != "dead"]
        is_early = now_s - self._asking_since_s < patience_s
        heard = [report for i, report in self._reports.items() if i not in stale]
        digests: dict[str, int] = {}
        for report in heard:
            digests[report["digest"]] = digests.get(report["digest"], 0) + 1
        unsettled = [r["id"] for r in heard if _peers(r) != _reachable(r, self._members)]
        if len(digests) < 2:
            self._differ_since_s = None
        elif self._differ_since_s is None:
            self._differ_since_s = now_s
        if self._differ_since_s is not None:
            # Reports are of different moments: right after a change, some are older than it.
            is_new = now_s - self._differ_since_s < 2 * max(self.period_s, PERIOD_S)
            agree = "settling" if is_new else "no"
        elif silent and not is_early:
            agree = "not all answer"
        else:
            agree = "asking" if silent else "yes"
        return {
            "alive": sum(status in ("expected", "alive") for status in statuses),
            "dead": sum(status in ("dead", "excluded") for status in statuses),
            "left": statuses.count("left"),
            "reported": len(heard),
            "silent": [] if is_early else sorted(silent),
            "agree": agree,
            "digests": digests,
            "unsettled": sorted(unsettled),
            "isolated": sorted(r["id"] for r in heard if r["isolated"]),
            "stand_aside": sorted(r["id"] for r in heard if r["stands_aside"]),
            "suspected": sorted({int(peer) for r in heard for peer in r["suspects"]}),
            "settings_differ": differing(heard),
        }

    def document(self) -> dict[str, Any]:
        """Everything at once: how a page begins, and what `bmgd top` reads."""
        return {
            "own_id": int(self.own_id),
            "now": round(time.time() * 1000),
            "period_s": self.period_s,
            "members": sorted(self._members.values(), key=lambda member: int(member["id"])),
            "reports": [self._reports[i] for i in sorted(self._reports)],
            "summary": self.summary(),
            "events": list(self._timeline),
        }


def _shown(member: dict[str, Any]) -> dict[str, Any]:
    return {**member, "incarnation": str(member["incarnation"])}


def _peers(report: dict[str, Any]) -> set[int]:
    return {row[0] for row in report["links"]}


def _reachable(report: dict[str, Any], members: dict[int, dict[str, Any]]) -> set[int]:
    """The wanted peers that are not held dead."""
    gone = ("dead", "excluded", "left")
    return {i for i in report["wanted"] if members.get(i, {}).get("status") not in gone}
