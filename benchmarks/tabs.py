"""Pages that stay open: the memory of some tabs, of their browser and of the daemon, over time.

    python -m benchmarks.tabs [-n 16] [--tabs 5] [--minutes 10] [--every 30] [--profile lan] [--out FILE]

One Chromium shows the page of daemon 0 in each tab, while nodes send to each other and one is killed
and started again now and then, so that there is something to draw and the timeline fills. A row is
printed for each look; the last one says by how much each grew in the second half. Memory does not
depend on how busy the machine is; of frame times only the bound says something. `draw_ms` is what the
page takes to draw one frame, `daemon_cpu_s` what the daemon has used since it was started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil

import bmgd
from benchmarks.launched import Launched
from bmgd.launcher.ports import choose_base_port
from bmgd.launcher.rundir import read_members

FIRST_PORT: Final = 21_000
SETTLE_S: Final = 10.0
"""How long the browser may still take what it needs once, before the first look."""
PAUSE_S: Final = 0.2
_FRAMES: Final = """
const done = arguments[0], times = []; let last = performance.now();
const frame = (now) => { times.push(now - last); last = now;
  if (times.length < 60) requestAnimationFrame(frame); else done(times.slice(1)); };
requestAnimationFrame(frame);
"""


def browser() -> Any:
    """A Chromium without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium-browser"
    flags = ("headless=new", "no-sandbox", "disable-dev-shm-usage", "no-proxy-server")
    for flag in (*flags, "js-flags=--expose-gc", "enable-precise-memory-info"):
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def open_tabs(driver: Any, url: str, count: int) -> list[str]:
    """Show the page in so many tabs; returns their handles."""
    for number in range(count):
        if number:
            driver.switch_to.new_window("tab")
        driver.get(url)
    return list(driver.window_handles)


def look(driver: Any, tabs: list[str], daemon: psutil.Process) -> dict[str, Any]:
    """The memory of each tab, of the whole browser, and of the daemon; the tab in front draws frames."""
    heaps, shown = [], []
    for tab in tabs:
        driver.switch_to.window(tab)
        driver.execute_script("if (window.gc) gc()")
        heaps.append(driver.execute_script("return performance.memory.usedJSHeapSize"))
        shown.append(driver.execute_script("return document.querySelectorAll('*').length"))
    frames = driver.execute_async_script(_FRAMES)
    drawn_ms, slowest_ms = driver.execute_script("return [bmgdRing.last_ms, bmgdRing.slowest_ms]")
    service = psutil.Process(driver.service.process.pid)
    resident = 0
    for process in service.children(recursive=True):
        try:
            resident += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return {
        "heap_mb": [round(heap / 1e6, 2) for heap in heaps],
        "elements": max(shown),
        "frame_ms": round(statistics.median(frames), 1),
        "frame_ms_max": round(max(frames), 1),
        "draw_ms": round(drawn_ms, 1),
        "draw_ms_max": round(slowest_ms, 1),
        "shown": driver.execute_script("return document.querySelector('#agreement').innerText"),
        "browser_mb": round(resident / 1e6, 1),
        "daemon_mb": round(daemon.memory_info().rss / 1e6, 2),
        "daemon_cpu_s": round(sum(daemon.cpu_times()[:2]), 2),
    }


async def traffic(addresses: list[str]) -> None:
    """Each node reads, and node 1 sends to all others in turn, until cancelled."""

    async def read(address: str) -> None:
        async with bmgd.connect(address) as daemon, daemon.subscribe("tabs") as messages:
            async for _ in messages:
                pass

    async def send() -> None:
        async with bmgd.connect(addresses[1]) as daemon:
            while True:
                for node_id in range(len(addresses) - 1):
                    if node_id != 1:
                        await daemon.send(node_id, bytes(1000), topic="tabs", timeout=60)
                await asyncio.sleep(PAUSE_S)

    async with asyncio.TaskGroup() as tasks:
        for address in addresses[:-1]:
            tasks.create_task(read(address))
        tasks.create_task(send())


async def measure(args: argparse.Namespace, cluster: Launched, url: str) -> list[dict[str, Any]]:
    """Look now and then, while there is traffic, and the last node dies and comes back."""
    members = read_members(str(cluster.run_dir))
    daemon = psutil.Process(members[0].pid)
    driver = await asyncio.to_thread(browser)
    rows: list[dict[str, Any]] = []
    talk = asyncio.create_task(traffic([member.control for member in members]))
    try:
        tabs = await asyncio.to_thread(open_tabs, driver, url, args.tabs)
        await asyncio.sleep(SETTLE_S)
        began_s = time.monotonic()
        while not rows or rows[-1]["s"] < 60 * args.minutes:
            row = await asyncio.to_thread(look, driver, tabs, daemon)
            rows.append({"s": round(time.monotonic() - began_s, 1), **row})
            print(json.dumps(rows[-1]), flush=True)
            await asyncio.to_thread(cluster.kill, args.n - 1)
            await asyncio.sleep(args.every / 2)
            await asyncio.to_thread(cluster.restart, args.n - 1)
            await asyncio.sleep(args.every / 2)
            if talk.done():
                talk.result()
    finally:
        talk.cancel()
        await asyncio.gather(talk, return_exceptions=True)
        await asyncio.to_thread(driver.quit)
    return rows


def growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """From the middle of the run to its end: medians of three looks, in MB."""
    half = len(rows) // 2
    middle, last = rows[max(0, half - 1) : half + 2], rows[-3:]

    def median(of: list[dict[str, Any]], what: str) -> float:
        values = [max(row[what]) if what == "heap_mb" else row[what] for row in of]
        return float(statistics.median(values))

    names = ("heap_mb", "browser_mb", "daemon_mb")
    return {name: round(median(last, name) - median(middle, name), 2) for name in names}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--tabs", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=30)
    parser.add_argument("--profile", default="lan")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    port = choose_base_port(args.n, FIRST_PORT)
    with tempfile.TemporaryDirectory(prefix="bmgd-tabs-") as place:
        cluster = Launched(
            args.n, Path(place) / "run", ("--http", str(port), "--profile", args.profile)
        )
        try:
            rows = asyncio.run(measure(args, cluster, f"http://127.0.0.1:{port}/"))
        finally:
            cluster.stop()
    result = {"n": args.n, "tabs": args.tabs, "rows": rows, "second_half_mb": growth(rows)}
    print(json.dumps({"second_half_mb": result["second_half_mb"]}))
    if args.out:
        args.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
