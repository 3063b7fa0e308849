"""One attacker: it sends cases to node 1, and sees what comes of each."""

from __future__ import annotations

import socket
import time
from collections import Counter
from contextlib import suppress

from benchmarks.mutated.cases import MAGIC, TARGET, Cases
from bmgd.types import NodeId
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.hello import RECORD, HelloKind
from bmgd.wire.link_messages import Ping

BATCH = 1_000
HELLOS_IN_TEN = 3
GROUP = 16
PATIENCE_S = 20.0


class Attack:
    """Sends cases to node 1, one connection at a time; counts what came of them."""

    def __init__(self, base_port: int, attacker: NodeId) -> None:
        self._attacker = attacker
        self._port = base_port + TARGET
        self._base_port = base_port
        self._life = time.time_ns()
        self._nonce = 0
        self._sock: socket.socket | None = None
        self._unread = b""
        # Somebody listens where that node was, so that the end of a link alone proves no death.
        self._listener = socket.create_server(("127.0.0.1", base_port + attacker), backlog=512)
        self.outcomes: Counter[str] = Counter()

    def run(self, number: int) -> tuple[Counter[str], int]:
        """Send the cases of one thousand; returns what came of them, and the lies that were not sent."""
        cases = Cases(number, self._base_port, self._attacker)
        self.outcomes = Counter()
        left = BATCH
        while left > 0:
            if cases.random.randrange(10) < HELLOS_IN_TEN:
                self.outcomes[f"hello {self._say_hello(cases.bad_hello(self._life))}"] += 1
                left -= 1
            else:
                left -= self._frames(cases, min(GROUP, left))
        return self.outcomes, cases.lies

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _say_hello(self, data: bytes) -> str:
        """Send bytes as the first ones of a connection, and no more; what comes of them."""
        with self._connect() as sock, suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while (data := sock.recv(65536)) and len(answer) < 4096:
                answer += data
            if answer[4:5] == bytes((HelloKind.REFUSAL,)):
                return "refused"
            return "answered" if answer else "closed"
        return "closed"

    def _link(self, cases: Cases) -> socket.socket:
        """The link that there is, or a new one."""
        while self._sock is None:
            sock = self._connect()
            try:
                cases.life = self._life
                sock.sendall(cases.hello(self._life))
                self._unread = self._welcome(sock)
                self._sock = sock
            except (OSError, EOFError):
                self.outcomes["link refused"] += 1
                sock.close()
        return self._sock

    def _welcome(self, sock: socket.socket) -> bytes:
        data = b""
        while True:
            more = sock.recv(65536)
            if not more:
                raise EOFError
            data += more
            at = 0
            while len(data) - at >= RECORD.size:
                magic, kind, length = RECORD.unpack_from(data, at)
                if magic != MAGIC or len(data) - at < RECORD.size + length:
                    break
                at += RECORD.size + length
                if kind == HelloKind.WELCOME:
                    return data[at:]
                if kind == HelloKind.REFUSAL:
                    # A changed hello may have been welcome, as a later life.
                    known = int.from_bytes(data[at - 8 : at], "big")
                    self._life = max(self._life, known) + (1 << 32)
                    raise EOFError

    def _frames(self, cases: Cases, most: int) -> int:
        """Some frames on the link, the last of which may have to end it; how many were sent."""
        sock = self._link(cases)
        data, sent, ends = b"", 0, False
        while sent < most and not ends:
            frame, ends = cases.bad_frame()
            data += frame
            sent += 1
        self._nonce += 1
        try:
            sock.sendall(data)
            if ends:
                sock.shutdown(socket.SHUT_WR)
            else:
                sock.sendall(encode(Ping(self._nonce)))
            lives = self._answers(sock, self._nonce)
        except TimeoutError:
            self.outcomes["no answer"] += 1
            lives = False
        except OSError:
            # The link was ended before all of it was sent.
            lives = False
        if ends:
            self.outcomes["frame taken or dropped"] += sent - 1
            self.outcomes["frame ended the link"] += 1
        else:
            self.outcomes["frame taken or dropped" if lives else "frame ended the link"] += sent
        if not lives:
            sock.close()
            self._sock = None
        return sent

    def _answers(self, sock: socket.socket, nonce: int) -> bool:
        """Read until the answer to a ping; False at the end of the connection."""
        data = self._unread
        while True:
            while len(data) >= LENGTH_BYTES:
                end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
                if len(data) < end:
                    break
                body, data = data[LENGTH_BYTES:end], data[end:]
                # The header is a bin of 32 bytes behind the array's byte.
                if body[3] == 0x03 and getattr(decode(body), "nonce", None) == nonce:
                    self._unread = data
                    return True
            more = sock.recv(65536)
            if not more:
                return False
            data += more
