"""The file of `bmgd recv --file`: it gets its name when the message in it is whole."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from bmgd.errors import ConfigError, RequestError


class ReceivedFile:
    """A file that takes the place of the one that is named, or is not there.

    What is no regular file, as a pipe or a device, is written to as the message comes.

    Args:
        path: its name.

    Attributes:
        path: the same.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole = path
        self._beside: Path | None = None
        try:
            if not path.exists() or stat.S_ISREG(path.stat().st_mode):
                # Where a link leads to, not in place of the link.
                self._whole = Path(os.path.realpath(path))
                name = f".{self._whole.name[:200]}.{secrets.token_hex(4)}"
                self._beside = self._whole.with_name(name)
            self._file: BinaryIO = open(self._beside or path, "xb" if self._beside else "wb")  # noqa: SIM115
        except OSError as error:
            raise ConfigError(f"--file {path}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._file.close()
        if self._beside is not None:
            with suppress(OSError):
                self._beside.unlink()

    def write(self, part: bytes | memoryview) -> None:
        """Add some bytes.

        Raises:
            RequestError: they cannot be written.
        """
        try:
            self._file.write(part)
        except OSError as error:
            raise self._failed(error) from None

    def keep(self) -> None:
        """The message is whole: give the file its name.

        Raises:
            RequestError: that cannot be done.
        """
        try:
            self._file.flush()
            if self._beside is not None:
                os.fsync(self._file.fileno())
                self._beside.replace(self._whole)
                self._beside = None
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> RequestError:
        return RequestError(f"--file {self.path} cannot be written: {error.strerror}")
