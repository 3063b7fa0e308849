"""The topics that hold the most, as `status` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from typing import Any, Final

from bmgd.core.topics.inboxes import is_inbox
from bmgd.core.topics.topic_table import TopicQueue

SHOWN_TOPICS_MAX: Final = 20


def topic_rows(topics: Mapping[str, TopicQueue]) -> dict[str, Any]:
    """``{"topics": [row, …], "topics_left_out": int}``, the topic that holds the most first.

    A row is ``{"topic", "waiting", "held_bytes", "readers"}``: how many messages wait for a reader, what
    is held until it is consumed, and how many programs read it. Inboxes for answers are no rows.
    Complexity: O(topics).
    """
    named = [(name, queue) for name, queue in topics.items() if not is_inbox(name)]
    shown = nlargest(SHOWN_TOPICS_MAX, named, key=lambda each: each[1].held_bytes)
    rows = [
        {
            "topic": name,
            "waiting": queue.waiting_count,
            "held_bytes": queue.held_bytes,
            "readers": len(queue.readers),
        }
        for name, queue in shown
    ]
    return {"topics": rows, "topics_left_out": len(named) - len(rows)}
