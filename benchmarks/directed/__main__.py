"""`python -m benchmarks.directed`."""

from __future__ import annotations

from benchmarks.directed.command import main

main()
