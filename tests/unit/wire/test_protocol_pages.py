"""The tables of the two protocol pages name all kinds, verbs, refusals and errors, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bmgd import errors
from bmgd.shell.access import READ_ONLY
from bmgd.shell.verbs import VERBS
from bmgd.wire import codec, control
from bmgd.wire.hello import Refusal

DOCS: Final = Path(__file__).parents[3] / "docs"
WIRE: Final = (DOCS / "wire-protocol.md").read_text(encoding="utf-8")
CONTROL: Final = (DOCS / "control-protocol.md").read_text(encoding="utf-8")

OF_THE_SHELL: Final = {"hello", "unregister", "cluster", "reload", "record"}
"""Verbs that need no command of the core."""
NOT_SENT: Final = {"FailedAnswerError"}
"""What the library makes of an answer."""


def rows(page: str, head: str) -> list[list[str]]:
    """The cells of the table that begins with such a row."""
    table = page[page.index(head) :].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def test_wire_page_has_every_kind_of_message() -> None:
    named = dict(re.findall(r"^\| (0x[0-9a-f]{2}) \| ([A-Z]+(?: [A-Z]+)*) \|", WIRE, re.M))
    known = {
        f"0x{kind:02x}": re.sub(r"(?<=[a-z])(?=[A-Z])", " ", message.__name__).upper()
        for kind, (message, _) in codec.kinds().items()
    }
    assert named == known


def test_wire_page_has_every_refusal() -> None:
    named = dict(re.findall(r"^\| (\d+) \| ([a-z ]+) \|", WIRE, re.M))
    assert {str(int(refusal)): refusal.text for refusal in Refusal}.items() <= named.items()


def test_control_page_has_every_kind_of_frame() -> None:
    named = {int(row[0], 16) for row in rows(CONTROL, "| kind | name | from | elements |")}
    assert named == set(control._KINDS.values())


def test_control_page_has_every_verb() -> None:
    named = [row[0].strip("`") for row in rows(CONTROL, "| verb | parameters |")]
    assert sorted(named) == sorted(VERBS.keys() | OF_THE_SHELL)


def test_control_page_names_the_verbs_of_those_who_may_only_look() -> None:
    sentence = CONTROL[CONTROL.index("may only\nlook gets RequestError") :].partition(". ")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == READ_ONLY


def test_control_page_names_errors_that_there_are() -> None:
    named = {row[0].strip("`") for row in rows(CONTROL, "| name | fields | when |")}
    assert [name for name in named if not issubclass(getattr(errors, name), errors.BmgdError)] == []
    of_delivery = {each.__name__ for each in errors.DeliveryError.__subclasses__()}
    assert of_delivery - NOT_SENT <= named
