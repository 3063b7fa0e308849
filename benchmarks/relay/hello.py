"""Links to a daemon from neighbors that are no daemons, for `benchmarks.relay`; run by path.

    PYTHON benchmarks/relay/hello.py DESCRIPTOR PORT SIZE IDS

Says the hello of each id in IDS (comma-separated) to the daemon with id 0 at PORT of 127.0.0.1, in a
cluster of SIZE founders at PORT and above, and passes each connected socket over the Unix socket
DESCRIPTOR once the link is up. It is a program of its own so that it runs on the Python of the daemon
under test, and speaks the hello of that daemon's version.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from bmgd.peers import PeerList
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId
from bmgd.wire.handshake import Dialer, HelloState
from bmgd.wire.hello import NONCE_BYTES, Identity

DEADLINE_S = 20.0


def connected(port: int) -> socket.socket:
    """A connection to the daemon, once it listens.

    Raises:
        OSError: it did not within the deadline.
    """
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)


def linked(port: int, size: int, node_id: int) -> socket.socket:
    """A socket whose hello is over."""
    peers = PeerList.parse(f"127.0.0.1:{{{port}+id}}", size)
    address = f"127.0.0.1:{port + node_id}"
    me = Identity("bmgd", size, peers.fingerprint(), NodeId(node_id), address)
    nonce = os.urandom(NONCE_BYTES)
    life = Incarnation(time.time_ns())
    dialer = Dialer(me, life, NodeId(0), UNKNOWN_INCARNATION, 1, nonce)
    sock = connected(port)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while dialer.state is HelloState.WAITING:
        sock.sendall(dialer.take_output())
        data = sock.recv(4096)
        if not data:
            raise SystemExit(f"the daemon closed the hello of {node_id}")
        dialer.receive(data)
    if dialer.state is not HelloState.UP:
        raise SystemExit(f"the hello of {node_id} was refused: {dialer.refusal}")
    return sock


def main() -> None:
    """Link all ids, pass their sockets on."""
    descriptor, port, size = (int(word) for word in sys.argv[1:4])
    with socket.socket(fileno=descriptor) as channel:
        for word in sys.argv[4].split(","):
            sock = linked(port, size, int(word))
            socket.send_fds(channel, [word.encode()], [sock.fileno()])
            channel.recv(1)
            sock.close()


if __name__ == "__main__":
    main()
