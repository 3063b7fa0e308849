"""What one daemon is told: a frozen dataclass, the range of each value, and what must fit together.

`config_sources.py` fills it, from flags over environment over a TOML file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from bmgd.errors import ConfigError
from bmgd.peers import PeerList, split_address
from bmgd.policy import HealingPolicy
from bmgd.profiles import DEFAULT_PROFILE, PROFILES, Timing
from bmgd.types import NODE_ID_MAX, NodeId

CONTROL_PATH_BYTES_MAX: Final = 107
"""The longest path of a Unix socket that Linux can bind, in bytes."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that `bmgd run` is told.

    Args:
        id: this node's id, 0..size-1; of a joiner the one that it claims, or -1.
        size: the founding size, 1..2**31; a joiner is told it by its contact.
        peers: where the founders are; a joiner is told that, too.
        join: addresses of members to ask for an id; () for a founder.
        listen: the address to bind, ``host:port``; "" binds the advertised one.
        advertise: the address told to others; "" is the one in `peers`.
        control: where programs reach the daemon, ``unix:PATH``; "" for none. A joiner's may have
            ``{id}`` in it, which stands for the id that it is given.
        control_group: the group whose members may use it as the daemon's user may, or "".
        control_readonly: the group whose members may look, or "".
        cluster: the cluster's name, 1..64 bytes.
        secret_file: where the cluster's secrets are, or "".
        secrets: what was in it, see `bmgd.secret`; () for none (then loopback only, unless `insecure`).
        tls_cert, tls_key, tls_ca: files with the certificate (and those that lead to its root), its
            key, and the roots that are trusted; "" for links without TLS. ``{id}`` in them stands for
            the node's id.
        tls_ids: "required" refuses certificates that name no id, see docs/operations.md.
        tls_digest: of what was in the three files.
        state_dir: a directory that keeps the incarnation counter, or "".
        healing: when the dead leave the graph, see `bmgd.policy`.
        reconstruction: "adaptive" changes only the links that differ, "naive" makes all anew.
        quorum: "majority" (a side of a partition without it stands aside) or "off".
        on_declared_dead: "refute" (come back with a higher version) or "exit".
        profile: which of `bmgd.profiles.PROFILES` the numbers of `timing` came from.
        proxied: other daemons are dialled through something that may refuse in their place, so that
            a refused dial proves nothing.
        http: where people and Prometheus reach the daemon, ``host:port``; "" for nowhere. It may be
            a template with ``{id}`` or ``{NUMBER+id}``.
        http_token: what they have to show, or b"" for nothing (then loopback only).
        loop: "auto", "uvloop" or "asyncio".
        insecure: bind beyond loopback without a secret.
        log_level: "debug", "info", "warning" or "error".
        log_format: "text" or "json".
        queue_messages: how many messages one topic holds for a reader that has not come.
        flight_bytes: what the flight recorder may hold in memory; 0 switches it off.
        flight_dir: where recordings go; "" is the state directory, or beside the control socket.
        flight_payloads: whether recordings hold what programs send, and not its length only.
        timing: the numbers of detection and dialling.
    """

    id: int
    size: int
    peers: PeerList
    join: tuple[str, ...] = ()
    listen: str = ""
    advertise: str = ""
    control: str = ""
    control_group: str = ""
    control_readonly: str = ""
    cluster: str = "bmgd"
    secret_file: str = ""
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tls_ids: str = "optional"
    tls_digest: bytes = field(default=b"", repr=False)
    state_dir: str = ""
    healing: str = "every-death"
    reconstruction: str = "adaptive"
    quorum: str = "off"
    on_declared_dead: str = "refute"
    profile: str = DEFAULT_PROFILE
    proxied: bool = False
    http: str = ""
    http_token: bytes = field(default=b"", repr=False)
    loop: str = "auto"
    insecure: bool = False
    log_level: str = "info"
    log_format: str = "text"
    queue_messages: int = 1024
    flight_bytes: int = 8 * 2**20
    flight_dir: str = ""
    flight_payloads: bool = False
    timing: Timing = field(default_factory=Timing)

    def read_files(self) -> tuple[str, ...]:
        """The paths of the files that may change while the daemon runs."""
        paths = (self.secret_file, *self.tls_paths())
        return tuple(path for path in paths if path)

    def tls_paths(self) -> tuple[str, str, str]:
        """Certificate, key and roots; "" each without TLS."""
        paths = (self.tls_cert, self.tls_key, self.tls_ca)
        cert, key, ca = (path.replace("{id}", str(self.id)) for path in paths)
        return cert, key, ca


CONTACTS_MAX: Final = 64
"""The most members that a joiner is told to ask."""

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "quorum": ("off", "majority"),
    "tls_ids": ("optional", "required"),
    "on_declared_dead": ("refute", "exit"),
    "reconstruction": ("adaptive", "naive"),
    "profile": tuple(PROFILES),
    "loop": ("auto", "uvloop", "asyncio"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("text", "json"),
}
"""The keys whose value is one of a few words."""

_DAY_MS = 86_400_000
_SIZE_MAX = NODE_ID_MAX + 1
_CLUSTER_BYTES_MAX = 64
RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "id": (0, NODE_ID_MAX),
    "size": (1, _SIZE_MAX),
    "queue_messages": (1, 1_000_000),
    "flight_bytes": (0, 2**30),
    "relayout_ms": (0, _DAY_MS),
}
"""The keys whose value is an integer, and the least and the greatest one."""
TIMING_RANGE: Final = (1, _DAY_MS)
"""Of the numbers of `Timing` that have none of their own."""
_TEXTS = (
    "listen",
    "advertise",
    "control",
    "control_group",
    "control_readonly",
    "cluster",
    "secret_file",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "state_dir",
    "flight_dir",
    "healing",
    "http",
    "http_token_file",
)
SWITCHES: Final = ("insecure", "proxied", "flight_payloads")
"""The keys whose value is true or false."""
KEYS: Final = frozenset((*RANGES, *_TEXTS, *CHOICES, *SWITCHES, "peers", "join")) - {"relayout_ms"}
"""All keys, but those of `Timing`."""
TIMING_KEYS: Final = frozenset(f.name for f in fields(Timing))


def check(config: Config) -> None:
    """Check what depends on more than one key.

    Raises:
        ConfigError: the values do not fit together, or an address cannot be used.
    """
    if config.id >= config.size and not config.join:
        raise ConfigError(f"--id {config.id} is out of range for --size {config.size}")
    try:
        cluster_bytes = len(config.cluster.encode())
    except UnicodeEncodeError:
        raise ConfigError("--cluster must be UTF-8") from None
    if not 1 <= cluster_bytes <= _CLUSTER_BYTES_MAX:
        raise ConfigError(f"--cluster must have 1 to {_CLUSTER_BYTES_MAX} bytes")
    advertised = advertised_address(config)
    host, port = split_address(advertised)
    if port == 0:
        raise ConfigError(f"others cannot dial port 0: {advertised}")
    if is_unspecified(host):
        raise ConfigError(
            f"others cannot dial {advertised}, which is every address of their own host: give"
            " --advertise HOST:PORT"
        )
    host, _ = split_address(config.listen or advertised)
    if not (config.secrets or config.tls_cert or config.insecure or is_loopback(host)):
        raise ConfigError(
            f"refusing to bind {host} without a secret: give --secret-file, --tls-cert, or --insecure"
        )
    tls_files = config.tls_cert, config.tls_key, config.tls_ca
    if len(set(map(bool, tls_files))) > 1:
        raise ConfigError("TLS needs all three: --tls-cert, --tls-key and --tls-ca")
    if config.tls_ids == "required" and not config.tls_cert:
        raise ConfigError(
            "--tls-ids required without TLS: give --tls-cert, --tls-key and --tls-ca too"
        )
    if config.join and any("{id}" in path for path in tls_files):
        raise ConfigError("a joiner has no id yet: the paths of its TLS files have no {id} in them")
    if config.control:
        if "{id}" in config.control and not config.join:
            raise ConfigError("only a joiner's --control has {id} in it")
        control_path(config.control)
    if config.http:
        _check_http(config)
    elif config.http_token:
        raise ConfigError("--http-token-file without --http: there is nothing to guard")
    HealingPolicy.parse(config.healing)
    timing = config.timing
    if timing.timeout_ms <= timing.heartbeat_ms:
        raise ConfigError("timeout_ms must be above heartbeat_ms")
    if timing.backoff_max_ms < timing.backoff_min_ms:
        raise ConfigError("backoff_max_ms must not be below backoff_min_ms")


def _check_http(config: Config) -> None:
    host, _ = split_address(http_address(replace(config, id=max(0, config.id))))
    if not (config.http_token or is_loopback(host)):
        raise ConfigError(
            f"refusing to serve HTTP on {host} without a token: give --http-token-file"
        )


def http_address(config: Config) -> str:
    """Where the daemon with this id serves HTTP.

    Raises:
        ConfigError: it is neither an address nor a template of one.
    """
    if "{" not in config.http:
        return config.http
    return PeerList.parse(config.http, config.id + 1).address_of(NodeId(config.id))


def advertised_address(config: Config) -> str:
    """The address at which the others dial this daemon."""
    if config.join:
        return config.advertise or config.listen
    return config.advertise or config.peers.address_of(NodeId(config.id))


def control_path(address: str) -> str:
    """The path of the Unix socket at a control address.

    Args:
        address: ``unix:PATH`` or a path, at most `CONTROL_PATH_BYTES_MAX` bytes.

    Raises:
        ConfigError: the address has another form, or its path is too long for a socket.
    """
    if not isinstance(address, str):
        raise ConfigError(f"a control address is a text, not {type(address).__name__}")
    path = address.removeprefix("unix:")
    if not path or "\0" in path or (path == address and "/" not in path):
        raise ConfigError(f"not a control address of the form unix:PATH: {address!r}")
    if len(os.fsencode(path)) > CONTROL_PATH_BYTES_MAX:
        raise ConfigError(
            f"the control path has more than {CONTROL_PATH_BYTES_MAX} bytes,"
            f" too many for a Unix socket: {path!r}"
        )
    return path


def is_unspecified(host: str) -> bool:
    """Whether a host is every address of whoever uses it: ``0.0.0.0`` or ``::``."""
    import socket

    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return not any(socket.inet_pton(family, host))
        except OSError:
            pass
    return False


def is_loopback(host: str) -> bool:
    """Whether a host is surely this machine alone: ``localhost`` or a loopback address."""
    import socket

    if host == "localhost":
        return True
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:
        pass
    try:
        return socket.inet_pton(socket.AF_INET6, host) == bytes(15) + b"\x01"
    except OSError:
        return False
