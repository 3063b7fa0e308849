"""`bmgd secret`: what it makes, what it changes, and files that it does not touch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bmgd.cli import DONE, USAGE, main
from bmgd.secret import fingerprint, parse_secrets


def held(path: Path) -> tuple[bytes, ...]:
    return parse_secrets(path.read_bytes(), str(path))


def made(path: Path, *secrets: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(b"\n".join(secrets) + b"\n")
    path.chmod(mode)
    return path


def test_secret_new_makes_a_file_for_its_owner_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "secret"
    umask = os.umask(0o077 ^ 0o777)
    try:
        assert main(["secret", "new", str(path)]) == DONE
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o600
    (secret,) = held(path)
    assert len(secret) == 43
    assert capsys.readouterr().out == f"{fingerprint(secret)}  used first\n"
    assert list(tmp_path.iterdir()) == [path]


def test_secret_new_leaves_a_file_that_is_there(tmp_path: Path) -> None:
    path = made(tmp_path / "secret", b"precious")
    assert main(["secret", "new", str(path)]) == USAGE
    assert held(path) == (b"precious",)
    assert list(tmp_path.iterdir()) == [path]


def test_secret_rotates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path / "secret", b"old")
    inode = path.stat().st_ino
    assert main(["secret", "add", "--json", str(path)]) == DONE
    new, old = held(path)
    assert old == b"old"
    assert json.loads(capsys.readouterr().out)["fingerprints"] == [
        fingerprint(new),
        fingerprint(old),
    ]
    assert path.stat().st_ino != inode, "it was written in place"
    assert main(["secret", "retire", str(path)]) == DONE
    assert held(path) == (new,)
    assert path.stat().st_mode & 0o777 == 0o600


def test_secret_adds_that_of_another_file(tmp_path: Path) -> None:
    path, other = made(tmp_path / "a", b"old"), made(tmp_path / "b", b"new", b"old")
    assert main(["secret", "add", "--from", str(other), str(path)]) == DONE
    assert held(path) == (b"new", b"old")
    assert main(["secret", "add", "--from", str(other), str(path)]) == USAGE
    assert held(path) == (b"new", b"old")


def test_secret_retires_the_one_that_is_named(tmp_path: Path) -> None:
    path = made(tmp_path / "secret", b"a", b"b", b"c")
    assert main(["secret", "retire", str(path), fingerprint(b"b")]) == DONE
    assert held(path) == (b"a", b"c")
    assert main(["secret", "retire", str(path), fingerprint(b"b")]) == USAGE
    assert held(path) == (b"a", b"c")


@pytest.mark.parametrize("words", [[], [fingerprint(b"a")]])
def test_secret_never_retires_the_last_one(words: list[str], tmp_path: Path) -> None:
    path = made(tmp_path / "secret", b"a")
    assert main(["secret", "retire", str(path), *words]) == USAGE
    assert held(path) == (b"a",)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o644])
@pytest.mark.parametrize("action", ["add", "retire", "show"])
def test_secret_refuses_a_file_that_others_can_read(
    action: str, mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path / "secret", b"a", b"b", mode=mode)
    assert main(["secret", action, str(path)]) == USAGE
    assert "others than its owner" in capsys.readouterr().err
    assert held(path) == (b"a", b"b")


def test_secret_takes_no_ninth_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eight = [b"%d" % i for i in range(8)]
    path = made(tmp_path / "secret", *eight)
    assert main(["secret", "add", str(path)]) == USAGE
    said = capsys.readouterr().err
    assert f"{path} holds 8 secrets" in said
    assert "bmgd secret retire" in said
    assert held(path) == tuple(eight)
    assert list(tmp_path.iterdir()) == [path]


def test_secret_behind_a_link_changes_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = made(tmp_path / "real" / "secret", b"old")
    link = tmp_path / "secret"
    link.symlink_to(path)
    assert main(["secret", "add", str(link)]) == DONE
    assert link.is_symlink()
    assert len(held(path)) == 2


def test_secret_in_a_directory_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["secret", "new", str(tmp_path / "missing" / "secret")]) == USAGE
    assert "cannot write" in capsys.readouterr().err


def test_secret_show_does_not_tell_the_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path / "secret", b"swordfish", b"marlin")
    assert main(["secret", "show", str(path)]) == DONE
    out = capsys.readouterr().out
    assert out == f"{fingerprint(b'swordfish')}  used first\n{fingerprint(b'marlin')}  accepted\n"
