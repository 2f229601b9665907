"""Apply skip expressions, as Flowable has them: a variable turns them on for an instance; otherwise they have no
effect.

Of a task, the work is skipped if its expression holds. Of a flow, the expression is used instead of its condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hark.programs.bpmn.interpreter.scope_variables import StuckToken

_OLD: Final = "_ACTIVITI_SKIP_EXPRESSION_ENABLED"
_NEW: Final = "_FLOWABLE_SKIP_EXPRESSION_ENABLED"


def skips_are_on(variables: Mapping[str, Any]) -> bool:
    """Return True if these variables turn skip expressions on. The old name counts first, if it is true or false.

    Raises:
        StuckToken: The variable is neither true, false nor null.
    """
    old = variables.get(_OLD)
    if isinstance(old, bool):
        return old
    new = variables.get(_NEW)
    if new is not None and not isinstance(new, bool):
        raise StuckToken(f"the variable {_NEW} has to be true or false")
    return bool(new)
