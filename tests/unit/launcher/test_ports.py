"""Which ports a local cluster gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bmgd.errors import ConfigError
from bmgd.launcher import ports
from bmgd.launcher.planning import Wanted, make_plan
from bmgd.launcher.ports import FIRST_PORT, PORT_END, ReservedPorts, choose_base_port
from bmgd.launcher.rundir import RunDir
from bmgd.types import NodeId


@pytest.fixture(autouse=True)
def all_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda _: True)


def test_ports_are_searched_from_the_first_one_where_none_are_left_above() -> None:
    taken = {FIRST_PORT + 1, FIRST_PORT + 4, PORT_END - 3}
    assert choose_base_port(2, None, PORT_END - 2, taken) == PORT_END - 2
    assert choose_base_port(2, None, PORT_END - 1, taken) == FIRST_PORT + 2
    assert choose_base_port(3, None, PORT_END - 2, taken) == FIRST_PORT + 5


def test_wanted_ports_that_are_none_are_an_error_of_usage() -> None:
    assert choose_base_port(1, 65535) == 65535
    with pytest.raises(ConfigError, match=r"--base-port: 65535\.\.65536"):
        choose_base_port(2, 65535)
    with pytest.raises(ConfigError, match=r"--http: 0\.\.1"):
        choose_base_port(2, 0, flag="--http")


@pytest.mark.parametrize("http_port", [PORT_END - 70, 40_000])
def test_daemons_have_ports_below_a_page_that_has_a_high_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, http_port: int
) -> None:
    for name in [name for name in os.environ if name.startswith("BMGD_")]:
        monkeypatch.delenv(name)
    place, wanted = RunDir.at(str(tmp_path)), Wanted(4, http_port=http_port, with_secret=False)
    # Nobody else may have the first ports here.
    monkeypatch.setattr(ports, "_reserve", lambda _: ([], []))
    plan = make_plan(wanted, place, ReservedPorts(), split=False)
    assert plan.config.http == f"127.0.0.1:{{{http_port}+id}}"
    assert plan.config.peers.address_of(NodeId(0)) == f"127.0.0.1:{FIRST_PORT}"
