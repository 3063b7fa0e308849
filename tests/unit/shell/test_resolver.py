"""Names that cannot be looked up fail like names that nobody has."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bmgd.errors import ConfigError
from bmgd.shell.addresses import bind_listener
from bmgd.shell.resolver import LOOKUPS_MAX, Resolver


@pytest.mark.parametrize("name", ["a..b", "x" * 64, ".", "\u00e4" * 64])
async def test_what_the_name_codec_refuses_is_an_os_error(name: str) -> None:
    resolver = Resolver(asyncio.get_running_loop())
    for _ in range(LOOKUPS_MAX + 1):
        with pytest.raises(OSError, match=r"."):
            await asyncio.wait_for(resolver.resolve(name, 7400), 10)


async def test_a_lookup_without_a_thread_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolver = Resolver(asyncio.get_running_loop())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(LOOKUPS_MAX + 1):
        with pytest.raises(OSError, match="no thread"):
            await resolver.resolve("localhost", 7400)


def test_listening_at_no_name_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="not a name"):
        bind_listener("a..b:7400")
