"""One msgpack value that somebody else has written, read without making room for what is not there.

An array says in five bytes how many items it has, and room is made for them before the first one is
read. So a frame of arrays within arrays, each of which says that it is long, would cost a hundred
milliseconds. What is longer than a few bytes is therefore walked through first, which makes nothing: then
each item that an array says is there, and all of them together are no more than the bytes.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

UNWALKED_BYTES_MAX: Final = 256
"""Of so few bytes, arrays within arrays make room for at most 22,000 items."""


def unpack_one(body: bytes | memoryview, *, use_list: bool) -> Any:
    """The one value that these bytes are; without extension types, and keys of maps are texts or bytes.

    Args:
        use_list: arrays become lists; else tuples.

    Raises:
        ValueError: they are none, or more than one.

    Complexity: O(bytes), in time and memory.
    """
    if len(body) > UNWALKED_BYTES_MAX:
        walker = msgpack.Unpacker(max_buffer_size=len(body))
        walker.feed(body)
        try:
            walker.skip()
        except msgpack.OutOfData:
            raise ValueError("incomplete input") from None
    return msgpack.unpackb(body, use_list=use_list, max_ext_len=0, strict_map_key=True)
