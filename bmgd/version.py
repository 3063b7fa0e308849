"""The version of this package; pyproject.toml reads it from here, and nothing else says it."""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.0.0"
