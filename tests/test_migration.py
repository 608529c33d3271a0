"""Coming from other libraries: each row of the README's two tables is executed.

A cell that is code, and nothing else, is evaluated with the names of its library. For urllib3 the
policy is also compared with what ``RetryPolicy.from_urllib3`` makes of the same settings; for the
others the number of calls and the waits between them are compared, with the random parts at their
mean.
"""

import ast
import importlib
import random
import time
from pathlib import Path

import pytest
import urllib3

from forbear import Exponential, Fixed, RetryPolicy, override
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock, disabled, fast

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
NONE = "–"
OURS = {
    "Exponential": Exponential,
    "FakeClock": FakeClock,
    "Fixed": Fixed,
    "RetryPolicy": RetryPolicy,
    "RetryTransport": RetryTransport,
    "disabled": disabled,
    "fast": fast,
    "override": override,
}


def check(*arguments):
    """A predicate, for the rows that take one."""
    return False


def tell(*arguments):
    """A listener, for the rows that take one."""


def rows(first_cell):
    """The rows of the table whose first head cell is this."""
    lines = README.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_cell} |"))
    found = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            return found
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def code(cell):
    """What stands in backticks, if that is a call; a remark may follow ours in brackets."""
    text = cell.partition("` (")[0].removesuffix("`").removeprefix("`")
    return text if cell.startswith("`") and "(" in text else None


def cases(first_cell, column):
    return [cells for cells in rows(first_cell) if code(cells[column]) is not None]


URLLIB3 = "urllib3 `Retry`"
TENACITY = "tenacity"


def evaluate(text, names):
    return eval(text, {**names, "check": check, "tell": tell})


def given(text):
    """The fields that a ``RetryPolicy(…)`` names."""
    return [keyword.arg for keyword in ast.parse(text, mode="eval").body.keywords]


def test_every_cell_under_forbear_can_be_pasted():
    for cells in rows(URLLIB3):
        assert isinstance(evaluate(code(cells[2]), OURS), (RetryPolicy, RetryTransport))
    made = (RetryPolicy, Exponential, Fixed, RetryTransport, type(override()), type(fast()))
    for cells in rows(TENACITY):
        assert isinstance(evaluate(code(cells[3]), OURS), made)


@pytest.mark.parametrize("cells", cases(URLLIB3, 0), ids=lambda cells: cells[0].strip("`"))
def test_from_urllib3_agrees_with_the_table(cells):
    """Whoever converts by hand, by the table, gets in each field the value that the converter
    gives.
    """
    text = code(cells[2])
    converted = RetryPolicy.from_urllib3(evaluate(code(cells[0]), {"Retry": urllib3.Retry}))
    by_hand = evaluate(text, OURS)
    assert given(text)
    for field in given(text):
        left, right = getattr(converted, field), getattr(by_hand, field)
        if field == "backoff":
            for drawn in (0.0, 0.5, 1.0):
                waits = [
                    [each.delay(n, 0.0, lambda r=drawn: r) for n in range(1, 12)]
                    for each in (left, right)
                ]
                assert waits[0] == pytest.approx(waits[1])
            left, right = left.fast_first, right.fast_first
        assert left == right, field


@pytest.mark.parametrize("cells", cases(URLLIB3, 1), ids=lambda cells: cells[1].strip("`"))
def test_from_httpx_retries_agrees_with_the_table(cells):
    """The cell holds settings as its users write them, and counts retries where we count sends."""
    library = importlib.import_module("httpx_retries")
    theirs = evaluate(code(cells[1]), {"Retry": library.Retry})
    ours = evaluate(code(cells[2]), OURS)
    if isinstance(ours, RetryTransport):
        return
    assert ours.max_attempts == theirs.total + 1
    converted = RetryPolicy.from_httpx_retries(theirs)
    for field in given(code(cells[2])):
        assert getattr(converted, field) == getattr(ours, field), field


LIBRARIES = [
    pytest.param(column, name, cells, id=f"{name} {code(cells[column])}")
    for column, name in enumerate(("tenacity", "stamina", "backoff"))
    for cells in rows(TENACITY)
    if code(cells[column]) is not None
]


def run(decorator, monkeypatch):
    """Calls of a function that fails five times and then succeeds, and the waits between them."""
    calls, waits = [], []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(random, "random", lambda: 0.5)
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)

    @decorator
    def fails_five_times():
        calls.append(1)
        if len(calls) <= 5:
            raise OSError

    try:
        fails_five_times()
    except Exception:
        return len(calls), waits
    return len(calls), waits


@pytest.mark.parametrize(("column", "name", "cells"), LIBRARIES)
def test_a_decorator_does_what_the_table_says(column, name, cells, monkeypatch):
    """As many calls, and the same waits."""
    library = importlib.import_module(name)
    text = code(cells[column])
    if not text.startswith(("retry(", "on_exception(")):
        switch_back = vars(library).get("set_testing" if "testing" in text else "set_active")
        try:
            evaluate(text, vars(library))
        finally:
            if name == "stamina":
                switch_back(*([False] if "testing" in text else [True]))
                library.instrumentation.set_on_retry_hooks(None)
        return
    decorator = evaluate(text, vars(library))
    ours = evaluate(code(cells[3]), OURS)
    if isinstance(ours, (Exponential, Fixed)):
        calls, waits = run(decorator, monkeypatch)
        assert calls == 6
        assert waits == pytest.approx([ours.delay(n, 0.0, lambda: 0.5) for n in range(1, 6)])
    elif "max_attempts" in code(cells[3]) and isinstance(ours, RetryPolicy):
        calls, _ = run(decorator, monkeypatch)
        assert calls == ours.max_attempts
    else:
        assert callable(decorator)


def test_both_tables_are_as_long_as_they_were():
    """A row that is no longer found would not be missed otherwise."""
    assert (len(rows(URLLIB3)), len(rows(TENACITY))) == (14, 11)
    assert len(cases(URLLIB3, 0)) == 10
    assert len(LIBRARIES) == 10 + 9 + 7
