"""Injection: an exception raised at every line of the gate, slots, the loop and the driver.

The n-th of these lines that a call runs raises, as Ctrl-C or a cancellation would there; n counts
up until the call gets through. After each of these calls everything must be back that it had taken:
permits, tokens, places in the queue, locks, slots, connections of a pool that has one. Then the
next call on the same client must be answered. Libraries, sockets and the server are real; only the
clock skips waits.

Left out is what nothing from outside can arrive at, since no function begins or ends just before:
``try:``, the end of a ``with`` block, which a trace function sees as a second visit to its first
line, the first line of a ``finally``, and an ``except`` with what it binds or raises again. What
arrives while the statement before runs is raised inside the block. Left out too is the ``close`` of
a response, in which the bare library loses a connection as well.
"""

import ast
import asyncio
import dis
import gc
import linecache
import sys
import traceback
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache
from itertools import count
from pathlib import Path
from threading import get_ident

import pytest

import forbear
from forbear import CircuitBreaker, Exponential, RetryBudget, RetryGate, RetryPolicy
from forbear.addons.concurrency import Slot
from forbear.engine.current import CURRENT
from forbear.limits.health import TOKENS
from forbear.testing import FakeClock

from .lanes import lane_of
from .lanes.lane import run_at_once

ROOT = str(Path(forbear.__file__).parent)
UNTRACED = str(Path(ROOT) / "testing")  # the server and the clock are the test's
# Where a call takes, holds and gives back: what it sends, how it sleeps and what it drains.
# Not the breaker's own lines: a permit that is lost there expires.
SPOTS = ("limits", "addons/concurrency", "engine/loop", "engine/driver")
SPOTS += ("engine/calls", "engine/clock", "adapters/httpx/port", "adapters/httpx/transport")
SPOTS += ("adapters/urllib3/port", "adapters/urllib3/requests", "adapters/aiohttp/port")
NUMBERS = count(1)
SIZE = 200_000
UNREAL = {}  # by identity, since the hash of a code object takes longer than a line


class Injection:
    """Raises ``error`` when the n-th line of these places is about to run, while it is armed."""

    now_armed = thread = None

    def __init__(self, error, number, *places):
        self.error, self.number = error, number
        self.places = tuple(str(Path(ROOT) / place) for place in places)
        self.visits = []
        self.where = None

    def visit(self, frame):
        code = frame.f_code
        is_theirs = code.co_name in ("close", "aclose")
        if not code.co_filename.startswith(self.places) or is_theirs:
            return
        if frame.f_lasti not in unreal(code):
            self.visits.append((code, frame.f_lineno))
            if len(self.visits) == self.number:
                path = Path(code.co_filename).relative_to(ROOT)
                source = linecache.getline(code.co_filename, frame.f_lineno).strip()
                self.where = f"{path}:{frame.f_lineno} {code.co_name}: {source}"
                raise self.error

    @contextmanager
    def armed(self):
        Injection.now_armed, Injection.thread = self, get_ident()
        try:
            yield
        finally:
            Injection.now_armed = None


@contextmanager
def watched():
    """Show the lines of forbear to the injection that is armed.

    ``sys.settrace`` would let CPython instrument all functions anew for each call, the libraries'
    too, which takes longer than the call.
    """
    if not hasattr(sys, "monitoring"):
        pytest.skip("sys.monitoring needs Python 3.12")
    monitoring, codes = sys.monitoring, []
    tool, events = monitoring.DEBUGGER_ID, monitoring.events

    def started(code, offset):
        path = code.co_filename
        if path.startswith(ROOT) and not path.startswith(UNTRACED):
            codes.append(code)
            monitoring.set_local_events(tool, code, events.LINE)
        return monitoring.DISABLE

    def line(code, number):
        if Injection.now_armed is not None and get_ident() == Injection.thread:
            Injection.now_armed.visit(sys._getframe(1))

    monitoring.use_tool_id(tool, "injection")
    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.LINE, line)
    monitoring.set_events(tool, events.PY_START)
    monitoring.restart_events()  # those that an earlier block has disabled
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        for code in codes:
            monitoring.set_local_events(tool, code, 0)
        monitoring.free_tool_id(tool)


def every_line(folder, least):
    """Context managers whose blocks are interrupted at their first line, their second, up to the end.

    Args:
        folder: Of forbear's; its lines count.
        least: So many lines must be interrupted, or it was the wrong folder.
    """
    for number in range(1, 20_000):
        injection = Injection(KeyboardInterrupt(), number, folder)
        yield interrupted(injection)
        if injection.where is None:
            break
    assert least < number < 19_999


@contextmanager
def interrupted(injection):
    with suppress(KeyboardInterrupt), injection.armed():
        yield
    print(injection.where)  # the last one is of a test that fails


@cache
def blocks(path):
    """The lines of a file where ``with`` blocks begin, and those that are left out."""
    nodes = list(ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))))
    managed = {node.lineno for node in nodes if isinstance(node, (ast.With, ast.AsyncWith))}
    tries = [node for node in nodes if isinstance(node, ast.Try)]
    firsts = {node.finalbody[0].lineno for node in tries if node.finalbody}
    for handler in (one for node in tries for one in node.handlers):
        firsts.add(handler.lineno)
        first = handler.body[0]
        binds = isinstance(first, ast.Assign) and isinstance(first.value, ast.Name)
        if binds or (isinstance(first, ast.Raise) and first.exc is None):
            firsts.add(first.lineno)
    return managed, firsts | {node.lineno for node in tries}


def unreal(code):
    """Offsets of a function where lines begin at which nothing arrives from outside."""
    if (known := UNREAL.get(id(code))) is not None:
        return known
    managed, others = blocks(code.co_filename)
    found, seen = set(), set()
    for offset, line in dis.findlinestarts(code):
        if line in others or (line in managed and line in seen):
            found.add(offset)
        seen.add(line)
    UNREAL[id(code)] = found
    return found


CLIENTS = ("httpx-sync", "httpx-asyncio", "aiohttp-asyncio", "requests", "urllib3")


def opened(shared, origin):
    """The circuit was opened, and is due for a probe."""
    now = shared.clock.monotonic()
    shared.breaker.record(origin, failed=True, sent_at=now, now=now)
    shared.clock.advance(2.0)


def occupied(shared, origin):
    """Another call has the slot, until this one sleeps."""
    other = shared.other = Slot(shared.slots, origin, shared.clock.monotonic())
    sleep = shared.clock.sleep
    shared.slots.enter(other, origin, shared.clock.monotonic())

    def sleep_and_free(seconds):
        other.free()
        sleep(seconds)

    shared.clock.sleep = sleep_and_free


POLICY = RetryPolicy(max_attempts=3, backoff=Exponential(base=0.75, factor=1, jitter=1 / 3))
PATIENT = POLICY.replace(max_attempts=9)
ONE = forbear.ConcurrencyLimit(1, adaptive=False, scope="origin")
BROKEN = f"cut:70001;body={SIZE};etag=v1", f"200;body={SIZE};etag=v1"
SCENARIOS = {  # steps of the server, and options in place of those that all share
    "success": (["200;body=40"], {}), "retry": (["503;body=40", "200;body=40"], {}),
    "retry after an error": (["reset-head", "200;body=40"], {}),
    "truncated": (["cut:10;body=40", "200;body=40"], {}),
    "exhausted": (["503;body=40"], {"gate": None}),
    "held": (["503;body=40", "503;body=40", "200;body=40"], {"policy": PATIENT}),
    "held to the end": (["503;body=40"], {"policy": PATIENT}),
    "half-open": (["200;body=40"], {"breaker": CircuitBreaker(1, open_for=1.0)}),
    "resumed": (BROKEN, {}), "resumed inside": (BROKEN, {}),
    "a slot": (["503;body=40", "200;body=40"], {"concurrency": ONE}),
    "queued": (["200;body=40"], {"concurrency": ONE}),
}  # fmt: skip
PREPARED = {"half-open": opened, "queued": occupied}


class Shared:
    """A client of a lane with a pool of one connection, and what its calls share."""

    def __init__(self, client, name, server):
        # Copies, which have their own tokens and slots.
        own = {key: copy(value) for key, value in SCENARIOS[name][1].items()}
        self.slots, self.clock = own.get("concurrency"), FakeClock()
        self.server, self.origin, self.paths = server, server.url, []
        # Neither calls nor time add tokens: what is missing was spent.
        self.budget = RetryBudget(ratio=0, floor_per_second=0)
        self.gate, self.breaker = RetryGate(), own.get("breaker") or CircuitBreaker()
        self.other = None  # the slot of another call
        options = {
            "policy": POLICY, "gate": self.gate, "budget": self.budget, "breaker": self.breaker,
            "clock": self.clock, "random": lambda: 0.5, **own,
        }  # fmt: skip
        PREPARED.get(name, lambda *_: None)(self, server.url)
        self.lane = lane_of(client)
        self.streams = name == "resumed" or self.lane.name == "aiohttp"
        self.runner = asyncio.Runner() if self.lane.is_async else None
        self.opened = self.lane.client(**self.lane.pool_of(1), **options)
        self.client = self.run(self.opened.__aenter__())
        self.port = self.lane.retrying(self.client).port

    def run(self, coroutine):
        return self.runner.run(coroutine) if self.runner else run_at_once(coroutine)

    def call(self, *steps):
        self.paths.append(f"/{next(NUMBERS)}")
        self.server.script(self.paths[-1], *steps)
        outcome = self.run(self.send(self.server.url + self.paths[-1]))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def send(self, url):
        lane = self.lane
        try:
            if not self.streams:
                response = await lane.call(self.client, "GET", url)
                return response.status_code, response.content
            response = await lane.open(self.client, "GET", url)
            try:
                await lane.read(response)
                return response.status_code, response.content
            finally:
                await lane.close(response)
        except BaseException as error:  # else it would end the event loop too
            return error

    def close(self):
        self.run(self.opened.__aexit__(None, None, None))
        if self.runner:
            self.runner.close()

    def faults(self, caught=None):
        """Say what has not come back; what was being sent when ``caught`` came is paid for."""
        now, settings = self.clock.monotonic(), self.port.settings
        counts = [len(self.server.requests(path)) for path in self.paths]
        retries = sum(max(0, number - 1) for number in counts)
        retries += caught is not None and was_sending(caught)
        parts = [self.gate, self.budget, self.breaker, settings.sleeper, self.slots]
        if self.other is not None:
            self.other.free()
        for part in filter(None, parts):
            if not part._lock.acquire(blocking=False):
                yield f"the lock of {type(part).__name__} is held"
                return
            part._lock.release()
        if self.gate.held():
            yield f"{self.gate.held()} calls are held"
        places = [place for health in self.gate._origins.values() for place in health.queue]
        if any(place.cause is None for place in places):
            yield "a place in the queue is taken"
        if self.gate.quiet and any(one.tokens < TOKENS for one in self.gate._origins.values()):
            yield "the gate is quiet and not well"
        if any(circuit.probe for circuit in self.breaker._circuits.values()):
            yield "a permit is out"
        if self.breaker.quiet and self.breaker._unhealthy:
            yield "the breaker is quiet and not well"
        if self.slots is not None and (self.slots.in_flight() or self.slots.waiting()):
            yield f"a slot is lost: {self.slots}"
        if (missing := 7 - self.budget.tokens(self.origin, now)) > retries:
            yield f"{missing:g} tokens are spent for {retries} retries"
        if self.budget.quiet and self.budget._buckets:
            yield "the budget is quiet and not full"
        if settings.sleeper.waiting():
            yield "a call seems to sleep"
        if CURRENT.get() is not None:
            yield "a context is left set"
        if not self.lane.is_idle(self.client):
            yield "a connection is lost"


def was_sending(caught):
    codes = [frame.f_code for frame, _ in traceback.walk_tb(caught.__traceback__)]
    return any(one.co_name == "send" and one.co_filename.startswith(ROOT) for one in codes)


def inject(client, name, server, number, error):
    """Make one call; return how it was injected into, and the faults."""
    CURRENT.set(None)
    shared = Shared(client, name, server)
    injection = Injection(error, number, *SPOTS)
    caught = None
    gc.disable()  # a finalizer of an earlier call would swallow the exception
    try:
        with injection.armed():
            shared.call(*SCENARIOS[name][0])
    except BaseException as raised:
        caught = raised  # with its frames: nothing is left to the garbage collector
        if type(raised) is type(error) and raised is not error:
            raise
    finally:
        gc.enable()
    faults = list(shared.faults(caught))
    if injection.where is not None and caught is None:
        faults.append("it was swallowed")
    if not faults:
        shared.clock.advance(20.0)  # a circuit that was opened lets a probe go
        try:
            status, body = shared.call("207;body=7")
        except Exception as failed:
            faults.append(f"the next call failed: {failed!r}")
        else:
            if (status, len(body)) != (207, 7):
                faults.append(f"the next call got {status} with {len(body)} bytes")
            # Of tokens no more is said: a connection that the server left takes a retry unseen.
            faults += [fault for fault in shared.faults(caught) if "tokens" not in fault]
    del caught
    if not faults:
        shared.close()
    return injection, faults


def new_numbers(client, name, server, seen):
    """Return the lines of a call that were not ``seen`` in other ways of it, and add them.

    Those of the loop are new in each way: what a call has at them differs.
    """
    found = []
    for number, (code, line) in enumerate(visits_of(client, name, server), 1):
        key = code, line, code.co_filename.endswith("loop.py") and name
        if key not in seen:
            seen.add(key)
            found.append(number)
    return found


def visits_of(client, name, server):
    for _ in range(2):  # the first imports what only a failure needs
        injection, faults = inject(client, name, server, 0, KeyboardInterrupt())
        assert not faults, faults
    return injection.visits
