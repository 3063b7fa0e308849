"""Free ports for the daemons of a local cluster, and how launches keep out of each other's way.

A port that is found free is bound only when its daemon listens, some hundred milliseconds later. Until
then another launch would find it too. So a launch reserves what it chose: it binds UDP sockets of the
same numbers, which nothing else of bmgd uses. That is atomic, and it holds for other users of the machine
too. Connections of a former cluster are not in its way, as they are for TCP for a minute. It ends with
the launch, and keeps the port of a daemon that was killed until it is started again.
"""

from __future__ import annotations

import socket
from collections.abc import Container
from typing import Final

from bmgd.errors import ConfigError, LaunchError

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
        ConfigError: the wanted ones are no ports.
        LaunchError: the wanted ones, or all below `PORT_END`, are taken.
    """
    if wanted is not None:
        if wanted < 1 or wanted + count > 65536:
            raise ConfigError(f"{flag}: {wanted}..{wanted + count - 1} are not all in 1..65535")
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


class ReservedPorts:
    """The ports of one launch, which no other launch finds until this process ends, or `close`."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def choose(
        self,
        count: int,
        wanted: int | None,
        above: int = FIRST_PORT,
        taken: Container[int] = (),
        *,
        flag: str = "--base-port",
    ) -> int:
        """As `choose_base_port`, and reserve them.

        A wanted port that cannot be reserved is still given: some other program uses its UDP port.

        Raises:
            ConfigError, LaunchError: as there, or this process may not have so many descriptors.
        """
        reserved_by_others: set[int] = set()
        while True:
            refused = _Either(taken, reserved_by_others)
            base = choose_base_port(count, wanted, above, refused, flag=flag)
            held, failed = _reserve(range(base, base + count))
            if wanted is not None or not failed:
                self._held += held
                return base
            reserved_by_others.update(failed)
            _close(held)

    def give_up(self, numbers: Container[int]) -> None:
        """Nothing is started there: other launches may find these ports."""
        unused = [each for each in self._held if each.getsockname()[1] in numbers]
        self._held = [each for each in self._held if each not in unused]
        _close(unused)

    def close(self) -> None:
        """Give all of them up."""
        _close(self._held)
        self._held.clear()


class _Either:
    """What is in one container or in another."""

    def __init__(self, *parts: Container[int]) -> None:
        self._parts = parts

    def __contains__(self, port: object) -> bool:
        return any(port in part for part in self._parts)


def _reserve(ports: range) -> tuple[list[socket.socket], list[int]]:
    """Reserve what is not reserved; returns the sockets, and the ports that somebody else has."""
    held: list[socket.socket] = []
    failed: list[int] = []
    for port in ports:
        try:
            claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError as error:
            _close(held)
            raise LaunchError(f"cannot reserve {len(ports)} ports: {error.strerror}") from None
        try:
            claim.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            failed.append(port)
        else:
            held.append(claim)
    return held, failed


def _close(claims: list[socket.socket]) -> None:
    for claim in claims:
        claim.close()
