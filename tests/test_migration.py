"""Coming from other libraries: each row of the documentation's tables is executed.

A cell that is code, and nothing else, is evaluated with the names of its library. Fields are
compared with what the converter makes of the same settings, where there is one; else the number of
calls and the waits between them, with the random parts at their mean.
"""

import ast
import importlib
import random
import re
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
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
    assert all(evaluate(ours, OURS) for _, ours in cells), "every cell under forbear can be pasted"
    return [(theirs, ours) for theirs, ours in cells if theirs]


def evaluate(text, names):
    def check(*arguments):  # a predicate or a listener, for the rows that take one
        return False

    async def acheck(response):
        return False

    return eval(text, {**names, "check": check, "acheck": acheck, "log_retry": check})


def given(text):
    return [keyword.arg for keyword in ast.parse(text, mode="eval").body.keywords]


@pytest.mark.parametrize(("library", "module", "converter", "count"), [
    ("urllib3", "urllib3", RetryPolicy.from_urllib3, 10),
    ("httpx-retries", "httpx_retries", RetryPolicy.from_httpx_retries, 7),
])  # fmt: skip
def test_the_converter_agrees_with_the_table(library, module, converter, count):
    """Whoever converts by hand gets in each field the value that the converter gives."""
    assert len(rows(library)) == count
    for theirs, ours in rows(library):
        by_hand = evaluate(ours, OURS)
        if isinstance(by_hand, RetryTransport):
            continue
        converted = converter(evaluate(theirs, vars(importlib.import_module(module))))
        if module != "urllib3":  # whose default is 10
            assert converted.max_attempts == by_hand.max_attempts
        for field in given(ours):
            left, right = getattr(converted, field), getattr(by_hand, field)
            if field == "backoff":  # by hand: from the second wait on, urllib3's first being none
                numbers = (2,) if module == "urllib3" else (1, 2, 3)
                draws = [(n, d) for n in numbers for d in (0, 0.7, 1)]
                left = [left.delay(n, 0.0, lambda d=d: d) for n, d in draws]
                right = [right.delay(n, 0.0, lambda d=d: d) for n, d in draws]
            assert left == right, (ours, field)


def test_the_table_of_aiohttp_retry_keeps_attempts_waits_and_statuses():
    library = vars(importlib.import_module("aiohttp_retry"))
    assert len(rows("aiohttp-retry")) == 10
    for text, ours in rows("aiohttp-retry"):
        theirs = evaluate(text, {**library, "ClientError": aiohttp.ClientError})
        policy, fields = evaluate(ours, OURS), given(ours)
        if isinstance(policy, RetryMiddleware):
            continue
        assert policy.max_attempts == theirs.attempts
        if "backoff" in fields:
            theirs.random = lambda: 0.5
            retries = range(1, theirs.attempts)
            waits = [policy.backoff.delay(n, 0.0, lambda: 0.5) for n in retries]
            assert waits == pytest.approx([theirs.get_timeout(n) for n in retries])
        every = set(range(500, 600)) if theirs.retry_all_server_errors else set()
        assert "statuses" not in fields or policy.statuses == theirs.statuses | every
        assert "methods" not in fields or policy.methods == theirs.methods


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

    with suppress(Exception):
        fails_five_times()
    return len(calls), waits


@pytest.mark.filterwarnings("ignore:'asyncio.iscoroutinefunction':DeprecationWarning")  # backoff
@pytest.mark.parametrize(("name", "count"), [("tenacity", 10), ("stamina", 7), ("backoff", 7)])
def test_a_decorator_does_what_the_table_says(name, count, monkeypatch):
    library = importlib.import_module(name)
    assert len(rows(name)) == count
    for theirs, text in rows(name):
        ours = evaluate(text, OURS)
        if not theirs.startswith(("retry(", "on_exception(")):
            evaluate(theirs, vars(library))
            if name == "stamina":  # switched off, or told of retries: as it was
                library.set_testing(False)
                library.set_active(True)
                library.instrumentation.set_on_retry_hooks(None)
            continue
        decorator = evaluate(theirs, vars(library))
        if "backoff=" in text:
            expected = [ours.backoff.delay(n, 0.0, lambda: 0.5) for n in range(1, 6)]
            assert run(decorator, monkeypatch) == (6, pytest.approx(expected))
        elif text.startswith("RetryPolicy(max_attempts"):
            assert run(decorator, monkeypatch)[0] == ours.max_attempts
        else:
            assert callable(decorator)
