"""Mutants of C: small changes of the tokens of a source file, comments and the preprocessor left alone.

    boundary     < and <=, > and >=, == and !=
    condition    && and ||; the test of an if or while negated
    statement    a statement of one line that assigns or calls, dropped
    constant     a decimal or hexadecimal integer by one
    arithmetic   + and -, << and >>, & and |

A mutant that does not compile is none; the campaign passes it over. Left out are statements that matter
only where memory runs out or an object is given back: no test can see them, the sanitizers look at those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_OTHERS: Final = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
}
_IGNORED: Final = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M
)
_OPERATOR: Final = re.compile(
    r"(?<=[\w)\]] )(<<|>>|<=|>=|==|!=|&&|\|\||<|>|\+|-|&|\|)(?= [\w(~!*-])"
)
_INTEGER: Final = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)(?![\w.])")
_TEST: Final = re.compile(r"\b(if|while) \(([^\n{};]*)\)(?= \{?\n)")
_STATEMENT: Final = re.compile(
    r"^[ \t]+((?!PyErr_NoMemory|Py_X?DECREF|Py_CLEAR|Py_X?INCREF|free\b|PyMem_Free)"
    r"(?!return\b|goto\b|break\b|continue\b|case\b|else\b|if\b|for\b|while\b|do\b)"
    r"(?![A-Za-z_][\w ]*[ *]+[A-Za-z_]\w*(?: = |\[|;|,))[A-Za-z_*(][^\n{}:?]*);$",
    re.M,
)


@dataclass(frozen=True, slots=True)
class CMutant:
    """One small change of one file.

    Args:
        file: its name below `bmgd/`.
        number: its place among all mutants of the file.
        operator: which kind of change.
        line: where.
        start, end: the text that goes.
        replacement: what comes instead.
        change: the two, for people.
    """

    file: str
    number: int
    operator: str
    line: int
    start: int
    end: int
    replacement: str
    change: str

    @property
    def name(self) -> str:
        """What results are kept under; it holds for one text of the file."""
        return f"{self.file}:{self.line}:{self.operator}:{self.number}"

    def applied_to(self, source: str) -> str:
        """The file's source with the change in it."""
        return source[: self.start] + self.replacement + source[self.end :]


def c_mutants_of(file: str, source: str) -> list[CMutant]:
    """All mutants of a source, by their place."""
    blank = _IGNORED.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), source)
    found = sorted(_changes(blank), key=lambda change: change[1:3])
    return [
        CMutant(
            file,
            number,
            operator,
            source.count("\n", 0, start) + 1,
            start,
            end,
            replacement,
            " ".join(f"{source[start:end]} to {replacement or 'nothing'}".split()),
        )
        for number, (operator, start, end, replacement) in enumerate(found)
    ]


def _changes(blank: str) -> Iterator[tuple[str, int, int, str]]:
    for found in _OPERATOR.finditer(blank):
        text = found.group(1)
        kind = "condition" if text in ("&&", "||") else "arithmetic"
        if text in ("<", "<=", ">", ">=", "==", "!="):
            kind = "boundary"
        yield kind, *found.span(1), _OTHERS[text]
    for found in _INTEGER.finditer(blank):
        yield "constant", *found.span(1), f"({found.group(1)} + 1)"
    for found in _TEST.finditer(blank):
        yield "condition", *found.span(2), f"!({found.group(2)})"
    for found in _STATEMENT.finditer(blank):
        yield "statement", *found.span(1), ""
