"""What a daemon shows of the cluster while it has an id, and between two ids."""

from __future__ import annotations

from typing import Any

import pytest

from bmgd.core.commands import Command, ShowMembers, ShowReport
from bmgd.core.counts import Counts
from bmgd.core.effects import Reply
from bmgd.errors import RequestError
from bmgd.shell.surveying import Surveying
from bmgd.shell.vitals import Vitals
from bmgd.types import NodeId


class Inside:
    """A daemon whose core answers at once."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.vitals = Vitals()
        self.own_id = 0
        self.issued: list[Command] = []
        self.surveying = Surveying(self, "test")

    def issue(self, request: int, command: Command) -> None:
        self.issued.append(command)
        keys = {"status": "alive", "incarnation": 1, "version": 0, "address": ""}
        facts = {"id": self.own_id, "state": "ready", "digest": "00", "incarnation": "1"}
        results = {
            ShowMembers: {"revision": 0, "members": [{"id": self.own_id, **keys}]},
            ShowReport: {
                **facts,
                **{key: [] for key in ("suspects", "wanted", "links")},
                **dict.fromkeys(("isolated", "stands_aside"), False),
            },
        }
        if type(command) in results:
            self.surveying.reply(Reply(request, results[type(command)]))

    def describe(self) -> dict[str, Any]:
        return {}

    def describe_process(self) -> dict[str, Any]:
        return {}

    def descriptors(self) -> list[Any]:
        return []

    def totals(self) -> dict[str, int]:
        return dict.fromkeys(("sent_bytes", "received_bytes", "relayed_frames"), 0)


async def test_surveying_without_an_id_asks_nothing_and_begins_anew_with_the_next() -> None:
    inside = Inside()
    surveying = inside.surveying
    told: list[tuple[str, Any]] = []
    surveying.publish = lambda name, value: told.append((name, value))
    surveying.become(NodeId(0))
    surveying.watch(held=True)
    view = surveying._view
    assert view is not None
    assert surveying.cluster_document()["own_id"] == 0

    surveying.lose_id()
    assert not view.is_asking
    assert not surveying.is_member
    with pytest.raises(RequestError, match="not a member"):
        surveying.cluster_document()

    # The pages that are open are told everything anew.
    told.clear()
    inside.own_id = 7
    surveying.become(NodeId(7))
    documents: list[Any] = [value for name, value in told if name == "cluster"]
    assert [document["own_id"] for document in documents] == [7]
    assert [member["id"] for member in documents[0]["members"]] == [7]
    surveying.close()


async def test_surveying_tells_nobody_of_an_id_while_nobody_looks() -> None:
    inside = Inside()
    told: list[str] = []
    inside.surveying.publish = lambda name, value: told.append(name)
    inside.surveying.become(NodeId(0))
    assert (told, inside.issued) == ([], [])
