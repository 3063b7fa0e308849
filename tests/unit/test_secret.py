"""What a secret file may hold, and the names of secrets."""

from __future__ import annotations

import pytest

from bmgd.errors import ConfigError
from bmgd.secret import SECRETS_MAX, fingerprint, key_id, parse_secrets, why_doubtful


@pytest.mark.parametrize(
    ("content", "secrets"),
    [
        (b"one", (b"one",)),
        (b"one\n", (b"one",)),
        (b"one\r\n", (b"one",)),
        (b"new\nold\n", (b"new", b"old")),
        (b"\nnew\r\n\n\nold", (b"new", b"old")),
        (b"#no comment\n with spaces \n", (b"#no comment", b" with spaces ")),
        (b"\x00\xff", (b"\x00\xff",)),
        (b"x" * 4096, (b"x" * 4096,)),
    ],
)
def test_secrets_are_the_lines_of_their_file(content: bytes, secrets: tuple[bytes, ...]) -> None:
    assert parse_secrets(content, "file") == secrets


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "1 to 8 secrets, one a line, not 0"),
        (b"\n\r\n", "not 0"),
        (b"\n".join(b"%d" % i for i in range(SECRETS_MAX + 1)), "not 9"),
        (b"tiny\n" + b"x" * 4097, "1 to 4096 bytes"),
        (b"same\nsame\n", "the same"),
    ],
)
def test_secrets_that_cannot_be_used_are_refused(content: bytes, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        parse_secrets(content, "/run/the-file")
    assert "/run/the-file" in str(raised.value)
    assert "tiny" not in str(raised.value)


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        (b"swordfish", "fewer than 16 bytes"),
        (b"x" * 15 + b" " * 20, "fewer than 16 bytes"),
        (b"# the secret of our cluster", "begins with #"),
        (b"-----BEGIN EC PRIVATE KEY-----", "public beginning"),
        (b"x" * 16, ""),
        (b"kJ3hd82hdKSJhd82kshd92kshdKSHD92", ""),
    ],
)
def test_secret_that_others_may_guess_is_doubtful(secret: bytes, why: str) -> None:
    found = why_doubtful(secret)
    assert why in found
    assert bool(found) == bool(why)


def test_secrets_of_one_key_id_in_one_file_are_refused() -> None:
    other = next(s for i in range(2**20) if key_id(s := b"%d" % i) == key_id(b"mine"))
    with pytest.raises(ConfigError, match="short key id"):
        parse_secrets(b"mine\n" + other, "file")


def test_fingerprint_begins_with_the_key_id_and_does_not_hold_the_secret() -> None:
    assert fingerprint(b"swordfish") == fingerprint(b"swordfish") != fingerprint(b"Swordfish")
    assert fingerprint(b"swordfish")[:4] == key_id(b"swordfish").hex()
    assert len(fingerprint(b"swordfish")) == 8
