"""The files that a configuration names: secrets, a token, TLS; read at the start, and again later."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from bmgd.config import Config
from bmgd.errors import ConfigError
from bmgd.secret import parse_secrets, why_doubtful

_FILE_BYTES_MAX: Final = 64 * 2**20


def read_file(path: str, what: str) -> bytes:
    """What is in a file of at most 64 MiB.

    Args:
        what: names it in errors.

    Raises:
        ConfigError: it cannot be read, or is too long.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"cannot read {what} {path!r}: {error}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{what} {path} has more than {_FILE_BYTES_MAX} bytes")
    return content


def read_again(config: Config) -> Config:
    """The same configuration with what its files hold now; it never waits, for a daemon runs meanwhile.

    Raises:
        ConfigError: a file cannot be read, or what it holds cannot be used.
    """
    for path in config.read_files():
        if not _may_read_again(path):
            raise ConfigError(f"cannot read {path} again: it is no regular file")
    if config.secret_file:
        config = replace(config, secrets=read_secrets(config.secret_file))
    if config.tls_cert:
        config = replace(config, tls_digest=digest_of(config.tls_paths()))
    return config


def secrets_now(config: Config) -> tuple[bytes, ...]:
    """The secrets of a daemon that begins later: what the file holds now; of a pipe what it held once.

    Raises:
        ConfigError: the file cannot be read, or what it holds cannot be used.
    """
    if config.secret_file and _may_read_again(config.secret_file):
        return read_secrets(config.secret_file)
    return config.secrets


def _may_read_again(path: str) -> bool:
    """Whether reading a file never waits, or says why it cannot be read."""
    import os
    import stat

    try:
        # At the start a pipe may be waited for; to open one now could stop the process for ever.
        kind = stat.S_IFMT(os.stat(path).st_mode)
        return kind in (stat.S_IFREG, stat.S_IFDIR)
    except OSError:
        return True


def digest_of(paths: tuple[str, ...]) -> bytes:
    """The digest of what is in the TLS files; a warning in the log where others can read the key.

    Args:
        paths: as `Config.tls_paths` gives them.

    Raises:
        ConfigError: one cannot be read.
    """
    import hashlib

    digest = hashlib.sha256()
    for path in paths:
        content = read_file(path, "the TLS file")
        digest.update(len(content).to_bytes(8, "big") + content)
    _warn_if_others_read(paths[1], "the TLS key")
    return digest.digest()


def read_token(path: str) -> bytes:
    """The token in a file, without the end of its line.

    Raises:
        ConfigError: it cannot be read, or what it holds is no token.
    """
    token = read_file(path, "the token file").removesuffix(b"\n").removesuffix(b"\r")
    if not re.fullmatch(rb"[!-~]{16,256}", token):
        raise ConfigError(
            f"the token in {path} must have 16 to 256 visible ASCII characters, such as"
            " `openssl rand -hex 24` gives"
        )
    _warn_if_others_read(path, "the token file")
    return token


def read_secrets(path: str) -> tuple[bytes, ...]:
    """The secrets in a file; warnings in the log where others can read it, or guess what is in it.

    Raises:
        ConfigError: it cannot be read, or what it holds cannot be used.
    """
    secrets = parse_secrets(read_file(path, "the secret file"), path)
    _warn_if_others_read(path, "the secret file")
    for number, secret in enumerate(secrets, 1):
        if why := why_doubtful(secret):
            _warn("each line of %s is a secret: number %d %s", path, number, why)
    return secrets


def _warn_if_others_read(path: str, what: str) -> None:
    import os

    # A warning and no refusal: Kubernetes and Compose mount secrets readable for others by default.
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o077:
        _warn("others than its owner can read %s %s (mode %04o)", what, path, mode)


def _warn(text: str, *details: object) -> None:
    import logging

    logging.getLogger("bmgd").warning(text, *details)
