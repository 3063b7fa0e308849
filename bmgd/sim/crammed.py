"""A link that is given much at once: frames of all classes up to its bounds, taken in pieces of any size.

Theory of operation. The programs of a short run seldom fill an outbox, whose bounds and turns are of
many kilobytes. Here a layer with no core above it is given what one is that relays a lot. The same model
stands before it that stands before the links of hosts, and looks at all that is put and taken.
"""

from __future__ import annotations

from random import Random
from typing import Final

from bmgd.linklayer import LinkLayer, contract
from bmgd.linklayer.outbox import CONTROL_BYTES_MAX
from bmgd.sim.linkmodel import Report, WatchedEngine
from bmgd.sim.modellink import LOSE_NOTHING
from bmgd.wire.codec import encode, encode_header
from bmgd.wire.link_messages import Goodbye, Ping

_LINK: Final = 1
_PEER: Final = 2
_PUTS: Final = 45
_BULK_BYTES_MAX: Final = (300_000, 1_200_000)
_ROUTED: Final = 0x49
_PRIORITIES: Final = {contract.URGENT: 0, contract.HIGH: 1, contract.BULK: 2}
_KINDS: Final = (
    *(contract.CONTROL, contract.URGENT, contract.HIGH, contract.HIGH),
    *(contract.HIGH, contract.BULK, contract.BULK, contract.BULK),
)
_LENGTHS: Final = (10, 1500, 20_000, 65_000)
_LIMITS: Final = (1, 1000, 65_536, 200_000, 2_000_000)


class CrammedLink:
    """One link, from its first byte to its last.

    Args:
        random: chooses what is put and taken.
        report: gets the name of a rule of links that does not hold, and a text.
    """

    def __init__(self, random: Random, report: Report) -> None:
        bulk_bytes_max = random.choice(_BULK_BYTES_MAX)
        self._random = random
        self._report = report
        self._layer = LinkLayer(bulk_bytes_max)
        self._engine = WatchedEngine(self._layer, report, bulk_bytes_max=bulk_bytes_max)
        self._engine.adopt(-1, _LINK, _PEER)
        self._frames = 0

    def cram(self) -> None:
        """Put and take, say goodbye, and take what is left."""
        random = self._random
        if self._layer.fileno() != -1:
            self._report(LOSE_NOTHING, "links of bytes have a descriptor to be watched")
        self._put_raw()
        for _ in range(_PUTS):
            kind = random.choice(_KINDS)
            length, count = random.choice(_LENGTHS), random.randint(1, 3)
            run = b"".join(self._frame(kind, length) for _ in range(count))
            self._engine.put(_LINK, run, kind)
            if random.random() < 0.3:
                self._take(random.choice(_LIMITS))
        self._engine.shut(_LINK, encode(Goodbye("enough")))
        while self._engine.backlog(_LINK) and self._take(random.choice(_LIMITS[2:])):
            pass
        self._engine.finish(_LINK, 0)
        self._engine.poll()

    def _put_raw(self) -> None:
        """The end of a hello, and now and then more of one than there is room for."""
        self._engine.put(
            _LINK, self._random.randbytes(self._random.randrange(1, 300)), contract.RAW
        )
        if self._random.random() < 0.3:
            self._engine.put(_LINK, bytes(CONTROL_BYTES_MAX), contract.RAW)

    def _frame(self, kind: int, length: int) -> bytes:
        self._frames += 1
        if kind == contract.CONTROL:
            return encode(Ping(self._frames))
        header = encode_header(
            _ROUTED, priority=_PRIORITIES[kind], destination=_PEER, sequence=self._frames
        )
        body = b"\x92\xc4\x20" + header + b"\xc5" + length.to_bytes(2, "big") + bytes(length)
        return len(body).to_bytes(4, "big") + body

    def _take(self, limit: int) -> bool:
        """Take so many bytes of what is to be written next; whether there were any."""
        if not self._engine.backlog(_LINK):
            return False
        following = sum(map(len, self._layer.gather(_LINK)))
        if not following:
            self._report(LOSE_NOTHING, "there is nothing to write, though something waits")
            return False
        self._engine.take(_LINK, min(limit, following))
        self._engine.poll()
        return True
