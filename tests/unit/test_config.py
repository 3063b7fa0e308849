"""Flags over environment over a TOML file; everything that cannot be used is one clear line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bmgd.config import (
    CONTROL_PATH_BYTES_MAX,
    Config,
    check,
    control_path,
    http_address,
    is_loopback,
)
from bmgd.config_sources import load, log_format
from bmgd.errors import ConfigError
from bmgd.peers import PeerList
from bmgd.profiles import PROFILES, Timing

FLAGS: Mapping[str, object] = {"id": "1", "size": "3", "peers": "127.0.0.1:{7400+id}"}


def load_with(
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    toml: Path | None = None,
) -> Config:
    return load({**FLAGS, **(flags or {})}, environment or {}, None if toml is None else str(toml))


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "bmgd.toml"


def test_defaults() -> None:
    config = load_with()
    assert (config.id, config.size, config.cluster, config.loop) == (1, 3, "bmgd", "auto")
    assert config.timing.timeout_ms == 1500


def test_flags_go_over_environment_over_file(toml: Path) -> None:
    toml.write_text('cluster = "file"\nhealing = "off"\nloop = "asyncio"\n')
    environment = {"BMGD_CLUSTER": "environment", "BMGD_HEALING": "every-death"}
    config = load_with({"cluster": "flag"}, environment, toml)
    assert (config.cluster, config.healing, config.loop) == ("flag", "every-death", "asyncio")


def test_a_flag_that_is_none_is_not_given() -> None:
    assert load_with({"cluster": None}, {"BMGD_CLUSTER": "x"}).cluster == "x"


def test_timing_from_file_and_environment(toml: Path) -> None:
    toml.write_text("[timing]\nheartbeat_ms = 100\ntimeout_ms = 900\n")
    config = load_with(environment={"BMGD_TIMING_TIMEOUT_MS": "800"}, toml=toml)
    assert (config.timing.heartbeat_ms, config.timing.timeout_ms) == (100, 800)


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_gives_the_numbers_and_single_ones_go_over_it(profile: str, toml: Path) -> None:
    assert load_with({"profile": profile}).timing == PROFILES[profile]
    toml.write_text(f'profile = "{profile}"\n[timing]\njoin_ms = 77\n')
    assert load_with(toml=toml).timing == replace(PROFILES[profile], join_ms=77)


def test_profile_is_lan_unless_said_otherwise() -> None:
    assert load_with().profile == "lan"
    assert load_with().timing == PROFILES["lan"] == Timing()


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_finds_a_stopped_node_within_what_is_promised(profile: str) -> None:
    timing = PROFILES[profile]
    promised_ms = {"local": 1500, "lan": 2500, "wan": 7500, "oversubscribed": 6000}[profile]
    assert timing.timeout_ms + timing.ask_ms < promised_ms
    # A heartbeat that is late by one whole interval is no silence yet.
    assert timing.timeout_ms > 2 * timing.heartbeat_ms


def test_proxied_is_a_switch(toml: Path) -> None:
    toml.write_text("proxied = true\n")
    assert load_with(toml=toml).proxied
    assert not load_with(environment={"BMGD_PROXIED": "no"}, toml=toml).proxied


def test_peers_can_be_a_list_in_toml(toml: Path) -> None:
    toml.write_text('id = 0\nsize = 2\npeers = ["127.0.0.1:1", "127.0.0.1:2"]\n')
    assert load({}, {}, str(toml)).peers.listed == ("127.0.0.1:1", "127.0.0.1:2")


def test_peers_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    path.write_text("127.0.0.1:1\n127.0.0.1:2\n127.0.0.1:3\n")
    assert load_with({"peers": str(path)}).peers.listed[2] == "127.0.0.1:3"


def test_peers_file_that_is_none_is_refused_without_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    path.write_text("# founders\n127.0.0.1:1\nswordfish\n127.0.0.1:3\n")
    with pytest.raises(ConfigError, match=r"/peers: line 3 is not of the form") as caught:
        load_with({"peers": str(path)})
    assert "swordfish" not in str(caught.value)
    path.write_text("127.0.0.1:1\n127.0.0.1:2\n")
    with pytest.raises(ConfigError, match=r"/peers: .* 2 addresses for 3 founders"):
        load_with({"peers": str(path)})


def test_peers_can_be_one_address() -> None:
    config = load({"id": "0", "size": "1", "peers": "127.0.0.1:7400"}, {}, None)
    assert config.peers.listed == ("127.0.0.1:7400",)


def test_variables_that_others_set_are_no_errors() -> None:
    environment = {
        "BMGD_BACKEND": "python",
        "BMGD_ENGINE": "python",
        "BMGD_SERVICE_HOST": "10.0.0.1",
        "BMGD_SERVICE_PORT_CONTROL": "7400",
        "BMGD_PORT": "tcp://10.0.0.1:7400",
        "BMGD_PORT_7400_TCP_ADDR": "10.0.0.1",
        "BMGD_0_SERVICE_HOST": "10.0.0.1",
        "OTHER": "x",
    }
    assert load_with(environment=environment).id == 1


@pytest.mark.parametrize("name", ["C", "rust"])
def test_engine_of_an_unknown_name_is_refused_with_the_configuration(name: str) -> None:
    """The daemon would find it later, and end as one that cannot go on."""
    with pytest.raises(ConfigError, match=f"BMGD_ENGINE must be one of c, python, not '{name}'"):
        load_with(environment={"BMGD_ENGINE": name})
    assert load_with(environment={"BMGD_ENGINE": ""}).id == 1


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"id": "3"}, "out of range"),
        ({"id": "-1"}, "--id"),
        ({"id": "one"}, "--id"),
        ({"id": True}, "--id"),
        ({"size": "0"}, "--size"),
        ({"size": str(2**31 + 1)}, "--size"),
        ({"peers": "/does/not/exist"}, "/does/not/exist"),
        ({"peers": "host:1 host:2"}, "--peers"),
        ({"peers": ""}, "--peers"),
        ({"peers": "127.0.0.1:0,127.0.0.1:1,127.0.0.1:2", "id": "0"}, "port 0"),
        ({"listen": "nowhere"}, "nowhere"),
        ({"control": "node.sock"}, "node.sock"),
        ({"control": "unix:"}, "unix:"),
        ({"control": "unix:/" + "x" * 107}, "107"),
        ({"cluster": ""}, "--cluster"),
        ({"cluster": "ä" * 33}, "--cluster"),
        # So a byte of a command line or a variable that is no UTF-8 reads.
        ({"cluster": "\udcff"}, "--cluster"),
        ({"listen": "h\udcff:1"}, "address"),
        ({"peers": "h\udcff{id}:1"}, "address"),
        ({"healing": "sometimes"}, "--healing"),
        ({"healing": "after:0"}, "--healing"),
        ({"reconstruction": "lazy"}, "--reconstruction"),
        ({"profile": "moon"}, "--profile"),
        ({"proxied": "perhaps"}, "--proxied"),
        ({"loop": "trio"}, "--loop"),
        ({"log_level": "loud"}, "--log-level"),
        ({"log_format": "xml"}, "--log-format"),
        ({"queue_messages": "0"}, "--queue-messages"),
        ({"insecure": "perhaps"}, "--insecure"),
        ({"secret_file": "/does/not/exist"}, "/does/not/exist"),
        ({"secret_file": ""}, "secret"),
        ({"colour": "red"}, "--colour"),
    ],
)
def test_flags_that_cannot_be_used(flags: Mapping[str, object], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_with(flags)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["id", "size", "peers"])
def test_what_is_needed_must_be_given(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"--{missing} is missing"):
        load({key: value for key, value in FLAGS.items() if key != missing}, {}, None)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("cluster = ", "not TOML"),
        ("\x00", "not TOML"),
        ("[[timing]]\n", "timing is not a table"),
        ("timing = 3\n", "timing is not a table"),
        ('colour = "red"\n', "unknown key 'colour'"),
        ("[timing]\nspeed = 3\n", "unknown key 'speed'"),
        ("[network]\nmtu = 3\n", "unknown key 'network'"),
        ("cluster = 3\n", "cluster must be a text"),
        ('flight_dir = "/tmp/a\\u0000b"\n', "flight_dir has a zero byte"),
        ('secret = "in the file"\n', "unknown key 'secret'"),
        ("insecure = 1\n", "insecure must be true or false"),
        ("[timing]\ntimeout_ms = 1.5\n", "timeout_ms must be an integer"),
        ("[timing]\ntimeout_ms = 0\n", "timeout_ms must be in"),
        (f"queue_messages = {'9' * 5000}\n", "not TOML"),
        ("[timing]\ntimeout_ms = 400\n", "timeout_ms must be above"),
        ("[timing]\nbackoff_max_ms = 1\n", "backoff_max_ms"),
    ],
)
def test_files_that_cannot_be_used(toml: Path, text: str, part: str) -> None:
    toml.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_with(toml=toml)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", ["9" * 20, "+" + "9" * 5000, "-1"])
def test_number_out_of_range_is_told_the_range(number: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^--id must be in 0\.\.[0-9]+, not [-+]?[0-9]{1,20}"
    ) as caught:
        load_with({"id": number})
    assert len(str(caught.value)) < 80


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(FLAGS, {}, "/does/not/exist")


def test_a_file_that_is_not_text(toml: Path) -> None:
    toml.write_bytes(b'cluster = "\xff"')
    with pytest.raises(ConfigError, match="not TOML"):
        load_with(toml=toml)


@pytest.mark.parametrize("name", ["BMGD_COLOUR", "BMGD_TIMING", "BMGD_TIMING_SPEED", "BMGD_SECRET"])
def test_unknown_variables_are_errors(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown variable {name}"):
        load_with(environment={name: "1"})


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:7400", "[::]:7400", "10.0.0.1:1", "127.evil.example:1", "myhost:1"]
)
def test_beyond_loopback_needs_a_secret(listen: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without a secret"):
        load_with({"listen": listen})
    secret = tmp_path / "secret"
    secret.write_text("x\n")
    secret.chmod(0o600)
    assert load_with({"listen": listen, "secret_file": str(secret)}).secrets == (b"x",)
    assert load_with({"listen": listen, "insecure": True}).listen == listen


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[0:0::0]"])
def test_what_others_dial_is_not_every_address(host: str) -> None:
    joining = {"id": None, "size": None, "peers": None, "join": "127.0.0.1:7400", "insecure": True}
    with pytest.raises(ConfigError, match=r"cannot dial .*:7403.* --advertise"):
        load_with({**joining, "listen": f"{host}:7403"})
    with pytest.raises(ConfigError, match="cannot dial"):
        load_with({**joining, "listen": "127.0.0.1:7403", "advertise": f"{host}:7403"})
    with pytest.raises(ConfigError, match="cannot dial"):
        load_with({"peers": f"{host}:{{7400+id}}", "insecure": True})
    told = load_with({**joining, "listen": f"{host}:7403", "advertise": "host3:7403"})
    assert told.listen == f"{host}:7403"


def test_the_advertised_address_counts_where_nothing_is_bound_explicitly() -> None:
    with pytest.raises(ConfigError, match="without a secret"):
        load_with({"peers": "host{id}:7400"})
    assert load_with({"peers": "host{id}:7400", "listen": "127.0.0.1:7400"}).size == 3


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("\n")
    with pytest.raises(ConfigError, match="1 to 8 secrets"):
        load_with({"secret_file": str(secret)})


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o400, 0), (0o440, 1), (0o644, 1)])
def test_a_secret_that_others_can_read_is_warned_of(
    mode: int, warned: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(mode)
    with caplog.at_level(logging.WARNING):
        load_with({"secret_file": str(secret)})
    assert caplog.text.count("others than its owner can read") == warned


def test_a_line_of_a_secret_file_that_is_likely_no_secret_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kJ3hd82hdKSJhd82kshd92kshd\n\n# the secret of last year\nswordfish\n")
    secret.chmod(0o600)
    with caplog.at_level(logging.WARNING):
        assert len(load_with({"secret_file": str(secret)}).secrets) == 3
    assert [record.getMessage() for record in caplog.records] == [
        f"each line of {secret} is a secret: number 2 begins with #, which begins no comment there",
        f"each line of {secret} is a secret: number 3 has fewer than 16 bytes",
    ]


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o640, 1)])
def test_a_tls_key_that_others_can_read_is_warned_of(
    mode: int, warned: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = {}
    for name in ("tls_cert", "tls_key", "tls_ca"):
        path = tmp_path / name
        path.write_text(name)
        path.chmod(mode if name == "tls_key" else 0o644)
        flags[name] = str(path)
    with caplog.at_level(logging.WARNING):
        config = load_with(flags)
    assert caplog.text.count("others than its owner can read the TLS key") == warned
    assert config.tls_paths() == tuple(flags.values())


@pytest.mark.parametrize("missing", ["tls_cert", "tls_key", "tls_ca"])
def test_tls_needs_all_three_files(missing: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    flags = {n: str(tmp_path / "file") for n in ("tls_cert", "tls_key", "tls_ca") if n != missing}
    with pytest.raises(ConfigError, match="TLS needs all three"):
        load_with(flags)


def test_tls_ids_that_are_required_without_tls_are_refused() -> None:
    """Such links would not be private, and nobody would look at an id."""
    with pytest.raises(ConfigError, match="--tls-ids required without TLS"):
        load_with({"tls_ids": "required"})
    assert load_with({"tls_ids": "optional"}).tls_ids == "optional"


def test_tls_files_of_a_joiner_are_not_named_after_its_id() -> None:
    joiner = Config(
        id=-1,
        size=1,
        peers=PeerList(),
        join=("127.0.0.1:7400",),
        listen="127.0.0.1:7401",
        tls_cert="/etc/bmgd/node.pem",
        tls_key="/etc/bmgd/node-{id}.key",
        tls_ca="/etc/bmgd/ca.pem",
    )
    with pytest.raises(ConfigError, match="a joiner has no id yet"):
        check(joiner)


def test_the_secret_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    secret.chmod(0o600)
    assert "swordfish" not in repr(load_with({"secret_file": str(secret)}))


def test_control_addresses() -> None:
    assert control_path("unix:/run/x.sock") == "/run/x.sock"
    assert control_path("./x.sock") == "./x.sock"
    longest = "/" + "x" * (CONTROL_PATH_BYTES_MAX - 1)
    assert control_path("unix:" + longest) == longest


def test_http_beyond_loopback_needs_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    assert load_with({"http": "127.0.0.1:7480"}).http_token == b""
    with pytest.raises(ConfigError, match="refusing to serve HTTP on 0\\.0\\.0\\.0"):
        load_with({"http": "0.0.0.0:7480"})
    config = load_with({"http": "0.0.0.0:7480", "http_token_file": str(token)})
    assert config.http_token == b"0123456789abcdef"
    assert "0123456789abcdef" not in repr(config)


def test_http_may_be_named_after_the_id() -> None:
    config = load_with({"http": "127.0.0.1:{7480+id}"})
    assert http_address(config) == "127.0.0.1:7481"


@pytest.mark.parametrize("http", ["7480", "127.0.0.1", "127.0.0.1:{id", "127.0.0.1:{65535+id}"])
def test_http_addresses_that_cannot_be_used(http: str) -> None:
    with pytest.raises(ConfigError):
        load_with({"http": http})


@pytest.mark.parametrize("text", ["", "short", "x" * 257, "with a space in it", "ümläut" * 4])
def test_http_tokens_that_are_none(text: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(text)
    with pytest.raises(ConfigError, match="16 to 256 visible"):
        load_with({"http": "127.0.0.1:7480", "http_token_file": str(token)})


def test_http_token_without_a_port_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    with pytest.raises(ConfigError, match="nothing to guard"):
        load_with({"http_token_file": str(token)})


def test_control_path_may_have_bytes_that_are_no_text() -> None:
    path = "/tmp/\udcff" + "x" * (CONTROL_PATH_BYTES_MAX - len("/tmp/") - 1)
    assert control_path(f"unix:{path}") == path
    with pytest.raises(ConfigError, match="too many"):
        control_path(f"unix:{path}x")


def test_errors_of_a_configuration_are_told_in_the_form_that_it_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "bmgd.toml"
    path.write_text('log_format = "json"\nunknown = 1\n')
    assert log_format({}, {}, str(path)) == "json"
    assert log_format({}, {"BMGD_LOG_FORMAT": "text"}, str(path)) == "text"
    assert log_format({"log_format": "json"}, {"BMGD_LOG_FORMAT": "text"}, None) == "json"
    path.write_text("log_format = [1]\n")
    assert log_format({}, {}, str(path)) == "text"
    path.write_text("not TOML")
    assert log_format({}, {}, str(path)) == "text"
    assert log_format({}, {}, str(tmp_path / "none")) == "text"
