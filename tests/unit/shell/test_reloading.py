"""Files that change while a daemon runs: seen whole or not at all, however they are replaced."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bmgd.config import Config
from bmgd.config_files import read_secrets, secrets_now
from bmgd.errors import ConfigError
from bmgd.peers import PeerList
from bmgd.shell import reloading
from bmgd.shell.reloading import Reloading

DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "LOOK_S", 0.005)


class Seen:
    """A `Reloading` of one secret file, and what it did."""

    def __init__(self, path: Path) -> None:
        self.secrets: list[tuple[bytes, ...]] = []
        self.notes: list[str] = []
        path.touch(0o600)
        secrets = read_secrets(str(path)) if path.stat().st_size else ()
        config = Config(0, 1, PeerList(), secret_file=str(path), secrets=secrets)
        self.reloading = Reloading(config, self._apply, lambda _, text: self.notes.append(text))

    def _apply(self, config: Config) -> None:
        self.secrets.append(config.secrets)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


async def test_reloading_sees_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = written(tmp_path / "secret", b"old\n")
    seen = Seen(path)
    seen.reloading.start()
    os.replace(written(tmp_path / "beside", b"new\nold\n"), path)
    await until(lambda: bool(seen.secrets))
    seen.reloading.stop()
    assert seen.secrets == [(b"new", b"old")]


async def test_reloading_sees_a_directory_that_was_replaced(tmp_path: Path) -> None:
    """As Kubernetes does: what is mounted is a link to a directory that is put in its place at once."""
    for name, content in (("1", b"old\n"), ("2", b"new\n")):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "secret", content)
    (tmp_path / "data").symlink_to("1")
    (tmp_path / "secret").symlink_to("data/secret")
    seen = Seen(tmp_path / "secret")
    seen.reloading.start()
    (tmp_path / "other").symlink_to("2")
    os.replace(tmp_path / "other", tmp_path / "data")
    await until(lambda: bool(seen.secrets))
    seen.reloading.stop()
    assert seen.secrets == [(b"new",)]


async def test_reloading_does_not_read_a_file_that_is_being_written(tmp_path: Path) -> None:
    path = written(tmp_path / "secret", b"old\n")
    seen = Seen(path)
    seen.reloading.start()
    with path.open("wb", buffering=0) as file:
        for byte in b"a long new secret, written slowly":
            file.write(bytes((byte,)))
            await asyncio.sleep(0.003)
    whole = (b"a long new secret, written slowly",)
    await until(lambda: whole in seen.secrets)
    seen.reloading.stop()
    assert seen.secrets[-1] == whole
    assert len(seen.secrets) <= 3


@pytest.mark.parametrize("content", [b"", b"same\nsame\n", None])
async def test_reloading_changes_nothing_by_a_file_that_cannot_be_used(
    content: bytes | None, tmp_path: Path
) -> None:
    path = written(tmp_path / "secret", b"old\n")
    seen = Seen(path)
    seen.reloading.start()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    await until(lambda: bool(seen.notes))
    seen.reloading.stop()
    assert seen.secrets == []
    assert "nothing was changed" in seen.notes[0]
    with pytest.raises(ConfigError):
        seen.reloading.reload()
    written(path, b"mended\n")
    assert seen.reloading.reload()
    assert seen.secrets == [(b"mended",)]


async def test_reloading_of_equal_files_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "secret", b"old\n")
    seen = Seen(path)
    os.utime(path, (0, 0))
    seen.reloading.try_reload()
    assert seen.secrets == []
    assert seen.notes == [f"read anew, nothing differs: {path}"]


async def test_reloading_of_what_cannot_be_applied_fails_each_time_it_is_asked_for(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "secret", b"old\n")
    applied: list[tuple[bytes, ...]] = []

    def apply(config: Config) -> None:
        if config.secrets == (b"unfit",):
            raise ConfigError("unfit")
        applied.append(config.secrets)

    config = Config(0, 1, PeerList(), secret_file=str(path), secrets=read_secrets(str(path)))
    reloading = Reloading(config, apply, lambda _, text: None)
    written(path, b"unfit\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="unfit"):
            reloading.reload()
    written(path, b"new\n")
    assert reloading.reload()
    assert applied == [(b"new",)]


async def test_reloading_tries_again_what_was_refused_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a certificate that is valid only from now on.
    monkeypatch.setattr(reloading, "AGAIN_S", 0.0)
    path = written(tmp_path / "secret", b"old\n")
    tried, notes = list[str](), list[str]()

    def apply(config: Config) -> None:
        tried.append("refused" if len(tried) < 3 else "used")
        if tried[-1] == "refused":
            raise ConfigError("not yet")

    config = Config(0, 1, PeerList(), secret_file=str(path), secrets=read_secrets(str(path)))
    files = Reloading(config, apply, lambda _, text: notes.append(text))
    files.start()
    written(path, b"new and longer\n")
    await until(lambda: "used" in tried)
    await asyncio.sleep(0.05)
    files.stop()
    assert tried == ["refused"] * 3 + ["used"]
    assert notes == ["nothing was changed: not yet"]


async def test_reloading_does_not_wait_for_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"one\n")
    seen = Seen(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr("builtins.open", refuse_to_open)
    with pytest.raises(ConfigError, match="no regular file"):
        seen.reloading.reload()
    assert seen.secrets == []


def test_secrets_for_those_that_begin_later_are_those_of_the_file_now(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"now\n")
    config = Config(0, 1, PeerList(), secret_file=str(path), secrets=(b"then",))
    assert secrets_now(config) == (b"now",)
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        secrets_now(config)
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot read the secret file"):
        secrets_now(config)
    path.rmdir()
    os.mkfifo(path)
    assert secrets_now(config) == (b"then",)


def refuse_to_open(path: str, *_: object) -> None:
    """In the place of what would wait for a writer for ever."""
    raise AssertionError(f"{path} was opened")
