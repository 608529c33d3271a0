"""Coming from other libraries: each row of the documentation's tables is executed.

A cell that is code, and nothing else, is evaluated with the names of its library. For urllib3 the
policy is also compared with what ``RetryPolicy.from_urllib3`` makes of the same settings; for the
others the number of calls and the waits between them are compared, with the random parts at their
mean.
"""

import ast
import importlib
import random
import re
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
import urllib3

from forbear import Exponential, Fixed, RetryPolicy, override
from forbear.aiohttp import RetryMiddleware
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock, FaultServer, disabled, fast
from forbear.urllib3 import RetryPoolManager

PAGE = Path(__file__).parent.parent / "docs" / "migrate.md"
OURS = {
    "Exponential": Exponential, "FakeClock": FakeClock, "Fixed": Fixed, "RetryPolicy": RetryPolicy,
    "RetryMiddleware": RetryMiddleware, "RetryTransport": RetryTransport, "disabled": disabled,
    "fast": fast, "override": override,
}  # fmt: skip


def check(*arguments):
    """A predicate, for the rows that take one."""
    return False


async def acheck(response):
    return False


def log_retry(*arguments):
    """A listener, for the rows that take one."""


def rows(library):
    """The rows of the table of a library: its cell, and forbear's."""
    table = PAGE.read_text(encoding="utf-8").partition(f"| {library} | forbear |")[2]
    lines = [line.strip() for line in table.partition("\n\n")[0].splitlines()[2:]]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell):
    """What stands in backticks, if that is a call that can be made; a remark may follow."""
    text = re.match(r"`([^`]+)`", cell)
    return text[1] if text and "(" in text[1] and "…" not in text[1] else None


def cases(library):
    return [cells for cells in rows(library) if code(cells[0]) and code(cells[1])]


DECORATORS = ("tenacity", "stamina", "backoff")


def evaluate(text, names):
    return eval(text, {**names, "check": check, "acheck": acheck, "log_retry": log_retry})


def given(text):
    """The fields that a ``RetryPolicy(…)`` names."""
    return [keyword.arg for keyword in ast.parse(text, mode="eval").body.keywords]


@pytest.mark.parametrize("library", ["urllib3", "httpx-retries", "aiohttp-retry", *DECORATORS])
def test_every_cell_under_forbear_can_be_pasted(library):
    made = (RetryPolicy, RetryTransport, RetryMiddleware, type(fast()), type(disabled()))
    for cells in rows(library):
        assert isinstance(evaluate(code(cells[1]).removeprefix("forbear.testing."), OURS), made)


@pytest.mark.parametrize("cells", cases("urllib3"), ids=lambda cells: cells[0].strip("`"))
def test_from_urllib3_agrees_with_the_table(cells):
    """Whoever converts by hand, by the table, gets in each field the value that the converter
    gives.
    """
    text = code(cells[1])
    converted = RetryPolicy.from_urllib3(evaluate(code(cells[0]), {"Retry": urllib3.Retry}))
    by_hand = evaluate(text, OURS)
    assert given(text)
    for field in given(text):
        left, right = getattr(converted, field), getattr(by_hand, field)
        if field == "backoff":  # by hand: the second wait, the first one being none
            left, right = (
                [one.delay(2, 0.0, lambda d=d: d) for d in (0, 1)] for one in (left, right)
            )
        assert left == right, field


@pytest.mark.parametrize("steps", [None, ["503"] * 3 + ["200"]], ids=["dead", "503 x 3"])
def test_urllib3s_counts_and_waits_are_kept_without_a_gate(steps, monkeypatch):
    """Its own pool manager against forbear's with the converted policy, on a socket."""
    retry = urllib3.Retry(5, backoff_factor=0.5, backoff_jitter=1.0, status_forcelist=[503])
    slept, clock = [], FakeClock()
    with FaultServer() as server:
        url = server.url
        for path in ("/theirs", "/ours"):
            server.script(path, *(steps or ["200"]))
        if steps is None:
            server.stop()
        ours = RetryPoolManager(
            RetryPolicy.from_urllib3(retry), gate=None, clock=clock, random=lambda: 0.7
        )
        monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(sleep=slept.append))
        monkeypatch.setattr("urllib3.util.retry.random", SimpleNamespace(random=lambda: 0.7))
        for manager, path in ((urllib3.PoolManager(retries=retry), "/theirs"), (ours, "/ours")):
            with suppress(urllib3.exceptions.HTTPError):
                assert manager.request("GET", url + path).status == 200
        sent = [len(server.requests(path)) for path in ("/theirs", "/ours")]
    assert sent == ([0, 0] if steps is None else [4, 4])
    # The jitter is drawn from the second retry on: 1, 2, 4, 8 s and 0.7 of a second.
    assert slept == [1.7, 2.7, 4.7, 8.7][: 2 if steps else 4]
    assert [wait for wait in clock.sleeps if wait] == pytest.approx(slept)


@pytest.mark.parametrize("cells", cases("httpx-retries"), ids=lambda cells: cells[0].strip("`"))
def test_from_httpx_retries_agrees_with_the_table(cells):
    """The cell holds settings as its users write them, and counts retries where we count sends."""
    library = importlib.import_module("httpx_retries")
    theirs = evaluate(code(cells[0]), {"Retry": library.Retry})
    ours = evaluate(code(cells[1]), OURS)
    if isinstance(ours, RetryTransport):
        return
    assert ours.max_attempts == theirs.total + 1
    converted = RetryPolicy.from_httpx_retries(theirs)
    for field in given(code(cells[1])):
        left, right = getattr(converted, field), getattr(ours, field)
        if field == "backoff":
            left, right = (
                [one.delay(n, 0.0, lambda: 0.7) for n in (1, 2, 3)] for one in (left, right)
            )
        assert left == right, field


@pytest.mark.parametrize("cells", cases("aiohttp-retry"), ids=lambda cells: cells[0].strip("`"))
def test_the_table_of_aiohttp_retry_keeps_attempts_waits_and_statuses(cells):
    """As many attempts of as many statuses, and the same waits, at their mean."""
    library = importlib.import_module("aiohttp_retry")
    theirs = evaluate(code(cells[0]), {**vars(library), "ClientError": aiohttp.ClientError})
    ours = evaluate(code(cells[1]), OURS)
    if isinstance(ours, RetryMiddleware):
        return
    assert ours.max_attempts == theirs.attempts
    if "backoff" in given(code(cells[1])):
        theirs.random = lambda: 0.5
        retries = range(1, theirs.attempts)
        assert [ours.backoff.delay(n, 0.0, lambda: 0.5) for n in retries] == pytest.approx(
            [theirs.get_timeout(n) for n in retries]
        )
    if "statuses" in given(code(cells[1])):
        every = set(range(500, 600)) if theirs.retry_all_server_errors else set()
        assert ours.statuses == theirs.statuses | every
    if "methods" in given(code(cells[1])):
        assert ours.methods == theirs.methods


LIBRARIES = [
    pytest.param(name, cells, id=f"{name} {code(cells[0])}")
    for name in DECORATORS
    for cells in cases(name)
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


@pytest.mark.filterwarnings("ignore:'asyncio.iscoroutinefunction':DeprecationWarning")  # backoff
@pytest.mark.parametrize(("name", "cells"), LIBRARIES)
def test_a_decorator_does_what_the_table_says(name, cells, monkeypatch):
    """As many calls, and the same waits."""
    library = importlib.import_module(name)
    text = code(cells[0])
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
    ours = evaluate(code(cells[1]).removeprefix("forbear.testing."), OURS)
    text = code(cells[1])
    if "backoff=" in text:
        calls, waits = run(decorator, monkeypatch)
        assert calls == 6
        assert waits == pytest.approx(
            [ours.backoff.delay(n, 0.0, lambda: 0.5) for n in range(1, 6)]
        )
    elif text.startswith("RetryPolicy(max_attempts"):
        calls, _ = run(decorator, monkeypatch)
        assert calls == ours.max_attempts
    else:
        assert callable(decorator)


def test_the_tables_are_as_long_as_they_were():
    """A row that is no longer found would not be missed otherwise."""
    assert len(cases("urllib3")) == 10
    assert len(cases("httpx-retries")) == 7
    assert len(cases("aiohttp-retry")) == 10
    assert len(LIBRARIES) == 10 + 7 + 7
