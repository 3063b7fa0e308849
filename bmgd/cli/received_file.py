"""The file of `bmgd recv --file`: it gets its name when the message in it is whole."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from bmgd.errors import ConfigError, RequestError

NAME_BYTES_MAX: Final = 200
"""How many bytes of its name the temporary name begins with; a file system allows 255 in all."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that is being written.

    Args:
        path: as it was named.
        file: where the bytes go.
        beside: its name until it is whole.
        whole: its name then; the same for what is no regular file.
    """

    path: Path
    file: BinaryIO
    beside: Path
    whole: Path

    def write(self, part: bytes) -> None:
        """Add some bytes.

        Raises:
            RequestError: they cannot be written.
        """
        try:
            self.file.write(part)
        except OSError as error:
            raise self._failed(error) from None

    def keep(self) -> None:
        """The message is whole: give the file its name.

        Raises:
            RequestError: that cannot be done.
        """
        try:
            self.file.flush()
            if self.beside != self.whole:
                os.fsync(self.file.fileno())
                self.beside.replace(self.whole)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> RequestError:
        return RequestError(f"--file {self.path} cannot be written: {error.strerror}")


@contextmanager
def received_file(path: Path) -> Iterator[ReceivedFile]:
    """A file that takes the place of the one that is named, with its owner and mode, once it is kept.

    What is no regular file, as a pipe or a device, is written to as the message comes.

    Raises:
        ConfigError: it cannot be written.
    """
    whole = beside = path
    try:
        former = path.stat() if path.exists() else None
        if former is None or stat.S_ISREG(former.st_mode):
            # Behind a symbolic link it is the file that changes, not the link.
            whole = Path(os.path.realpath(path))
            begin = os.fsdecode(os.fsencode(whole.name)[:NAME_BYTES_MAX])
            beside = whole.with_name(f".{begin}.{secrets.token_hex(4)}")
        file = beside.open("wb" if beside == whole else "xb")
    except OSError as error:
        raise ConfigError(f"--file {path}: {error.strerror}") from None
    try:
        if former is not None and beside != whole:
            _give(file, former, path)
        yield ReceivedFile(path, file, beside, whole)
    finally:
        with suppress(OSError):
            file.close()
        if beside != whole:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def _give(file: BinaryIO, former: os.stat_result, path: Path) -> None:
    """Who could not read the former file must not read this one."""
    try:
        if former.st_uid != os.geteuid():
            os.fchown(file.fileno(), former.st_uid, former.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(former.st_mode))
    except OSError as error:
        raise ConfigError(f"--file {path}: {error.strerror}") from None
