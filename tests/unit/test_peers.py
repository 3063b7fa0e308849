"""The founders' addresses: templates, lists and files."""

from __future__ import annotations

import pytest

from bmgd.errors import ConfigError
from bmgd.peers import PeerList, split_address
from bmgd.types import NodeId


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("host:7400", ("host", 7400)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
    ],
)
def test_addresses_are_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:65536",
        "::1:7400",
        "a b:1",
        "h:-1",
        "x" * 300 + ":1",
        "a\0b:1",
        "a\x7f:1",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        split_address(address)


def test_a_template_names_every_founder() -> None:
    peers = PeerList.parse("host{id}:7400", 3)
    assert [peers.address_of(NodeId(i)) for i in range(3)] == [
        "host0:7400",
        "host1:7400",
        "host2:7400",
    ]


def test_a_template_can_add() -> None:
    assert PeerList.parse("127.0.0.1:{7400+id}", 3).address_of(NodeId(2)) == "127.0.0.1:7402"


def test_a_template_whose_last_port_is_too_high_is_refused() -> None:
    with pytest.raises(ConfigError):
        PeerList.parse("127.0.0.1:{65535+id}", 2)


def test_a_template_that_adds_what_no_address_can_have_is_refused() -> None:
    with pytest.raises(ConfigError):
        PeerList.parse(f"h:{{{'9' * 5000}+id}}", 2)


def test_a_file_is_a_list_with_comments() -> None:
    peers = PeerList.parse("a:1  # the first\n\n# nothing\nb:2, c:3\n", 3)
    assert peers.listed == ("a:1", "b:2", "c:3")


@pytest.mark.parametrize("text", ["a:1", "a:1 b:2 c:3", "a:1 a:1", "a:1 b", ""])
def test_a_list_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        PeerList.parse(text, 2)


def test_fingerprints_tell_lists_apart() -> None:
    one = PeerList.parse("a:1 b:2", 2)
    assert one.fingerprint() == PeerList.parse("a:1,b:2", 2).fingerprint()
    assert one.fingerprint() != PeerList.parse("b:2 a:1", 2).fingerprint()
