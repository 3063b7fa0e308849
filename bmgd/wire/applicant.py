"""The joiner's side of the hello: it has no id yet, and asks a member for one.

Theory of operation. A joiner's hello looks like a dialer's, with a flag and without size, list or id
(or with the id that it had in a former life). The member, its *contact*, proves itself and lets it prove
itself as always; then it tells what a member must know: the text of the peer list in pieces, the id, and
then as frames every record that it has, each page when it is asked for. The size came with the contact's
own hello, and so did the fingerprint that the peer list must have.

    WAITING --hello ok--> (PROVEN) --PEERS … GRANT--> asks for a page      any --refusal--> REFUSED
    asks for a page --RECORD_PAGE, more to come--> asks for a page         --RECORD_PAGE, the last--> UP

No I/O, no clock; at most `JOIN_BYTES_MAX` are read once the contact may be believed.
"""

from __future__ import annotations

from bmgd.errors import ConfigError, ProtocolError
from bmgd.frameheader import BODY_BYTES_MIN, FRAME_BYTES_MAX
from bmgd.peers import PeerList
from bmgd.types import NO_ID, NODE_ID_MAX, UNKNOWN_INCARNATION, Incarnation, NodeId, Record
from bmgd.wire.codec import LENGTH, LENGTH_BYTES, decode, encode
from bmgd.wire.handshake import Dialer, HelloState
from bmgd.wire.hello import GRANT, Hello, HelloKind, Identity, Refusal
from bmgd.wire.link_messages import BUCKETS, Goodbye, PageAsk, RecordPage

JOIN_BYTES_MAX = 16 * 2**20
"""More than a contact can put on one link: the peer list and the records of its membership."""


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
        records, retired: what the contact believes, sorted by id; see `RecordPage`.
    """

    _is_joiner = True

    def __init__(self, identity: Identity, incarnation: Incarnation, nonce: bytes) -> None:
        self.granted = NO_ID
        self.peers = PeerList()
        self.records: list[tuple[NodeId, Record]] = []
        self.retired: list[tuple[NodeId, NodeId]] = []
        self._peers_text = bytearray()
        self._asked_after = NodeId(0)
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
        self._ask(NodeId(0))

    def _ask(self, after: NodeId) -> None:
        self._asked_after = after
        self._output += encode(PageAsk(after, 2**BUCKETS - 1))

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
            if not isinstance(message, RecordPage):
                raise ProtocolError("a contact tells records, nothing else")
            self._take_page(message)
            if self.state is HelloState.UP:
                return

    def _take_page(self, page: RecordPage) -> None:
        self.records.extend(page.records)
        self.retired.extend(page.retired)
        if page.following is None:
            self._output += encode(Goodbye("all is known"))
            self.state = HelloState.UP
        elif page.following > self._asked_after:
            self._ask(page.following)
        else:
            raise ProtocolError("a page that leads back")
