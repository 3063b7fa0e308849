"""Check a daemon, for Nagios, Kubernetes and scripts: one line, and an exit code.

Exit codes are those of monitoring plugins: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (wrong arguments).
Without --ready, --links or --agree all three are checked, and the worst counts.
"""

from __future__ import annotations

import asyncio
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bmgd.cli.output import id_ranges, print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, seconds
from bmgd.errors import BmgdError, ConfigError, NoDaemonError, SilentDaemonError
from bmgd.printable import printable
from bmgd.readiness import unready

if TYPE_CHECKING:
    from bmgd.client import Daemon

OK: Final = 0
WARNING: Final = 1
CRITICAL: Final = 2
UNKNOWN: Final = 3
_WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_EXITS: Final = (
    ("0", "OK"),
    ("1", "WARNING"),
    ("2", "CRITICAL; also where no daemon is"),
    ("3", "UNKNOWN: what was asked cannot be checked"),
    ("130", "ended by Ctrl-C"),
)
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Args:
        code: `OK` to `UNKNOWN`.
        text: for the line.
        figures: performance data by name, behind the line's ``|``.
    """

    code: int
    text: str
    figures: Mapping[str, float]


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_target(parser)
    parser.add_argument(
        "--ready", action="store_true", help="is it a member, not aside, not cut off?"
    )
    parser.add_argument(
        "--links", action="store_true", help="has it a link to every living neighbor?"
    )
    parser.add_argument(
        "--agree", action="store_true", help="do all nodes answer, and agree on the members?"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=5.0, metavar="S", help="for --agree (default 5)"
    )

    _answer_wrong_arguments(parser)
    parser.set_defaults(exits=_EXITS)


def _answer_wrong_arguments(parser: ArgumentParser) -> None:
    words: list[str] = []
    parse = parser.parse_known_args

    def remember(args: Sequence[str], namespace: Any = None) -> Any:
        words[:] = args
        return parse(args, namespace)

    def refuse(message: str) -> NoReturn:
        # With the 2 of other commands, monitoring would take wrong arguments for a node that is down.
        parser.exit(_tell([Finding(UNKNOWN, message, {})], as_json="--json" in words))

    # The parser has no result yet where it refuses, so the words tell whether JSON is wanted.
    parser.parse_known_args = remember  # type: ignore[method-assign, assignment]
    parser.error = refuse  # type: ignore[method-assign]


def run(args: Namespace) -> int:
    """Check, print the line, and return the code."""
    wanted = [name for name in ("ready", "links", "agree") if getattr(args, name)]

    async def main() -> list[Finding]:
        from bmgd.client import connect

        async with connect(address_of(args)) as daemon:
            return await _look(daemon, wanted or ["ready", "links", "agree"], args.timeout)

    try:
        findings = run_async(main)
    except ConfigError as error:
        findings = [Finding(UNKNOWN, str(error), {})]
    except (NoDaemonError, SilentDaemonError) as error:
        findings = [Finding(CRITICAL, str(error), {})]
    except BmgdError as error:
        findings = [Finding(UNKNOWN, str(error), {})]
    return _tell(findings, as_json=args.json)


def _tell(findings: list[Finding], *, as_json: bool) -> int:
    code = max(finding.code for finding in findings)
    text = printable("; ".join(" ".join(finding.text.split()) for finding in findings))
    figures = {name: value for finding in findings for name, value in finding.figures.items()}
    if as_json:
        print_json({"state": _WORDS[code], "text": text, "figures": figures})
    else:
        data = " ".join(f"{name}={value:g}" for name, value in figures.items())
        print(f"BMGD {_WORDS[code]}: {text}" + (f" | {data}" if data else ""))
    return code


async def _look(daemon: Daemon, wanted: list[str], timeout_s: float) -> list[Finding]:
    status = await daemon.status()
    findings = []
    if "ready" in wanted:
        findings.append(check_ready(status))
    if "links" in wanted:
        findings.append(check_links(status))
    if "agree" in wanted:
        findings.append(await _agree(daemon, timeout_s))
    return findings


def check_ready(status: Mapping[str, Any]) -> Finding:
    """Whether the node serves programs."""
    problem = unready(status)
    if problem:
        return Finding(CRITICAL, f"node {status['id']} is not ready: {problem}", {"ready": 0})
    return Finding(OK, f"node {status['id']} is ready", {"ready": 1})


def check_links(status: Mapping[str, Any]) -> Finding:
    """Whether every neighbor that lives is linked."""
    gone = {*status["dead"], *status["left"]}
    wanted = [peer for peer in status["neighbors"] if peer not in gone]
    linked = {row["id"] for row in status["links"]}
    missing = [peer for peer in wanted if peer not in linked]
    figures = {"links": len(linked), "links_missing": len(missing)}
    if not missing:
        return Finding(OK, f"all {len(wanted)} neighbors are linked", figures)
    text = f"no link to {id_ranges(missing)}, {len(missing)} of {len(wanted)} neighbors"
    return Finding(CRITICAL if len(missing) == len(wanted) else WARNING, text, figures)


async def _agree(daemon: Daemon, timeout_s: float) -> Finding:
    """Ask all nodes until they agree, or the time is over."""
    until_s = time.monotonic() + timeout_s
    while True:
        summary = (await daemon.cluster())["summary"]
        if summary["agree"] == "yes" or time.monotonic() > until_s:
            return check_agreement(summary)
        await asyncio.sleep(_POLL_S)


def check_agreement(summary: Mapping[str, Any]) -> Finding:
    """Whether all nodes answered, with one digest."""
    alive, reported = summary["alive"], summary["reported"]
    figures = {"alive": alive, "dead": summary["dead"], "memberships": len(summary["digests"])}
    if len(summary["digests"]) > 1:
        counts = "+".join(str(n) for n in sorted(summary["digests"].values(), reverse=True))
        return Finding(CRITICAL, f"the nodes do not agree ({counts} of {alive})", figures)
    if summary["agree"] == "yes":
        text = f"all {reported} nodes agree"
        # A daemon of an older release does not know whether settings differ.
        differ = ", ".join(summary.get("settings_differ", ()))
        if differ:
            text += f", but their {differ} differ (settings in bmgd status --json)"
        return Finding(WARNING if differ else OK, text, figures)
    silent = f" ({id_ranges(summary['silent'])} do not)" if summary["silent"] else ""
    return Finding(WARNING, f"{reported} of {alive} nodes answer{silent}", figures)
