"""`python -m benchmarks.growth`."""

from __future__ import annotations

from benchmarks.growth.command import main

main()
