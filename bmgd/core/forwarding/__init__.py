"""How a routed frame goes on: its way, searches around the dead, floods, probes."""
