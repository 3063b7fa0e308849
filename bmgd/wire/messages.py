"""Every message between daemons, as unions.

*Link messages* are for the daemon at the other end of one link and never go further. *Routed messages*
carry a `Route` and are relayed hop by hop to the node that it names. How both become bytes: `codec.py`.

    link_messages.py        all link messages: signs of life, records, what neighbors tell each other
    stream_messages.py      routed: segments of streams, and what comes back for them
    ask_messages.py         routed: what one node asks another one, and the answers
    broadcast_messages.py   routed: from one node to many
"""

from __future__ import annotations

from bmgd.wire.ask_messages import AskMessage
from bmgd.wire.broadcast_messages import BroadcastMessage
from bmgd.wire.link_messages import LinkMessage
from bmgd.wire.stream_messages import StreamMessage

__all__ = ["LinkMessage", "Message", "RoutedMessage"]

RoutedMessage = StreamMessage | AskMessage | BroadcastMessage
Message = LinkMessage | RoutedMessage
