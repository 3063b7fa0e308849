"""A mutant put into a module that is loaded already: the code of its functions is exchanged.

A process that has imported everything forks, and its child has the mutant within milliseconds. That is
possible where nothing but bodies of functions differs, and none of the changed ones had run before.
"""

from __future__ import annotations

import ast
import gc
from types import CodeType, FunctionType
from typing import Final

from benchmarks.mutants.mutating import Mutant

_IS_FUNCTION: Final = 0x0001
"""`CO_OPTIMIZED`: the code of a module and of a class body does not have it."""


def replace_code(mutant: Mutant) -> bool:
    """Exchange the code that a mutant changes; whether that was possible."""
    source, path = mutant.path.read_text(encoding="utf-8"), str(mutant.path)
    before: CodeType = compile(ast.parse(source), path, "exec", dont_inherit=True)
    after: CodeType = compile(mutant.tree(source), path, "exec", dont_inherit=True)
    changed: dict[CodeType, CodeType] = {}
    if not _pair(before, after, changed):
        return False
    count = 0
    for function in gc.get_objects():
        if not isinstance(function, FunctionType):
            continue
        code = function.__code__
        if code.co_filename != path or code not in changed:
            continue
        if len(code.co_freevars) != len(changed[code].co_freevars):
            return False
        function.__code__ = changed[code]
        count += 1
    return count > 0


def _pair(before: CodeType, after: CodeType, changed: dict[CodeType, CodeType]) -> bool:
    """Note the functions that differ; whether nothing else does."""
    if before == after:
        return True
    is_function = bool(before.co_flags & _IS_FUNCTION)
    if is_function:
        changed[before] = after
    if _without_inner(before) != _without_inner(after):
        return is_function
    inner = zip(before.co_consts, after.co_consts, strict=True)
    return all(_pair(one, other, changed) for one, other in inner if isinstance(one, CodeType))


def _without_inner(code: CodeType) -> CodeType:
    return code.replace(
        co_consts=tuple(None if isinstance(one, CodeType) else one for one in code.co_consts)
    )
