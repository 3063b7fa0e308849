"""Values that bmgd writes into files and reads again, and what is refused when they are read."""

from __future__ import annotations

import msgpack
import pytest

from bmgd.errors import ProtocolError
from bmgd.wire import packing
from bmgd.wire.packing import compress, decompress, pack, unpack


@pytest.mark.parametrize(
    "value", [None, True, -1, 1.5, "text", b"\xff", [1, [2]], {"a": {b"b": 1}}]
)
def test_value_is_read_as_it_was_packed(value: object) -> None:
    read = unpack(pack(value))
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize("data", [b"", b"\xc1", pack([1])[:-1], pack(1) + b"x", b"\x91" * 2000])
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a packed value"):
        unpack(data)


def test_map_with_keys_that_are_no_names_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not a packed value"):
        unpack(msgpack.packb({1: 2}))


def test_compressed_bytes_are_read_whole_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(1000)
    assert decompress(compress(data)) == data
    with pytest.raises(ProtocolError, match="cut off"):
        decompress(compress(data)[:-1])
    with pytest.raises(ProtocolError, match="not compressed"):
        decompress(b"x" * 10)
    monkeypatch.setattr(packing, "UNPACKED_BYTES_MAX", 999)
    with pytest.raises(ProtocolError, match="too many"):
        decompress(compress(data))
