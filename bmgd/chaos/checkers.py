"""Invariants over histories: what was said held against what was done.

One function per invariant, all of them in `CHECKERS`; each yields a `Violation` for everything that
contradicts it. They need nothing but facts, so the same ones judge the simulator and real clusters.
The simulator has more, which look into the cores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bmgd.chaos.history import (
    Acknowledged,
    Began,
    Believed,
    DeclaredDead,
    Delivered,
    EvictAsked,
    Exited,
    Failed,
    History,
    Noted,
    Reads,
    Renewed,
    Sent,
    Showed,
    Unread,
)
from bmgd.chaos.truth import AFTERMATH_NS, Life, Truth
from bmgd.chaos.verdict import Violation
from bmgd.routing import neighbor_ids
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId, Status

SEEN_NS: Final = 1_000_000_000
"""That a process ended by itself is seen, on real clusters, so much later at most."""

DISPLACED: Final = "displaced"
"""What a process notes when it has lost its id to another one."""

READ_NS: Final = 2_000_000_000
"""Where a history does not tell what was unread at the end of a process, a message that was taken is read
within this, or the daemon has ended."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a checker looks at: the facts, and what they say was true."""

    history: History
    truth: Truth


Found = Iterator[tuple[int, int | None, str]]
"""When, where and what."""

Checker = Callable[[Facts], Found]


def check(history: History) -> list[Violation]:
    """Every violation of every checker, in the order of time."""
    facts = Facts(history, Truth.of(history))
    found = [
        Violation(name, at_ns, node, text)
        for name, checker in CHECKERS.items()
        for at_ns, node, text in checker(facts)
    ]
    return sorted(found, key=lambda violation: violation.at_ns)


# --- messages -------------------------------------------------------------------------------------


def _delivered_once(facts: Facts) -> Found:
    for fact in delivered_again(facts.history):
        yield fact.at_ns, fact.node, f"message {fact.payload_id} came again"


def delivered_again(history: History) -> Iterator[Delivered]:
    """What was read at a node that had read it before.

    A broadcast is for all ids: a process that was started since is owed it like its predecessor.
    """
    broadcasts = {fact.payload_id for fact in history.of(Sent) if fact.kind == "broadcast"}
    seen: set[tuple[int, int]] = set()
    for process, fact in _by_process(history):
        delivered = fact.payload_id, process if fact.payload_id in broadcasts else 0
        if delivered in seen:
            yield fact
        seen.add(delivered)


def _by_process(history: History) -> Iterator[tuple[int, Delivered]]:
    """What was read, and how many processes its node had had until then."""
    processes: Counter[NodeId] = Counter()
    for fact in history.of(Began, Delivered):
        if isinstance(fact, Began):
            processes[fact.node] += 1
        else:
            yield processes[fact.node], fact


def _was_taken(facts: Facts, fact: Delivered, message: Sent) -> bool:
    """Whether nobody's life was meant, or the one that was may have taken it and its process went on.

    A process that begins a new life hands out what it took in the former one; whether that was
    confirmed in time does not matter. What is sent after that is for the new life, and what was for
    the life of a former process can nobody have taken any more.
    """
    if not message.addressed:
        return True
    history, node, life = facts.history, fact.node, fact.incarnation
    # A process that keeps no state can begin with a lower life than the one before it.
    began = [f for f in history.of(Began) if f.node == node and f.at_ns <= fact.at_ns]
    first = began[-1].incarnation if began else life
    if node not in facts.truth.given_twice and message.addressed < first:
        return False
    return any(
        (renewed.node, renewed.incarnation) == (node, life) and message.at_ns <= renewed.at_ns
        for renewed in history.of(Renewed)
    )


def _delivered_to_the_addressed(facts: Facts) -> Found:
    history = facts.history
    sent = {fact.payload_id: fact for fact in history.of(Sent)}
    displaced = [noted for noted in history.of(Noted) if noted.event == DISPLACED]
    began = list(history.of(Began))
    for fact in history.of(Delivered):
        message = sent.get(fact.payload_id)
        if message is None:
            yield fact.at_ns, fact.node, f"message {fact.payload_id} was never sent"
        elif message.node == fact.source and _went_on(displaced, began, message, fact):
            continue
        elif (message.node, message.destination) != (fact.source, fact.node):
            way = f"from {message.node} to {message.destination}"
            yield fact.at_ns, fact.node, f"message {fact.payload_id} {way} came from {fact.source}"
        elif message.addressed < fact.incarnation and not _was_taken(facts, fact, message):
            yield fact.at_ns, fact.node, f"message {fact.payload_id} was for a former life"


def _went_on(displaced: list[Noted], began: list[Began], message: Sent, fact: Delivered) -> bool:
    """Whether a process that lost the id which was meant may have gone on as the node that read it.

    It hands out what it took before.

    Args:
        displaced, began: all of the history, oldest first. Few processes are ever displaced; this is
            asked of every message.
    """
    lost = [
        noted.at_ns
        for noted in displaced
        if noted.node == message.destination and message.at_ns <= noted.at_ns <= fact.at_ns
    ]
    return bool(lost) and any(
        each.node == fact.node and lost[0] <= each.at_ns <= fact.at_ns for each in began
    )


def _acknowledged_if_delivered(facts: Facts) -> Found:
    delivered = {fact.payload_id for fact in facts.history.of(Delivered)}
    sent = {fact.payload_id: fact for fact in facts.history.of(Sent)}
    ends = list(facts.history.of(Unread))
    unread = {payload_id for fact in ends for payload_id in fact.payload_ids}
    for fact in facts.history.of(Acknowledged):
        message = sent.get(fact.payload_id)
        if message is None or fact.payload_id in delivered:
            continue
        if message.kind == "broadcast" and not _was_read(facts.history, message, fact):
            continue
        # What a daemon took may die with it, before a program has read it.
        is_lost = fact.payload_id in unread if ends else _may_be_lost(facts.truth, message, fact)
        if not is_lost:
            to = message.destination
            yield fact.at_ns, fact.node, f"message {fact.payload_id} to {to} was never read"


def _was_read(history: History, broadcast: Sent, acknowledged: Acknowledged) -> bool:
    """Whether a program read at the destination when it was sent: broadcasts wait for no reader."""
    node, is_read = broadcast.destination, False
    for fact in history.of(Began, Reads):
        if fact.node == node and fact.at_ns <= acknowledged.at_ns:
            is_read = isinstance(fact, Reads) and (fact.at_ns <= broadcast.at_ns or is_read)
    return is_read


def _may_be_lost(truth: Truth, message: Sent, acknowledged: Acknowledged) -> bool:
    """Whether the daemon that took a message may have ended before a program has read it."""
    to, until_ns = message.destination, acknowledged.at_ns + READ_NS
    if truth.stopped_within(to, message.at_ns, until_ns):
        until_ns = truth.ends_ns
    return truth.ended_within(to, message.at_ns, until_ns) or until_ns > truth.ends_ns


def _delivered_in_order(facts: Facts) -> Found:
    sent = {fact.payload_id: fact for fact in facts.history.of(Sent) if fact.flow}
    last: dict[tuple[NodeId, int, int], int] = {}
    for process, fact in _by_process(facts.history):
        message = sent.get(fact.payload_id)
        if message is None:
            continue
        flow = fact.node, message.flow, process
        before = last.get(flow, 0)
        if fact.payload_id < before:
            yield fact.at_ns, fact.node, f"message {fact.payload_id} came after {before}"
        last[flow] = max(before, fact.payload_id)


def _unsent_is_never_delivered(facts: Facts) -> Found:
    unsent = {fact.payload_id: fact for fact in facts.history.of(Failed) if not fact.sent}
    for fact in facts.history.of(Delivered):
        failed = unsent.get(fact.payload_id)
        if failed is not None:
            text = f"message {fact.payload_id} came, and had failed unsent: {failed.error}"
            yield fact.at_ns, fact.node, text


def _every_message_has_an_outcome(facts: Facts) -> Found:
    outcomes: Counter[tuple[NodeId, int]] = Counter()
    for fact in facts.history.of(Acknowledged, Failed):
        outcomes[fact.node, fact.payload_id] += 1
    truth = facts.truth
    for fact in facts.history.of(Sent):
        count = outcomes[fact.node, fact.payload_id]
        # By its life and not by its time: a program may write to a daemon that has just ended.
        ended = truth.is_over(fact.node, fact.incarnation)
        if count > 1 or (count == 0 and not ended):
            yield fact.at_ns, fact.node, f"message {fact.payload_id} has {count} outcomes"


# --- memberships ----------------------------------------------------------------------------------


def _records_only_grow(facts: Facts) -> Found:
    last: dict[tuple[NodeId, NodeId], tuple[Incarnation, int, Status, str]] = {}
    for fact in facts.history:
        if isinstance(fact, Began):
            for key in [key for key in last if key[0] == fact.node]:
                del last[key]
        elif isinstance(fact, Believed) and fact.node not in facts.truth.given_twice:
            record = (fact.incarnation, fact.version, fact.status, fact.address)
            before = last.get((fact.node, fact.about))
            if before is not None and record < before:
                yield fact.at_ns, fact.node, f"the record of {fact.about} fell to {record[:3]}"
            last[fact.node, fact.about] = record


def why_declared_dead(truth: Truth, fact: DeclaredDead) -> str:
    """Why a verdict was right or may be excused; "" when it was a false death.

    Single faults of links excuse nothing: that is what observers are asked for. Two at the same time
    can hide a node from all whom chance has asked, and it refutes the verdict then.
    """
    about, from_ns = fact.about, fact.at_ns - AFTERMATH_NS
    life = truth.life_at(about, fact.at_ns)
    if life is None or _is_over(truth, fact, life):
        return "it was dead"
    is_seen_late = life.ended_by_itself and life.span.to_ns < fact.at_ns + SEEN_NS
    if is_seen_late or truth.is_ending(about, life, fact.at_ns):
        return "it was ending"
    unseen_ns = AFTERMATH_NS if fact.incarnation == UNKNOWN_INCARNATION else SEEN_NS
    if life.span.from_ns > fact.at_ns - unseen_ns:
        # It was given its id, or was a founder, and was dialled before it was there.
        return "it had only just begun"
    if truth.ended_within(about, from_ns, fact.at_ns):
        return "a former life had just ended"
    if truth.stopped_within(about, from_ns, fact.at_ns):
        return "it was stopped"
    if truth.lied_about_within(about, from_ns, fact.at_ns):
        return "it was said to be elsewhere"
    impaired = truth.impaired_within(from_ns, fact.at_ns)
    if truth.is_impaired(about, impaired):
        if len(impaired) > 1:
            return "its links were impaired"
        if not _has_observer(truth, fact, max(0, from_ns)):
            return "nobody else could be asked"
        if truth.met_nobody(fact.node, fact.at_ns):
            return "who declared it dead had met nobody who could be asked"
    if truth.is_slow_within(about, from_ns, fact.at_ns):
        return "it was slow"
    if truth.is_slow_within(fact.node, from_ns, fact.at_ns):
        return "who declared it dead was slow, and heard no veto in time"
    return ""


def _has_observer(truth: Truth, fact: DeclaredDead, from_ns: int) -> bool:
    """Whether a third node ran all the time, and quickly enough to answer that it hears `about`."""
    return any(
        truth.runs_through(node, from_ns, fact.at_ns)
        and not truth.is_slow_within(node, from_ns, fact.at_ns)
        for node in truth.nodes
        if node not in (fact.node, fact.about)
    )


def _is_over(truth: Truth, fact: DeclaredDead, present: Life) -> bool:
    declared = [i for i in truth.lives[fact.about] if i.incarnation == fact.incarnation]
    return bool(declared) and declared[0] is not present


def _no_false_death(facts: Facts) -> Found:
    for fact in facts.history.of(DeclaredDead):
        if not why_declared_dead(facts.truth, fact):
            yield (
                fact.at_ns,
                fact.node,
                f"node {fact.about} lives and was declared dead: {fact.why}",
            )


_OF_LIES: Final = ("another life has the id", "the id ", "this node was declared dead")
"""For what a daemon ends that others say something of which is not so."""


def _nobody_ends_by_itself(facts: Facts) -> Found:
    evicted = {fact.node for fact in facts.history.of(EvictAsked)}
    # Who finds nothing but another cluster's daemons where its neighbors were is right to end.
    strangers = any(
        row["fault"] == "takeover" and row.get("answers") for _, row in facts.truth.steps
    )
    for fact in facts.history.of(Exited):
        if strangers and fact.reason.startswith("every neighbor refuses"):
            continue
        if facts.truth.lies.get(fact.node) and fact.reason.startswith(_OF_LIES):
            continue
        if fact.reason.startswith("this node was declared dead") and _was_declared(facts, fact):
            continue
        if fact.code != 0 and fact.node not in evicted:
            yield fact.at_ns, fact.node, f"its process ended with {fact.code}: {fact.reason}"


def _was_declared(facts: Facts, ended: Exited) -> bool:
    """Whether somebody held this life dead before it ended; if wrongly, that is another violation."""
    return any(
        fact.about == ended.node
        and fact.node != ended.node
        and fact.incarnation <= ended.incarnation
        and fact.status >= Status.DEAD
        and fact.at_ns <= ended.at_ns
        for fact in facts.history.of(Believed)
    )


# --- at rest --------------------------------------------------------------------------------------


def _shown_at_the_end(facts: Facts) -> dict[NodeId, Showed]:
    """The last word of every node that runs at the end and was asked."""
    shown: dict[NodeId, Showed] = {}
    for fact in facts.history.of(Showed):
        shown[fact.node] = fact
    return shown


def _running_at_the_end(facts: Facts) -> list[NodeId]:
    truth = facts.truth
    return [node for node in truth.nodes if truth.life_at(node, truth.ends_ns) is not None]


def _all_known_at_the_end(facts: Facts) -> Found:
    running, shown = _running_at_the_end(facts), _shown_at_the_end(facts)
    ends_ns = facts.truth.ends_ns
    if not shown:
        return
    for node in running:
        if node not in shown:
            yield ends_ns, node, "it runs, and does not answer"
            continue
        fact = shown[node]
        if fact.state != "ready":
            yield fact.at_ns, node, f"it is {fact.state}"
        if missing := sorted(set(running) - set(fact.alive)):
            yield fact.at_ns, node, f"it holds living nodes dead: {missing}"
        if ghosts := sorted(set(fact.alive) - set(running)):
            yield fact.at_ns, node, f"it holds ended nodes alive: {ghosts}"
    digests = defaultdict(list)
    for node, fact in shown.items():
        digests[fact.digest].append(node)
    if len(digests) > 1:
        least = min(digests.values(), key=len)
        yield ends_ns, None, f"{len(digests)} different memberships; a smaller group is {least}"


def _links_exact_at_the_end(facts: Facts) -> Found:
    for node, fact in _shown_at_the_end(facts).items():
        wanted = tuple(peer for peer in fact.neighbors if peer in fact.alive)
        if fact.links != wanted:
            yield fact.at_ns, node, f"it has links {fact.links}, wanted are {wanted}"
        # Where the dead are still in the graph (a healing policy that waits) it is over more ids.
        if fact.layout_size == len(fact.alive) and node in fact.alive:
            outside = sorted(set(range(fact.alive[-1] + 1)) - set(fact.alive))
            graph = tuple(neighbor_ids(node, fact.alive[-1] + 1, outside))
            if fact.neighbors != graph:
                yield fact.at_ns, node, f"it wants {fact.neighbors}, the graph is {graph}"


def _nobody_alone_at_the_end(facts: Facts) -> Found:
    shown = _shown_at_the_end(facts)
    for node, fact in shown.items():
        if len(shown) > 1 and not fact.links:
            yield fact.at_ns, node, "it has no link"


CHECKERS: Final[dict[str, Checker]] = {
    "delivered at most once": _delivered_once,
    "delivered only to those addressed": _delivered_to_the_addressed,
    "delivered in the order of its flow": _delivered_in_order,
    "not delivered when it failed unsent": _unsent_is_never_delivered,
    "acknowledged only if delivered": _acknowledged_if_delivered,
    "every message has one outcome": _every_message_has_an_outcome,
    "records only grow": _records_only_grow,
    "no false death": _no_false_death,
    "nobody ends by itself": _nobody_ends_by_itself,
    "memberships are equal and true at the end": _all_known_at_the_end,
    "links exact at the end": _links_exact_at_the_end,
    "nobody alone at the end": _nobody_alone_at_the_end,
}
"""Every invariant over histories, by name."""
