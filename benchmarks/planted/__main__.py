"""`python -m benchmarks.planted`."""

from __future__ import annotations

from benchmarks.planted.command import main

main()
