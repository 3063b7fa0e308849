"""Mutants: every small change of a module that the ordinary operators make of its syntax tree.

    boundary     < and <=, > and >=, == and !=, is and is not, in and not in
    condition    a test negated; an operand of and/or dropped
    statement    an assignment, a call or a deletion dropped
    constant     an integer by one, one above 1,000 doubled (1 ns more changes nothing), a truth value
    arguments    the first two positional arguments of a call swapped
    branches     the two branches of an if/else swapped
    return       a function without a result that returns at once
    extreme      min and max swapped
    variable     a parameter instead of another of the same annotation
    arithmetic   + and -, * and //

Left out are docstrings, annotations, names, what only words a text for people (messages of errors,
observations for operators, `__repr__`, what of a dataclass is in it), and module level constants'
docstrings. A mutant is named by its module, its function and its change, and by its number among those
that are alike in this, so it keeps its name while other functions change.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_EXTREMES: Final = {"min": "max", "max": "min"}
_SMALL_MAX: Final = 1_000
_FOR_PEOPLE: Final = frozenset({"observe", "line", "note", "log", "_tell", "_note"})
"""Calls of which only the words would change: what operators read, not what anybody acts on."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small change of one module.

    Args:
        module: its dotted name.
        number: its place among all mutants of the module.
        operator: which kind of change, see above.
        line: where, in the source as it stands.
        function: which function or method it is in, as `Class.method`; empty outside of all.
        change: what becomes of what, for people.
        which: its number among those of the function with an equal change.
        text: a hash of the function's text, or of the module's: a result holds for it alone.
    """

    module: str
    number: int
    operator: str
    line: int
    function: str
    change: str
    which: int
    text: str

    @property
    def name(self) -> str:
        """What results and explanations are kept under."""
        again = f" ({self.which + 1})" if self.which else ""
        return f"{self.module}: {self.function}: {self.change}{again}"

    @property
    def path(self) -> Path:
        """The module's file."""
        return path_of(self.module)

    def tree(self, source: str) -> ast.Module:
        """The module's syntax tree with the change in it."""
        tree = ast.parse(source)
        for number, site in enumerate(_sites(tree)):
            if number == self.number:
                site.apply()
                return ast.fix_missing_locations(tree)
        raise ValueError(f"{self.name}: no such mutant of this source")

    def applied_to(self, source: str) -> str:
        """The module's source with the change in it, without its comments."""
        return ast.unparse(self.tree(source))


@dataclass(frozen=True, slots=True)
class _Site:
    operator: str
    line: int
    change: str
    apply: Callable[[], None]


def path_of(module: str) -> Path:
    """A module's file."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module, in the order of its tree."""
    tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
    places = _Places(tree)
    alike: Counter[tuple[str, str]] = Counter()
    mutants = []
    for number, site in enumerate(_sites(tree)):
        function, text = places.of(site.line)
        mutants.append(
            Mutant(
                *(module, number, site.operator, site.line, function, site.change),
                alike[function, site.change],
                text,
            )
        )
        alike[function, site.change] += 1
    return mutants


class _Places:
    """The outermost functions and the methods of a module, and hashes of their texts."""

    def __init__(self, tree: ast.Module) -> None:
        self._whole = _hash(tree)
        self._found: list[tuple[range, str, str]] = []
        self._look(tree.body, "")

    def _look(self, body: list[ast.stmt], prefix: str) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                self._look(statement.body, f"{prefix}{statement.name}.")
            elif isinstance(statement, _Function):
                lines = range(statement.lineno, (statement.end_lineno or 0) + 1)
                self._found.append((lines, f"{prefix}{statement.name}", _hash(statement)))

    def of(self, line: int) -> tuple[str, str]:
        """The name and the hash of the function that a line is in."""
        for lines, name, text in self._found:
            if line in lines:
                return name, text
        return "", self._whole


def _hash(tree: ast.AST) -> str:
    return hashlib.blake2b(ast.unparse(tree).encode(), digest_size=6).hexdigest()


def _sites(tree: ast.Module) -> Iterator[_Site]:
    yield from _in_body(tree.body, None)


def _in_body(body: list[ast.stmt], function: _Function | None) -> Iterator[_Site]:
    for at, statement in enumerate(body):
        if _is_for_people(statement):
            continue
        yield from _of_statement(body, at, statement, function)
        inner = statement if isinstance(statement, _Function) else function
        for expression in _expressions(statement):
            yield from _in_expression(expression, function)
        for block in _blocks(statement):
            yield from _in_body(block, inner)


def _is_for_people(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        value = statement.value
        if isinstance(value, ast.Constant):
            return True
        if isinstance(value, ast.Call):
            name = value.func.attr if isinstance(value.func, ast.Attribute) else ""
            return name in _FOR_PEOPLE
    if isinstance(statement, _Function) and statement.name == "__repr__":
        return True
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Raise)


def _expressions(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement itself, not of the statements in it, and no annotation."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [d for d in (*statement.args.defaults, *statement.args.kw_defaults) if d]
        case ast.AnnAssign(value=value):
            return [value] if value is not None else []
        case ast.ClassDef():
            return []
        case ast.Match(subject=subject):
            return [subject, *(case.guard for case in statement.cases if case.guard)]
    return [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            yield block
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


# --- statements -------------------------------------------------------------------------------------


def _of_statement(
    body: list[ast.stmt], at: int, statement: ast.stmt, function: _Function | None
) -> Iterator[_Site]:
    def drop() -> None:
        body[at] = ast.Pass()

    line = statement.lineno
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await)
    is_change = isinstance(statement, ast.AugAssign | ast.Delete) or (
        isinstance(statement, ast.Assign)
        and all(not isinstance(target, ast.Name | ast.Tuple) for target in statement.targets)
    )
    if is_call or (is_change and function is not None):
        yield _Site("statement", line, f"drop {_short(statement)}", drop)
    if isinstance(statement, ast.If):
        yield from _of_if(statement)
    if isinstance(statement, ast.While):
        yield _negation(statement)
    if isinstance(statement, _Function) and _returns_nothing(statement):
        yield _early_return(statement)


def _of_if(statement: ast.If) -> Iterator[_Site]:
    yield _negation(statement)
    if statement.orelse:

        def swap() -> None:
            statement.body, statement.orelse = statement.orelse, statement.body

        yield _Site("branches", statement.lineno, f"swap if {_short(statement.test)}", swap)


def _negation(statement: ast.If | ast.While | ast.IfExp) -> _Site:
    def negate() -> None:
        statement.test = ast.UnaryOp(ast.Not(), statement.test)

    return _Site("condition", statement.lineno, f"not ({_short(statement.test)})", negate)


def _returns_nothing(function: _Function) -> bool:
    returns = function.returns
    is_none = isinstance(returns, ast.Constant) and returns.value is None
    return is_none and not function.decorator_list and function.name != "__init__"


def _early_return(function: _Function) -> _Site:
    def leave() -> None:
        function.body = [ast.Return(None)]

    return _Site("return", function.lineno, f"{function.name} returns at once", leave)


# --- expressions ------------------------------------------------------------------------------------


def _in_expression(expression: ast.AST, function: _Function | None) -> Iterator[_Site]:
    if isinstance(expression, ast.JoinedStr):
        return
    yield from _of_expression(expression, function)
    for child in ast.iter_child_nodes(expression):
        if isinstance(child, ast.keyword) and child.arg == "repr":
            continue
        if isinstance(child, ast.expr | ast.comprehension | ast.keyword):
            yield from _in_expression(child, function)


def _of_expression(node: ast.AST, function: _Function | None) -> Iterator[_Site]:
    match node:
        case ast.Compare():
            yield from _of_comparison(node)
        case ast.BoolOp():
            for at, value in enumerate(node.values):
                yield _dropped_operand(node, at, value)
        case ast.IfExp():
            yield _negation(node)
        case ast.Constant(value=bool() as flag):
            yield _constant(node, not flag)
        case ast.Constant(value=int() as number):
            yield _constant(node, number + 1 if abs(number) <= _SMALL_MAX else number * 2)
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node):
            yield _arithmetic(node)
        case ast.Call():
            yield from _of_call(node)
        case ast.Name(ctx=ast.Load()) if function is not None:
            yield from _of_name(node, function)


def _of_comparison(node: ast.Compare) -> Iterator[_Site]:
    for at, operator in enumerate(node.ops):
        other = _COMPARISONS[type(operator)]

        def change(at: int = at, other: type[ast.cmpop] = other) -> None:
            node.ops[at] = other()

        text = f"{_short(node)}: {type(operator).__name__} to {other.__name__}"
        yield _Site("boundary", node.lineno, text, change)


def _dropped_operand(node: ast.BoolOp, at: int, value: ast.expr) -> _Site:
    def drop() -> None:
        node.values[at] = ast.Constant(isinstance(node.op, ast.And))

    return _Site("condition", value.lineno, f"drop {_short(value)} of {_short(node)}", drop)


def _constant(node: ast.Constant, value: int) -> _Site:
    before = node.value

    def change() -> None:
        node.value = value

    return _Site("constant", node.lineno, f"{before!r} to {value}", change)


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )


def _arithmetic(node: ast.BinOp) -> _Site:
    other = _ARITHMETIC[type(node.op)]

    def change() -> None:
        node.op = other()

    return _Site("arithmetic", node.lineno, f"{_short(node)} to {other.__name__}", change)


def _of_call(node: ast.Call) -> Iterator[_Site]:
    if isinstance(node.func, ast.Name) and node.func.id in _EXTREMES:
        function, other = node.func, _EXTREMES[node.func.id]

        def exchange() -> None:
            function.id = other

        yield _Site("extreme", node.lineno, f"{_short(node)} to {other}", exchange)
    elif len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):

        def swap() -> None:
            node.args[:2] = node.args[1::-1]

        yield _Site("arguments", node.lineno, f"swap in {_short(node)}", swap)


def _of_name(node: ast.Name, function: _Function) -> Iterator[_Site]:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    kinds = {a.arg: ast.unparse(a.annotation) for a in arguments if a.annotation is not None}
    kind = kinds.get(node.id)
    other = next((name for name in kinds if name != node.id and kinds[name] == kind), None)
    if kind is None or other is None:
        return
    before = node.id

    def change() -> None:
        node.id = other

    yield _Site("variable", node.lineno, f"{before} to {other}", change)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."
