"""What programs send is in no line of log: no command, event, effect or message shows it."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from bmgd.core.commands import Command
from bmgd.core.effects import Effect, ReportWanted
from bmgd.core.events import Event
from bmgd.wire.messages import LinkMessage, RoutedMessage

SHOWN = sorted(
    (
        kind
        for union in (Command, Effect, Event, LinkMessage, RoutedMessage)
        for kind in get_args(union)
    ),
    key=lambda kind: str(kind.__name__),
)


@pytest.mark.parametrize("kind", SHOWN)
def test_bytes_of_programs_are_not_shown(kind: type) -> None:
    shown = {field.name for field in fields(kind) if field.repr and str(field.type) == "bytes"}
    assert not shown


def test_facts_of_a_report_are_not_shown() -> None:
    (facts,) = [field for field in fields(ReportWanted) if field.name == "facts"]
    assert not facts.repr
