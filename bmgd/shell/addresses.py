"""From the text of an address to what a socket needs."""

from __future__ import annotations

import socket
from typing import Any

from bmgd.errors import ConfigError
from bmgd.peers import split_address

BACKLOG = 4096


def bind_listener(address: str) -> socket.socket:
    """A listening, non-blocking socket.

    Raises:
        ConfigError: the address cannot be resolved or bound.
    """
    host, port = split_address(address)
    numeric = numeric_family(host)
    family, target = (numeric, (host, port)) if numeric else _resolve_passive(address, host, port)
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"cannot listen on {address}: {error.strerror}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(target)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {address}: {error.strerror}") from error
    return sock


def numeric_family(host: str) -> socket.AddressFamily | None:
    """The family of a numeric address; None for a name.

    The resolver is kept from numbers because it loads a megabyte of tables for names first.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family
    return None


def _resolve_passive(address: str, host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"cannot resolve {address}: {error.strerror}") from error
    except UnicodeError as error:
        raise ConfigError(f"cannot resolve {address}: not a name") from error
    return found[0][0], found[0][4]
