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
    for name in [name for name in os.environ if name.startswith("BMGD_")]:
        monkeypatch.delenv(name)


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
    place, wanted = RunDir.at(str(tmp_path)), Wanted(4, http_port=http_port, with_secret=False)
    # Nobody else may have the first ports here.
    monkeypatch.setattr(ports, "_reserve", lambda _: ([], []))
    plan = make_plan(wanted, place, ReservedPorts(), split=False)
    assert plan.config.http == f"127.0.0.1:{{{http_port}+id}}"
    assert plan.config.peers.address_of(NodeId(0)) == f"127.0.0.1:{FIRST_PORT}"


@pytest.mark.parametrize(("http_port", "split"), [(7403, False), (7398, False), (7435, True)])
def test_ports_of_daemons_and_pages_that_overlap_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, http_port: int, *, split: bool
) -> None:
    monkeypatch.setattr(ports, "_reserve", lambda _: ([], []))
    wanted = Wanted(4, base_port=7400, http_port=http_port, with_secret=False)
    with pytest.raises(ConfigError, match="overlap"):
        make_plan(wanted, RunDir.at(str(tmp_path)), ReservedPorts(), split=split)


def test_ports_of_pages_may_begin_where_those_of_daemons_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_reserve", lambda _: ([], []))
    wanted = Wanted(4, base_port=7400, http_port=7404, with_secret=False)
    plan = make_plan(wanted, RunDir.at(str(tmp_path)), ReservedPorts(), split=False)
    assert plan.config.http == "127.0.0.1:{7404+id}"


@pytest.mark.parametrize(
    "line",
    [
        "id = 3",
        "size = 8",
        'listen = "127.0.0.1:1"',
        'control = "/tmp/c"',
        'join = ["127.0.0.1:1"]',
    ],
)
def test_file_with_what_a_launch_chooses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(ports, "_reserve", lambda _: ([], []))
    path = tmp_path / "shared.toml"
    path.write_text(f'profile = "wan"\n{line}\n')
    wanted = Wanted(4, with_secret=False, toml_path=str(path))
    with pytest.raises(ConfigError, match=f"{line.split()[0]}: a launch chooses that itself"):
        make_plan(wanted, RunDir.at(str(tmp_path)), ReservedPorts(), split=False)


def test_file_of_a_launch_may_say_where_pages_are_and_a_flag_goes_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_reserve", lambda _: ([], []))
    path = tmp_path / "shared.toml"
    path.write_text('http = "127.0.0.1:{9000+id}"\n')
    wanted = Wanted(4, with_secret=False, toml_path=str(path))
    place = RunDir.at(str(tmp_path))
    assert make_plan(wanted, place, ReservedPorts(), split=False).config.http.endswith("{9000+id}")
    wanted = Wanted(4, http_port=9100, with_secret=False, toml_path=str(path))
    assert make_plan(wanted, place, ReservedPorts(), split=False).config.http.endswith("{9100+id}")
