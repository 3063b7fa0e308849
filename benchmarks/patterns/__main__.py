"""`python -m benchmarks.patterns`."""

from __future__ import annotations

from benchmarks.patterns.command import main

main()
