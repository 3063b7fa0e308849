"""Free ports for the daemons of a local cluster."""

from __future__ import annotations

import socket
from collections.abc import Container
from typing import Final

from bmgd.errors import LaunchError

FIRST_PORT: Final = 7400
PORT_END: Final = 32768
"""Above it the kernel picks ports for outgoing connections: a daemon could lose its own to one."""


def choose_base_port(
    count: int,
    wanted: int | None,
    above: int = FIRST_PORT,
    taken: Container[int] = (),
    *,
    flag: str = "--base-port",
) -> int:
    """The first of `count` consecutive ports on 127.0.0.1 that nobody listens on.

    Args:
        count: how many, >= 1.
        wanted: the first one, or None to search.
        above: where the search begins, upwards; where nothing is free, it begins at `FIRST_PORT` again.
        taken: ports that are never found by a search, whoever listens on them.
        flag: which argument has the wanted one.

    Raises:
        LaunchError: the wanted ones, or all below `PORT_END`, are taken.
    """
    if wanted is not None:
        if wanted < 1 or wanted + count > 65536:
            raise LaunchError(f"ports {wanted}..{wanted + count - 1} are not all in 1..65535")
        for port in range(wanted, wanted + count):
            if not _is_free(port):
                raise LaunchError(f"port {port} is in use; choose another {flag}")
        return wanted
    for begin in (above, min(above, FIRST_PORT)):
        base = port = begin
        while base + count <= PORT_END:
            if port in taken or not _is_free(port):
                base = port + 1
            elif port - base + 1 == count:
                return base
            port += 1
    raise LaunchError(f"no {count} consecutive ports are free in {begin}..{PORT_END - 1}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the daemon does it, or connections of a former cluster would still count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
