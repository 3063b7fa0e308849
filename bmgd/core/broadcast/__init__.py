"""Messages to many: multicasts, broadcasts to all or none, and the registry of programs."""
