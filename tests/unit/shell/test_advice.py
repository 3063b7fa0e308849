"""A refusal says what does not fit and what to do next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bmgd.config import Config
from bmgd.core.effects import Observed
from bmgd.peers import PeerList
from bmgd.shell.advice import advice_on, with_advice
from bmgd.types import NodeId
from bmgd.wire.hello import MISCONFIGURED


def config(secret: bytes = b"") -> Config:
    made = Config(id=1, size=4, peers=PeerList.parse("127.0.0.1:{7400+id}", 4))
    return replace(made, secrets=(secret,) if secret else ())


@pytest.mark.parametrize("refusal", sorted(MISCONFIGURED))
def test_advice_exists_for_every_refusal_that_time_does_not_mend(refusal: object) -> None:
    text = refusal.text  # type: ignore[attr-defined]
    assert advice_on(text, config())


def test_advice_calls_no_secret_no_secret() -> None:
    assert "this node has no secret" in advice_on("wrong secret", config())
    assert "no secret:" not in advice_on("wrong secret", config(b"s"))


def test_advice_to_a_joiner_that_wants_a_living_id_names_the_id() -> None:
    joiner = replace(config(), id=77, size=1, join=("127.0.0.1:7400",))
    assert "--id 77 is alive there" in advice_on("wrong id", joiner)
    assert "--peers" in advice_on("wrong id", config())


def test_advice_follows_the_reason_in_the_log() -> None:
    shown = with_advice(Observed("rejected", NodeId(0), None, "wrong size"), config())
    assert shown.detail == "wrong size: --size 4 here is not the number of founders there"
    joiner = with_advice(Observed("not joined", detail="a:1: wrong secret"), config())
    assert joiner.detail.endswith("give it the cluster's with --secret-file")


def test_advice_says_nothing_where_waiting_is_all() -> None:
    busy = Observed("rejected", NodeId(0), None, "busy")
    assert with_advice(busy, config()) is busy
