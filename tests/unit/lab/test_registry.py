"""Every registered experiment is whole: a name, a paper, columns, checks and a plot of its columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bmgd.lab.experiments
from bmgd.errors import ConfigError
from bmgd.lab.experiment import PAPERS, Experiment
from bmgd.lab.registry import MODULES, _words, chosen, experiments

EXPERIMENTS = list(experiments().values())


def test_registry_lists_every_module_in_order() -> None:
    directory = Path(bmgd.lab.experiments.__path__[0])
    have = {path.stem for path in directory.glob("*.py")} - {"__init__"}
    with_experiments = {
        name for name in have if "\nEXPERIMENTS: Final" in (directory / f"{name}.py").read_text()
    }
    assert set(MODULES) == with_experiments
    assert list(MODULES) == sorted(MODULES)


def test_registry_finds_by_name_pattern_and_all() -> None:
    assert [each.name for each in chosen(["healing-figure-5a"])] == ["healing-figure-5a"]
    pattern = [each.name for each in chosen(["healing-figure-5*", "healing-figure-5a"])]
    assert pattern == ["healing-figure-5a", "healing-figure-5b"]
    assert chosen(["all"]) == EXPERIMENTS


def test_registry_takes_a_figure_for_all_its_parts() -> None:
    names = [each.name for each in chosen(["healing-figure-2"])]
    assert names == ["healing-figure-2a", "healing-figure-2b", "healing-figure-2c"]


def test_registry_orders_names_as_people_do() -> None:
    names = list(experiments())
    healing = [name for name in names if name.startswith("healing-figure-")]
    assert healing == sorted(healing)
    assert names.index("healing-figure-6c") < names.index("healing-section-3-1")
    assert _words("routing-figure-9") < _words("routing-figure-10")


def test_registry_suggests_the_nearest_names() -> None:
    with pytest.raises(ConfigError, match="healing-figure-5a"):
        chosen(["healing-figur-5a"])
    with pytest.raises(ConfigError, match="bmgd lab list"):
        chosen(["qqqqqqqqqq"])


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_experiment_tells_all_about_itself(experiment: Experiment) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", experiment.name)
    assert experiment.paper in PAPERS
    assert experiment.section
    assert "\n" not in experiment.title
    assert len(experiment.title) <= 100
    assert len(experiment.explanation) >= 100
    # An escape that was escaped, or a word that was parted.
    assert not re.search(r"\\|\w- \w|  ", experiment.explanation)
    assert experiment.checks
    names = experiment.column_names
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_experiment_plots_columns_that_it_has(experiment: Experiment) -> None:
    plot = experiment.plot
    if plot is not None:
        used = {plot.x, *plot.ys} | ({plot.by} if plot.by else set())
        assert used <= set(experiment.column_names)
