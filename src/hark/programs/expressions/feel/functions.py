"""FEEL_FUNCTIONS: all functions of FEEL that Hark has, by their names."""

from __future__ import annotations

from hark.programs.expressions.feel import list_functions, number_functions, temporal_functions, text_functions
from hark.programs.expressions.feel.registry import FEEL_FUNCTIONS

__all__ = ["FEEL_FUNCTIONS", "list_functions", "number_functions", "temporal_functions", "text_functions"]
