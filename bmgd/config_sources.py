"""Where a configuration comes from: flags over environment over a TOML file over defaults.

A key has one name everywhere: the flag ``--state-dir``, the variable ``BMGD_STATE_DIR`` and the
TOML key ``state_dir`` mean the same. The numbers of `Timing` are those of the profile, unless they
stand in the TOML table ``[timing]`` or in variables such as ``BMGD_TIMING_TIMEOUT_MS``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, replace

from bmgd.config import (
    CHOICES,
    CONTACTS_MAX,
    KEYS,
    RANGES,
    SWITCHES,
    TIMING_KEYS,
    TIMING_RANGE,
    Config,
    check,
)
from bmgd.config_files import digest_of, read_file, read_secrets, read_token
from bmgd.errors import ConfigError
from bmgd.peers import PeerList, split_address
from bmgd.profiles import DEFAULT_PROFILE, PROFILES, Timing

_OTHERS = frozenset({"BMGD_BACKEND", "BMGD_CONFIG", "BMGD_ENGINE"})
_ENGINES = ("", "c", "python")
# Kubernetes gives every container variables for each service; one named "bmgd" is likely.
_KUBERNETES = re.compile(r"BMGD_(.*_)?(SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_(TCP|UDP|SCTP).*)")
_DIGITS_MAX = 1000
"""Of a number in a text; Python reads no more than 4300."""
_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def load(
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    toml_path: str | None,
    *,
    not_in_file: Collection[str] = (),
) -> Config:
    """Put a configuration together: flags over environment over a TOML file over defaults.

    Args:
        flags: values by key (``state_dir``, ``secret_file``, …); None means "not given".
        environment: the process's variables; those that begin with ``BMGD_`` are read.
        toml_path: a TOML file, or None.
        not_in_file: keys that the file may not have: whoever calls this chooses them for each daemon.

    Returns:
        A configuration in which every value was checked.

    Raises:
        ConfigError: a key is unknown, or a value or file cannot be used.
    """
    given: dict[str, tuple[str, object]] = {}
    if toml_path is not None:
        given.update(_from_toml(toml_path))
    for key in sorted(given.keys() & not_in_file):
        raise ConfigError(f"{given[key][0]}: a launch chooses that itself, for each daemon")
    given.update(_from_environment(environment))
    engine = environment.get("BMGD_ENGINE", "")
    if engine not in _ENGINES:
        raise ConfigError(f"BMGD_ENGINE must be one of c, python, not {engine!r}")
    given.update(_from_flags(flags))
    _check_complete(given)
    values: dict[str, object] = {key: _value(key, *given[key]) for key in given.keys() & KEYS}
    timing = asdict(PROFILES[str(values.get("profile", DEFAULT_PROFILE))])
    timing |= {key: _int(key, *given[key]) for key in TIMING_KEYS & given.keys()}
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
        config = replace(config, tls_digest=digest_of(config.tls_paths()))
    return config


def log_format(
    flags: Mapping[str, object], environment: Mapping[str, str], toml_path: str | None
) -> str:
    """In which form errors of a configuration are told, as far as it can be read: "text" or "json"."""
    form = flags.get("log_format") or environment.get("BMGD_LOG_FORMAT")
    if not form and toml_path is not None:
        with suppress(ConfigError):
            form = _document(toml_path).get("log_format")
    return "json" if form == "json" else "text"


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


# --- the three sources ----------------------------------------------------------------------------


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _from_flags(flags: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    unknown = sorted(flags.keys() - KEYS)
    if unknown:
        raise ConfigError(f"unknown flag {_flag(unknown[0])}")
    return {key: (_flag(key), value) for key, value in flags.items() if value is not None}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    given: dict[str, tuple[str, object]] = {}
    for name in sorted(name for name in environment if name.startswith("BMGD_")):
        key = name.removeprefix("BMGD_").lower()
        timing_key = key.removeprefix("timing_")
        if key in KEYS:
            given[key] = (name, environment[name])
        elif timing_key != key and timing_key in TIMING_KEYS:
            given[timing_key] = (name, environment[name])
        elif name not in _OTHERS and not _KUBERNETES.fullmatch(name):
            raise ConfigError(f"unknown variable {name}")
    return given


def _document(path: str) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(read_file(path, "the configuration").decode())
    except (ValueError, RecursionError) as error:
        # A TOMLDecodeError, a UnicodeDecodeError, or a number of too many digits.
        raise ConfigError(f"{path} is not TOML: {_one_line(error)}") from None


def _from_toml(path: str) -> dict[str, tuple[str, object]]:
    document = _document(path)
    timing = document.pop("timing", {})
    if not isinstance(timing, dict):
        raise ConfigError(f"{path}: timing is not a table")
    for key in sorted(document.keys() - KEYS):
        raise ConfigError(f"{path}: unknown key {key!r}")
    for key in sorted(timing.keys() - TIMING_KEYS):
        raise ConfigError(f"{path}: unknown key {key!r} in [timing]")
    return {key: (f"{path}: {key}", value) for key, value in {**document, **timing}.items()}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# --- single values --------------------------------------------------------------------------------


def _value(key: str, source: str, value: object) -> object:
    if key in RANGES:
        return _int(key, source, value)
    if key in SWITCHES:
        return _bool(source, value)
    if key == "peers":
        return value
    if key == "join":
        return _contacts(source, value)
    if not isinstance(value, str):
        raise ConfigError(f"{source} must be a text")
    if "\0" in value:
        # Most texts are paths, which cannot have one; TOML can.
        raise ConfigError(f"{source} has a zero byte in it")
    if key in CHOICES and value not in CHOICES[key]:
        raise ConfigError(f"{source} must be one of {', '.join(CHOICES[key])}, not {value!r}")
    return value


def _int(key: str, source: str, value: object) -> int:
    low, high = RANGES.get(key, TIMING_RANGE)
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value):
        if len(value) > _DIGITS_MAX:
            raise ConfigError(f"{source} must be in {low}..{high}, not {value:.20}...")
        value = int(value)
    if type(value) is not int:
        raise ConfigError(f"{source} must be an integer, not {value!r}")
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
        return _peers_of_file(value, size)
    return PeerList.parse(value, size)


def _peers_of_file(path: str, size: int) -> PeerList:
    try:
        text = read_file(path, "the peers file").decode()
    except UnicodeDecodeError:
        raise ConfigError(f"the peers file {path} is not text") from None
    try:
        return PeerList.parse(text, size)
    except ConfigError as error:
        # Not with the line itself, as of a flag: the file may be the secret, by mistake.
        for number, line in enumerate(text.splitlines(), 1):
            if not _has_addresses(line.partition("#")[0]):
                raise ConfigError(
                    f"the peers file {path}: line {number} is not of the form host:port or [v6]:port"
                ) from None
        raise ConfigError(f"the peers file {path}: {error}") from None


def _has_addresses(line: str) -> bool:
    try:
        for word in line.replace(",", " ").split():
            split_address(word)
    except ConfigError:
        return False
    return True


def _contacts(source: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, list) or not 1 <= len(value) <= CONTACTS_MAX:
        raise ConfigError(f"{source} must be 1 to {CONTACTS_MAX} addresses of members")
    for address in value:
        split_address(str(address))
    return tuple(str(address) for address in value)
