"""The Python client, which a program imports to use its daemon: its public names, and nothing else."""

from __future__ import annotations

from bmgd.client.arguments import DEFAULT_TOPIC
from bmgd.client.daemon import (
    CREDIT_BYTES,
    MAX_MESSAGE,
    Daemon,
    connect,
)
from bmgd.client.draining import Drained, LeftOver
from bmgd.client.items import Stream
from bmgd.client.message import LongMessage, Message
from bmgd.client.programs import Program, ProgramEnd
from bmgd.client.reading import Interrupted, Messages
from bmgd.client.showing import Change, Trace
from bmgd.client.to_many import Missed
from bmgd.client.writing import Writer

__all__ = [
    "CREDIT_BYTES",
    "DEFAULT_TOPIC",
    "MAX_MESSAGE",
    "Change",
    "Daemon",
    "Drained",
    "Interrupted",
    "LeftOver",
    "LongMessage",
    "Message",
    "Messages",
    "Missed",
    "Program",
    "ProgramEnd",
    "Stream",
    "Trace",
    "Writer",
    "connect",
]
