"""`python -m benchmarks.ulfm`."""

from __future__ import annotations

from benchmarks.ulfm.command import main

main()
