"""The laboratory: the papers' tables and figures, made again from the code that the daemon runs."""
