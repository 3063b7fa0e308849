"""Text of peers and programs as a log or a terminal may have it."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text without ends of lines, control characters and what else a terminal would obey.

    Addresses, names of programs and reasons are what other nodes say. Complexity: O(length).
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
