"""The run directory of a local cluster: where everything lies, and who may use it.

    DIR/cluster.json    who is who, for programs and commands; there while the cluster runs
    DIR/node-I.sock     the control socket of daemon I
    DIR/node-I.log      what daemon I wrote; kept after the end, begun anew by the next launch
    DIR/joiner-K.log    the same, of one that `bmgd launch --grow` started, until it has an id
    DIR/launch.secret   the cluster's secret where none was given, 0600; there while the cluster runs
    DIR/launcher.sock   where `bmgd launch --restart` and `--grow` ask
    DIR/between.sock, DIR/between.log    of a process between the daemons (`launch --fault-proxy`)
    DIR/lock            locked while a launcher lives

Where DIR is so long that a socket's path would pass the 107 bytes of Linux, the sockets lie in
``/tmp/bmgd-UID-HASH`` instead (0700, HASH of DIR's real path); cluster.json names the real place. It
stays after the end where daemons have written recordings beside their sockets.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from contextlib import suppress
from typing import Any, Final

from bmgd.config import CONTROL_PATH_BYTES_MAX, control_path
from bmgd.dataclass import dataclass
from bmgd.errors import ConfigError, LaunchError, NoDaemonError

_SECRET_BYTES = 32
_CLUSTER_BYTES_MAX: Final = 16 * 2**20
_LONGEST_SOCKET_NAME: Final = "node-9999999999.sock"


def default_run_dir() -> str:
    """``$XDG_RUNTIME_DIR/bmgd``, else ``/tmp/bmgd-UID``."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime, "bmgd") if runtime else _shared_default()


def _shared_default() -> str:
    """Where everybody may make directories: what has this name need not be this user's."""
    return f"/tmp/bmgd-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths of one local cluster; `sockets` is where its sockets lie."""

    path: str
    sockets: str

    @classmethod
    def at(cls, path: str) -> RunDir:
        """The run directory at a path, which need not exist."""
        real = os.path.realpath(path)
        longest = os.path.join(real, _LONGEST_SOCKET_NAME)
        if len(os.fsencode(longest)) <= CONTROL_PATH_BYTES_MAX:
            return cls(real, real)
        import hashlib

        digest = hashlib.blake2b(os.fsencode(real), digest_size=8).hexdigest()
        return cls(real, f"/tmp/bmgd-{os.getuid()}-{digest}")

    @property
    def secret_file(self) -> str:
        """The path of the secret that a launch made."""
        return os.path.join(self.path, "launch.secret")

    @property
    def cluster_file(self) -> str:
        """The path of cluster.json."""
        return os.path.join(self.path, "cluster.json")

    @property
    def launcher_socket(self) -> str:
        """The path of the launcher's own socket."""
        return os.path.join(self.sockets, "launcher.sock")

    @property
    def between_socket(self) -> str:
        """The path of the socket of a process between the daemons."""
        return os.path.join(self.sockets, "between.sock")

    @property
    def between_log(self) -> str:
        """The path of its log."""
        return os.path.join(self.path, "between.log")

    def control(self, node_id: int) -> str:
        """The control address of a daemon."""
        return f"unix:{self.sockets}/node-{node_id}.sock"

    @property
    def control_of_any(self) -> str:
        """The control address of a joiner: ``{id}`` stands for the id that it is given."""
        return f"unix:{self.sockets}/node-{{id}}.sock"

    def log(self, node_id: int) -> str:
        """The path of a daemon's log; a joiner that has no id yet has a number below 0."""
        name = f"node-{node_id}" if node_id >= 0 else f"joiner-{-node_id}"
        return os.path.join(self.path, f"{name}.log")

    def prepare(self) -> int:
        """Make the directories, lock them for this process, and clear what a dead launcher left.

        Returns:
            A descriptor; the directory is this launcher's until it is closed.

        Raises:
            LaunchError: another launcher lives here, or the directory cannot be used.
        """
        try:
            for directory in {self.path: None, self.sockets: None}:
                _make_private(directory)
            lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LaunchError(f"cannot use {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LaunchError(f"a cluster runs in {self.path} already") from None
        try:
            self.clear()
            for name in os.listdir(self.path):
                if name.startswith(("node-", "joiner-", "between.")) and name.endswith(".log"):
                    os.unlink(os.path.join(self.path, name))
        except OSError as error:
            os.close(lock)
            raise LaunchError(f"cannot remove {error.filename}: {error.strerror}") from None
        return lock

    def is_held_by(self, lock: int) -> bool:
        """Whether the directory is still that of who has this descriptor of `prepare`.

        Somebody may have removed it; then another launcher can make it anew while the former runs.
        """
        try:
            present = os.stat(os.path.join(self.path, "lock"))
        except OSError:
            return True
        return os.path.samestat(present, os.fstat(lock))

    def clear(self) -> None:
        """Remove cluster.json and every socket; logs stay. What is gone already is no error."""
        paths = [self.cluster_file, self.secret_file]
        with suppress(FileNotFoundError):
            for name in os.listdir(self.sockets):
                is_daemons = name.startswith("node-") and name.endswith(".sock")
                if is_daemons or name in ("launcher.sock", "between.sock"):
                    paths.append(os.path.join(self.sockets, name))
        for path in paths:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def make_secret(self) -> tuple[str, bytes]:
        """Make a secret for this cluster alone, in a file that only its user can read.

        Returns:
            The file's path, and the secret.
        """
        secret = secrets.token_urlsafe(_SECRET_BYTES).encode()
        with suppress(FileNotFoundError):
            os.unlink(self.secret_file)
        descriptor = os.open(self.secret_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(secret + b"\n")
        return self.secret_file, secret

    def remove_sockets_dir(self) -> None:
        """Remove the directory of sockets where it is not the run directory itself.

        One that has something else in it, such as recordings of daemons, stays.
        """
        if self.sockets != self.path:
            with suppress(OSError):
                os.rmdir(self.sockets)

    def write_cluster(self, document: dict[str, Any]) -> None:
        """Replace cluster.json in one step: a reader sees the old one or the new one.

        Raises:
            OSError: it cannot be written; the old one stays.
        """
        temporary = self.cluster_file + ".new"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(document, file, separators=(",", ":"))
                file.write("\n")
            os.replace(temporary, self.cluster_file)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _make_private(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    problem = _foreign(directory)
    if problem:
        raise LaunchError(problem)


def check_own(run_dir: str) -> None:
    """Refuse what another user could have put where everybody may make directories.

    Raises:
        ConfigError: the run directory is the default in /tmp, or its sockets lie there, and it is
            another user's, who could name sockets and processes of his choice.
    """
    sockets = RunDir.at(run_dir).sockets
    for directory in {run_dir: None, sockets: None}:
        if directory.startswith(_shared_default()):
            try:
                problem = _foreign(directory)
            except FileNotFoundError:
                continue
            if problem:
                raise ConfigError(problem)


def _foreign(directory: str) -> str:
    """Why others may have written into a directory; "" if they cannot."""
    found = os.lstat(directory)
    # A directory in /tmp could have been put there by anybody.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return f"{directory} is not a directory of this user"
    return f"others can write into {directory}" if found.st_mode & 0o022 else ""


@dataclass(frozen=True, slots=True)
class Member:
    """A daemon of a local cluster, as cluster.json has it.

    Args:
        pid: None when it does not run.
        address: what it advertises.
        listen: where it listens; "" for where it advertises.
        http: where its page is; "" for nowhere.
    """

    id: int
    pid: int | None
    address: str
    control: str
    listen: str = ""
    http: str = ""


def read_members(run_dir: str) -> list[Member]:
    """The daemons of the cluster in a run directory, in the order of their ids.

    Raises:
        NoDaemonError: no cluster runs there.
        ConfigError: its cluster.json cannot be read, or see `check_own`.
    """
    check_own(run_dir)
    path = RunDir.at(run_dir).cluster_file
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(_CLUSTER_BYTES_MAX))
        members = [_member(node) for node in document["nodes"]]
    except (FileNotFoundError, NotADirectoryError):
        raise NoDaemonError(
            f"no cluster runs in {run_dir}: start one with bmgd launch, or give its --run-dir"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path} is not the file of a launcher: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        members = []
    if not members:
        raise ConfigError(f"{path} is not the file of a launcher")
    return members


def _member(node: dict[str, Any]) -> Member:
    node_id, pid, control = node["id"], node["pid"], node["control"]
    if type(node_id) is not int or node_id < 0:
        raise ConfigError(f"not a node id: {node_id!r}")
    if pid is not None and (type(pid) is not int or pid < 1):
        raise ConfigError(f"not a process id: {pid!r}")
    if not isinstance(control, str):
        raise ConfigError(f"not a control address of the form unix:PATH: {control!r}")
    control_path(control)
    return Member(
        node_id,
        pid,
        str(node["address"]),
        control,
        str(node.get("listen", "")),
        str(node.get("http", "")),
    )


def find_member(run_dir: str, node_id: int) -> Member:
    """The daemon with that id.

    Raises:
        NoDaemonError: no cluster runs there.
        ConfigError: the cluster has no such id.
    """
    members = {member.id: member for member in read_members(run_dir)}
    if node_id not in members:
        raise ConfigError(
            f"id {node_id} is out of range: the cluster in {run_dir} has 0..{max(members)}"
        )
    return members[node_id]


def local_address(node_id: int, run_dir: str | None = None) -> str:
    """The control address of a daemon that `bmgd launch` started on this machine.

    Args:
        node_id: which daemon.
        run_dir: the cluster's run directory; None for the default one.

    Returns:
        What `bmgd.connect` takes, such as ``unix:/tmp/bmgd-1000/node-3.sock``.

    Raises:
        NoDaemonError: no cluster runs there.
        ConfigError: the cluster has no such id.
    """
    return find_member(run_dir or default_run_dir(), node_id).control
