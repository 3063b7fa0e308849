"""A real Chromium that shows the page, and tells when what it shows has changed.

Every change of a node's state and links in the document is written down by the page's own clock, which
is this machine's; so a test compares it with the moment of the event, not with when it looked.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.ports import free_base_port

DEADLINE_S: Final = 60.0
POLL_S: Final = 0.05
PICTURES: Final = Path(__file__).parents[2] / "build" / "page"
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER: Final = shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Debian's chromium and chromium-driver"
)

_RECORD: Final = """
window.seen = [];
const note = (what, value) => window.seen.push([Date.now(), what, value]);
const look = (target) => {
  if (target.matches("#nodes tbody tr")) {
    note(`${target.dataset.node} is`, target.dataset.status || "");
    note(`${target.dataset.node} has`, target.dataset.links || "");
  } else if (target.id === "agreement") note("agreement", target.dataset.agree);
};
new MutationObserver((changes) => changes.forEach((change) => look(change.target))).observe(
  document.body, { attributes: true, subtree: true,
    attributeFilter: ["data-status", "data-links", "data-agree"] });
for (const target of document.querySelectorAll("#nodes tbody tr, #agreement")) look(target);
"""


class Page:
    """One tab of a Chromium; `shown` opens it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    async def script(self, text: str, *values: object) -> Any:
        """Run JavaScript in the page."""
        return await asyncio.to_thread(self.driver.execute_script, text, *values)

    async def text(self, selector: str) -> str:
        """The text of one element."""
        return str(
            await self.script("return document.querySelector(arguments[0]).innerText", selector)
        )

    async def changes(self, since_ms: float) -> list[tuple[float, str, str]]:
        """What has changed in the document since then."""
        rows = await self.script("return seen.filter((row) => row[0] >= arguments[0])", since_ms)
        return [(row[0], row[1], row[2]) for row in rows]

    async def when(self, what: str, value: str, since_ms: float = 0.0) -> float:
        """When the document showed that something has this value, in milliseconds of the epoch."""

        async def first() -> float | None:
            rows = await self.changes(since_ms)
            return next((at for at, name, is_now in rows if (name, is_now) == (what, value)), None)

        began_s = time.monotonic()
        while (at_ms := await first()) is None:
            if time.monotonic() - began_s > DEADLINE_S:
                last = [row for row in await self.changes(0.0) if row[1] == what][-3:]
                raise AssertionError(f"{what!r} was not shown as {value!r}; last {last}")
            await asyncio.sleep(POLL_S)
        return at_ms

    async def until(self, what: str, condition: Callable[[Any], bool], script: str) -> Any:
        """Wait until a script's value fulfils a condition."""
        began_s = time.monotonic()
        while not condition(value := await self.script(script)):
            if time.monotonic() - began_s > DEADLINE_S:
                raise AssertionError(f"{what}: not within {DEADLINE_S:.0f} s, last {value!r}")
            await asyncio.sleep(POLL_S)
        return value

    async def links(self, ids: list[int]) -> dict[int, list[int]]:
        """Each node's links, as the table has them."""
        rows = await self.script(
            "return arguments[0].map((id) => document.querySelector("
            "`#nodes tr[data-node='${id}']`)?.dataset.links || '')",
            ids,
        )
        return {
            i: [int(peer) for peer in row.split(",") if peer]
            for i, row in zip(ids, rows, strict=True)
        }

    async def picture(self, name: str) -> None:
        """Keep a screenshot under build/page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = str(PICTURES / f"{name}.png")
        assert await asyncio.to_thread(self.driver.save_screenshot, path)

    async def complaints(self) -> list[str]:
        """What the browser's console has of errors and warnings, since this was asked last."""
        rows = await asyncio.to_thread(self.driver.get_log, "browser")
        return [row["message"] for row in rows if row["level"] in ("SEVERE", "WARNING")]


@asynccontextmanager
async def shown(url: str, *, dark: bool = False, width: int = 1400) -> AsyncIterator[Page]:
    """Open a page in a browser of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "no-proxy-server"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--window-size={width},1100")
    if dark:
        options.add_argument("--blink-settings=preferredColorScheme=0")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Selenium would look for a port among those that the kernel gives to connections meanwhile.
    port = free_base_port(1)
    driver = await asyncio.to_thread(
        lambda: webdriver.Chrome(options=options, service=Service(DRIVER, port=port))
    )
    try:
        await asyncio.to_thread(driver.get, url)
        page = Page(driver)
        await page.script(_RECORD)
        yield page
    finally:
        await asyncio.to_thread(driver.quit)
