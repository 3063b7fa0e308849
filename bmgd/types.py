"""The small types that every room shares: what an id, a rank and a life are."""

from __future__ import annotations

from typing import NewType

NodeId = NewType("NodeId", int)
"""The stable number of a member, 0-based, never renumbered."""

Rank = NewType("Rank", int)
"""An id's position among the ids in the layout. Never travels on the wire."""

Incarnation = NewType("Incarnation", int)
"""One life of an id: unsigned 64 bits, a counter in the upper 32, boot-random bits in the lower."""

LinkId = NewType("LinkId", int)
"""Names one TCP connection of one daemon; never used again in that daemon's life."""

NODE_ID_MAX = 2**31 - 1
"""The highest id that a cluster can have; sizes go to 2**31."""

UNKNOWN_INCARNATION = Incarnation(0)
"""Stands for "not known yet"; no life has it."""
