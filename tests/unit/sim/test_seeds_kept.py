"""What is kept of campaigns of seeds: they go on on another machine, and never mix cores."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import core_sources
from benchmarks.seeds import command as seeds
from benchmarks.seeds import kept
from benchmarks.seeds.kept import GROUP, PARTS, Row, merged, missing, rows_of


def row(first: int, seeds: int = GROUP, core: str = "a", name: str = "many") -> Row:
    return {"campaign": name, "core": core, "first": first, "seeds": seeds, "failed": []}


def result(seed: int) -> Row:
    return {"seed": seed, "nodes": 2, "seconds": 1.0, "virtual_s": 1.0, "verdict": "pass"}


def test_campaign_goes_on_with_what_no_whole_group_of_its_core_has() -> None:
    rows = [row(1), row(101), row(201, seeds=99), row(301), row(201, core="b")]
    assert missing(rows, "many", "a") == [(201, 300), (401, 1_000)]
    assert missing(rows, "many", "b") == [(1, 200), (301, 1_000)]
    assert missing(rows, "hours", "a") == [(1, 500)]
    size = PARTS["hours"].group
    hours = [row(1, size, name="hours"), row(1 + size, size - 1, name="hours")]
    assert missing(hours, "hours", "a") == [(1 + size, 500)]


@pytest.mark.parametrize("code", [0, seeds.VIOLATED])
def test_campaign_that_ended_before_its_last_seed_is_not_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    written = tmp_path / "out.jsonl"
    written.write_text(json.dumps(result(1)) + "\n")
    monkeypatch.setattr(seeds, "file_of", lambda name, core, first, last: written)
    monkeypatch.setattr(seeds, "kept", list)
    monkeypatch.setattr(
        subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, code)
    )
    assert seeds.run("twice", 1) == seeds.ENDED_EARLY


def test_campaign_runs_each_missing_range_into_a_file_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A campaign refuses a file that has seeds of another range.
    size = PARTS["twice"].group
    monkeypatch.setattr(kept, "BUILD", tmp_path)
    monkeypatch.setattr(kept, "PARTS", PARTS | {"twice": replace(PARTS["twice"], count=4 * size)})
    monkeypatch.setattr(seeds, "kept", lambda: [row(1 + size, core="a", name="twice")])
    monkeypatch.setattr(core_sources, "digest", lambda: "a")

    def campaign(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        first, last = words[words.index("--campaign") + 1].split("..")
        out = Path(words[words.index("--out") + 1])
        assert not out.exists()
        lines = [json.dumps(result(seed)) + "\n" for seed in range(int(first), int(last) + 1)]
        out.write_text("".join(lines))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", campaign)
    assert seeds.run("twice", 1) == 0
    run = [each["seed"] for each in rows_of("twice", "a")]
    assert run == [*range(1, 1 + size), *range(1 + 2 * size, 1 + 4 * size)]


def test_merged_rows_have_the_fuller_hundred_and_what_passes_now() -> None:
    before = [row(1) | {"failed": [7], "passes_now": [7]}, row(101, seeds=20), row(1, core="b")]
    after = [row(1, seeds=3), row(101, seeds=50)]
    assert merged([*before, *after]) == [
        before[0],
        row(101, seeds=50),
        before[2],
    ]


def test_merged_rows_name_as_passing_only_what_the_fuller_row_violated() -> None:
    before = row(1, seeds=20) | {"failed": [7, 9], "passes_now": [7, 9]}
    after = row(1, seeds=50) | {"failed": [9, 31]}
    assert merged([before, after]) == [after | {"passes_now": [9]}]


def test_core_is_the_same_after_a_change_of_words_and_another_after_one_of_code(
    tmp_path: Path,
) -> None:
    module = tmp_path / "types.py"
    module.write_text('"""A."""\nx = 1\n')
    first = core_sources.digest(tmp_path)
    module.write_text('"""B."""\n# Why.\nx = 1\n"""Another."""\n')
    assert core_sources.digest(tmp_path) == first
    module.write_text('"""A."""\nx = 2\n')
    assert core_sources.digest(tmp_path) != first


def test_core_has_the_modules_that_it_is_made_of() -> None:
    names = {path.name for path in core_sources.sources()}
    assert {"node.py", "codec.py", "layer.py", "outbox.py", "linkevents.py", "binomial.py"} <= names
