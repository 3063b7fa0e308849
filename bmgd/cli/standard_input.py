"""Standard input, which a process may have been started without."""

from __future__ import annotations

import sys
from typing import TextIO

from bmgd.errors import ConfigError


def standard_input() -> TextIO:
    """Standard input.

    Raises:
        ConfigError: it is closed.
    """
    if sys.stdin is None:
        raise ConfigError("standard input is closed")
    return sys.stdin
