"""Each checker fires on what it is for, and is silent on a cluster that is in order.

What fires them is forged: an event with effects that no core gave, or a core whose tables were changed
behind its back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bmgd.core.broadcast import window
from bmgd.core.commands import (
    BroadcastTo,
    Leave,
    OpenStream,
    PutSegment,
    Register,
    SendTo,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.draining import ABANDONED
from bmgd.core.effects import (
    Close,
    Deliver,
    Dial,
    Displaced,
    Effect,
    Exit,
    ForwardingChanged,
    Observed,
    RecordChanged,
    Renewed,
    Reply,
    Send,
    StreamEnded,
    StreamMoved,
    Welcome,
)
from bmgd.core.events import (
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    LinkUp,
    Received,
)
from bmgd.core.streams import inbound
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.topics.taken import Offer, Taken
from bmgd.errors import DeadError, NewLifeError, UnreachableError
from bmgd.policy import HealingPolicy
from bmgd.routing import Snapshot
from bmgd.routing.branches import Branch
from bmgd.sim import Network
from bmgd.sim.checkers import CHECKERS, Scene, malformed, watch
from bmgd.sim.checkers.broadcasts import MulticastsReachOnlyWhomTheyName, source_of
from bmgd.sim.checkers.closing import LinksCloseByRule
from bmgd.sim.checkers.doubts import DoubtHasAReason
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal, Suspected
from bmgd.sim.checkers.messages import MessagesAreTakenOnce
from bmgd.sim.checkers.needed import SourcesSendWhatIsMissed
from bmgd.sim.checkers.reports import ReportsAreTrue
from bmgd.sim.checkers.scene import LOOK_EVERY
from bmgd.sim.checkers.telling import ChangesAreFlooded
from bmgd.sim.host import Host
from bmgd.sim.linkmodel import BOUNDED
from bmgd.sim.modellink import LOSE_NOTHING, OVERTAKE
from bmgd.sim.witness.numbers import NUMBERS
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
    incarnation_tag,
)
from bmgd.wire.ask_messages import Answer, ProgramAsk, ReadersAsk
from bmgd.wire.batch import pack_messages
from bmgd.wire.broadcast_messages import (
    Broadcast,
    Multicast,
    ReliableBroadcast,
    Watermark,
)
from bmgd.wire.features import SPOKEN
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import (
    BUCKETS,
    Buckets,
    Heartbeat,
    MemberFeatures,
    Notice,
    OlderMembers,
    Ping,
    RecordPage,
)
from bmgd.wire.routes import Route, Search
from bmgd.wire.stream_messages import Entry, Segment, SegmentAck
from tests.unit.core.clusters import S, send, settle
from tests.unit.segments import delivered, segment
from tests.unit.sim.answer_forgeries import FORGERIES_OF_ANSWERS
from tests.unit.sim.broadcast_forgeries import FORGERIES_TO_MANY, shared
from tests.unit.sim.content_forgeries import FORGERIES_OF_CONTENTS
from tests.unit.sim.control_frame_forgeries import FORGERIES_OF_CONTROL_FRAMES
from tests.unit.sim.detection_forgeries import FORGERIES_OF_DETECTION
from tests.unit.sim.ending_forgeries import FORGERIES_OF_ENDS
from tests.unit.sim.flood_forgeries import FORGERIES_OF_FLOODS
from tests.unit.sim.hello_forgeries import FORGERIES_OF_HELLOS
from tests.unit.sim.hint_forgeries import FORGERIES_OF_HINTS
from tests.unit.sim.log_line_forgeries import FORGERIES_OF_LOG_LINES
from tests.unit.sim.look_forgeries import FORGERIES_OF_LOOKS
from tests.unit.sim.member_count_forgeries import FORGERIES_OF_COUNTS
from tests.unit.sim.membership_forgeries import FORGERIES_OF_MEMBERSHIPS
from tests.unit.sim.neighbor_forgeries import FORGERIES_OF_NEIGHBORS
from tests.unit.sim.noted_forgeries import FORGERIES_OF_NOTES
from tests.unit.sim.own_time_forgeries import FORGERIES_OF_OWN_TIME
from tests.unit.sim.program_forgeries import FORGERIES_OF_PROGRAMS
from tests.unit.sim.release_forgeries import FORGERIES_OF_RELEASES
from tests.unit.sim.request_forgeries import (
    FORGERIES_OF_REQUESTS,
    loss_after_a_piece_was_given_up,
    loss_behind_a_long_message,
)
from tests.unit.sim.stated_forgeries import FORGERIES_OF_NUMBERS
from tests.unit.sim.stream_forgeries import (
    FORGERIES_OF_STREAMS,
    comes_and_is_not_answered,
    sends_again_what_lacks,
)
from tests.unit.sim.waiting_forgeries import FORGERIES_OF_WAITING
from tests.unit.sim.wire_forgeries import FORGERIES_OF_WIRES

ME, PEER = NodeId(5), NodeId(4)
NOWHERE = LinkId(10**6)


@dataclass
class Forger:
    """A cluster of 8 at rest, and what is needed to forge a step of node 5."""

    network: Network
    scene: Scene

    @property
    def host(self) -> Host:
        return self.network.hosts[ME]

    @property
    def inside(self) -> Inside:
        return Inside(self.host.node)

    @property
    def journal(self) -> Journal:
        return self.scene.journals[ME]

    @property
    def link(self) -> LinkId:
        """The link to node 4."""
        return self.journal.to(PEER)[0].id

    @property
    def life(self) -> Incarnation:
        """The life of node 4."""
        return self.journal.to(PEER)[0].incarnation

    def step(self, event: Event, effects: Sequence[Effect] = ()) -> None:
        self.scene.before(self.host, event)
        self.scene.after(self.host, event, effects)

    def deadline(self, *effects: Effect) -> None:
        """A deadline, and so many quiet ones that every checker has looked."""
        self.step(DeadlineReached(), effects)
        for _ in range(LOOK_EVERY):
            self.step(DeadlineReached())

    def step_of(self, host: Host) -> None:
        """Quiet deadlines of another node, so many that every checker has looked."""
        for _ in range(LOOK_EVERY):
            self.scene.before(host, DeadlineReached())
            self.scene.after(host, DeadlineReached(), ())

    def route(self, **changes: object) -> Route:
        route = Route(PEER, ME, self.inside.context.incarnation, hop_budget=9)
        return replace(route, **changes)  # type: ignore[arg-type]

    def record(self, status: Status = Status.EXCLUDED) -> Record:
        return Record(self.life, 0, status, "sim4:7400")


def cluster() -> Forger:
    network = Network(8)
    with pytest.MonkeyPatch.context() as patched:
        # What is tried beside each process takes as long as all else, and is looked at elsewhere.
        for name in ("KNOCKS", "CONTACTS", "HEARD", "ALL_OF_A_KIND"):
            patched.setattr(malformed, name, 1 if name == "KNOCKS" else 0)
        scene = watch(network)
    settle(network)
    network.run(4)
    assert scene.violations == []
    assert scene.disquiet() == []
    return Forger(network, scene)


def own_accusation(f: Forger) -> None:
    record = Record(f.inside.context.incarnation, 0, Status.EXCLUDED, "sim5:7400")
    f.step(Received(f.link, Notice(((ME, record),))))


def lower_incarnation(f: Forger) -> None:
    f.inside.context.incarnation = Incarnation(1)
    f.deadline()


def broken_digest(f: Forger) -> None:
    f.inside.membership.digest ^= 1
    f.inside.membership.revision += 1
    f.deadline()


def broken_ranks(f: Forger) -> None:
    assert isinstance(f.inside.membership.outside, list)
    f.inside.membership.outside.append(3)
    f.inside.membership.revision += 1
    f.deadline()


def false_death(f: Forger) -> None:
    f.network.run(8)  # so long a start disturbs
    f.deadline(Observed("verdict", PEER, f.life))


def suspicion_that_survives(f: Forger) -> None:
    f.inside.detector._suspicions[PEER] = None  # type: ignore[assignment]
    for link in f.journal.to(PEER):
        link.unechoed.clear()  # at rest echoes are absorbed, and told with the next event
    f.step(Received(f.link, Ping(1)))


def lateness(f: Forger) -> None:
    f.network.timeline.now_ns += 10 * S
    f.deadline()


def close_on_hearsay(f: Forger) -> None:
    f.inside.membership.join(PEER, f.record())
    f.deadline(Close(f.link, ""))


def close_of_a_pair(f: Forger) -> None:
    first = f.journal.to(PEER)[0]
    newer = replace(first, id=NOWHERE, dialled_by=PEER, dial_number=99)
    f.journal.links[NOWHERE] = newer
    f.deadline(Close(first.id, ""))


def close_without_agreement(f: Forger) -> None:
    link = f.link
    del f.inside.links.by_peer[PEER]
    f.inside.dialling.wanted = ()
    f.deadline(Close(link, ""))


def close_of_a_wanted_link(f: Forger) -> None:
    link = f.link
    del f.inside.links.by_peer[PEER]
    f.deadline(Close(link, ""))


def two_lives(f: Forger) -> None:
    former = replace(f.journal.to(PEER)[0], id=NOWHERE, incarnation=Incarnation(1))
    f.journal.links[NOWHERE] = former
    f.deadline(Close(NOWHERE + 1, ""))  # type: ignore[arg-type]


def unheard_link(f: Forger) -> None:
    del f.inside.links.by_peer[PEER]
    f.deadline()


def snapshot_with_a_link_that_is_not_up(f: Forger) -> None:
    rows = [(peer, links[0].id) for peer, links in f.inside.links.by_peer.items()]
    stranger = min({*range(8)} - {ME} - {peer for peer, _ in rows})
    f.deadline(ForwardingChanged(Snapshot(10**6, ME, 8, (), [*rows, (stranger, NOWHERE)])))


def snapshot_without_links(f: Forger) -> None:
    f.deadline(ForwardingChanged(Snapshot(10**6, ME, 8, (), [])))


def forgotten_ask(f: Forger) -> None:
    for number in range(65):
        f.inside.observer._asks[number] = None  # type: ignore[assignment]
    f.deadline()


def stale_deadline(f: Forger) -> None:
    f.inside.context.timers.set(("stream", 10**6, 0), f.network.now_ns + S)
    f.deadline()


def dial_that_never_was(f: Forger) -> None:
    f.inside.dialling.peering(PEER).dialling = True
    f.deadline()


def passed(
    f: Forger, payload: bytes, stream_id: int, number: int = 1, *, for_no_life: bool = False
) -> Segment:
    """A segment that came from the peer, and that its stream has passed."""
    tag = 0 if for_no_life else f.inside.context.own_tag
    from_peer = {"source": PEER, "source_incarnation": f.life}
    route = f.route(destination=ME, destination_tag=tag, **from_peer)
    source = f.inside.inbound._sources.setdefault(PEER, inbound._Source(f.life))
    stream = source.streams.setdefault(stream_id, StreamIn(PEER, f.life, stream_id, "t", 2))
    stream.next = number + 1
    return segment(route, payload, stream=stream_id, number=number)


def unknown_payload(f: Forger) -> None:
    f.step(Received(f.link, passed(f, b"?", 7)), [])


def taken_twice(f: Forger) -> None:
    f.network.issue(ME, Subscribe("t", 99))
    assert send(f.network, PEER, ME, b"once").error is None
    f.step(Received(f.link, passed(f, b"once", 7)), [])


def taken_out_of_order(f: Forger) -> None:
    f.network.cut(4, 5)
    for payload in (b"first", b"second"):
        f.network.issue(PEER, SendTo(ME, "t", payload, 10 * S))
    f.step(Received(f.link, passed(f, b"second", 7)), [])
    f.step(Received(f.link, passed(f, b"first", 8)), [])


def taken_of_a_life_that_none_vouches_for(f: Forger) -> None:
    f.network.cut(4, 5)
    f.network.issue(PEER, SendTo(ME, "t", b"early", 10 * S))
    came, later = passed(f, b"early", 7), Incarnation(f.life + 1)
    f.inside.inbound._sources[PEER].streams[7].incarnation = later
    route = replace(came.route, source_incarnation=later)
    f.step(Received(f.link, replace(came, route=route)), [])


def taken_for_a_former_life(f: Forger) -> None:
    f.network.cut(4, 5)
    life = f.network.hosts[PEER].node.parts.context.membership._lives
    life[ME] = Incarnation(life[ME] - 1)
    f.network.issue(PEER, SendTo(ME, "t", b"late", 10 * S))
    f.step(Received(f.link, passed(f, b"late", 7)), [])


def taken_for_no_life(f: Forger) -> None:
    f.network.cut(4, 5)
    f.network.issue(PEER, SendTo(ME, "t", b"whoever", 10 * S))
    f.step(Received(f.link, passed(f, b"whoever", 7, for_no_life=True)), [])


def taken_and_told_as_not_sent(f: Forger) -> None:
    f.network.issue(PEER, SendTo(ME, "t", b"here", 10 * S))
    f.network.run(1)
    (checker,) = [c for c in f.scene.checkers if isinstance(c, MessagesAreTakenOnce)]
    checker._requests[ME, 77] = b"here"
    f.deadline(Reply(77, error=UnreachableError(ME, "", sent=False)))


def told_as_perhaps_taken_and_never_left(f: Forger) -> None:
    f.network.kill(4)
    request = f.network.issue(ME, SendTo(NodeId(2), "t", b"far", 10 * S))
    (checker,) = [c for c in f.scene.checkers if isinstance(c, DoubtHasAReason)]
    checker._left[ME].bodies.clear()
    f.deadline(Reply(request, error=UnreachableError(NodeId(2), "", sent=True)))


def number_of_two_segments(f: Forger) -> None:
    f.step(Received(f.link, passed(f, b"one", 7)), [])
    f.step(Received(f.link, passed(f, b"other", 7)), [])


def confirmed_and_never_taken(f: Forger) -> None:
    f.network.kill(4)
    f.deadline(Reply(f.network.issue(ME, SendTo(PEER, "t", b"never", 10 * S))))


def confirmed_in_a_stream_and_never_taken(f: Forger) -> None:
    f.network.kill(4)
    request = f.network.issue(ME, OpenStream(PEER, "t"))
    f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"never"])))
    f.deadline(StreamMoved(request, 2, 10**6))


def handed_out_again(f: Forger) -> None:
    f.deadline(delivered(1, PEER, "t", b"a"))
    f.deadline(delivered(1, PEER, "t", b"a"))


def handed_out_as_if_again(f: Forger) -> None:
    f.deadline(replace(delivered(1, PEER, "t", b"a"), redelivered=True))


def message_as_if_it_were_a_piece(f: Forger) -> None:
    f.deadline(replace(delivered(1, PEER, "t", b"a"), size=1))


def handed_out_before_what_was_left(f: Forger) -> None:
    f.step(CommandIssued(1, Subscribe("t", 9)))
    f.deadline(delivered(1, PEER, "t", b"a"))
    f.step(CommandIssued(1, Unsubscribe()))
    f.deadline(delivered(2, PEER, "t", b"b"))


def left_before_its_reader_finished(f: Forger) -> None:
    f.deadline(delivered(1, PEER, "t", b"a"))
    f.step(CommandIssued(2, Leave()))
    f.deadline(Exit(0, "left"))


def piece(number: int, body: bytes, *, last: bool = False, request: int = 1) -> Deliver:
    return Deliver(request, PEER, Incarnation(1), "t", 0, body, long=number, size=99, last=last)


def broadcast_unanswered_by_who_takes_another_id(f: Forger) -> None:
    f.step(CommandIssued(10**6, BroadcastTo("t", b"x", True, S)), [Displaced(("sim0:7400",))])


def broadcast_unanswered_at_its_deadline(f: Forger) -> None:
    f.step(CommandIssued(10**6, BroadcastTo("t", b"x", True, S)))
    f.network.run(2)
    f.deadline()


def pieces_of_nobody(f: Forger) -> None:
    f.deadline(piece(1, b"12345678 not sent"))


def long_message_with_a_hole(f: Forger) -> None:
    _put_long(f)
    f.deadline(piece(1, b"12345678"))
    f.deadline(piece(1, b"third"))


def piece_as_if_again(f: Forger) -> None:
    _put_long(f)
    f.deadline(replace(piece(1, b"12345678"), redelivered=True))


def long_message_that_ends_early(f: Forger) -> None:
    _put_long(f)
    f.deadline(piece(1, b"12345678", last=True))


def long_message_for_two(f: Forger) -> None:
    _put_long(f)
    f.deadline(piece(1, b"12345678"))
    f.deadline(piece(1, b"second", request=2))


def piece_for_another_than_its_reader(f: Forger) -> None:
    _put_long(f)
    reader = f.network.issue(ME, Subscribe("t", 9, takes_long=True))
    taken = Taken(PEER, f.life, 7, 0, b"12345678", 19, first=True)
    assert f.inside.topics.offer("t", taken) is Offer.TAKEN
    f.deadline(piece(1, b"12345678", request=reader + 1))


def long_message_confirmed_unread(f: Forger) -> None:
    request = _put_long(f)
    f.deadline(StreamMoved(request, 4, 10**6))


def _put_long(f: Forger) -> int:
    f.network.cut(4, 5)
    request = f.network.issue(ME, OpenStream(PEER, "t"))
    for at, body in enumerate((b"12345678", b"second", b"third")):
        put = PutSegment(0, body, 19, first=at == 0, last=at == 2)
        f.network.issue_as(f.host, request, put)
    return request


def acknowledged_before_it_came(f: Forger) -> None:
    came = passed(f, b"x", 7)
    f.step(Received(f.link, came), [])
    route = f.route(destination=PEER, sequence=7 << 32 | 3, destination_tag=incarnation_tag(f.life))
    ack = SegmentAck(route, incarnation_tag(f.host.node.incarnation), 0, False)
    f.deadline(Send(f.link, ack))


def refused_twice_and_came_once(f: Forger) -> None:
    f.step(Received(f.link, passed(f, b"x", 7)), [])
    route = f.route(destination=PEER, sequence=7 << 32 | 1, destination_tag=incarnation_tag(f.life))
    ack = SegmentAck(route, incarnation_tag(f.host.node.incarnation), 0, True)
    f.deadline(Send(f.link, ack))
    f.deadline(Send(f.link, ack))


def sent_on_no_credit(f: Forger) -> None:
    route = f.route(source=ME)
    f.deadline(Send(f.link, segment(route, b"one", stream=9, number=1)))
    f.deadline(Send(f.link, segment(route, b"two", stream=9, number=2)))


def sent_with_a_gap(f: Forger) -> None:
    f.deadline(Send(f.link, segment(f.route(source=ME), b"one", stream=9, number=2)))


def floor_above_what_waits(f: Forger) -> None:
    f.network.kill(4)
    f.network.issue(ME, SendTo(PEER, "t", b"waits", 10 * S))
    (stream_id,) = f.inside.open_ids(PEER)
    f.deadline(Send(f.link, segment(f.route(), b"next", stream=9, floor=stream_id + 1)))


def too_many_in_a_step(f: Forger) -> None:
    f.deadline(*[Send(f.link, segment(f.route(), b"x", stream=9))] * 641)


def handed_too_many_in_a_step(f: Forger) -> None:
    nothing = replace(piece(1, b""), long=0)
    f.deadline(*[nothing] * 1025)


def credit_beyond_the_bound(f: Forger) -> None:
    stream = StreamIn(PEER, f.life, 7, "t", 2, credit=9 * 2**20)
    f.inside.inbound.granting._active[PEER, 7] = stream
    f.deadline()


def miscounted_flight(f: Forger) -> None:
    f.network.kill(4)
    f.network.issue(ME, SendTo(PEER, "t", b"waits", 10 * S))
    f.inside.streams_out()[0].flight += 1
    f.deadline()


def wrong_counts_of_ids(f: Forger) -> None:
    f.inside.membership.dead.append(3)
    f.scene.at_rest()


def link_missing_in_its_index(f: Forger) -> None:
    f.inside.links.by_peer[PEER].clear()
    f.scene.at_rest()


def wrong_counts_of_a_topic(f: Forger) -> None:
    f.network.issue(ME, Subscribe("t", 9))
    f.inside.topics.table.topics["t"].held_bytes += 1
    f.scene.at_rest()


def wrong_count_in_readers_hands(f: Forger) -> None:
    f.network.issue(ME, Subscribe("t", 9))
    next(iter(f.inside.topics.table.subscriptions.values())).count += 1
    f.scene.at_rest()


def stream_open_under_another_id(f: Forger) -> None:
    f.network.kill(4)
    f.network.issue(ME, SendTo(PEER, "t", b"waits", 10 * S))
    f.inside.streams_out()[0].id += 1
    f.scene.at_rest()


def credit_for_a_stream_that_is_gone(f: Forger) -> None:
    stream = StreamIn(PEER, Incarnation(1), 1, "t", 1)
    f.inside.inbound.acknowledging._owed[PEER, 1] = stream
    f.scene.at_rest()


def answer_for_a_stream_that_is_gone(f: Forger) -> None:
    stream = StreamIn(PEER, Incarnation(1), 1, "t", 1)
    f.inside.inbound.acknowledging._with_answers[PEER] = {1: stream}
    f.scene.at_rest()


def joiner_that_has_left_and_is_not_forgotten(f: Forger) -> None:
    f.inside.retirement._left[NodeId(99)] = 0
    f.scene.at_rest()


def joiner_that_is_gone_and_not_given_up(f: Forger) -> None:
    f.inside.retirement._gone[NodeId(99)] = 0
    f.scene.at_rest()


def contest_without_a_deadline(f: Forger) -> None:
    f.inside.contests._open += 1
    f.scene.at_rest()


def wrong_bytes_of_broadcasts_that_wait(f: Forger) -> None:
    f.inside.to_many.source.window.waiting_bytes += 1
    f.scene.at_rest()


def orphan_of_a_life_that_is_forgotten(f: Forger) -> None:
    f.inside.to_many.orphans._orphans[PEER, Incarnation(1)] = None
    f.scene.at_rest()


def reader_of_broadcasts_in_no_index(f: Forger) -> None:
    f.network.issue(ME, Subscribe("t", 9))
    f.inside.to_many.announcements._by_topic.clear()
    f.scene.at_rest()


def stream_without_a_deadline(f: Forger) -> None:
    f.network.kill(4)
    f.network.issue(ME, SendTo(PEER, "t", b"waits", 10 * S))
    (stream,) = f.inside.streams_out()
    f.inside.context.timers.cancel(("stream", stream.key, 0))
    f.deadline()


def search_that_forgets(f: Forger) -> None:
    route = f.route(destination=NodeId(1), search=Search(b"\x00", (ME,)))
    f.deadline(Send(f.link, segment(route, b"")))


def search_that_returns(f: Forger) -> None:
    came = segment(f.route(destination=NodeId(1), search=Search(b"\x10", (PEER,))), b"")
    sent = segment(f.route(destination=NodeId(1), search=Search(b"\x30", (PEER, ME))), b"")
    f.step(Received(f.link, came), [Send(f.link, sent)])


def unanswered_link(f: Forger) -> None:
    life = Incarnation(f.life + 2**32)
    hello = Greeted(NOWHERE, PEER, life, "sim4:7400", UNKNOWN_INCARNATION, 9)
    f.step(hello, [Welcome(NOWHERE, f.life)])


def killed_without_notice(f: Forger) -> None:
    f.network.kill(4)
    f.scene.at_rest()


def lost_link(f: Forger) -> None:
    del f.journal.links[f.link]
    f.scene.at_rest()


def deadline_left(f: Forger) -> None:
    f.inside.context.timers.set(("held", 1, 0), f.network.now_ns + S)
    f.scene.at_rest()


def noise(f: Forger) -> None:
    f.deadline(Send(f.link, Ping(1)))
    f.scene.at_rest()


def changed_alone(f: Forger) -> None:
    revision = f.inside.membership.revision + 1
    f.deadline(RecordChanged(PEER, f.record(), revision))


def told_late(f: Forger) -> None:
    changed_alone(f)
    f.network.timeline.now_ns += S // 5
    f.deadline()


def even_split_without_the_lowest(f: Forger) -> None:
    f.inside.context.settings = replace(f.inside.context.settings, quorum=True)
    for number in (0, 1, 2, 3):
        life = Incarnation(1 << 32)
        record = Record(life, 0, Status.DEAD, f"sim{number}:7400")
        f.inside.membership.join(NodeId(number), record)
    f.deadline()


def two_sides_that_go_on(f: Forger) -> None:
    """Node 2 counts its own side, node 5 the other; both hold the quorum."""
    for number, dead in ((2, (4, 5, 6, 7)), (5, (0, 1, 2, 3))):
        inside = Inside(f.network.hosts[NodeId(number)].node)
        inside.context.settings = replace(inside.context.settings, quorum=True)
        for peer in dead:
            record = Record(Incarnation(1 << 33), 0, Status.DEAD, f"sim{peer}:7400")
            inside.membership.join(NodeId(peer), record)
    other = f.network.hosts[NodeId(2)]
    f.scene.before(other, DeadlineReached())
    f.scene.after(other, DeadlineReached(), ())
    for _ in range(LOOK_EVERY):
        f.scene.before(other, DeadlineReached())
        f.scene.after(other, DeadlineReached(), ())
    f.deadline()


def dead_that_stay(f: Forger) -> None:
    policy = HealingPolicy.parse("after:1")
    f.inside.context.settings = replace(f.inside.context.settings, healing=policy)
    f.inside.membership.join(PEER, f.record(Status.DEAD))
    for _ in range(4):
        f.network.timeline.now_ns += S
        f.deadline()


def neighbors_all_dead(f: Forger) -> None:
    policy = HealingPolicy.parse("after:100")
    f.inside.context.settings = replace(f.inside.context.settings, healing=policy)
    for number in (1, 3, 4, 6):
        record = Record(Incarnation(1 << 40), 0, Status.DEAD, f"sim{number}:7400")
        f.inside.membership.join(NodeId(number), record)
    for _ in range(4):
        f.network.timeline.now_ns += S
        f.deadline()


def ended_for_what_nobody_has_proven(f: Forger) -> None:
    f.scene.boot(f.host)
    f.journal.ever_linked.clear()
    for peer in f.inside.dialling.wanted:
        f.step(DialFailed(peer, Evidence.REJECTED, Refusal.WRONG_CLUSTER, proven=False))
    # What those wanted do is another checker's: the core is asked nothing here.
    f.scene.violations.clear()
    f.deadline(Exit(1, "every neighbor refuses this node: another cluster"))


def claim_that_is_not_answered(f: Forger) -> None:
    """It looks where the other life of its id is said to be, and then does nothing."""
    life = Incarnation(f.journal.incarnation + 2**32)
    claim = Record(life, 0, Status.ALIVE, "elsewhere:7400")
    dial = Dial(ME, claim.address, life, 99, S)
    looks: list[Effect] = [Observed("claimed", ME, life, f"at {claim.address}"), dial]
    f.step(Received(f.link, Notice(((ME, claim),))), looks)
    # That its core has no record of it is another matter.
    f.scene.violations.clear()
    f.step(DialFailed(ME, Evidence.REFUSED))


FORGERIES: list[tuple[str, Callable[[Forger], None]]] = [
    ("records-are-joined", changed_alone),
    ("lives-grow", lower_incarnation),
    ("accusation-is-answered", own_accusation),
    ("accusation-is-answered", claim_that_is_not_answered),
    (
        "exits-have-a-reason",
        lambda f: f.step(Received(f.link, Notice(((PEER, f.record()),))), [Exit(1, "")]),
    ),
    ("exits-have-a-reason", lambda f: f.deadline(Exit(0, "left the cluster"))),
    ("exits-have-a-reason", lambda f: f.deadline(Exit(1, "every neighbor refuses this node: x"))),
    ("exits-have-a-reason", ended_for_what_nobody_has_proven),
    ("digests-mean-memberships", broken_digest),
    ("ranks-are-a-bijection", broken_ranks),
    ("one-side-goes-on", even_split_without_the_lowest),
    ("one-side-goes-on", two_sides_that_go_on),
    ("heals-in-time", dead_that_stay),
    ("heals-in-time", neighbors_all_dead),
    ("changes-are-flooded", told_late),
    ("links-begin-with-a-digest", unanswered_link),
    ("heartbeats-are-paced", lambda f: f.deadline(Send(f.link, Heartbeat(99, 0, 1)))),
    ("questions-are-answered", lambda f: f.step(Received(f.link, Ping(1)))),
    (
        "questions-are-answered",
        lambda f: f.step(Received(f.link, Buckets((7,) * BUCKETS, answer=False))),
    ),
    ("notices-are-well-formed", lambda f: f.deadline(Send(f.link, Notice(())))),
    ("verdicts-are-proven", lambda f: f.deadline(Observed("verdict", PEER, f.life))),
    ("suspicions-have-a-reason", lambda f: f.deadline(Observed("suspected", PEER, f.life))),
    ("vetoes-win", suspicion_that_survives),
    (
        "answers-are-true",
        lambda f: f.deadline(Send(f.link, Answer(f.route(), NodeId(6), f.life, alive=False))),
    ),
    ("late-nodes-reset", lateness),
    ("no-false-death", false_death),
    ("links-close-by-rule", close_of_a_wanted_link),
    (LinksCloseByRule.hearsay, close_on_hearsay),
    (LinksCloseByRule.pairs, close_of_a_pair),
    (LinksCloseByRule.breaks, close_without_agreement),
    ("former-lives-are-cut-off", two_lives),
    ("former-lives-are-cut-off", lambda f: f.deadline(Renewed(Incarnation(f.life + 2**32)))),
    ("accused-are-told", changed_alone),
    ("orders-can-be-done", lambda f: f.deadline(Send(NOWHERE, Ping(1)))),
    ("dials-are-single", lambda f: f.deadline(Dial(ME, "sim5:7400", f.life, 99, S))),
    ("hellos-are-answered-by-rule", lambda f: f.deadline(Welcome(NOWHERE, f.life))),
    ("requests-are-answered-once", lambda f: f.deadline(Reply(10**6))),
    ("requests-are-answered-once", broadcast_unanswered_by_who_takes_another_id),
    ("requests-are-answered-once", broadcast_unanswered_at_its_deadline),
    ("snapshots-are-current", unheard_link),
    ("snapshots-are-current", snapshot_with_a_link_that_is_not_up),
    ("snapshots-are-current", snapshot_without_links),
    ("messages-are-taken-once", unknown_payload),
    ("messages-are-taken-once", taken_twice),
    ("messages-are-taken-once", taken_of_a_life_that_none_vouches_for),
    ("messages-are-taken-once", taken_for_a_former_life),
    ("messages-are-taken-once", taken_for_no_life),
    ("messages-are-taken-once", confirmed_and_never_taken),
    ("messages-are-taken-once", confirmed_in_a_stream_and_never_taken),
    ("messages-are-taken-once", taken_out_of_order),
    ("messages-are-taken-once", taken_and_told_as_not_sent),
    ("messages-are-taken-once", number_of_two_segments),
    ("doubt-has-a-reason", told_as_perhaps_taken_and_never_left),
    ("readers-get-each-once", handed_out_again),
    ("readers-get-each-once", handed_out_as_if_again),
    ("readers-get-each-once", handed_out_before_what_was_left),
    ("readers-get-each-once", message_as_if_it_were_a_piece),
    ("leaving-drains", left_before_its_reader_finished),
    ("long-messages-are-whole", pieces_of_nobody),
    ("long-messages-are-whole", long_message_with_a_hole),
    ("long-messages-are-whole", piece_as_if_again),
    ("long-messages-are-whole", long_message_that_ends_early),
    ("long-messages-are-whole", long_message_for_two),
    ("long-messages-are-whole", piece_for_another_than_its_reader),
    ("long-messages-are-whole", long_message_confirmed_unread),
    (
        "acks-are-honest",
        lambda f: f.step(
            Received(f.link, Ping(1)), [Send(f.link, SegmentAck(f.route(), 0, 1, False))]
        ),
    ),
    ("acks-are-honest", acknowledged_before_it_came),
    ("acks-are-honest", refused_twice_and_came_once),
    ("sources-keep-their-credit", floor_above_what_waits),
    ("sources-keep-their-credit", sent_on_no_credit),
    ("sources-keep-their-credit", sent_with_a_gap),
    ("steps-of-streams-are-bounded", too_many_in_a_step),
    ("steps-of-streams-are-bounded", handed_too_many_in_a_step),
    ("bounds-hold", credit_beyond_the_bound),
    ("bounds-hold", miscounted_flight),
    ("deadlines-have-subjects", stream_without_a_deadline),
    ("searches-visit-once", search_that_forgets),
    ("searches-visit-once", search_that_returns),
    ("bounds-hold", forgotten_ask),
    ("counts-are-true", wrong_counts_of_ids),
    ("counts-are-true", link_missing_in_its_index),
    ("counts-are-true", wrong_counts_of_a_topic),
    ("counts-are-true", wrong_count_in_readers_hands),
    ("counts-are-true", stream_open_under_another_id),
    ("counts-are-true", credit_for_a_stream_that_is_gone),
    ("counts-are-true", answer_for_a_stream_that_is_gone),
    ("counts-are-true", joiner_that_has_left_and_is_not_forgotten),
    ("counts-are-true", joiner_that_is_gone_and_not_given_up),
    ("counts-are-true", contest_without_a_deadline),
    ("counts-are-true", wrong_bytes_of_broadcasts_that_wait),
    ("counts-are-true", orphan_of_a_life_that_is_forgotten),
    ("counts-are-true", reader_of_broadcasts_in_no_index),
    ("deadlines-have-subjects", stale_deadline),
    ("memories-are-of-use", dial_that_never_was),
    ("survivors-agree", killed_without_notice),
    ("links-are-the-healed-graph", lost_link),
    ("nothing-is-left-over", deadline_left),
    ("rest-is-quiet", noise),
    *FORGERIES_TO_MANY,
    *FORGERIES_OF_RELEASES,
    *FORGERIES_OF_REQUESTS,
    *FORGERIES_OF_ANSWERS,
    *FORGERIES_OF_STREAMS,
    *FORGERIES_OF_PROGRAMS,
    *FORGERIES_OF_MEMBERSHIPS,
    *FORGERIES_OF_DETECTION,
    *FORGERIES_OF_HELLOS,
    *FORGERIES_OF_WIRES,
    *FORGERIES_OF_CONTROL_FRAMES,
    *FORGERIES_OF_CONTENTS,
    *FORGERIES_OF_WAITING,
    *FORGERIES_OF_COUNTS,
    *FORGERIES_OF_HINTS,
    *FORGERIES_OF_LOOKS,
    *FORGERIES_OF_LOG_LINES,
    *FORGERIES_OF_ENDS,
    *FORGERIES_OF_OWN_TIME,
    *FORGERIES_OF_NUMBERS,
    *FORGERIES_OF_FLOODS,
    *FORGERIES_OF_NOTES,
    *FORGERIES_OF_NEIGHBORS,
]


OF_LINKS = {LOSE_NOTHING, OVERTAKE, BOUNDED, "steps-are-bounded"}
"""What fires these is in test_linkmodel.py: a link layer that breaks its rules."""


@pytest.mark.parametrize(
    ("name", "forge"), FORGERIES, ids=[f"{i}-{name}" for i, (name, _) in enumerate(FORGERIES)]
)
def test_checker_fires(name: str, forge: Callable[[Forger], None]) -> None:
    forger = cluster()
    forge(forger)
    assert name in {violation.checker for violation in forger.scene.violations}


@pytest.mark.parametrize("disturbed", [9, 8])
def test_false_death_is_excused_by_what_ails_that_process_and_no_other(disturbed: int) -> None:
    """A joiner's number among the processes is not always the id that it was given."""
    forger = cluster()
    joiner = forger.network.join(4, place=9)
    forger.network.run(12)
    assert (joiner.id, joiner.where) == (8, 9)
    forger.scene.disturb(NodeId(disturbed))
    forger.deadline(Observed("verdict", joiner.id, joiner.node.incarnation))
    found = {violation.checker for violation in forger.scene.violations}
    assert ("no-false-death" in found) == (disturbed == 8)


def test_what_was_sent_before_its_source_knew_of_an_older_member_may_come_to_it() -> None:
    forger = cluster()
    ask = ReadersAsk(forger.route(destination=ME, source=PEER, source_incarnation=forger.life), "t")
    forger.host.features = 0
    forger.step(Received(forger.link, ask))
    assert forger.scene.violations == []


@pytest.mark.parametrize("is_up", [True, False])
def test_what_comes_over_a_link_that_is_closed_tells_of_no_older_member(is_up: bool) -> None:
    forger = cluster()
    older = MemberFeatures(NodeId(2), forger.scene.journals[NodeId(2)].incarnation, 0)
    forger.step(Received(forger.link if is_up else NOWHERE, OlderMembers((older,))))
    forger.deadline(Send(forger.link, ReadersAsk(forger.route(), "t")))
    found = {violation.checker for violation in forger.scene.violations}
    assert ("older-are-spared" in found) == is_up


def test_loss_may_wait_for_an_id_behind_a_message_that_does_not_end() -> None:
    forger = cluster()
    loss_behind_a_long_message(forger, freed=0)
    found = {violation.checker for violation in forger.scene.violations}
    assert "requests-have-one-outcome" not in found


@pytest.mark.parametrize(("destination", "is_violation"), [(PEER, False), (ME, True)])
def test_older_daemon_may_get_back_what_it_sent_over_a_link_that_closed(
    destination: NodeId, is_violation: bool
) -> None:
    forger = cluster()
    route = forger.route(
        destination=destination, source=ME, source_incarnation=forger.journal.incarnation
    )
    forger.host.features = 0
    forger.step(Received(forger.link, shared(route, Entry(PEER, 0, 1 << 32 | 1, 0, 1))))
    found = {violation.checker for violation in forger.scene.violations}
    assert ("older-are-spared" in found) == is_violation


@pytest.mark.parametrize(("withdrawn", "is_left"), [((1,), True), ((1, 2), False)])
def test_what_was_withdrawn_before_its_node_left_is_not_given_up(
    withdrawn: tuple[int, ...], is_left: bool
) -> None:
    forger = cluster()
    request = forger.network.issue(ME, OpenStream(PEER, "t"))
    for _ in range(2):
        forger.step(CommandIssued(request, PutSegment(1, pack_messages([b"a"]))))
    forger.step(CommandIssued(10**6, Leave(60 * S)))
    forger.deadline(StreamMoved(request, 1, 10**6, withdrawn, (), "UnreachableError"))
    error = UnreachableError(PEER, f"{ABANDONED} the confirmation came")
    forger.deadline(StreamEnded(request, 1, 3, error))
    found = {violation.checker for violation in forger.scene.violations}
    assert ("leaving-drains" in found) == is_left


def test_multicast_that_several_processes_of_a_node_take_came_once_to_each() -> None:
    """Where one journal was in memory another one is later."""
    forger = cluster()
    multicast = Multicast(forger.route(), "news", b"x", (Branch(ME, 1 << ME),))
    checker = MulticastsReachOnlyWhomTheyName(forger.scene)
    checker.on_boot(forger.journal)
    for _ in range(3):
        checker.after(
            forger.journal,
            Received(forger.link, multicast),
            [delivered(77, PEER, "news", b"x")],
        )
        checker.on_boot(forger.journal)
    assert forger.scene.violations == []


def test_source_may_send_again_what_lacks() -> None:
    forger = cluster()
    sends_again_what_lacks(forger)
    found = {violation.checker for violation in forger.scene.violations}
    assert "only-what-lacks-is-sent-again" not in found


@pytest.mark.parametrize("lag_ns", [0, S // 5])
def test_host_that_was_late_may_ask_late_over_another_way(lag_ns: int) -> None:
    forger = cluster()
    segment_of = segment(forger.route(source=ME), b"x", stream=9, number=1)
    forger.deadline(ForwardingChanged(forger.host.snapshot))
    forger.network.run(0.2)
    forger.deadline(Send(forger.link, segment_of))
    forger.network.run(0.05)
    forger.journal.longest_lag_ns = lag_ns
    forger.deadline(Send(forger.link, segment_of))
    fired = [v for v in forger.scene.violations if v.checker == "only-what-lacks-is-sent-again"]
    assert len(fired) == (0 if lag_ns else 1)


def test_news_of_programs_that_were_numbered_unseen_are_no_hole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window, "UNSTABLE_MAX", 1)
    monkeypatch.setitem(NUMBERS["core.broadcast.window"], "UNSTABLE_MAX", 1)
    network = Network(2)
    scene = watch(network)
    settle(network)
    network.issue(0, Subscribe("news", 9))
    network.issue(0, BroadcastTo("news", b"first", True, S))
    network.run(1)
    network.stop(1)
    for name in ("one", "two", "three"):
        network.issue(0, Register(name))
    network.kill(1)
    network.run(9)
    network.issue(0, BroadcastTo("news", b"at best effort", False, S))
    network.issue(0, BroadcastTo("news", b"second", True, S))
    assert source_of(scene.journals[NodeId(0)]).window.next == 6
    assert scene.violations == []


@pytest.mark.parametrize("is_first_for_another", [True, False])
def test_message_may_fail_with_an_earlier_one_of_its_stream_that_was_for_another_life(
    is_first_for_another: bool,
) -> None:
    forger = cluster()
    lives, life = forger.inside.membership._lives, forger.life
    lives[PEER] = Incarnation(life + 1) if is_first_for_another else life
    forger.network.stop(ME)
    forger.step(CommandIssued(10**6, SendTo(PEER, "t", b"first", 10 * S)))
    lives[PEER] = life
    forger.step(CommandIssued(10**6 + 1, SendTo(PEER, "t", b"second", 10 * S)))
    error = NewLifeError(PEER, "it began a new life", sent=False)
    forger.deadline(Reply(10**6, error=error), Reply(10**6 + 1, error=error))
    fired = [v for v in forger.scene.violations if v.checker == "errors-have-their-reason"]
    assert len(fired) == (0 if is_first_for_another else 1)


@pytest.mark.parametrize("died", ["in the step", "before", "never"])
def test_message_may_fail_with_what_was_believed_of_its_node_until_the_step_was_over(
    died: str,
) -> None:
    """It is dead first, its stream ends with that, and then it is known to have left."""
    forger = cluster()
    forger.network.stop(ME)
    forger.step(CommandIssued(10**6, SendTo(PEER, "t", b"x", 10 * S)))
    death = RecordChanged(PEER, forger.record(), 1)
    if died == "before":
        forger.deadline(death)
    forger.inside.membership._records[PEER] = forger.record(Status.LEFT)
    error = DeadError(PEER, f"node {PEER}: it is dead")
    left = RecordChanged(PEER, forger.record(Status.LEFT), 2)
    forger.deadline(*[death][: died == "in the step"], Reply(10**6, error=error), left)
    fired = [v for v in forger.scene.violations if v.checker == "errors-have-their-reason"]
    assert len(fired) == (1 if died == "never" else 0)


@pytest.mark.parametrize("is_piece_told", [True, False])
def test_reader_that_ends_need_not_tell_of_a_question_whose_piece_was_given_up(
    is_piece_told: bool,
) -> None:
    forger = cluster()
    loss_after_a_piece_was_given_up(forger, is_told=is_piece_told)
    found = {violation.checker for violation in forger.scene.violations}
    assert ("requests-have-one-outcome" in found) != is_piece_told


def test_who_was_back_and_left_again_may_have_acknowledged_what_it_skipped() -> None:
    forger = cluster()
    forger.network.stop(PEER)
    request = forger.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    forger.network.run(0.5)
    left, alive = forger.record(Status.LEFT), forger.record(Status.ALIVE)
    life, own = forger.life, incarnation_tag(forger.inside.context.incarnation)
    forger.deadline(RecordChanged(PEER, left, 1))
    forger.deadline(RecordChanged(PEER, alive, 2))
    ack = Received(forger.link, Watermark(Route(ME, PEER, life, own), 1, 0, asks=False))
    forger.step(ack)
    forger.inside.membership._records[PEER] = left
    failure = {"id": PEER, "error": "DeadError", "detail": "it is left", "sent": True}
    others = [each for each in range(8) if each != PEER]
    reply = Reply(request, {"confirmed": others, "failed": [failure]})
    forger.deadline(RecordChanged(PEER, left, 3), reply)
    fired = [v.text for v in forger.scene.violations if v.checker == "reports-are-true"]
    assert not [text for text in fired if "it has acknowledged it" in text]


@pytest.mark.parametrize("is_believed", [True, False])
def test_watermark_of_a_life_that_is_not_believed_acknowledges_nothing(is_believed: bool) -> None:
    forger = cluster()
    life = forger.life if is_believed else Incarnation(forger.life + 1)
    tag = incarnation_tag(forger.inside.context.incarnation)
    forger.step(Received(forger.link, Watermark(Route(ME, PEER, life, tag), 7, 0, asks=False)))
    (missed,) = [c for c in forger.scene.checkers if isinstance(c, SourcesSendWhatIsMissed)]
    (reports,) = [c for c in forger.scene.checkers if isinstance(c, ReportsAreTrue)]
    assert bool(missed._lives[ME].acknowledged) == is_believed
    assert bool(reports._acknowledged[ME]) == is_believed


@pytest.mark.parametrize(
    ("above", "status", "owed"),
    [
        (0, Status.ALIVE, 1),
        (0, Status.EXCLUDED, 1),
        (1, Status.EXCLUDED, 0),
        (1, Status.ALIVE, 0),
        (0, Status.LEFT, 0),
    ],
)
def test_segment_of_a_life_that_is_over_is_owed_no_answer(
    above: int, status: Status, owed: int
) -> None:
    """A record says that it is over before its source has heard so, whose link stays until then."""
    forger = cluster()
    life = Incarnation(forger.life + above)
    comes_and_is_not_answered(forger, Record(life, 0, status, "sim4:7400"))
    fired = [v for v in forger.scene.violations if v.checker == "segments-are-answered"]
    assert len(fired) == owed


@pytest.mark.parametrize("tells", [True, False])
def test_record_that_goes_out_in_the_step_of_a_later_page_is_owed_no_more(tells: bool) -> None:
    forger = cluster()
    record = forger.record()
    (checker,) = [c for c in forger.scene.checkers if isinstance(c, ChangesAreFlooded)]
    forger.inside.membership.join(PEER, record)
    pages, other = [link for link in forger.journal.links.values() if link.peer != PEER][:2]
    checker._owed[ME] = {(other.id, PEER): (record, forger.journal.now_ns)}
    checker._goes_on[ME] = {pages.id}
    notices = [Send(other.id, Notice(((PEER, record),)))] if tells else [Send(other.id, Ping(1))]
    forger.step(Received(pages.id, RecordPage(())), notices)
    assert bool(checker._owed[ME]) != tells


@pytest.mark.parametrize("renews", [True, False])
def test_link_that_renewed_excuses_what_closes_with_it(renews: bool) -> None:
    """Of three links of a pair the one under the first key stays, in one step."""
    forger = cluster()
    journal, own = forger.journal, forger.journal.to(PEER)[0]
    dialled = replace(own, id=NOWHERE, dialled_by=PEER, dial_number=90, renews=renews)
    newest = replace(dialled, id=LinkId(NOWHERE + 1), dial_number=99, renews=False, key="new")
    journal.first_key = "new"
    journal.links_before = {link.id: link for link in (own, dialled, newest)}
    journal.links = {newest.id: newest}
    closed = [Close(own.id, ""), Close(dialled.id, "")]
    LinksCloseByRule(forger.scene).after(journal, DeadlineReached(), closed)
    assert (forger.scene.violations == []) == renews


def test_checkers_have_a_forgery_each_and_names_of_their_own() -> None:
    names = [checker.name for checker in CHECKERS]
    assert len(names) == len(set(names))
    assert set(names) <= {name for name, _ in FORGERIES} | OF_LINKS


def test_checkers_are_all_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")
    parts = [LinksCloseByRule.hearsay, LinksCloseByRule.pairs, LinksCloseByRule.breaks]
    missing = [name for name in [*(c.name for c in CHECKERS), *parts] if f"| {name} |" not in page]
    assert missing == []


def test_checkers_find_nothing_in_a_life_without_surprises() -> None:
    network = Network(9)
    scene = watch(network)
    settle(network)
    network.kill(3)
    settle(network, [3])
    for destination in (0, 1, 8):
        assert send(network, 5, destination, bytes([destination])).error is None
    network.boot(3)
    settle(network)
    network.run(4)
    scene.at_rest()
    assert [str(violation) for violation in scene.violations] == []


@pytest.mark.parametrize("knows", [True, False])
def test_search_goes_back_without_trying_only_who_does_not_know_its_kind(knows: bool) -> None:
    forger = cluster()
    assert sorted({link.peer for link in forger.journal.links.values()}) == [1, 3, 4, 6, 7]
    if not knows:
        (link,) = forger.journal.to(NodeId(1))
        link.features = 0
    came = forger.route(destination=NodeId(2), source=NodeId(7), search=Search(b"\xd8", (PEER,)))
    back = replace(came, search=Search(b"\xf8", ()))
    forger.step(
        Received(forger.link, ProgramAsk(came, 0)), [Send(forger.link, ProgramAsk(back, 0))]
    )
    fired = [v.text for v in forger.scene.violations if v.checker == "searches-visit-once"]
    assert fired == (["a search goes back, and has not tried [1]"] if knows else [])


@pytest.mark.parametrize("is_told", [True, False])
def test_verdict_that_changes_nothing_is_found(is_told: bool) -> None:
    forger = cluster()
    verdict = Observed("verdict", PEER, forger.life)
    changed = RecordChanged(PEER, forger.record(), forger.inside.membership.revision + 1)
    suspected = Suspected(forger.life, forger.network.now_ns - 10 * S, "silence")
    forger.journal.suspected[PEER] = suspected
    forger.deadline(*([verdict, changed] if is_told else [verdict]))
    fired = [v.text for v in forger.scene.violations if v.checker == "verdicts-are-proven"]
    assert fired == ([] if is_told else [f"the verdict on {PEER} changes nothing"])


@pytest.mark.parametrize("is_present", [True, False])
def test_own_broadcast_that_comes_back_on_its_way_is_not_refused(is_present: bool) -> None:
    forger = cluster()
    life = Incarnation(forger.inside.context.incarnation - (not is_present))
    route = forger.route(destination=ME, source=ME, source_incarnation=life)
    message = Broadcast(route, "t", b"x", 0, (Branch(PEER, 1 << PEER),))
    forger.step(Received(forger.link, message))
    fired = [v.text for v in forger.scene.violations if v.checker == "best-effort-is-counted"]
    assert bool(fired) == (not is_present)


@pytest.mark.parametrize("is_back", [True, False])
def test_who_is_declared_dead_and_back_in_the_same_step_need_not_be_healed(is_back: bool) -> None:
    """Another one that is dead is for the lowest id to see to, and not for who declared this one."""
    forger = cluster()
    other = forger.record()._replace(status=Status.DEAD)
    forger.inside.membership.join(NodeId(2), other)
    revision = forger.inside.membership.revision
    effects: list[Effect] = [
        Observed("verdict", PEER, forger.life),
        RecordChanged(PEER, forger.record(Status.DEAD), revision + 1),
    ]
    if is_back:
        later = Record(Incarnation(forger.life + 2**32), 0, Status.ALIVE, "sim9:7400")
        effects.append(RecordChanged(PEER, later, revision + 2))
    forger.deadline(*effects)
    fired = [v.text for v in forger.scene.violations if v.checker == "heals-in-time"]
    assert bool(fired) == (not is_back)


def test_violation_says_where_and_when() -> None:
    forger = cluster()
    forger.deadline(Reply(10**6))
    assert str(forger.scene.violations[0]) == (
        f"requests-are-answered-once at node 5 after {forger.network.now_ns / 1e9:.6f} s:"
        " answers request 1000000 twice, or unasked"
    )


@pytest.mark.parametrize(
    ("lives_later", "features", "is_violation"),
    [(1, SPOKEN, False), (1, 0, True), (0, SPOKEN, True), (-1, SPOKEN, True)],
)
def test_older_life_that_was_only_met_is_over_when_a_later_one_is_linked(
    lives_later: int, features: int, is_violation: bool
) -> None:
    forger = cluster()
    met = Incarnation(forger.life + 2)
    forger.step(Received(forger.link, OlderMembers((MemberFeatures(PEER, met, 0),))))
    own, life = forger.inside.context.incarnation, Incarnation(met + lives_later)
    forger.step(LinkUp(NOWHERE, PEER, life, "sim4:7400", own, 9, features=features))
    forger.deadline(Send(NOWHERE, ReadersAsk(forger.route(), "t")))
    found = {violation.checker for violation in forger.scene.violations}
    assert ("older-are-spared" in found) == is_violation


@pytest.mark.parametrize(("id_space", "exceptions"), [(ME, 0), (8, 1 << ME)])
def test_copy_that_is_for_others_may_be_forgotten(id_space: int, exceptions: int) -> None:
    forger = cluster()
    route = Route(ME, PEER, forger.life, 0, 1, 5)
    copy = ReliableBroadcast(route, "news", b"x", 0, (), id_space, exceptions, (), 0)
    forger.step(Received(forger.link, copy), [])
    assert "broadcasts-are-taken" not in {each.checker for each in forger.scene.violations}


@pytest.mark.parametrize("retired", [False, True])
def test_life_of_who_is_linked_is_forgotten_only_with_a_joiner_that_left(retired: bool) -> None:
    f = cluster()
    membership = f.inside.membership
    del membership._lives[PEER]
    if retired:
        membership.retired.add(PEER, PEER)
    f.deadline()
    found = [each for each in f.scene.violations if each.checker == "lives-grow"]
    assert bool(found) is not retired
