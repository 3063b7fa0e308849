"""`bmgd lab`: what it prints and writes, and its exit codes."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bmgd.cli import main
from bmgd.lab import registry
from bmgd.lab.experiment import Plot
from bmgd.lab.journal import Journal
from tests.unit.lab.sample import ends_at_once, sample

DEADLINE_S = 30.0

PLOT = Plot(x="root", ys=("square", "published"))


@pytest.fixture(autouse=True)
def _samples(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "sample-good": sample("sample-good", plot=PLOT),
        "sample-bad": sample("sample-bad", least=100),
        "sample-dead": sample("sample-dead", ends_at_once),
    }
    monkeypatch.setattr(registry, "experiments", lambda: found)


def test_lab_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "name",
        "sample-good",
        "sample-bad",
        "sample-dead",
    ]


def test_lab_list_json_has_paper_section_columns_and_checks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["lab", "list", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in described] == ["sample-good", "sample-bad", "sample-dead"]
    assert described[0]["paper"] == "bmgd"
    assert described[0]["section"] == "§0"
    assert [column["name"] for column in described[0]["columns"]] == [
        *("root", "square", "published", "parity")
    ]
    assert described[0]["checks"] == ["squares are at least 1", "eight rows"]


def test_lab_run_prints_the_table_and_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "sample-good", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "root  square [things]  published  parity" in out
    assert "     3                9          9  odd" in out
    assert "holds: squares are at least 1" in out
    assert "not checked: eight rows" in out


def test_lab_run_json_prints_rows_under_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "sample-good", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["columns"] == ["root", "square", "published", "parity"]
    assert len(printed["rows"]) == 8
    assert printed["rows"][1] == {"root": 2, "square": 4, "published": None, "parity": "even"}
    assert {check["verdict"] for check in printed["checks"]} == {"holds"}


def test_lab_run_fails_with_1_when_a_check_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "all", "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert "fails: squares are at least 100" in captured.out
    assert "1 of 3 experiments passed" in captured.out
    assert captured.err.strip().endswith("failed: sample-bad, sample-dead")


def test_lab_run_of_an_unknown_name_is_usage_and_suggests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["lab", "run", "sample-god", "--out", str(tmp_path / "out")]) == 2
    assert "sample-good" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_lab_run_to_a_directory_that_cannot_be_is_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert main(["lab", "run", "sample-good", "--out", str(tmp_path / "file")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_lab_run_says_which_file_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "sample-good.csv").mkdir()
    assert main(["lab", "run", "sample-good", "--out", str(tmp_path)]) == 2
    assert f"cannot write to {tmp_path}/sample-good.csv: Is a dir" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["run"], ["list", "x"], ["run", "all", "--jobs", "0"]])
def test_lab_without_sense_is_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lab", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_lab_run_out_writes_csv_plot_and_a_report_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["lab", "run", "sample-good", "sample-bad", "--out", str(out)]) == 1
    assert sorted(path.name for path in out.iterdir()) == [
        *("index.html", "sample-bad.csv", "sample-good.csv", "sample-good.svg")
    ]
    with (out / "sample-good.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["root", "square", "published", "parity"]
    assert rows[2] == ["2", "4", "", "even"]
    ElementTree.parse(out / "sample-good.svg")
    page = (out / "index.html").read_text()
    references = _References()
    references.feed(page)
    assert references.outside == []
    assert "Squares &amp; &lt;their&gt; roots" in page
    assert "<their>" not in page
    assert "squares are at least 100 (fails)" in page


def test_lab_run_keeps_what_an_interrupted_experiment_had(tmp_path: Path) -> None:
    assert main(["lab", "run", "sample-good", "sample-dead", "--out", str(tmp_path)]) == 1
    assert [path.name for path in (tmp_path / "unfinished").iterdir()] == ["sample-good.jsonl"]
    assert main(["lab", "run", "sample-good", "--out", str(tmp_path)]) == 0
    assert not (tmp_path / "unfinished").exists()


def test_lab_run_leaves_what_another_run_has_not_finished(tmp_path: Path) -> None:
    other = tmp_path / "unfinished" / "sample-bad.jsonl"
    Journal(other, quick=False).keep("hours", 1)
    assert main(["lab", "run", "sample-good", "--out", str(tmp_path)]) == 0
    assert list((tmp_path / "unfinished").iterdir()) == [other]
    assert Journal(other, quick=False).kept == {"hours": 1}


def test_lab_run_ends_at_once_when_interrupted_and_keeps_what_it_had(tmp_path: Path) -> None:
    journal = tmp_path / "unfinished" / "reliability-random.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "bmgd", "lab", "run", "reliability-random", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + DEADLINE_S
    while not (journal.exists() and journal.read_text().count("\n") > 2):
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    # The pipes are at their end only when the experiment's own process has ended too.
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert len(Journal(journal, quick=False).kept) >= 2


class _References(HTMLParser):
    """Finds what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith("#"):
                self.outside.append(f"{tag} {name}={value}")
