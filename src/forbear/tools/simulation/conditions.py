"""Conditions: "amplification>1.2 or forbear: success<99%". Floor: acts.

A comparison of a figure with a number, joined by ``and`` and ``or`` (``and`` binds closer). Read
here by hand: nothing of it is executed.
"""

from __future__ import annotations

import operator
from math import inf
from typing import NamedTuple

from ...core.checks import shown
from .figures import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .figures import Figures

__all__ = ["Condition"]

# The longer ones first: "<=" begins with "<".
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
UNITS = {"%": 0.01, "ms": 0.001, "s": 1.0, "x": 1.0, "×": 1.0}


class Comparison(NamedTuple):
    figure: str
    compare: Callable[[float, float], bool]
    number: float


class Condition:
    """What must not be true of a policy, of every one that takes part unless one is named.

    Raises:
        ValueError: It cannot be read; the message says which part and how to write it.
    """

    __slots__ = ("_alternatives", "policy", "text")

    def __init__(self, text: str) -> None:
        name, colon, rest = text.rpartition(":")
        self.text = text.strip()
        self.policy = name.strip() if colon else None
        words = " ".join(rest.split())
        self._alternatives = [
            [comparison(part) for part in alternative.split(" and ")]
            for alternative in words.split(" or ")
        ]

    def holds(self, figures: Figures) -> bool:
        return any(
            all(compare(figures.number(figure), number) for figure, compare, number in alternative)
            for alternative in self._alternatives
        )

    def broken_by(self, all_figures: Sequence[Figures]) -> list[str]:
        """The policies of which it is true.

        Raises:
            ValueError: The policy that it names does not take part.
        """
        if self.policy is not None and self.policy not in [
            figures.policy for figures in all_figures
        ]:
            raise ValueError(
                f"{shown(self.text)} names the policy {self.policy!r}, which does not take part"
            )
        return [
            figures.policy
            for figures in all_figures
            if self.policy in (None, figures.policy) and self.holds(figures)
        ]


def comparison(text: str) -> Comparison:
    for sign, compare in OPERATORS.items():
        figure, found, number = text.partition(sign)
        if found:
            if figure.strip() not in NAMES:
                raise ValueError(
                    f"there is no figure {figure.strip()!r}; there are {', '.join(NAMES)}"
                )
            return Comparison(figure.strip(), compare, a_quantity(number.strip()))
    raise ValueError(
        f"{text.strip()!r} is no comparison; write one like 'amplification>1.2' or 'success<99%'"
    )


def a_quantity(text: str) -> float:
    if text == "never":
        return inf
    number, factor = text, 1.0
    for unit, worth in UNITS.items():
        if text.endswith(unit):
            number, factor = text[: -len(unit)].strip(), worth
            break
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not -inf < value < inf:
        raise ValueError(f"{text!r} is no number; write one like 1.2, 99%, 250ms, 3s or never")
    return value * factor
