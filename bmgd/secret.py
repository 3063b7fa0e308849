"""Cluster secrets: what a secret file holds, and the short names by which secrets are told apart.

A file holds 1 to `SECRETS_MAX` secrets, one a line, the newest first. Two daemons that link prove
themselves by the first secret of the acceptor that the dialer has too. So files may be changed on one
host after the other, in any order, as long as each two files have one secret in common.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Final

from bmgd.errors import ConfigError

SECRETS_MAX: Final = 8
SECRET_BYTES_MAX: Final = 4096
LIKELY_BYTES_MIN: Final = 16
"""One with fewer bytes than these 128 bits can be guessed."""
KEY_ID_BYTES: Final = 2
_FINGERPRINT_BYTES: Final = 4
_LABEL: Final = b"bmgd key id"


def parse_secrets(content: bytes, source: str) -> tuple[bytes, ...]:
    """The secrets of a file, in order; empty lines do not count.

    Args:
        content: what stands in it.
        source: its path, for the error.

    Raises:
        ConfigError: there is none, there are too many, one is too long, or two cannot be told apart.
    """
    lines = (line.removesuffix(b"\r") for line in content.split(b"\n"))
    secrets = tuple(line for line in lines if line)
    if not 1 <= len(secrets) <= SECRETS_MAX:
        raise ConfigError(
            f"{source} must hold 1 to {SECRETS_MAX} secrets, one a line, not {len(secrets)}"
        )
    if any(len(secret) > SECRET_BYTES_MAX for secret in secrets):
        raise ConfigError(f"a secret in {source} must have 1 to {SECRET_BYTES_MAX} bytes")
    if len({key_id(secret) for secret in secrets}) < len(secrets):
        raise ConfigError(f"two secrets in {source} are the same, or have the same short key id")
    return secrets


def why_doubtful(secret: bytes) -> str:
    """Why a line of a secret file is likely not what was meant, or can be guessed; "" if none."""
    if len(secret.strip()) < LIKELY_BYTES_MIN:
        return f"has fewer than {LIKELY_BYTES_MIN} bytes"
    if secret.startswith(b"#"):
        return "begins with #, which begins no comment there"
    if secret.startswith(b"-----BEGIN "):
        return "is the public beginning of a key or certificate"
    return ""


def key_id(secret: bytes) -> bytes:
    """The short name of a secret in a hello: `KEY_ID_BYTES` bytes that do not tell the secret."""
    return _digest(secret)[:KEY_ID_BYTES]


def fingerprint(secret: bytes) -> str:
    """The name of a secret for people: 8 hexadecimal digits, the first 4 of which are its key id."""
    return _digest(secret)[:_FINGERPRINT_BYTES].hex()


@lru_cache(2 * SECRETS_MAX)
def _digest(secret: bytes) -> bytes:
    return hmac.new(secret, _LABEL, hashlib.sha256).digest()
