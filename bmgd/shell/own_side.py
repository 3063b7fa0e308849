"""What this daemon says of itself in every hello, and the numbers of its links."""

from __future__ import annotations

import os
from itertools import count

from bmgd.secret import fingerprint
from bmgd.shell.tls import TlsSession, TlsSide, names_of
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.hello import NONCE_BYTES, OWN_NONCE_BYTES, Identity

_LINK_NUMBERS = count(1)
"""One process may be several nodes, one after the other: no link of one is taken for another's."""


class OwnSide:
    """This daemon, as hellos show it.

    Args:
        identity: what hellos say; its secrets can change.
        incarnation: the life that they speak of; it can change.
        tls: the certificate, or None for links without TLS; it can change.
    """

    def __init__(
        self, identity: Identity, incarnation: Incarnation, tls: TlsSide | None = None
    ) -> None:
        self.identity = identity
        self.incarnation = incarnation
        self.tls = tls
        self._own_nonce = os.urandom(OWN_NONCE_BYTES)

    def keys(self) -> tuple[str, ...]:
        """The names of what links are made under, the one to be used first at the beginning."""
        secrets = tuple(fingerprint(secret) for secret in self.identity.secrets)
        if self.tls is None:
            return secrets
        return tuple(f"{name}+{self.tls.key}" for name in secrets) or (self.tls.key,)

    def accepting_session(self) -> TlsSession | None:
        """The way through TLS of one who connected; None where links have none."""
        return None if self.tls is None else self.tls.session(dials=False)

    def dialing_session(self, peer: NodeId) -> TlsSession | None:
        """The way through TLS of a dial to a peer; None where links have none."""
        if self.tls is None:
            return None
        wanted = names_of(self.identity.cluster, peer, self.identity.founding_size)
        return self.tls.session(dials=True, wanted=wanted)

    def nonce(self) -> bytes:
        """A fresh nonce, by which this process knows itself."""
        return self._own_nonce + os.urandom(NONCE_BYTES - OWN_NONCE_BYTES)

    def new_link(self) -> LinkId:
        """A link id that was not used in this process."""
        return LinkId(next(_LINK_NUMBERS))
