"""Mutants of C: what the operators change, and that comments, texts and directives stay."""

from __future__ import annotations

import pytest

from benchmarks.c_mutants.command import extensions
from benchmarks.c_mutants.mutating import c_mutants_of
from benchmarks.c_mutants.report import is_survivor, place_of, read_explained, read_rows

SOURCE = """
#define LIMIT 7
/* a < b, 3 of them */
static int
count(int a, int b)
{
    int found = 0;
    if (a < b && b != 4) {
        found += a;
        tell("a < 5");
    }
    return found << 1;
}
"""


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("boundary", "if (a <= b &&"),
        ("boundary", "b == 4)"),
        ("condition", "if (a < b || b != 4)"),
        ("condition", "if (!(a < b && b != 4))"),
        ("constant", "b != (4 + 1)"),
        ("arithmetic", "return found >> 1;"),
        ("statement", "        ;\n        tell"),
    ],
)
def test_c_mutants_have_each_operator(operator: str, text: str) -> None:
    mutants = c_mutants_of("x.c", SOURCE)
    assert any(m.operator == operator and text in m.applied_to(SOURCE) for m in mutants)


def test_c_mutants_leave_comments_texts_and_directives_alone() -> None:
    for mutant in c_mutants_of("x.c", SOURCE):
        changed = mutant.applied_to(SOURCE)
        assert "#define LIMIT 7" in changed
        assert "/* a < b, 3 of them */" in changed
        assert 'tell("a < 5")' in changed or mutant.operator == "statement"


def test_c_mutants_are_of_the_daemons_extensions() -> None:
    assert extensions()["_fastroute.c"][0] == "bmgd._fastroute"
    assert "_labroutes.c" not in extensions()


def test_explanations_of_c_mutants_are_of_those_that_survived() -> None:
    survivors = {place_of(row) for row in read_rows().values() if is_survivor(row)}
    assert set(read_explained()) <= survivors
