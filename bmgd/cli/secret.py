"""Make and change a secret file: the secrets that daemons of a cluster prove to each other.

A file holds up to 8 secrets, one a line, the newest first. Daemons use the first one that both have. To
change the secret of a running cluster: `add` on one host and copy the file to the others, in any order.
When `bmgd links` of every daemon shows the new fingerprint, `retire` and copy again. Daemons see a
changed file by themselves.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import Final

from bmgd.errors import ConfigError

_RANDOM_BYTES: Final = 32
_MODE: Final = 0o600
_OTHERS: Final = 0o077


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("new", "make a file with a fresh secret; there must be none"),
        ("add", "put a fresh secret in front of those of the file"),
        ("retire", "take out all but the first secret, or a certain one"),
        ("show", "show the fingerprints of the secrets"),
    ):
        action = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
        action.add_argument("file", metavar="FILE")
        action.add_argument("--json", action="store_true", help="print JSON")
        if name in ("new", "add"):
            action.add_argument(
                "--from", dest="source", metavar="FILE", help="take the first secret of this file"
            )
        if name == "retire":
            action.add_argument("fingerprint", nargs="?", metavar="FINGERPRINT")


def run(args: Namespace) -> int:
    """Do it, and print the fingerprints that the file holds now."""
    held: tuple[bytes, ...] = ()
    match args.action:
        case "new":
            held = (_fresh(args.source, held),)
            _write(args.file, held, None)
        case "add":
            held, info = _read(args.file)
            _check_room(args.file, held)
            held = (_fresh(args.source, held), *held)
            _write(args.file, held, info)
        case "retire":
            held, info = _read(args.file)
            held = _without(args.file, held, args.fingerprint)
            _write(args.file, held, info)
        case _:
            held, _ = _read(args.file)
    _show(args, held)
    return 0


def _show(args: Namespace, held: tuple[bytes, ...]) -> None:
    from bmgd.cli.output import print_json
    from bmgd.secret import fingerprint

    names = [fingerprint(secret) for secret in held]
    if args.json:
        print_json({"file": args.file, "fingerprints": names})
        return
    for at, name in enumerate(names):
        print(f"{name}  {'used first' if at == 0 else 'accepted'}")


def _fresh(source: str | None, held: tuple[bytes, ...]) -> bytes:
    """A secret that is not held, nor has the key id of one that is."""
    import secrets

    from bmgd.secret import key_id

    if source is not None:
        return _read(source)[0][0]
    while True:
        made = secrets.token_urlsafe(_RANDOM_BYTES).encode()
        if key_id(made) not in {key_id(secret) for secret in held}:
            return made


def _check_room(path: str, held: tuple[bytes, ...]) -> None:
    from bmgd.secret import SECRETS_MAX

    if len(held) >= SECRETS_MAX:
        raise ConfigError(
            f"{path} holds {len(held)} secrets, and no more can be: take old ones out first,"
            f" with bmgd secret retire (show has their fingerprints)"
        )


def _without(path: str, held: tuple[bytes, ...], unwanted: str | None) -> tuple[bytes, ...]:
    from bmgd.secret import fingerprint

    kept = held[:1] if unwanted is None else tuple(s for s in held if fingerprint(s) != unwanted)
    if len(kept) == len(held):
        what = "a second secret" if unwanted is None else f"a secret {unwanted}"
        raise ConfigError(f"{path} does not hold {what}")
    if not kept:
        raise ConfigError(f"{unwanted} is the only secret in {path}: add another one first")
    return kept


def _read(path: str) -> tuple[tuple[bytes, ...], os.stat_result]:
    """The secrets of a file that nobody but its owner can read."""
    from bmgd.secret import SECRET_BYTES_MAX, SECRETS_MAX, parse_secrets

    try:
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            content = file.read(SECRETS_MAX * (SECRET_BYTES_MAX + 2) + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if info.st_mode & _OTHERS:
        raise ConfigError(
            f"others than its owner can read or write {path} (mode {info.st_mode & 0o777:04o}):"
            f" chmod 600 it, and think of its secrets as known"
        )
    return parse_secrets(content, path), info


def _write(path: str, held: tuple[bytes, ...], former: os.stat_result | None) -> None:
    """Put a file of mode 0600 in the place of the former one, whole or not at all.

    A daemon that runs as the file's owner must be able to read it afterwards, so the owner stays.
    """
    from bmgd.secret import parse_secrets

    content = b"".join(secret + b"\n" for secret in held)
    parse_secrets(content, path)
    # Behind a symbolic link it is the file that changes, not the link.
    path = os.path.realpath(path)
    beside = f"{path}.{os.getpid()}.new"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(file.fileno(), _MODE)
                if former is not None and former.st_uid != os.geteuid():
                    os.fchown(file.fileno(), former.st_uid, former.st_gid)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _put_in_place(beside, path, former)
        finally:
            if os.path.lexists(beside):
                os.unlink(beside)
    except FileExistsError:
        raise ConfigError(f"{path} is there already: add to it, or remove it") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _put_in_place(beside: str, path: str, former: os.stat_result | None) -> None:
    if former is None:
        os.link(beside, path)
    else:
        now = os.stat(path)
        if (now.st_ino, now.st_mtime_ns) != (former.st_ino, former.st_mtime_ns):
            raise ConfigError(f"{path} was changed by somebody else meanwhile: nothing was written")
        os.replace(beside, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
