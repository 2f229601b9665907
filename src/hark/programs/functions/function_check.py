"""Check whether the code of a function fits what one of its instances has committed, without running anything (V2)."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hark.model.activation import Claim
from hark.model.errors import HarkError, InvalidInput, NonDeterministic
from hark.programs.functions.replay import Replay
from hark.programs.services import FunctionServices

if TYPE_CHECKING:
    from hark.programs.functions.function_program import FunctionProgram


class FunctionFit(Struct):
    """The findings of the replay of an instance.

    Attributes:
        misfit: Why the instance would be held; None if it continues.
        failure: The error with which it would fail at once, without having received anything new; or None.
        needed: The patches that it has answered with False.
    """

    misfit: NonDeterministic | None = None
    failure: BaseException | None = None
    needed: frozenset[str] = frozenset()


def check_function(program: FunctionProgram, claim: Claim, services: FunctionServices) -> FunctionFit:
    """Replay an instance up to where it is. The runs, effects and waits that its code asks for next are not begun."""
    return _Check(program, claim, services).check()


def open_before_last(program: FunctionProgram, claim: Claim, services: FunctionServices) -> set[int]:
    """The entries of the operations that are under way after all lines of the journal but the last."""
    return _Check(program, claim, services).open_entries()


class _Check(Replay):
    """A replay after which nothing follows."""

    def check(self) -> FunctionFit:
        if self._journal.is_undone:  # a retry begins from the beginning
            return FunctionFit()
        try:
            exit = self._exit_in_replay()
            needed = frozenset(name for name, patch in self.patches.items() if patch.answered_false)
            return FunctionFit(self._misfit, exit or self._failure(), needed)
        finally:
            self.close()

    def open_entries(self) -> set[int]:
        try:
            self._exit_in_replay()
            return set(self._open)
        finally:
            self.close()

    def _exit_in_replay(self) -> BaseException | None:
        """Replay, and return what ended the code although it is no Exception, such as `sys.exit`: it would end the
        event loop that waits for this check."""
        try:
            self._replay()
        except BaseException as error:
            return error
        return None

    def _failure(self) -> Exception | None:
        """The error with which the code has ended, unless it received that from its journal."""
        root = self._branches.root
        error = None if root is None or self._misfit is not None or self._must_undo else root.error
        received = isinstance(error, HarkError) and not isinstance(error, InvalidInput)
        return error if isinstance(error, Exception) and not received else None


def patches_of(function: Any) -> set[str]:
    """The names in calls of `patched` in a function, and in functions of its module that it calls."""
    seen: set[CodeType] = set()
    names: set[str] = set()
    module = getattr(function, "__module__", None)
    rest: list[Any] = [function]
    while rest:
        one = rest.pop()
        code = one.__code__ if isinstance(one, FunctionType) else one
        if not isinstance(code, CodeType) or code in seen:
            continue
        seen.add(code)
        names |= _names_in(code)
        rest += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        known = getattr(function, "__globals__", {})
        rest += [
            called
            for name in code.co_names
            if isinstance(called := known.get(name), FunctionType) and called.__module__ == module
        ]
    return names


def _names_in(code: CodeType) -> set[str]:
    names, is_next = set(), False
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval == "patched":
            is_next = True
        elif is_next and instruction.opname == "LOAD_CONST":
            is_next = False
            if isinstance(instruction.argval, str):
                names.add(instruction.argval)
    return names
