"""Fingerprints: identify the code of a definition, a handler or a gate (V8).

A fingerprint covers the code of the module in which it is defined, its own code, and the values that it captures: plain
ones, functions, and types such as that of the state of a machine.
It does not cover comments, docstrings, blank lines, line numbers, the path of the file or the name of the module, the
version of Python, nor code that is imported from other modules. Without a source file, as in a REPL, the compiled code
of the function or the class is compared instead.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final

_TRIES: Final = 20  # to parse a source
_LENGTH: Final = 12  # hexadecimal digits: enough for the codes that one definition ever has
_PLAIN: Final = (str, bytes, int, float, complex, bool, type(None))
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def fingerprint(code: Any) -> str:
    """Return the fingerprint of a function, a class or a callable object.

    Args:
        code: The function of a workflow or handler, the class of a machine, or an object with `__call__`.
    """
    code = inspect.unwrap(code) if callable(code) else code
    if not isinstance(code, FunctionType | type):
        code = getattr(code, "__func__", type(code))  # of a bound method its function, of an object its class
    digest = hashlib.sha256()
    source = _source(code.__module__)
    if source is not None:
        digest.update(source.digest)
        own = source.find(code)
        if own is not None:
            digest.update(_dump(own))
            _add_captured(digest, code)
            return digest.hexdigest()[:_LENGTH]
    _add_compiled(digest, code)
    return digest.hexdigest()[:_LENGTH]


class _Source:
    """The source of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self.digest = _dump(tree)
        self._definitions = [node for node in ast.walk(tree) if isinstance(node, _Definition)]

    def find(self, code: FunctionType | type) -> _Definition | None:
        """The definition of a function or a class, by its name and the lines of its code."""
        function = code if isinstance(code, FunctionType) else _first_function(code)
        if function is None:
            return None
        line = function.__code__.co_firstlineno
        around = [
            node
            for node in self._definitions
            if node.name == code.__name__ and _first_line(node) <= line <= (node.end_lineno or 0)
        ]
        return max(around, key=_first_line, default=None)


def _first_function(cls: type) -> FunctionType | None:
    """A function that is written in the body of the class."""
    for value in vars(cls).values():
        function = inspect.unwrap(value) if callable(value) else value
        if isinstance(function, FunctionType) and function.__qualname__.startswith(f"{cls.__qualname__}."):
            return function
    return None


def _first_line(node: _Definition) -> int:
    return min((decorator.lineno for decorator in node.decorator_list), default=node.lineno)


@lru_cache(maxsize=512)
def _source(module: str) -> _Source | None:
    """The source of a module that is imported; None if there is none, if it is not Python any more, or if an expression
    in it is nested too deeply to be walked."""
    try:
        return _Source(_parsed(inspect.getsource(sys.modules[module])))
    except (OSError, TypeError, KeyError, SyntaxError, ValueError, RecursionError):
        return None


def _parsed(text: str) -> ast.Module:
    """The tree of a source. Before Python 3.13 the depth of the tree is counted for all threads together: a collection
    of garbage in the middle may run code that changes it, and ends the attempt with a SystemError."""
    for _ in range(_TRIES):
        with suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _dump(tree: ast.AST) -> bytes:
    """The code as text, without docstrings and positions. What is empty is left out: versions of Python differ in the
    fields that they have for it."""
    parts: list[str] = []
    _write(tree, parts.append)
    return "".join(parts).encode(errors="surrogatepass")


def _write(node: Any, add: Callable[[str], None]) -> None:
    if isinstance(node, ast.AST):
        add(f"{type(node).__name__}(")
        for name in node._fields:
            value: Any = getattr(node, name, None)
            if name == "body" and _has_docstring(node):
                value = value[1:]
            if value is not None and value != []:
                add(f"{name}=")
                _write(value, add)
        add(")")
    elif isinstance(node, list):
        for item in node:
            _write(item, add)
            add(",")
    else:
        add(repr(node))


def _has_docstring(node: ast.AST) -> bool:
    first = node.body[0] if isinstance(node, _Definition | ast.Module) and node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _add_captured(digest: Any, code: FunctionType | type) -> None:
    """Add the values that the code refers to and that are not in its text: the defaults and the closure of a function,
    the attributes of a class, such as the type of the state of a machine."""
    if isinstance(code, type):
        for name, value in sorted(vars(code).items()):
            function = inspect.unwrap(value) if callable(value) else value
            if isinstance(function, FunctionType):
                _add_captured(digest, function)
            elif not name.startswith("__"):
                _add_value(digest, value, code)
        return
    values: list[Any] = [*(code.__defaults__ or ()), *sorted((code.__kwdefaults__ or {}).items())]
    for cell in code.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not filled yet: a function that refers to itself
            continue
    for value in values:
        _add_value(digest, value, code)


def _add_value(digest: Any, value: Any, owner: FunctionType | type) -> None:
    if isinstance(value, FunctionType):
        _add_code(digest, value.__code__)
    elif isinstance(value, type) and not value.__qualname__.startswith(f"{owner.__qualname__}."):
        source = _source(value.__module__)
        own = source.find(value) if source is not None else None
        digest.update(value.__qualname__.encode() if own is None else _dump(own))
        digest.update(repr(sorted(map(str, inspect.get_annotations(value).items()))).encode())
    elif isinstance(value, _PLAIN):
        digest.update(repr(value).encode(errors="backslashreplace"))
    elif isinstance(value, tuple):  # not its repr, which may have the address of an object
        for item in value:
            _add_value(digest, item, owner)


def _add_compiled(digest: Any, code: FunctionType | type) -> None:
    """Add the compiled code of a function, or of all functions of a class and of the classes in it."""
    if isinstance(code, FunctionType):
        _add_code(digest, code.__code__)
        _add_captured(digest, code)
        return
    digest.update(repr(sorted(map(str, inspect.get_annotations(code).items()))).encode())
    for name, value in sorted(vars(code).items()):
        function = inspect.unwrap(value) if callable(value) else value
        is_inner = isinstance(value, type) and value.__qualname__ == f"{code.__qualname__}.{name}"
        if is_inner or isinstance(function, FunctionType):
            digest.update(name.encode())
            _add_compiled(digest, value if is_inner else function)


def _add_code(digest: Any, code: CodeType) -> None:
    constants = [repr(value) if not isinstance(value, CodeType) else "" for value in code.co_consts]
    digest.update(repr((code.co_code, constants, code.co_names, code.co_varnames, code.co_flags)).encode())
    for value in code.co_consts:
        if isinstance(value, CodeType):
            _add_code(digest, value)
