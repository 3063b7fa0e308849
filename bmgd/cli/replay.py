"""Replay a recording of bmgd record: what happened, why, and whether the same happens again."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any, Final

from bmgd.cli.output import clock, life, print_json

if TYPE_CHECKING:
    from bmgd.flight.recording import Recording

STEP_DIGITS_MAX: Final = 18


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a recording; of several nodes: one timeline"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--timeline", action="store_true", help="what happened, in order of time")
    what.add_argument(
        "--all", action="store_true", help="the same with every event and every effect"
    )
    what.add_argument(
        "--step", type=_step, metavar="N", help="one step, its effects, and the state after it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = "Exit code 1: a step came out otherwise than it was recorded."


def run(args: Namespace) -> int:
    """Replay."""
    from bmgd.errors import ConfigError
    from bmgd.flight.recording import read

    recordings = [read(path) for path in args.files]
    if args.step is not None:
        if len(recordings) != 1:
            raise ConfigError("--step is of one recording")
        return _show_step(recordings[0], args.step, args.json)
    if args.timeline or args.all:
        return _show_timeline(recordings, args.all, args.json)
    return _compare(args.files, recordings, args.json)


def _compare(paths: list[str], recordings: list[Recording], as_json: bool) -> int:
    from bmgd.cli import DONE, FAILED
    from bmgd.flight.replay import replay

    differs = False
    rows: list[dict[str, Any]] = []
    for path, recording in zip(paths, recordings, strict=True):
        outcome = replay(recording)
        differs = differs or outcome.differs_at is not None
        row = {
            "file": path,
            "id": recording.head.id,
            "steps": outcome.steps,
            "differs_at": outcome.differs_at,
            "left_out": outcome.left_out,
            "whole": recording.whole,
            "reason": recording.head.reason,
        }
        rows.append(row)
        if not as_json:
            print(_line(row, recording))
    if as_json:
        steps = sum(row["steps"] for row in rows)
        first = next((row["differs_at"] for row in rows if row["differs_at"] is not None), None)
        print_json({"steps": steps, "differs_at": first, "recordings": rows})
    return FAILED if differs else DONE


def _line(row: dict[str, Any], recording: Recording) -> str:
    head = recording.head
    span = ""
    stamps = [r.now_ns for part in recording.parts for r in part.rows]
    if stamps:
        began, ended = (clock((t + head.wall_ns - head.monotonic_ns) / 1e9) for t in
                        (stamps[0], stamps[-1]))  # fmt: skip
        span = f", {began} to {ended}"
    text = f"node {row['id']}: {row['steps']} steps{span}: "
    text += "as recorded" if row["differs_at"] is None else f"differs at step {row['differs_at']}"
    if row["left_out"]:
        text += f"; {row['left_out']} steps have no state before them and were not replayed"
    if not row["whole"]:
        text += "; the end of the file is missing"
    return text


def _show_timeline(recordings: list[Recording], everything: bool, as_json: bool) -> int:
    from dataclasses import asdict

    from bmgd.flight.timeline import timeline

    for moment in timeline(recordings, everything=everything):
        if as_json:
            print_json(asdict(moment))
        else:
            when = clock(moment.wall_ns / 1e9)
            print(f"{when}  node {moment.node}  step {moment.step}  {moment.what}  {moment.text}")
    return 0


def _show_step(recording: Recording, number: int, as_json: bool) -> int:
    from bmgd.flight.replay import at_step, state_of
    from bmgd.flight.timeline import brief

    replayed, node = at_step(recording, number)
    row, head = replayed.row, recording.head
    effects = [f"{type(effect).__name__} {brief(effect)}" for effect in replayed.effects]
    state = state_of(node)
    when_s = (row.now_ns + head.wall_ns - head.monotonic_ns) / 1e9
    if as_json:
        print_json(
            {
                "step": number,
                "time": when_s,
                "event": f"{type(row.event).__name__} {brief(row.event)}",
                "effects": effects,
                "error": None if replayed.error is None else str(replayed.error),
                "same": replayed.same,
                **state,
            }
        )
        return 0 if replayed.same else 1
    print(f"step {number} of node {head.id}, {clock(when_s)}")
    print(f"event    {type(row.event).__name__} {brief(row.event)}")
    for effect in effects:
        print(f"effect   {effect}")
    if replayed.error is not None:
        print(f"error    {replayed.error}")
    print("this is what happened" if replayed.same else "THIS IS NOT WHAT HAPPENED")
    for key, value in state["status"].items():
        print(f"  {key:16} {life(value) if key == 'incarnation' else value}")
    return 0 if replayed.same else 1


def _step(text: str) -> int:
    # Steps are counted from the core's birth: a daemon that runs for months has had many.
    if not (text.isascii() and text.isdigit() and len(text) <= STEP_DIGITS_MAX and int(text)):
        raise ArgumentTypeError(f"not the number of a step: {text!r}")
    return int(text)
