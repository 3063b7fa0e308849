"""Where the founders are: a template such as ``host{id}:7400``, or a list of addresses.

A template costs nothing to store however many founders there are, which is why membership keeps
only the addresses that differ from it.
"""

from __future__ import annotations

import hashlib
import re

from bmgd.dataclass import dataclass
from bmgd.errors import ConfigError
from bmgd.types import NodeId

_FIELD = re.compile(r"\{(?:([0-9]{1,10})\+)?id\}")
_ADDRESS = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s\x00-\x1f\x7f\ud800-\udfff:\[\]{}]+))"
    r":(?P<port>[0-9]{1,5})"
)

ADDRESS_BYTES_MAX = 255


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``.

    Returns:
        The host, without brackets, and the port in 0..65535.

    Raises:
        ConfigError: the text is not such an address.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535 or len(address.encode()) > ADDRESS_BYTES_MAX:
        raise ConfigError(f"not an address of the form host:port or [v6]:port: {address!r}")
    return match["six"] or match["host"], int(match["port"])


@dataclass(frozen=True, slots=True)
class PeerList:
    """The founders' addresses.

    Args:
        template: text with ``{id}`` or ``{NUMBER+id}`` (the sum), or "" when `listed` is given.
        listed: the address of founder i at index i, or () when `template` is given.
    """

    template: str = ""
    listed: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, size: int) -> PeerList:
        """Read what follows ``--peers``, or the contents of a peers file (an address a line).

        Args:
            text: one template, or `size` addresses separated by white space or commas.
            size: the founding size, >= 1.

        Raises:
            ConfigError: the text is neither, or the number of addresses is not `size`.
        """
        words = [
            word
            for line in text.splitlines()
            for word in line.partition("#")[0].replace(",", " ").split()
        ]
        if len(words) == 1 and _FIELD.search(words[0]):
            peers = cls(template=words[0])
            split_address(peers.address_of(NodeId(0)))
            split_address(peers.address_of(NodeId(size - 1)))
            return peers
        if len(words) != size:
            raise ConfigError(
                f"--peers names {len(words)} addresses for {size} founders"
                " (and is no template with {id})"
            )
        for word in words:
            split_address(word)
        if len(set(words)) != size:
            raise ConfigError("--peers names an address twice")
        return cls(listed=tuple(words))

    def address_of(self, node_id: NodeId) -> str:
        """The address of a founder, as ``host:port``."""
        if self.listed:
            return self.listed[node_id]

        def fill(match: re.Match[str]) -> str:
            return str(int(match[1] or 0) + node_id)

        return _FIELD.sub(fill, self.template)

    def fingerprint(self) -> bytes:
        """16 bytes that differ when the lists do; part of the hello."""
        return hashlib.blake2b(self.text.encode(), digest_size=16).digest()

    @property
    def text(self) -> str:
        """The list as a contact tells it to a joiner; `parse` reads it."""
        return "\n".join(self.listed) if self.listed else self.template
