"""What is new on the wire since the release before this one is named with a feature."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from bmgd.wire.codec import kinds
from bmgd.wire.features import NEEDS, SPOKEN, Feature, names_of
from bmgd.wire.messages import LinkMessage

ROOT: Final = Path(__file__).parents[3]
PREVIOUS: Final = ROOT / "tests" / "golden" / "previous.txt"
WIRE: Final = ROOT / "docs" / "wire-protocol.md"


def spoken_before() -> dict[int, tuple[str, int]]:
    """The kinds of the release before this one: the name and the number of fields of each."""
    found = {}
    for line in PREVIOUS.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, name, fields = line.split()
            found[int(kind, 16)] = name, int(fields)
    return found


def test_each_kind_that_the_previous_release_does_not_speak_is_named_with_a_feature() -> None:
    before = spoken_before()
    new = {message for kind, (message, _) in kinds().items() if kind not in before}
    assert new == set(NEEDS), "see `A message kind` in CONTRIBUTING.md"


def test_each_kind_that_the_previous_release_speaks_is_what_it_was() -> None:
    now = {kind: (message.__name__, fields) for kind, (message, fields) in kinds().items()}
    for kind, known in spoken_before().items():
        assert now.get(kind) == known, f"{kind:#x}: a change of a kind is a new kind"


def test_a_link_message_needs_its_neighbor_only() -> None:
    for message, need in NEEDS.items():
        assert need.scope.value == "neighbor" or not issubclass(message, LinkMessage), message


def test_features_are_single_bits_of_the_hello_and_documented() -> None:
    assert 0 < SPOKEN < 2**32
    text = WIRE.read_text(encoding="utf-8")
    for feature in Feature:
        assert feature.bit_count() == 1
        (name,) = names_of(feature)
        assert re.search(rf"^\| 0x{feature:02x} \| {name} \|", text, re.MULTILINE), name


def test_bits_of_features_that_are_not_known_have_no_name() -> None:
    assert names_of(0xFFFFFFFF) == names_of(SPOKEN)
    assert names_of(0) == []


if __name__ == "__main__":
    heading = [line for line in PREVIOUS.read_text().splitlines() if line.startswith("#")]
    rows = [f"{k:#04x} {message.__name__} {n}" for k, (message, n) in sorted(kinds().items())]
    sys.stdout.write("\n".join([*heading, *rows, ""]))
