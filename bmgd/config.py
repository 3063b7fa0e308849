"""What one daemon is told: a frozen dataclass, filled from flags over environment over a TOML file.

A key has one name everywhere: the flag ``--state-dir``, the variable ``BMGD_STATE_DIR`` and the
TOML key ``state_dir`` mean the same. The numbers of `Timing` are those of the profile, unless they
stand in the TOML table ``[timing]`` or in variables such as ``BMGD_TIMING_TIMEOUT_MS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final

from bmgd.errors import ConfigError
from bmgd.peers import PeerList, split_address
from bmgd.policy import HealingPolicy
from bmgd.profiles import DEFAULT_PROFILE, PROFILES, Timing
from bmgd.secret import parse_secrets
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


def read_again(config: Config) -> Config:
    """The same configuration with what its files hold now.

    Raises:
        ConfigError: a file cannot be read, or what it holds cannot be used.
    """
    if config.secret_file:
        config = replace(config, secrets=read_secrets(config.secret_file))
    if config.tls_cert:
        config = replace(config, tls_digest=_digest_of(config.tls_paths()))
    return config


def _digest_of(paths: tuple[str, ...]) -> bytes:
    import hashlib

    digest = hashlib.sha256()
    for path in paths:
        content = _read(path, "the TLS file")
        digest.update(len(content).to_bytes(8, "big") + content)
    _warn_if_others_read(paths[1], "the TLS key")
    return digest.digest()


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
_FILE_BYTES_MAX = 64 * 2**20
_RANGES: Mapping[str, tuple[int, int]] = {
    "id": (0, NODE_ID_MAX),
    "size": (1, _SIZE_MAX),
    "queue_messages": (1, 1_000_000),
    "flight_bytes": (0, 2**30),
    "relayout_ms": (0, _DAY_MS),
}
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
_SWITCHES = ("insecure", "proxied", "flight_payloads")
_KEYS = frozenset((*_RANGES, *_TEXTS, *CHOICES, *_SWITCHES, "peers", "join")) - {"relayout_ms"}
_TIMING_KEYS = frozenset(f.name for f in fields(Timing))

_OTHERS = frozenset({"BMGD_BACKEND", "BMGD_CONFIG", "BMGD_ENGINE"})
# Kubernetes gives every container variables for each service; one named "bmgd" is likely.
_KUBERNETES = re.compile(r"BMGD_(.*_)?(SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_(TCP|UDP|SCTP).*)")
_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def load(
    flags: Mapping[str, object], environment: Mapping[str, str], toml_path: str | None
) -> Config:
    """Put a configuration together: flags over environment over a TOML file over defaults.

    Args:
        flags: values by key (``state_dir``, ``secret_file``, …); None means "not given".
        environment: the process's variables; those that begin with ``BMGD_`` are read.
        toml_path: a TOML file, or None.

    Returns:
        A configuration in which every value was checked.

    Raises:
        ConfigError: a key is unknown, or a value or file cannot be used.
    """
    given: dict[str, tuple[str, object]] = {}
    if toml_path is not None:
        given.update(_from_toml(toml_path))
    given.update(_from_environment(environment))
    given.update(_from_flags(flags))
    _check_complete(given)
    values: dict[str, object] = {key: _value(key, *given[key]) for key in given.keys() & _KEYS}
    timing = asdict(PROFILES[str(values.get("profile", DEFAULT_PROFILE))])
    timing |= {key: _int(key, *given[key]) for key in _TIMING_KEYS & given.keys()}
    if "join" in values:
        values = {"id": -1, "size": 1, **values, "peers": PeerList()}
    else:
        values["peers"] = _peers(given["peers"][1], int(str(values["size"])))
    if "secret_file" in values:
        values["secrets"] = read_secrets(str(values["secret_file"]))
    token_file = values.pop("http_token_file", None)
    if token_file is not None:
        values["http_token"] = read_token(str(token_file))
    config = Config(timing=Timing(**timing), **values)  # type: ignore[arg-type]
    check(config)
    if config.tls_cert:
        config = replace(config, tls_digest=_digest_of(config.tls_paths()))
    return config


def _check_complete(given: Mapping[str, tuple[str, object]]) -> None:
    if "join" not in given:
        for key in ("id", "size", "peers"):
            if key not in given:
                raise ConfigError(f"{_flag(key)} is missing")
        return
    for key in ("size", "peers"):
        if key in given:
            raise ConfigError(f"{given[key][0]}: a joiner is told that by its contact")
    if "advertise" not in given and "listen" not in given:
        raise ConfigError(
            "a joiner needs --listen or --advertise: no list of peers has its address"
        )


def check(config: Config) -> None:
    """Check what depends on more than one key.

    Raises:
        ConfigError: the values do not fit together, or an address cannot be used.
    """
    if config.id >= config.size and not config.join:
        raise ConfigError(f"--id {config.id} is out of range for --size {config.size}")
    if not 1 <= len(config.cluster.encode()) <= _CLUSTER_BYTES_MAX:
        raise ConfigError(f"--cluster must have 1 to {_CLUSTER_BYTES_MAX} bytes")
    advertised = advertised_address(config)
    if split_address(advertised)[1] == 0:
        raise ConfigError(f"others cannot dial port 0: {advertised}")
    host, _ = split_address(config.listen or advertised)
    if not (config.secrets or config.tls_cert or config.insecure or is_loopback(host)):
        raise ConfigError(
            f"refusing to bind {host} without a secret: give --secret-file, --tls-cert, or --insecure"
        )
    if len({bool(path) for path in (config.tls_cert, config.tls_key, config.tls_ca)}) > 1:
        raise ConfigError("TLS needs all three: --tls-cert, --tls-key and --tls-ca")
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
    path = address.removeprefix("unix:")
    if not path or "\0" in path or (path == address and "/" not in path):
        raise ConfigError(f"not a control address of the form unix:PATH: {address!r}")
    if len(path.encode()) > CONTROL_PATH_BYTES_MAX:
        raise ConfigError(
            f"the control path has more than {CONTROL_PATH_BYTES_MAX} bytes,"
            f" too many for a Unix socket: {path}"
        )
    return path


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


# --- the three sources ----------------------------------------------------------------------------


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _from_flags(flags: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    unknown = sorted(flags.keys() - _KEYS)
    if unknown:
        raise ConfigError(f"unknown flag {_flag(unknown[0])}")
    return {key: (_flag(key), value) for key, value in flags.items() if value is not None}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    given: dict[str, tuple[str, object]] = {}
    for name in sorted(name for name in environment if name.startswith("BMGD_")):
        key = name.removeprefix("BMGD_").lower()
        timing_key = key.removeprefix("timing_")
        if key in _KEYS:
            given[key] = (name, environment[name])
        elif timing_key != key and timing_key in _TIMING_KEYS:
            given[timing_key] = (name, environment[name])
        elif name not in _OTHERS and not _KUBERNETES.fullmatch(name):
            raise ConfigError(f"unknown variable {name}")
    return given


def _from_toml(path: str) -> dict[str, tuple[str, object]]:
    import tomllib

    try:
        document = tomllib.loads(_read(path, "the configuration").decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {_one_line(error)}") from None
    timing = document.pop("timing", {})
    if not isinstance(timing, dict):
        raise ConfigError(f"{path}: timing is not a table")
    for key in sorted(document.keys() - _KEYS):
        raise ConfigError(f"{path}: unknown key {key!r}")
    for key in sorted(timing.keys() - _TIMING_KEYS):
        raise ConfigError(f"{path}: unknown key {key!r} in [timing]")
    return {key: (f"{path}: {key}", value) for key, value in {**document, **timing}.items()}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _read(path: str, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"cannot read {what} {path!r}: {error}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{what} {path} has more than {_FILE_BYTES_MAX} bytes")
    return content


# --- single values --------------------------------------------------------------------------------


def _value(key: str, source: str, value: object) -> object:
    if key in _RANGES:
        return _int(key, source, value)
    if key in _SWITCHES:
        return _bool(source, value)
    if key == "peers":
        return value
    if key == "join":
        return _contacts(source, value)
    if not isinstance(value, str):
        raise ConfigError(f"{source} must be a text")
    if key in CHOICES and value not in CHOICES[key]:
        raise ConfigError(f"{source} must be one of {', '.join(CHOICES[key])}, not {value!r}")
    return value


def _int(key: str, source: str, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        value = int(value)
    if type(value) is not int:
        raise ConfigError(f"{source} must be an integer, not {value!r}")
    low, high = _RANGES.get(key, (1, _DAY_MS))
    if not low <= value <= high:
        raise ConfigError(f"{source} must be in {low}..{high}, not {value}")
    return value


def _bool(source: str, value: object) -> bool:
    if isinstance(value, str):
        value = _WORDS.get(value.lower())
    if type(value) is not bool:
        raise ConfigError(f"{source} must be true or false")
    return value


def _peers(value: object, size: int) -> PeerList:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return PeerList.parse("\n".join(value), size)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError("--peers must be a template with {id}, a list of addresses or a file")
    is_text = "{" in value or "," in value or len(value.split()) > 1
    if not is_text and (size > 1 or "/" in value or ":" not in value):
        try:
            value = _read(value, "the peers file").decode()
        except UnicodeDecodeError:
            raise ConfigError(f"the peers file {value} is not text") from None
    return PeerList.parse(value, size)


def _contacts(source: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, list) or not 1 <= len(value) <= CONTACTS_MAX:
        raise ConfigError(f"{source} must be 1 to {CONTACTS_MAX} addresses of members")
    for address in value:
        split_address(str(address))
    return tuple(str(address) for address in value)


def read_token(path: str) -> bytes:
    """The token in a file, without the end of its line.

    Raises:
        ConfigError: it cannot be read, or what it holds is no token.
    """
    token = _read(path, "the token file").removesuffix(b"\n").removesuffix(b"\r")
    if not re.fullmatch(rb"[!-~]{16,256}", token):
        raise ConfigError(
            f"the token in {path} must have 16 to 256 visible ASCII characters, such as"
            " `openssl rand -hex 24` gives"
        )
    _warn_if_others_read(path, "the token file")
    return token


def read_secrets(path: str) -> tuple[bytes, ...]:
    """The secrets in a file; a warning in the log where others can read it.

    Raises:
        ConfigError: it cannot be read, or what it holds cannot be used.
    """
    secrets = parse_secrets(_read(path, "the secret file"), path)
    _warn_if_others_read(path, "the secret file")
    return secrets


def _warn_if_others_read(path: str, what: str) -> None:
    import os

    # A warning and no refusal: Kubernetes and Compose mount secrets readable for others by default.
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o077:
        import logging

        logging.getLogger("bmgd").warning(
            "others than its owner can read %s %s (mode %04o)", what, path, mode
        )
