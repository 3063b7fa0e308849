"""What no simulated network carries: frames that are not what their messages say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from bmgd.core.effects import ForwardingChanged
from bmgd.core.events import LinkDown
from bmgd.errors import ProtocolError
from bmgd.linklayer import outbox
from bmgd.routing import reference
from bmgd.sim.checkers.frames import EVERY, FIRST, FramesMeanWhatTheySay
from bmgd.sim.checkers.linking import LinksLoseNothing
from bmgd.sim.checkers.malformed import BadHellosAreRefused, BadInputEndsItsOwnLink
from bmgd.sim.crammed import CrammedLink
from bmgd.sim.doorstep import Doorstep
from bmgd.sim.gonewrong import Listener
from bmgd.sim.linkmodel import BOUNDED
from bmgd.sim.modellink import OVERTAKE
from bmgd.sim.odd_contacts import OddContact
from bmgd.sim.witness.frames import KINDS
from bmgd.types import Evidence
from bmgd.wire import applicant, codec, hello
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.link_messages import Heartbeat, Ping
from bmgd.wire.messages import Message

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PING, OTHER = Ping(200), Ping(201)


def _checker(f: Forger) -> FramesMeanWhatTheySay:
    [checker] = [c for c in f.scene.checkers if isinstance(c, FramesMeanWhatTheySay)]
    return checker


def frame_of_another_message(f: Forger) -> None:
    checker = _checker(f)
    checker.on_written(PING, encode(PING))
    assert f.scene.violations == []
    checker.on_written(PING, encode(OTHER))


def frame_that_is_read_otherwise(f: Forger) -> None:
    checker = _checker(f)
    checker.on_read(encode(PING)[LENGTH_BYTES:], PING)
    assert f.scene.violations == []
    checker.on_read(encode(PING)[LENGTH_BYTES:], OTHER)


def frame_with_a_wrong_length(f: Forger) -> None:
    _checker(f).on_written(PING, encode(PING) + b"\x00")


def frame_in_a_longer_form(f: Forger) -> None:
    body = encode(PING)[LENGTH_BYTES:-2] + b"\xcd\x00\xc8"
    _checker(f).on_written(PING, len(body).to_bytes(4, "big") + body)


def later_frame_of_another_message(f: Forger) -> None:
    checker = _checker(f)
    for _ in range(FIRST):
        checker.on_written(PING, encode(PING))
    assert f.scene.violations == []
    for _ in range(EVERY):
        checker.on_written(PING, encode(OTHER))


def malformed_frame_that_is_read(f: Forger) -> None:
    """A codec that reads whatever comes."""

    def lenient(body: bytes) -> Message:
        try:
            return decode(body)
        except ProtocolError:
            return PING

    listener = _listener(f)
    listener._events._decode = lenient
    for _ in range(50):
        listener.hear()


def good_frame_that_is_refused(f: Forger) -> None:
    listener = _listener(f)
    for _ in range(100):
        listener.hear()
    assert f.scene.violations == []
    listener._events._decode = _refuse
    for _ in range(50):
        listener.hear()


def frame_with_one_field_beyond_its_bound_that_is_read(f: Forger) -> None:
    listener = _listener(f)
    for number in KINDS:
        listener.hear_all(number)
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec, "_read_heartbeat", lambda items: Heartbeat(1, 0, 0))
        listener.hear_all(codec.kind_of_message(Heartbeat))


def malformed_frame_of_a_member_that_is_read(f: Forger) -> None:
    body = encode(PING)[LENGTH_BYTES:]
    f.network.wires.say(f.host, f.link, encode(PING))
    f.network.run(1)
    assert f.scene.violations == []
    f.network.malformed.add(body[:-2] + b"\xcc\xc9")
    f.network.wires.say(f.host, f.link, encode(OTHER))
    f.network.run(1)


def link_that_ended_though_nobody_said_anything_wrong(f: Forger) -> None:
    f.network.malformed.doomed[f.host, f.link] = b"wrong"
    down = LinkDown(f.link, Evidence.PROTOCOL_ERROR)
    checker = _of_bad_input(f)
    checker.after(f.journal, down, ())
    assert f.scene.violations == []
    checker.after(f.journal, down, ())


def link_that_is_up_though_a_malformed_frame_came(f: Forger) -> None:
    f.scene.at_rest()
    assert f.scene.violations == []
    f.network.malformed.doomed[f.host, f.link] = b"wrong"
    f.scene.at_rest()


def hello_that_is_answered_though_it_is_malformed(f: Forger) -> None:
    [checker] = [c for c in f.scene.checkers if isinstance(c, BadHellosAreRefused)]
    doorstep = Doorstep(Random(2), lambda text: checker.violate(f.journal, text))
    for _ in range(200):
        doorstep.knock()
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hello, "CLUSTER_BYTES_MAX", 65)
        for _ in range(200):
            doorstep.knock()


def stranger_with_a_certificate_for_another(f: Forger) -> None:
    [checker] = [c for c in f.scene.checkers if isinstance(c, BadHellosAreRefused)]
    doorstep = Doorstep(Random(3), lambda text: checker.violate(f.journal, text))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hello.Channel, "misnames", lambda *args: "")
        for _ in range(200):
            doorstep.knock()


def joiner_that_reads_whatever_its_contact_tells(f: Forger) -> None:
    [checker] = [c for c in f.scene.checkers if isinstance(c, BadHellosAreRefused)]

    def talk() -> None:
        for seed in range(100):
            OddContact(Random(seed), lambda text: checker.violate(f.journal, text)).talk()

    talk()
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(applicant, "FRAME_BYTES_MAX", 2**31)
        talk()


def _refuse(body: bytes) -> Message:
    raise ProtocolError(f"a frame of {len(body)} bytes")


def _of_bad_input(f: Forger) -> BadInputEndsItsOwnLink:
    [checker] = [c for c in f.scene.checkers if isinstance(c, BadInputEndsItsOwnLink)]
    return checker


def _listener(f: Forger) -> Listener:
    checker = _of_bad_input(f)
    return Listener(Random(1), lambda text: checker.violate(f.journal, text))


def snapshot_of_which_the_backends_say_different_things(f: Forger) -> None:
    snapshot = f.inside.forwarding.snapshot
    f.deadline(ForwardingChanged(snapshot))
    assert "backends-agree" not in {found.checker for found in f.scene.violations}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reference, "_spread", lambda flow, self_id, count: 0)
        for _ in range(20):
            f.deadline(ForwardingChanged(snapshot))


def bytes_of_which_the_backends_make_different_things(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reference, "_malformed", lambda buffer, body: None)
        for _ in range(100):
            f.deadline(ForwardingChanged(f.inside.forwarding.snapshot))


def crammed_link_of_which_bulk_has_more_than_its_share(f: Forger) -> None:
    [checker] = [c for c in f.scene.checkers if isinstance(c, LinksLoseNothing)]
    checker.on_boot(f.journal)
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outbox, "BULK_SHARE", 1)
        checker.on_boot(f.journal)


def crammed_link_that_has_more_room_than_it_may(f: Forger) -> None:
    report = partial(f.scene.on_link_rule_broken, f.host)
    CrammedLink(Random(1), report).cram()
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outbox.Outbox, "put_raw", lambda self, data: True)
        for seed in range(10):
            CrammedLink(Random(seed), report).cram()


FORGERIES_OF_WIRES: list[tuple[str, Callable[[Forger], None]]] = [
    ("backends-agree", snapshot_of_which_the_backends_say_different_things),
    ("backends-agree", bytes_of_which_the_backends_make_different_things),
    (OVERTAKE, crammed_link_of_which_bulk_has_more_than_its_share),
    (BOUNDED, crammed_link_that_has_more_room_than_it_may),
    ("frames-mean-what-they-say", frame_of_another_message),
    ("frames-mean-what-they-say", frame_that_is_read_otherwise),
    ("frames-mean-what-they-say", frame_with_a_wrong_length),
    ("frames-mean-what-they-say", frame_in_a_longer_form),
    ("frames-mean-what-they-say", later_frame_of_another_message),
    ("bad-hellos-are-refused", hello_that_is_answered_though_it_is_malformed),
    ("bad-hellos-are-refused", stranger_with_a_certificate_for_another),
    ("bad-hellos-are-refused", joiner_that_reads_whatever_its_contact_tells),
    ("bad-input-ends-its-own-link", malformed_frame_that_is_read),
    ("bad-input-ends-its-own-link", good_frame_that_is_refused),
    ("bad-input-ends-its-own-link", frame_with_one_field_beyond_its_bound_that_is_read),
    ("bad-input-ends-its-own-link", malformed_frame_of_a_member_that_is_read),
    ("bad-input-ends-its-own-link", link_that_ended_though_nobody_said_anything_wrong),
    ("bad-input-ends-its-own-link", link_that_is_up_though_a_malformed_frame_came),
]
