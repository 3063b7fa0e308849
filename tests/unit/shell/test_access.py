"""Who may use the control socket, by the kernel's word, and what those may who may only look."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bmgd.client import connect
from bmgd.errors import ConfigError, RequestError
from bmgd.shell import control_connection
from bmgd.shell.access import _SO_PEERGROUPS, READ_ONLY, Access, Level, Peer, peer_of
from bmgd.shell.control import ControlServer
from bmgd.shell.verbs import VERBS
from tests.unit.fake_core import FakeCore, fake_daemon

OWNER, ADMINS, READERS, NOBODY = 1000, 20, 30, 65534
ACCESS = Access(OWNER, ADMINS, READERS)


@pytest.mark.parametrize(
    ("peer", "level"),
    [
        (Peer(1, 0, frozenset()), Level.EVERYTHING),
        (Peer(1, OWNER, frozenset({7})), Level.EVERYTHING),
        (Peer(1, 5, frozenset({7, ADMINS})), Level.EVERYTHING),
        (Peer(1, 5, frozenset({READERS, 7})), Level.LOOK),
        (Peer(1, 5, frozenset({ADMINS, READERS})), Level.EVERYTHING),
        (Peer(1, 5, frozenset({7})), Level.NOTHING),
        (Peer(1, NOBODY, frozenset()), Level.NOTHING),
    ],
)
def test_access_follows_user_and_groups(peer: Peer, level: Level) -> None:
    assert ACCESS.level(peer) is level


def test_access_without_groups_is_the_owners() -> None:
    alone = Access(OWNER)
    assert alone.level(Peer(1, 5, frozenset({ADMINS, READERS}))) is Level.NOTHING
    assert (alone.mode, alone.owner) == (0o600, None)


@pytest.mark.parametrize(
    ("group", "readers", "mode", "owner"),
    [
        (None, None, 0o600, None),
        (20, None, 0o660, 20),
        (None, 30, 0o660, 30),
        (20, 20, 0o660, 20),
        (20, 30, 0o666, 30),
    ],
)
def test_access_says_the_sockets_mode(
    group: int | None, readers: int | None, mode: int, owner: int | None
) -> None:
    access = Access(OWNER, group, readers)
    assert (access.mode, access.owner) == (mode, owner)


def test_access_names_groups() -> None:
    assert Access.of("root", "4711").group == 0
    assert Access.of("root", "4711").readers == 4711
    with pytest.raises(ConfigError, match="--control-readonly: there is no group 'no such group'"):
        Access.of("", "no such group")


@pytest.mark.parametrize("number", [str(2**32 - 1), "9" * 20, "9" * 5000])
def test_access_refuses_a_number_that_no_group_has(number: str) -> None:
    with pytest.raises(ConfigError, match="--control-group"):
        Access.of(number, "")


def test_access_reads_the_kernels_word() -> None:
    one, other = socket.socketpair()
    with one, other:
        peer = peer_of(one)
    assert (peer.pid, peer.uid) == (os.getpid(), os.geteuid())
    assert {os.getegid(), *os.getgroups()} == peer.groups


class InGroups(socket.socket):
    """A socket whose other end is in two groups more than this process."""

    def getsockopt(self, *asked: Any) -> Any:
        known: Any = super().getsockopt(*asked)
        return known + struct.pack("II", ADMINS, READERS) if asked[1] == _SO_PEERGROUPS else known


def test_access_reads_all_groups_that_the_kernel_names() -> None:
    one, other = socket.socketpair()
    with InGroups(fileno=one.detach()) as sock, other:
        assert peer_of(sock).groups == {os.getegid(), *os.getgroups(), ADMINS, READERS}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can join groups")
def test_access_reads_the_groups_of_another_process() -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([ADMINS, READERS])
            one, _ = socket.socketpair()
            os.write(tell, repr(sorted(peer_of(one).groups)).encode())
        finally:
            os._exit(0)
    os.close(tell)
    groups = os.read(told, 4096)
    os.close(told)
    os.waitpid(child, 0)
    assert groups == repr(sorted({os.getegid(), ADMINS, READERS})).encode()


def test_access_of_readers_has_no_verb_that_changes_anything() -> None:
    assert READ_ONLY & {"leave", "evict", "send", "subscribe", "reload"} == set()
    own = {"cluster", "hello"}  # answered by the shell
    assert VERBS.keys() | own >= READ_ONLY


# --- the server -------------------------------------------------------------------------------------


class Notes:
    """What the server logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, event: str, text: str) -> None:
        assert event == "control"
        self.lines.append(text)


@pytest.fixture
async def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FakeCore, Notes, list[Peer]]]:
    """A daemon, its log, and whom it takes those who connect for."""
    peers = [Peer(77, 5, frozenset({READERS}))]
    notes = Notes()
    monkeypatch.setattr(control_connection, "peer_of", lambda sock: peers[0])
    async with fake_daemon(tmp_path / "d.sock") as core:
        core.server.close()
        core.server = ControlServer(
            core.address, core.issue, dict, {"reload": dict}, ACCESS, notes.note
        )
        # The groups of this test need not be groups of this machine.
        monkeypatch.setattr(Access, "owner", None)
        await core.server.start()
        yield core, notes, peers


async def test_access_of_a_reader_is_to_look(
    served: tuple[FakeCore, Notes, list[Peer]],
) -> None:
    core, notes, _ = served
    async with connect(core.address) as daemon:
        assert (await daemon.status())["state"] == "ready"
        assert await daemon.links()
        with pytest.raises(RequestError, match="uid 5 may only look, not stream"):
            await daemon.send(1, b"x")
        with pytest.raises(RequestError, match="may only look, not leave"):
            await daemon.leave()
        with pytest.raises(RequestError, match="may only look, not evict"):
            await daemon.evict(1)
        with pytest.raises(RequestError, match="may only look, not reload"):
            await daemon.reload()
        assert (await daemon.status())["state"] == "ready"
    assert [line.split(":")[0] for line in notes.lines] == [
        f"refused {verb!r} of uid 5 (pid 77)" for verb in ("stream", "leave", "evict", "reload")
    ]


async def test_access_of_a_stranger_is_refused_and_logged(
    served: tuple[FakeCore, Notes, list[Peer]],
) -> None:
    core, notes, peers = served
    peers[0] = Peer(78, NOBODY, frozenset({NOBODY}))
    with pytest.raises(RequestError, match="uid 65534 may not use this daemon"):
        async with connect(core.address) as daemon:
            await daemon.status()
    assert notes.lines == ["refused a program of uid 65534 (pid 78): it may not use this daemon"]
    assert core.told == []


async def test_access_of_the_control_group_is_full(
    served: tuple[FakeCore, Notes, list[Peer]],
) -> None:
    core, notes, peers = served
    peers[0] = Peer(79, 5, frozenset({ADMINS}))
    async with connect(core.address) as daemon:
        await daemon.send(1, b"x")
    assert notes.lines == []


def _hear_as(uid: int, path: str, told: int) -> None:
    """In a child process: connect as another user, and pass on what is heard."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(path)
            os.write(told, sock.recv(4096))
        except OSError as error:
            os.write(told, str(error).encode())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(
    ("access", "heard"),
    [
        (Access(0, 4711, 4712), b"uid 65534 may not use this daemon"),
        (Access(0, 4711), b"Permission denied"),
        (Access(0), b"Permission denied"),
    ],
)
async def test_access_of_a_process_of_another_user(access: Access, heard: bytes) -> None:
    notes = Notes()
    with TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = f"{directory}/d.sock"
        server = ControlServer(f"unix:{path}", lambda *_: None, dict, {}, access, notes.note)
        await server.start()
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _hear_as(NOBODY, path, tell)
            finally:
                os._exit(0)
        os.close(tell)
        got = await asyncio.to_thread(os.read, told, 4096)
        os.close(told)
        await asyncio.to_thread(os.waitpid, child, 0)
        server.close()
    assert heard in got
    assert len(notes.lines) == (b"may not" in heard)
