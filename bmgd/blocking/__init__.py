"""The client for programs without asyncio: the calls of `bmgd.Daemon`, each of which waits.

    with bmgd.blocking.connect("unix:/run/bmgd/3.sock") as daemon:
        daemon.send(7, b"payload", topic="jobs")
        with daemon.subscribe("rpc") as messages:
            for message in messages:
                message.reply(b"answer")

A connection has a thread of its own with an event loop, in which the ordinary client runs
(`client/loop_thread.py`). A call that is interrupted (Ctrl-C) cancels what it waits for: a message
that was not transmitted is not sent. Any thread may call, and several at a time.
"""

from __future__ import annotations

from bmgd.blocking.daemon import Daemon, Writer, connect
from bmgd.blocking.reading import Message, MessageReader, Reader

__all__ = ["Daemon", "Message", "MessageReader", "Reader", "Writer", "connect"]
