"""How a daemon without an id becomes a member: the joiner's core, on real sockets.

It holds one conversation at a time, so plain coroutines are enough. The member has its own transport.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

from bmgd.config import Config
from bmgd.core.effects import AskContact, Displaced, Exit, Joined, Observed
from bmgd.core.events import AskFailed, DeadlineReached, Event, Granted
from bmgd.core.joining.joiner import Joiner
from bmgd.core.settings import Settings
from bmgd.errors import ConfigError, ProtocolError
from bmgd.linkevents import evidence_of
from bmgd.peers import split_address
from bmgd.shell.addresses import numeric_family
from bmgd.shell.resolver import Resolver, lookup_failure
from bmgd.shell.state import JoinedState, StateDirectory
from bmgd.shell.tls import TlsRefused, TlsSession, TlsSide
from bmgd.types import NO_ID, Evidence, NodeId
from bmgd.wire.applicant import Applicant
from bmgd.wire.handshake import HelloState
from bmgd.wire.hello import NONCE_BYTES, Identity

_NAMED = "{id}"
_READ_BYTES = 64 * 1024


class Birth:
    """Makes a member of a joiner: at the start, and again when another life has its id.

    Args:
        config: what the daemon was told.
        settings: the core's part of it.
        tls: the certificate, or None for conversations without TLS.

    Attributes:
        state: the counter of the id that was granted last.

    Raises:
        ConfigError: the state directory cannot be used.
    """

    def __init__(self, config: Config, settings: Settings, tls: TlsSide | None) -> None:
        self._tls = tls
        self._config = config
        self._settings = settings
        self._joined = JoinedState(config.state_dir, config.cluster)
        self.state: StateDirectory | None = None

    @property
    def control_is_named(self) -> bool:
        """Whether the control socket is named after the id."""
        return _NAMED in self._config.control

    def control_of(self, node_id: int) -> str:
        """Where programs reach the node with that id."""
        return self._config.control.replace(_NAMED, str(node_id))

    def use(self, config: Config, tls: TlsSide | None) -> None:
        """Its files were read anew."""
        self._tls = tls
        self._config = replace(self._config, secrets=config.secrets)

    def close(self) -> None:
        """Let another daemon have the state."""
        self._joined.close()

    async def join(
        self,
        displaced: Displaced | None,
        observe: Callable[[Observed], None],
        warn: Callable[[str, str], None],
    ) -> Joined | Exit:
        """Ask contacts until one lets this daemon join.

        Args:
            displaced: how the node ended that this daemon was; then the id that it had is lost.
            observe: shown what comes of each attempt.
            warn: writes a line of log: an event and a text.
        """
        kept = None if displaced else self._joined.read()
        claimed = None if displaced else self._claimed(kept)
        if kept is not None and kept.id != claimed:
            kept = None
        if claimed is None:
            incarnation = StateDirectory("", 0).begin_life()
        else:
            self.state = StateDirectory(self._config.state_dir, claimed)
            incarnation = self.state.begin_life()
        contacts = () if displaced is None else displaced.contacts
        asked = (*contacts, *self._config.join)
        random, now_ns = Random(secrets.randbits(64)), time.monotonic_ns()
        joiner = Joiner(self._settings, asked, claimed, kept, incarnation, random, now_ns)
        own = NO_ID if claimed is None else claimed
        config = self._config
        identity = Identity(
            config.cluster,
            1,
            bytes(16),
            own,
            self._settings.address,
            config.secrets,
            features=self._settings.features,
            has_tls=self._tls is not None,
        )
        born = await _drive(joiner, identity, self._tls, observe, warn)
        if isinstance(born, Joined):
            if kept is not None and config.id < 0:
                self._joined.check_is_of(kept, born.settings.founding_size)
            if self.state is None or born.settings.id != claimed:
                if self.state is not None:
                    self.state.close()
                self.state = StateDirectory(config.state_dir, born.settings.id)
            self.state.keep(born.incarnation)
            self._joined.keep(born.settings)
        return born

    def _claimed(self, kept: Granted | None) -> NodeId | None:
        if self._config.id >= 0:
            return NodeId(self._config.id)
        return None if kept is None else kept.id


async def _drive(
    joiner: Joiner,
    identity: Identity,
    tls: TlsSide | None,
    observe: Callable[[Observed], None],
    warn: Callable[[str, str], None],
) -> Joined | Exit:
    """Step a joiner until it has become a member, or gives up."""
    event: Event = DeadlineReached()
    while True:
        ask: AskContact | None = None
        for effect in joiner.step(time.monotonic_ns(), event):
            match effect:
                case Joined() | Exit():
                    return effect
                case Observed():
                    observe(effect)
                case AskContact():
                    ask = effect
        if ask is not None:
            event = await _ask(identity, tls, ask, warn)
        else:
            deadline_ns = joiner.deadline_ns
            assert deadline_ns is not None
            await asyncio.sleep(max(0, deadline_ns - time.monotonic_ns()) / 1e9)
            event = DeadlineReached()


async def _ask(
    identity: Identity, tls: TlsSide | None, ask: AskContact, warn: Callable[[str, str], None]
) -> Granted | AskFailed:
    """One conversation with one contact."""
    applicant = Applicant(identity, ask.incarnation, os.urandom(NONCE_BYTES))
    try:
        async with asyncio.timeout(ask.timeout_ns / 1e9):
            session = None if tls is None else tls.session(dials=True)
            await _converse(ask.address, applicant, session, warn)
    except TlsRefused as refused:
        return AskFailed(Evidence.REJECTED, refused.refusal, applicant.is_proven)
    except (TimeoutError, ConfigError):
        return AskFailed(Evidence.NO_ANSWER)
    except (ProtocolError, ssl.SSLError):
        return AskFailed(Evidence.PROTOCOL_ERROR)
    except EOFError:
        return AskFailed(Evidence.EOF)
    except OSError as error:
        return AskFailed(evidence_of(error.errno))
    if applicant.state is HelloState.REFUSED or applicant.peer is None:
        return AskFailed(Evidence.REJECTED, applicant.refusal, applicant.is_proven)
    return Granted(
        applicant.granted,
        applicant.peer.founding_size,
        applicant.peers,
        tuple(applicant.records),
        tuple(applicant.retired),
    )


async def _converse(
    address: str,
    applicant: Applicant,
    tls: TlsSession | None,
    warn: Callable[[str, str], None],
) -> None:
    loop = asyncio.get_running_loop()
    host, port = split_address(address)
    family = numeric_family(host)
    target: tuple[object, ...] = (host, port)
    if family is None:
        try:
            family, target = await Resolver(loop).resolve(host, port)
        except OSError as error:
            warn("not joined", lookup_failure(address, error))
            raise
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        await loop.sock_connect(sock, target)
        while True:
            output = applicant.take_output()
            if tls is not None:
                tls.put(output)
                output = tls.take()
            if output:
                await loop.sock_sendall(sock, output)
            if applicant.state is not HelloState.WAITING:
                return
            data = await loop.sock_recv(sock, _READ_BYTES)
            if not data:
                raise EOFError
            if tls is not None:
                was_open = tls.channel is not None
                data = tls.receive(data)
                if tls.channel is not None and not was_open:
                    applicant.bind(tls.channel)
                if tls.ended and not data:
                    raise EOFError
            if data:
                applicant.receive(data)
