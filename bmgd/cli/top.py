"""Show all nodes of a cluster as a table that stays up to date; plain lines without a terminal.

Keys: q ends, space pauses, s and S choose the column to sort by, r turns the order, / filters by id or
state (Enter ends the filter, Escape clears it), arrows and PgUp, PgDn scroll.
"""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bmgd.cli.cluster_table import COLUMNS, Row, arranged, heading, line_of, rows_of, title_of
from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, count, seconds
from bmgd.errors import BmgdError

if TYPE_CHECKING:
    import curses

    from bmgd.client import Daemon

_KEY_POLL_S: Final = 0.05
_FIELDS: Final = tuple(name for _, name, _ in COLUMNS)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_target(parser)
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="S", help="seconds between updates (1)"
    )
    parser.add_argument("--count", type=count, metavar="N", help="end after N updates")
    parser.add_argument("--sort", choices=_FIELDS, default="id", help="the column (default id)")
    parser.add_argument(
        "--filter", default="", metavar="TEXT", help="only ids or states with this text"
    )
    parser.add_argument("--plain", action="store_true", help="lines even in a terminal")


def run(args: Namespace) -> int:
    """Show the table."""
    address = address_of(args)
    is_plain = (
        args.plain or args.json or not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty())
    )

    async def main() -> int:
        from bmgd.client import connect

        async with connect(address) as daemon:
            if is_plain:
                return await _print(daemon, args)
            return await _screen(daemon, args)

    return run_async(main)


# --- plain ----------------------------------------------------------------------------------------


async def _print(daemon: Daemon, args: Namespace) -> int:
    """Print a table at every interval, or a document as JSON."""
    # The first look only makes the daemon ask; the second one has rates.
    former = await daemon.cluster()
    shown = 0
    while args.count is None or shown < args.count:
        await asyncio.sleep(args.interval)
        document = await daemon.cluster()
        rows = arranged(
            rows_of(document, former), args.sort, reverse=args.sort != "id", only=args.filter
        )
        if args.json:
            print_json({"summary": document["summary"], "nodes": [_as_dict(row) for row in rows]})
        else:
            print(f"{time.strftime('%H:%M:%S')} {title_of(document)}")
            print("\n".join([heading(), *(line_of(row) for row in rows), ""]), flush=True)
        former = document
        shown += 1
    return 0


def _as_dict(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


# --- the screen -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Screen:
    """What the screen shows, and what keys change of it.

    Attributes:
        sort: the field that rows are sorted by.
        typing: whether keys go into the filter.
        top: the first row that is shown.
    """

    sort: str = "id"
    reverse: bool = False
    only: str = ""
    typing: bool = False
    paused: bool = False
    top: int = 0
    ended: bool = False
    title: str = "asking ..."
    rows: Sequence[Row] = field(default_factory=tuple)

    def press(self, key: str) -> None:
        """Do what a key means; special keys have curses' names, such as ``KEY_DOWN``."""
        if self.typing:
            self._type(key)
            return
        page = 20
        match key:
            case "q" | "Q":
                self.ended = True
            case " " | "p":
                self.paused = not self.paused
            case "s" | "S":
                step = 1 if key == "s" else -1
                self.sort = _FIELDS[(_FIELDS.index(self.sort) + step) % len(_FIELDS)]
                self.reverse = self.sort not in ("id", "state")
            case "r":
                self.reverse = not self.reverse
            case "/":
                self.typing, self.only, self.top = True, "", 0
            case "KEY_DOWN" | "KEY_UP" | "KEY_NPAGE" | "KEY_PPAGE":
                step = page if "PAGE" in key else 1
                self.top += step if key in ("KEY_DOWN", "KEY_NPAGE") else -step
            case "\x1b":
                self.only = ""
            case _:
                pass

    def _type(self, key: str) -> None:
        match key:
            case "\n" | "\r" | "KEY_ENTER":
                self.typing = False
            case "\x1b":
                self.typing, self.only = False, ""
            case "KEY_BACKSPACE" | "\b" | "\x7f":
                self.only = self.only[:-1]
            case _ if len(key) == 1 and key.isprintable():
                self.only += key
            case _:
                pass

    def lines(self, height: int) -> list[str]:
        """The lines of the screen, `height` of them at most."""
        rows = arranged(self.rows, self.sort, reverse=self.reverse, only=self.only)
        room = max(1, height - 3)
        self.top = max(0, min(self.top, len(rows) - room))
        order = "down" if self.reverse else "up"
        notes = [f"sorted by {self.sort}, {order}"]
        if self.paused:
            notes.append("PAUSED")
        if self.only or self.typing:
            notes.append(f"filter: {self.only}{'_' if self.typing else ''}")
        if len(rows) > room:
            notes.append(f"rows {self.top + 1}-{min(len(rows), self.top + room)} of {len(rows)}")
        notes.append("q ends, space pauses, s sorts, r turns, / filters")
        shown = [line_of(row) for row in rows[self.top : self.top + room]]
        return [self.title, " | ".join(notes), heading(), *shown][:height]


async def _screen(daemon: Daemon, args: Namespace) -> int:
    """Show the table on the terminal until a key ends it."""
    import curses

    screen = Screen(sort=args.sort, reverse=args.sort not in ("id", "state"), only=args.filter)
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        window.nodelay(True)
        await _follow(daemon, args, screen, window)
    finally:
        window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()
    return 0


async def _follow(daemon: Daemon, args: Namespace, screen: Screen, window: curses.window) -> None:
    former: dict[str, Any] | None = None
    next_s, looks = 0.0, 0
    while not screen.ended and (args.count is None or looks <= args.count):
        changed = _take_keys(screen, window)
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + args.interval
            looks += 1
            try:
                document = await daemon.cluster()
            except BmgdError as error:
                screen.title, screen.rows = str(error), ()
                _draw(screen, window)
                raise
            if not screen.paused:
                screen.title = title_of(document)
                screen.rows = rows_of(document, former)
            former, changed = document, True
        if changed:
            _draw(screen, window)
        await asyncio.sleep(_KEY_POLL_S)


def _take_keys(screen: Screen, window: curses.window) -> bool:
    import curses

    taken = False
    while True:
        try:
            key = window.get_wch()
        except curses.error:
            return taken
        taken = True
        name = key if isinstance(key, str) else curses.keyname(key).decode()
        if name != "KEY_RESIZE":
            screen.press(name)


def _draw(screen: Screen, window: curses.window) -> None:
    import curses

    height, width = window.getmaxyx()
    window.erase()
    for at, line in enumerate(screen.lines(height)):
        style = curses.A_REVERSE if at == 2 else curses.A_BOLD if at == 0 else curses.A_NORMAL
        with_room = line[: max(0, width - 1)]
        window.addstr(at, 0, with_room.ljust(width - 1) if at == 2 else with_room, style)
    window.refresh()
