"""Which node a daemon is: its id, its life, and where both are kept.

Theory of operation. A founder has its id from its configuration, a joiner from a contact. Each node that
a daemon becomes is a new life, whose number is kept before anybody hears of it. A joiner that loses its
id asks for another one, and is then another node: what it is configured as changes with the id, and only
here.
"""

from __future__ import annotations

from dataclasses import replace

from bmgd.config import Config
from bmgd.core.effects import Exit, Joined
from bmgd.core.settings import Settings
from bmgd.dataclass import dataclass
from bmgd.errors import ConfigError
from bmgd.shell.ending import Ending
from bmgd.shell.joining import Birth
from bmgd.shell.state import StateDirectory
from bmgd.shell.telling import Telling
from bmgd.shell.tls import TlsSide, names_of
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId
from bmgd.wire.hello import Identity


@dataclass(frozen=True, slots=True)
class Life:
    """A life that begins.

    Args:
        incarnation: its number.
        joined: what a contact told a joiner; None for a founder.
    """

    incarnation: Incarnation
    joined: Joined | None


class Becoming:
    """The id and the lives of one daemon.

    Args:
        config: what the daemon was told.

    Attributes:
        config: as the node that the daemon is, or is to be.
        settings: the core's part of it.
        tls: the certificate, or None for links without TLS.

    Raises:
        ConfigError: a certificate or the state directory cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings = Settings.of(config)
        self.tls = TlsSide(config) if config.tls_cert else None
        self._state: StateDirectory | None = None
        self._birth: Birth | None = None
        if config.join:
            self._birth = Birth(config, self.settings, self.tls)
        else:
            self._state = StateDirectory(config.state_dir, config.id)

    @property
    def control_is_named(self) -> bool:
        """Whether the control socket is named after an id that a contact gives."""
        return self._birth is not None and self._birth.control_is_named

    def identity(self) -> Identity:
        """What hellos say of this node."""
        return Identity(
            cluster=self.config.cluster,
            founding_size=self.config.size,
            fingerprint=self.config.peers.fingerprint(),
            id=self.settings.id,
            address=self.settings.address,
            secrets=self.config.secrets,
            features=self.settings.features,
            has_tls=self.tls is not None,
        )

    async def begin_life(self, ending: Ending, telling: Telling) -> Life | None:
        """Begin a life: a founder's at once, a joiner's once a contact told it how.

        Args:
            ending: ends the daemon where no contact does, and a wait for one where it ends meanwhile.
            telling: shown what comes of each attempt.

        Returns:
            None where the daemon ends.
        """
        if self._birth is None:
            state = self._state
            return Life(UNKNOWN_INCARNATION if state is None else state.begin_life(), None)
        if self._state is not None:
            self._state.close()
        born = await ending.unless_ended(
            self._birth.join(ending.displaced, telling.observed_joining, telling.warn)
        )
        if isinstance(born, Exit):
            ending.end(born.code, born.reason)
        if not isinstance(born, Joined):
            return None
        ending.take_id()
        self.settings = settings = born.settings
        self.config = replace(
            self.config,
            id=settings.id,
            size=settings.founding_size,
            peers=settings.peers,
            control=self._birth.control_of(settings.id),
        )
        self._state = self._birth.state
        return Life(born.incarnation, born)

    def keep(self, incarnation: Incarnation) -> None:
        """Keep a new life before anybody hears of it.

        Raises:
            ConfigError: it cannot be kept; nothing more of its step may be carried out.
        """
        if self._state is None:
            return
        try:
            self._state.keep(incarnation)
        except ConfigError as error:
            raise ConfigError(f"the new life cannot be kept: {error}") from error

    def use(self, config: Config) -> None:
        """The files were read anew: secrets and the certificate may be others.

        Raises:
            ConfigError: the certificate is none, or one that nobody would accept; nothing was changed.
        """
        tls = TlsSide(config) if config.tls_cert else None
        if tls is not None and config.tls_digest != self.config.tls_digest:
            own = self.config
            # A joiner that has no id yet may get any.
            names = names_of(own.cluster, NodeId(own.id), own.size) if own.id >= 0 else frozenset()
            why = tls.refuses_own(names)
            if why:
                cert = config.tls_paths()[0]
                raise ConfigError(f"others would refuse the certificate in {cert} {why}")
        self.tls = tls
        self.config = replace(self.config, secrets=config.secrets, tls_digest=config.tls_digest)
        if self._birth is not None:
            self._birth.use(config, self.tls)

    def close(self) -> None:
        """Let another daemon have the state."""
        for kept in (self._state, self._birth):
            if kept is not None:
                kept.close()
