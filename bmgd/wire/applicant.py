"""The joiner's side of the hello: it has no id yet, and asks a member for one.

Theory of operation. A joiner's hello looks like a dialer's, with a flag and without size, list or id
(or with the id that it had in a former life). The member, its *contact*, proves itself and lets it prove
itself as always; then it tells what a member must know, in pieces: the text of the peer list, the id, and
as frames every record that it has. The size came with the contact's own hello, and so did the
fingerprint that the peer list must have.

    WAITING --hello ok--> (PROVEN) --PEERS … GRANT, NOTICE … GOODBYE--> UP      any --refusal--> REFUSED

No I/O, no clock; at most `JOIN_BYTES_MAX` are read once the contact may be believed.
"""

from __future__ import annotations

from collections.abc import Sequence

from bmgd.errors import ConfigError, ProtocolError
from bmgd.peers import PeerList
from bmgd.routing.header import BODY_BYTES_MIN, FRAME_BYTES_MAX
from bmgd.types import NO_ID, NODE_ID_MAX, UNKNOWN_INCARNATION, Incarnation, NodeId, Record
from bmgd.wire.codec import LENGTH, LENGTH_BYTES, decode, encode
from bmgd.wire.handshake import Dialer, HelloState
from bmgd.wire.hello import GRANT, Hello, HelloKind, Identity, Refusal
from bmgd.wire.messages import RECORDS_PER_NOTICE_MAX, Goodbye, Notice

JOIN_BYTES_MAX = 16 * 2**20
"""More than a contact can put on one link: the peer list and the records of its membership."""


def records_in_frames(records: Sequence[tuple[NodeId, Record]]) -> bytes:
    """The NOTICE frames in which a contact tells these records, sorted by id; none for none."""
    starts = range(0, len(records), RECORDS_PER_NOTICE_MAX)
    rows = (tuple(records[at : at + RECORDS_PER_NOTICE_MAX]) for at in starts)
    return b"".join(encode(Notice(some)) for some in rows)


class Applicant(Dialer):
    """The side that connected to become a member.

    Args:
        identity: own identity; size and fingerprint are not looked at, the id is `NO_ID` or the one
            that this daemon had before.
        incarnation: the life that it asks for; the same one in every attempt.
        nonce: 8 random bytes of this process, by which it knows itself, and 8 fresh ones.

    Attributes, once `state` is UP:
        granted: the id that it has.
        peers: where the founders are.
        records: what the contact believes, sorted by id.
    """

    _is_joiner = True

    def __init__(self, identity: Identity, incarnation: Incarnation, nonce: bytes) -> None:
        self.granted = NO_ID
        self.peers = PeerList()
        self.records: list[tuple[NodeId, Record]] = []
        self._peers_text = b""
        super().__init__(identity, incarnation, NodeId(0), UNKNOWN_INCARNATION, 0, nonce)
        self._believe_if_proven()

    def receive(self, data: bytes) -> None:
        """Take bytes from the contact; see `Dialer.receive`."""
        if self.granted == NO_ID:
            super().receive(data)
        else:
            self._input += data
            self._received_bytes += len(data)
        if self.granted != NO_ID:
            self._read_frames()

    def _believe_if_proven(self) -> None:
        if self._proven:
            self._bytes_max = JOIN_BYTES_MAX

    def _on_proof(self, body: bytes) -> None:
        super()._on_proof(body)
        self._believe_if_proven()

    def _founders(self, hello: Hello) -> int:
        return hello.founding_size

    def _misfit(self, hello: Hello) -> Refusal | None:
        # Whoever answers at the address of a contact is the contact; nothing is known of it.
        return None

    def _on_answer(self, kind: int, body: bytes) -> None:
        if kind == HelloKind.PEERS:
            self._peers_text += body
        elif kind == HelloKind.GRANT and len(body) == GRANT.size:
            self._take_grant(GRANT.unpack(body)[0])
        else:
            raise ProtocolError("a hello record out of turn")

    def _take_grant(self, node_id: int) -> None:
        assert self.peer is not None
        if node_id > NODE_ID_MAX:
            raise ProtocolError("granted an id out of range")
        try:
            self.peers = PeerList.parse(self._peers_text.decode(), self.peer.founding_size)
        except (UnicodeDecodeError, ConfigError) as error:
            raise ProtocolError(f"a peer list that cannot be used: {error}") from None
        if self.peers.fingerprint() != self.peer.fingerprint:
            raise ProtocolError("a peer list of another fingerprint")
        self.granted = NodeId(node_id)

    def _read_frames(self) -> None:
        if self._received_bytes > JOIN_BYTES_MAX:
            raise ProtocolError("a contact that tells too much")
        while len(self._input) >= LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(self._input)
            if not BODY_BYTES_MIN <= length <= FRAME_BYTES_MAX:
                raise ProtocolError("frame of a wrong length")
            end = LENGTH_BYTES + length
            if len(self._input) < end:
                return
            message = decode(bytes(self._input[LENGTH_BYTES:end]))
            del self._input[:end]
            if isinstance(message, Goodbye):
                self.state = HelloState.UP
                return
            if not isinstance(message, Notice):
                raise ProtocolError("a contact tells records, nothing else")
            self.records.extend(message.records)
