"""The file that `--history` names: opened before a run, and written behind it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TextIO

from bmgd.errors import ConfigError

if TYPE_CHECKING:
    from bmgd.chaos.history import History


def opened(path: str | None) -> AbstractContextManager[TextIO | None]:
    """Where the facts go, opened before the run, which would be in vain; None for nowhere.

    Raises:
        ConfigError: it cannot be written to.
    """
    if path is None:
        return nullcontext()
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--history {path}: {error.strerror}") from None


def written(file: TextIO, history: History) -> str:
    """Write the facts and close the file; why that failed, "" if it did not."""
    from bmgd.chaos.history import to_line

    try:
        with file:
            file.writelines(to_line(fact) + "\n" for fact in history)
    except OSError as error:
        return error.strerror or str(error)
    return ""
