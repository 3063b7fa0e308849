"""All experiments, by name. A new module of experiments is one more line in `MODULES`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Final

from bmgd.errors import ConfigError, InvariantError
from bmgd.lab.experiment import Experiment

MODULES: Final = (
    "hdn_algorithms",
    "hdn_costs",
    "hdn_figures",
    "hdn_labels",
    "hdn_tables",
    "healing_connections",
    "healing_example",
    "healing_faults",
    "healing_formula",
    "healing_frequency",
    "healing_links",
    "healing_time",
    "ispa07_costs",
    "ispa07_degrees",
    "ispa07_distances",
    "ispa07_faults",
    "ispa07_routing",
    "ispa07_trees",
    "reliability_directed",
    "reliability_random",
    "routing_distances",
    "routing_figures",
    "routing_loops",
    "routing_spread",
    "routing_tables",
    "routing_time",
    "topologies",
)
"""The modules of `bmgd.lab.experiments`, in the order of the alphabet."""


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by its name, in the order of names; 10 comes after 9.

    Raises:
        InvariantError: two experiments have one name.
    """
    found: dict[str, Experiment] = {}
    for module in MODULES:
        for experiment in import_module(f"bmgd.lab.experiments.{module}").EXPERIMENTS:
            if experiment.name in found:
                raise InvariantError(f"two experiments are called {experiment.name}")
            found[experiment.name] = experiment
    return dict(sorted(found.items(), key=lambda item: _words(item[0])))


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of some names, each once.

    Args:
        names: names, patterns such as ``healing-*``, or ``all``; the name of a figure of several
            parts, such as ``healing-figure-2``, stands for all of them.

    Raises:
        ConfigError: a name that no experiment has; it suggests the nearest.
    """
    known = experiments()
    found: dict[str, Experiment] = {}
    for name in names:
        pattern = "*" if name == "all" else name
        matching = [each for each in known if fnmatchcase(each, pattern)]
        matching = matching or [each for each in known if fnmatchcase(each, name + "[a-z]")]
        if not matching:
            raise ConfigError(f"no experiment is called {name!r}{_suggestion(name, known)}")
        found.update((each, known[each]) for each in matching)
    return list(found.values())


def _words(name: str) -> list[tuple[int, str]]:
    """Where a name stands: its numbers as numbers, its words as words."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else "; see bmgd lab list"
