"""Conditions: "amplification>1.2" or "forbear: success<99%". Floor: acts.

One comparison of a figure with a number, read by hand: nothing of the text is executed.
"""

from __future__ import annotations

import operator
import re
from math import inf, isfinite
from typing import TYPE_CHECKING

from .figures import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .figures import Figures

__all__ = ["Condition"]

COMPARISON = re.compile(r"(?:(.+):)?\s*([\w ]*?)\s*(>=|<=|==|!=|>|<)\s*(.*?)\s*(%|ms|s|x|)\s*")
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
UNITS = {"%": 0.01, "ms": 0.001}


class Condition:
    """A comparison that must not hold, for one policy or for every policy that takes part.

    Raises:
        ValueError: The text cannot be read; the message says which part and how to write it.
    """

    def __init__(self, text: str) -> None:
        found = COMPARISON.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no comparison; write one like 'amplification>1.2'")
        name, self.figure, sign, number, unit = found.groups()
        self.text = text.strip()
        self.policy = None if name is None else name.strip()
        if self.figure not in NAMES:
            raise ValueError(f"there is no figure {self.figure!r}; there are {', '.join(NAMES)}")
        self.compare = OPERATORS[sign]
        self.number = inf if number == "never" else a_number(number) * UNITS.get(unit, 1.0)

    def holds(self, figures: Figures) -> bool:
        """Does it hold for this policy? Never for a policy that it does not name."""
        return self.policy in (None, figures.policy) and self.compare(
            figures.number(self.figure), self.number
        )


def a_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not isfinite(value):
        raise ValueError(f"{text!r} is no number; write one like 1.2, 99%, 250ms, 3s or never")
    return value
