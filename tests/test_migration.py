"""Coming from other libraries: each cell of the documentation's tables can be pasted.

Where there is a converter, the row's fields are compared with what it makes of the same settings.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

from forbear import Exponential, Fixed, RetryPolicy, override
from forbear.aiohttp import RetryMiddleware
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock, disabled, fast

PAGE = Path(__file__).parent.parent / "docs" / "migrate.md"
OURS = (Exponential, FakeClock, Fixed, RetryPolicy, RetryMiddleware, RetryTransport, disabled, fast)
OURS = {one.__name__: one for one in (*OURS, override)}


def code(cell):
    """What stands in backticks, if that is a call that can be made; a remark may follow."""
    text = re.match(r"`(?:forbear\.testing\.)?([^`]+)`", cell)
    return text[1] if text and "(" in text[1] and "…" not in text[1] else None


def rows(library):
    """The rows of the table of a library that are code: theirs, and forbear's."""
    table = PAGE.read_text(encoding="utf-8").partition(f"| {library} | forbear |")[2]
    lines = [line.strip() for line in table.partition("\n\n")[0].splitlines()[2:]]
    cells = [[code(cell.strip()) for cell in line.strip("|").split("|")[:2]] for line in lines]
    assert all(evaluate(ours) for _, ours in cells), "every cell under forbear can be pasted"
    return [(theirs, ours) for theirs, ours in cells if theirs]


def evaluate(text, names=OURS):
    check = dict.fromkeys(("check", "acheck", "log_retry"), lambda *arguments: False)
    return eval(text, {**names, **check})


def test_every_cell_under_forbear_can_be_pasted():
    libraries = ["urllib3", "httpx-retries", "aiohttp-retry", "tenacity", "stamina", "backoff"]
    assert [len(rows(library)) for library in libraries] == [10, 7, 10, 10, 7, 7]


@pytest.mark.parametrize(("library", "converter"), [
    ("urllib3", RetryPolicy.from_urllib3), ("httpx-retries", RetryPolicy.from_httpx_retries),
])  # fmt: skip
def test_the_converter_agrees_with_the_table(library, converter):
    """Whoever converts by hand gets in each field the value that the converter gives."""
    names = vars(importlib.import_module(library.replace("-", "_")))
    for theirs, ours in rows(library):
        by_hand = evaluate(ours)
        if isinstance(by_hand, RetryTransport):
            continue
        converted = converter(evaluate(theirs, names))
        if library != "urllib3":  # whose default is 10
            assert converted.max_attempts == by_hand.max_attempts
        for field in [keyword.arg for keyword in ast.parse(ours, mode="eval").body.keywords]:
            left, right = getattr(converted, field), getattr(by_hand, field)
            if field == "backoff":  # by hand: from the second wait on, urllib3's first being none
                numbers = (2,) if library == "urllib3" else (1, 2, 3)
                draws = [(n, d) for n in numbers for d in (0, 0.7, 1)]
                left = [left.delay(n, 0.0, lambda d=d: d) for n, d in draws]
                right = [right.delay(n, 0.0, lambda d=d: d) for n, d in draws]
            assert left == right, (ours, field)
