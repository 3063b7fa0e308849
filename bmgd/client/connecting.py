"""How a connection to a daemon is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bmgd.client.connection import Connection
from bmgd.errors import NoDaemonError, RequestError

_CONNECT_S = 5.0


async def open_connection(path: str) -> Connection:
    """Connect to the daemon that listens at a Unix socket.

    Raises:
        NoDaemonError: nobody answers there.
    """
    connection = Connection()
    await open_socket(connection, path)
    return connection


async def open_socket(connection: Connection, path: str) -> None:
    """Connect a connection to the daemon that listens at a Unix socket.

    Raises:
        NoDaemonError: nobody answers there.
        RequestError: this user may not use the socket; whether a daemon is there cannot be told.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            await loop.create_unix_connection(lambda: connection, path)
    except TimeoutError:
        raise NoDaemonError(f"no daemon at {path}: it does not accept") from None
    except PermissionError as error:
        raise RequestError(
            f"this user may not use the socket {path}: {error.strerror} (see --control-group)"
        ) from None
    except OSError as error:
        raise NoDaemonError(f"no daemon at {path}: {error.strerror or error}") from None


@asynccontextmanager
async def open_greeted(path: str, within_s: float) -> AsyncIterator[Connection]:
    """A connection that ends with its daemon, or with the block.

    Args:
        path: of the daemon's socket.
        within_s: how long the daemon may take to answer, in seconds.

    Raises:
        NoDaemonError: nobody listens there.
        SilentDaemonError: it did not answer in time.
        VersionError: there is no common version.
    """
    connection = await open_connection(path)
    try:
        await connection.greet(within_s)
        yield connection
    finally:
        connection.close()
        await connection.until_closed()
