"""The engine of links in Python: the link layer, sockets, and one epoll instance for all of them.

Theory of operation. The loop watches the epoll instance as one descriptor. It is level-triggered: what
one `poll` leaves unread is ready again in the next. Each link is read once per poll, so that none
starves the others. A socket is watched for room only while it is blocked, and for bytes only while
they are wanted, or its end would wake the loop for ever. `BMGD_ENGINE` chooses between this engine
and the one in C; what both do is in `bmgd.linklayer.contract`.
"""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass

from bmgd.frameheader import FRAME_BYTES_MAX, LENGTH_BYTES
from bmgd.linklayer import LinkLayer, LinkState
from bmgd.linklayer.contract import Happening

READ_BYTES_MAX = 64 * 1024
_ENDED = select.EPOLLHUP | select.EPOLLERR


@dataclass(slots=True, eq=False)
class _Socket:
    """A link's socket.

    Attributes:
        watched: the mask that the epoll instance has.
        error: the number of the error that ended the writing; 0 for none.
    """

    sock: socket.socket
    fd: int
    link: int
    watched: int
    error: int = 0


class Engine:
    """All links of one daemon: a `LinkEngine`."""

    def __init__(self) -> None:
        self._layer = LinkLayer()
        self._epoll = select.epoll()
        self._sockets: dict[int, _Socket] = {}
        self._by_fd: dict[int, _Socket] = {}
        self._broken: dict[int, _Socket] = {}
        self._unwritten: dict[int, _Socket] = {}
        self._untaken: dict[int, None] = {}
        # Of a frame that has not ended yet, all but its last byte may stand before what is read.
        self._buffer = bytearray(LENGTH_BYTES + FRAME_BYTES_MAX + READ_BYTES_MAX)
        self.publish = self._layer.publish
        self.promote = self._layer.promote
        self.finish = self._layer.finish
        self.take = self._layer.take
        self.put = self._layer.put
        self.know = self._layer.know
        self.absorb_heartbeats = self._layer.absorb_heartbeats
        self.absorbed_heartbeats = self._layer.absorbed_heartbeats
        self.heard = self._layer.heard
        self.backlog = self._layer.backlog
        self.totals = self._layer.totals

    def fileno(self) -> int:
        """See `LinkEngine.fileno`."""
        return self._epoll.fileno()

    def adopt(self, fd: int, link: int, came_from: int = -1) -> None:
        """See `LinkEngine.adopt`."""
        self._layer.adopt(-1, link, came_from)
        if fd == -1:
            return
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except OSError:
            self._layer.close(link)
            raise
        adopted = _Socket(socket.socket(fileno=fd), fd, link, select.EPOLLIN)
        self._sockets[link] = self._by_fd[fd] = adopted

    def _drop(self, dropped: _Socket) -> None:
        self._epoll.unregister(dropped.fd)
        del self._sockets[dropped.link]
        del self._by_fd[dropped.fd]
        self._broken.pop(dropped.link, None)
        self._unwritten.pop(dropped.link, None)
        dropped.sock.close()

    def _watch(self, watched: _Socket, mask: int) -> None:
        if watched.watched != mask:
            watched.watched = mask
            self._epoll.modify(watched.fd, mask)

    def _settle(self, link: int) -> None:
        """After bytes came: a link that ended leaves the set, one that reads no more is not read."""
        found = self._sockets.get(link)
        if found is None:
            return
        state = self._layer.state_of(link)
        if state is None:
            self._drop(found)
        elif state is LinkState.LEFT:
            self._watch(found, found.watched & ~select.EPOLLIN)
            if found.error:
                self._end(found, found.error)

    # --- what comes ---------------------------------------------------------------------------

    def feed(self, link: int, data: bytes) -> None:
        """See `LinkEngine.feed`."""
        self._layer.feed(link, data)
        self._settle(link)

    def poll(self, now_ns: int = 0) -> list[Happening]:
        """See `LinkEngine.poll`."""
        for fd, mask in self._epoll.poll(0):
            found = self._by_fd.get(fd)
            if found is None or found.error:
                continue
            if found.watched & select.EPOLLIN:
                if mask & (select.EPOLLIN | _ENDED):
                    self._read(found)
            elif mask & _ENDED:
                self._write(found)
            if mask & select.EPOLLOUT and fd in self._by_fd:
                self._write(found)
        for broken in list(self._broken.values()):
            self._read(broken)
        return self._layer.poll(now_ns)

    def _read(self, found: _Socket) -> None:
        """Read once."""
        link, buffer = found.link, self._buffer
        rest = self._layer.rest_of(link)
        kept = len(rest)
        try:
            with memoryview(buffer) as view:
                count = found.sock.recv_into(view[kept : kept + READ_BYTES_MAX])
        except BlockingIOError:
            if found.error:
                self._end(found, found.error)
            return
        except OSError as error:
            self._end(found, found.error or error.errno or 0)
            return
        if count == 0:
            self._end(found, found.error)
            return
        buffer[:kept] = rest
        self._layer.feed_buffer(link, buffer, kept + count)
        self._settle(link)

    def _end(self, ended: _Socket, errno: int) -> None:
        self._layer.finish(ended.link, errno)
        self._settle(ended.link)

    # --- what goes ----------------------------------------------------------------------------

    def flush(self) -> bool:
        """See `LinkEngine.flush`."""
        self._sort_waiting()
        while self._unwritten:
            self._write(self._unwritten.popitem()[1])
        return self._layer.flush() or bool(self._broken)

    def waiting(self) -> tuple[int, ...]:
        """See `LinkEngine.waiting`."""
        self._sort_waiting()
        untaken = [link for link in self._untaken if self._layer.state_of(link) is not None]
        self._untaken.clear()
        return tuple(untaken)

    def _sort_waiting(self) -> None:
        for link in self._layer.waiting():
            found = self._sockets.get(link)
            if found is None:
                self._untaken[link] = None
            elif not (found.error or found.watched & select.EPOLLOUT):
                self._unwritten[link] = found

    def _write(self, found: _Socket) -> None:
        """Write until nothing waits, or the socket takes no more."""
        link, layer = found.link, self._layer
        while not found.error:
            buffers = layer.gather(link)
            if not buffers:
                break
            try:
                written = found.sock.sendmsg(buffers)
            except BlockingIOError:
                self._watch(found, found.watched | select.EPOLLOUT)
                return
            except OSError as error:
                self._on_broken(found, error)
                return
            if layer.advance(link, written):
                self._end_writing(found)
            if layer.state_of(link) is None:
                self._drop(found)
                return
            if written < sum(map(len, buffers)):
                self._watch(found, found.watched | select.EPOLLOUT)
                return
        self._watch(found, found.watched & ~select.EPOLLOUT)

    def _end_writing(self, found: _Socket) -> None:
        try:
            found.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._on_broken(found, error)

    def _on_broken(self, found: _Socket, error: OSError) -> None:
        """It can be written no more; what waits to be read, a goodbye perhaps, is read first."""
        found.error = error.errno or 0
        self._watch(found, 0)
        if self._layer.state_of(found.link) is LinkState.LEFT:
            self._end(found, found.error)
        else:
            self._broken[found.link] = found

    # --- ending -------------------------------------------------------------------------------

    def shut(self, link: int, goodbye: bytes) -> None:
        """See `LinkEngine.shut`."""
        self._layer.shut(link, goodbye)

    def close(self, link: int) -> list[bytes]:
        """See `LinkEngine.close`."""
        unsent = self._layer.close(link)
        self._settle(link)
        return unsent
