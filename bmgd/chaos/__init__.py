"""Fault plans and histories as pure data, for the simulator and for real clusters alike."""
