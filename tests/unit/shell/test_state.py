"""The state directory: counters only grow, and belong to one daemon at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bmgd.core.settings import Settings
from bmgd.errors import ConfigError
from bmgd.peers import PeerList
from bmgd.shell.state import JoinedState, StateDirectory
from bmgd.types import Incarnation, NodeId, counter_of


def test_state_counts_each_life(tmp_path: Path) -> None:
    counters = []
    for _ in range(3):
        state = StateDirectory(str(tmp_path), 4)
        counters.append(counter_of(state.begin_life()))
        state.close()
    assert counters == [1, 2, 3]


def test_state_kept_for_a_later_life_is_exceeded(tmp_path: Path) -> None:
    state = StateDirectory(str(tmp_path), 4)
    state.keep(Incarnation(9 << 32))
    assert counter_of(state.begin_life()) == 10


def test_state_is_not_written_through_somebodys_link(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.write_text("kept")
    (tmp_path / "incarnation-4.new").symlink_to(target)
    state = StateDirectory(str(tmp_path), 4)
    state.keep(Incarnation(9 << 32))
    state.close()
    assert target.read_text() == "kept"
    assert (tmp_path / "incarnation-4").read_text() == "9\n"


def test_state_is_not_locked_through_somebodys_link(tmp_path: Path) -> None:
    (tmp_path / "incarnation-4.lock").symlink_to(tmp_path / "made")
    with pytest.raises(ConfigError, match="state directory"):
        StateDirectory(str(tmp_path), 4)
    assert not (tmp_path / "made").exists()


def test_state_without_a_directory_begins_with_one() -> None:
    assert counter_of(StateDirectory("", 4).begin_life()) == 1


def test_state_is_refused_to_a_second_daemon_of_that_id(tmp_path: Path) -> None:
    first = StateDirectory(str(tmp_path), 4)
    with pytest.raises(ConfigError, match="another daemon"):
        StateDirectory(str(tmp_path), 4)
    assert counter_of(StateDirectory(str(tmp_path), 5).begin_life()) == 1
    first.close()
    assert counter_of(StateDirectory(str(tmp_path), 4).begin_life()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"id":true,"size":2,"peers":"127.0.0.1:{1+id}"}',
        '{"id":1,"size":true,"peers":"127.0.0.1:{1+id}"}',
        '{"id":1,"size":2,"peers":"garbage"}',
    ],
    ids=lambda text: text[:20],
)
def test_state_of_a_joiner_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "joined.json").write_text(text)
    with pytest.raises(ConfigError, match=r"joined\.json: not what a joiner keeps"):
        JoinedState(str(tmp_path), "bmgd").read()


@pytest.mark.parametrize("text", ["", "x", "-1", "4294967296", "1 2", "²", "9" * 5000])
def test_state_that_is_no_counter_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "incarnation-4").write_text(text)
    with pytest.raises(ConfigError, match="not an incarnation counter"):
        StateDirectory(str(tmp_path), 4).begin_life()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_state_that_is_no_file_is_refused_without_waiting(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    for name in ("incarnation-4", "joined.json"):
        make(tmp_path / name)
    with pytest.raises(ConfigError, match="incarnation-4: no regular file"):
        StateDirectory(str(tmp_path), 4).begin_life()
    with pytest.raises(ConfigError, match=r"joined\.json: no regular file"):
        JoinedState(str(tmp_path), "bmgd").read()


def test_state_of_a_joiner_is_of_one_cluster(tmp_path: Path) -> None:
    peers = PeerList.parse("127.0.0.1:{1+id}", 2)
    settings = Settings(NodeId(2), 2, peers, "127.0.0.1:9")
    state = JoinedState(str(tmp_path), "a")
    state.keep(settings)
    kept = state.read()
    assert kept is not None
    assert (kept.id, kept.founding_size) == (2, 2)
    state.check_is_of(kept, 2)
    with pytest.raises(ConfigError, match=r"node 2 of a cluster of 2 founders, and this one has 3"):
        state.check_is_of(kept, 3)
    state.close()
    with pytest.raises(ConfigError, match=r"of the cluster 'a', and this one is 'b'"):
        JoinedState(str(tmp_path), "b").read()


def test_state_of_a_joiner_of_an_earlier_release_names_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "joined.json").write_text('{"id":2,"size":2,"peers":"127.0.0.1:{1+id}"}')
    kept = JoinedState(str(tmp_path), "b").read()
    assert kept is not None
    assert kept.id == 2
