"""The glossary's example of watched links is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from bmgd.core.membership.membership import Membership
from bmgd.core.neighbors.watched_links import watched_peers
from bmgd.peers import PeerList
from bmgd.types import NodeId

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


def test_glossary_example_of_watched_links_is_true() -> None:
    text = " ".join(GLOSSARY.read_text(encoding="utf-8").split())
    watched = re.search(r"the links to ([0-9, and]+) are watched", text)
    others = re.search(r"the links to ([0-9, and]+) \(distances", text)
    assert watched is not None
    assert others is not None
    membership = Membership(200, PeerList.parse("127.0.0.1:{20000+id}", 200))
    found = watched_peers(membership, NodeId(10))
    assert found is not None
    assert {int(n) for n in re.findall(r"\d+", watched[1])} == found
    neighbors = set(membership.neighbors(NodeId(10)))
    assert {int(n) for n in re.findall(r"\d+", others[1])} == neighbors - found
