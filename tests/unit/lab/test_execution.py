"""Experiments run in processes of their own, and one that fails fails alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bmgd.lab.execution import Order, perform, perform_all
from bmgd.lab.experiment import Row, Run
from tests.unit.lab.sample import ends_at_once, sample, squares

DEADLINE_S = 30.0


def _await(path: Path) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline_s, path
        time.sleep(0.001)


def test_perform_yields_rows_and_verdicts() -> None:
    whole = perform(sample(), Order(quick=False))
    assert len(whole.rows) == 8
    assert whole.rows[1] == (2, 4, None, "even")
    assert whole.verdicts == ("holds", "holds")
    assert whole.passed
    quick = perform(sample(least=2), Order(quick=True))
    assert quick.verdicts == ("fails", "not checked")
    assert not quick.passed


def test_perform_all_runs_as_many_at_once_as_ordered(tmp_path: Path) -> None:
    def meets(own: str, other: str) -> Iterator[Row]:
        (tmp_path / own).touch()
        _await(tmp_path / other)
        yield from squares(Run(True))

    pair = [
        sample("a", lambda run: meets("a", "b")),
        sample("b", lambda run: meets("b", "a")),
    ]
    assert {outcome.name for outcome in perform_all(pair, Order(True, jobs=2))} == {"a", "b"}


def test_perform_all_runs_what_is_timed_after_all_others_and_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def logged(name: str) -> Iterator[Row]:
        with log.open("a") as file:
            file.write(f"{name} begins\n")
        yield from squares(Run(True))
        with log.open("a") as file:
            file.write(f"{name} ends\n")

    order = [
        sample("t", lambda run: logged("t"), alone=True),
        sample("u", lambda run: logged("u"), alone=True),
        sample("a", lambda run: logged("a")),
    ]
    list(perform_all(order, Order(True, jobs=3)))
    lines = [f"{name} {what}" for name in "atu" for what in ("begins", "ends")]
    assert log.read_text().splitlines() == lines


def test_perform_all_tells_of_a_process_that_died_and_goes_on() -> None:
    outcomes = {
        outcome.name: outcome
        for outcome in perform_all([sample("dies", ends_at_once), sample("lives")], Order(True))
    }
    assert "exit code 7" in outcomes["dies"].error
    assert not outcomes["dies"].passed
    assert outcomes["lives"].passed


def test_perform_all_ends_what_still_runs_when_it_is_closed(tmp_path: Path) -> None:
    def waits(run: Run) -> Iterator[Row]:
        (tmp_path / "pid").write_text(str(os.getpid()))
        (tmp_path / "there").touch()
        _await(tmp_path / "never")
        yield from squares(run)

    def after_it_began(run: Run) -> Iterator[Row]:
        _await(tmp_path / "there")
        yield from squares(run)

    outcomes = perform_all([sample("a", waits), sample("b", after_it_began)], Order(True, jobs=2))
    assert next(outcomes).name == "b"
    outcomes.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_perform_goes_on_where_an_interrupted_run_was(tmp_path: Path) -> None:
    count = tmp_path / "computed"

    def parts(run: Run) -> Iterator[Row]:
        for i in range(1, 9):
            yield i, run.resumed(f"{i}", partial(slow, i)), None, ""
            if i == 5 and not (tmp_path / "second").exists():
                (tmp_path / "second").touch()
                os._exit(1)

    def slow(i: int) -> int:
        with count.open("a") as file:
            file.write(f"{i}\n")
        return i * i

    order = Order(False, journals=tmp_path / "unfinished")
    assert next(perform_all([sample(run=parts)], order)).error
    assert next(perform_all([sample(run=parts)], order)).passed
    assert count.read_text().split() == [str(i) for i in range(1, 9)]
    # What has ended is not run again either.
    assert len(next(perform_all([sample(run=parts)], order)).rows) == 8
    assert len(count.read_text().split()) == 8
