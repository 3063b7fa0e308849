"""The client without asyncio has what the other has, by the same names and with the same arguments."""

from __future__ import annotations

import inspect

import pytest

import bmgd
from bmgd import blocking
from bmgd.client.reading import Messages

_NOT_OF_PROGRAMS = {"abandon", "close", "until_open"}
"""What leaving the block of a stream does."""


def public(kind: type) -> dict[str, object]:
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: each for name, each in found.items() if name not in _NOT_OF_PROGRAMS}


def test_blocking_reader_has_what_a_subscription_and_its_messages_have() -> None:
    of_message = ("reply", "reply_soon", "refuse")
    for kind, calls in ((Messages, ("take", "put_back")), (bmgd.Message, of_message)):
        for call in calls:
            _, *wanted = inspect.signature(getattr(kind, call)).parameters.values()
            _, *given = inspect.signature(getattr(blocking.MessageReader, call)).parameters.values()
            # A reader is told which message is answered.
            assert [(p.name, p.kind, p.default) for p in given[kind is bmgd.Message :]] == [
                (p.name, p.kind, p.default) for p in wanted
            ], call


@pytest.mark.parametrize("name", ["Daemon", "Writer", "Message"])
def test_blocking_client_has_every_call_with_the_same_arguments(name: str) -> None:
    theirs, own = public(getattr(bmgd, name)), public(getattr(blocking, name))
    # What a message is besides: a tuple.
    theirs = {call: each for call, each in theirs.items() if not hasattr(tuple, call)}
    assert own.keys() == theirs.keys()
    for call, each in theirs.items():
        if inspect.isfunction(each):
            wanted = inspect.signature(each).parameters.values()
            given = inspect.signature(getattr(blocking, name).__dict__[call]).parameters.values()
            assert [(p.name, p.kind, p.default) for p in given] == [
                (p.name, p.kind, p.default) for p in wanted
            ], call
