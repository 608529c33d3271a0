"""Injection: an exception raised at every line that runs in forbear during a call.

    python tests/injection.py                                        # everything, some minutes
    python tests/injection.py --client requests --scenario held      # one client, one way of a call
    python tests/injection.py --client httpx --scenario retry --at 17

The n-th line of a call raises, as Ctrl-C or a cancellation would there; n counts up until the call
gets through. After each of these calls everything must be back that it had taken: permits, tokens,
places in the queue, locks, connections of a pool that has one. Then the next call on the same
client must be answered. Libraries, sockets and the server are real; only the clock skips waits.

Left out is what nothing from outside can arrive at, since no function begins or ends just before:
``try:``, the end of a ``with`` block, which a trace function sees as a second visit to its first
line, the first line of a ``finally``, and an ``except`` with what it binds or raises again. What
arrives while the statement before runs is raised inside the block. Left out too is where the bare
library loses a connection as well: the ``close`` of a body, what drives it and what httpcore traces
in it, and what urllib3 asks while a connection is on its way: ``_get_conn``, after which it says
FullPoolError, and ``is_retry``; and ``closed``, which io asks when it finalizes a body, and whose
errors it swallows. So is the ``__exit__`` of a ``forbear.deadline``: what comes before its first
statement nobody can undo.

In a hedged call the second attempt has a task and its alarm a callback: what is raised there the
event loop keeps to itself, so the call may go on, with the same left behind: nothing.

Each line is interrupted at its first and at its last visit, with ``--every-visit`` at all of them.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import dis
import linecache
import logging
import sys
import time
import traceback
from contextlib import contextmanager
from copy import copy
from functools import cache
from itertools import count
from math import inf
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from threading import get_ident

import aiohttp
import httpx
import requests

import forbear
import forbear.aiohttp
import forbear.httpx
import forbear.requests
import forbear.urllib3
from forbear import (
    CircuitBreaker,
    ConcurrencyLimit,
    Exponential,
    Hedge,
    RetryBudget,
    RetryGate,
    RetryPolicy,
)
from forbear.adapters.urllib3.deadlines import HERE
from forbear.addons.breaker import CircuitState
from forbear.addons.concurrency import Slot
from forbear.addons.cooldown import Cooldown
from forbear.engine.current import CURRENT
from forbear.limits.health import TOKENS
from forbear.testing import FakeClock, FaultServer

ROOT = str(Path(forbear.__file__).parent)
UNTRACED = str(Path(ROOT) / "testing")  # the server and the clock are the test's
NO_TLS = SSLContext(PROTOCOL_TLS_CLIENT)
NUMBERS = count(1)
SIZE = 200_000
SWITCH_INTERVAL = 1e-4  # seconds; else the call and the server's thread wait 5 ms for each other
SPINE = "loop.py"
DECIDING = tuple(str(Path(ROOT) / folder) for folder in ("core", "limits", "addons"))
UNREAL = {}  # by identity, since the hash of a code object takes longer than a line
TRACES = {"__call__", "check_deadline"}
THEIRS = {"is_retry", "_get_conn", "close", "aclose", "__exit__"}


# The lines.


class Injection:
    """A trace function that raises ``error`` when the n-th line of forbear is about to run."""

    def __init__(self, error, number, root=ROOT):
        self.error, self.number, self.root = error, number, root
        self.visits = []
        self.where = None
        self.is_beside = False  # in a task or callback of the event loop that is not the call's

    def __call__(self, frame, event, argument):
        return self.line if is_ours(frame.f_code) else None

    def line(self, frame, event, argument):
        if event == "line":
            self.visit(frame)
        return self.line

    def visit(self, frame):
        code, caller = frame.f_code, frame.f_back and frame.f_back.f_code.co_name
        if "closed" in (code.co_name, caller):
            return
        if caller == "close" and code.co_name in ("_close", "drive"):
            return
        if code.co_name in TRACES and "response_closed" in frame.f_locals.get("event", ""):
            return
        if code.co_filename.startswith(self.root) and frame.f_lasti not in unreal(code):
            self.visits.append((code, frame.f_lineno))
            if len(self.visits) == self.number:
                path = Path(code.co_filename).relative_to(ROOT)
                source = linecache.getline(code.co_filename, frame.f_lineno).strip()
                self.where = f"{path}:{frame.f_lineno} {code.co_name}: {source}"
                codes = [one.f_code for one, _ in traceback.walk_stack(frame)]
                run, call = asyncio.Handle._run.__code__, AsyncHttpx.acall.__code__
                self.is_beside = run in codes and call not in codes
                raise self.error

    @contextmanager
    def armed(self):
        if LINES.tool is not None:
            LINES.injection, LINES.thread = self, get_ident()
            try:
                yield
            finally:
                LINES.injection = None
            return
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def is_ours(code):
    return code.co_filename.startswith(ROOT) and not code.co_filename.startswith(UNTRACED)


class Lines:
    """Shows the lines of forbear to one injection after the other by ``sys.monitoring``.

    Each call of ``sys.settrace`` lets CPython instrument all functions anew, the libraries' too,
    which takes longer than the call. Python 3.11 has nothing else.
    """

    tool = injection = thread = None

    @contextmanager
    def watched(self):
        if (monitoring := getattr(sys, "monitoring", None)) is None:
            yield
            return
        self.tool, self.codes, events = monitoring.DEBUGGER_ID, [], monitoring.events
        monitoring.use_tool_id(self.tool, "injection")
        monitoring.register_callback(self.tool, events.PY_START, self.started)
        monitoring.register_callback(self.tool, events.LINE, self.line)
        monitoring.set_events(self.tool, events.PY_START)
        try:
            yield
        finally:
            monitoring.set_events(self.tool, 0)
            for code in self.codes:
                monitoring.set_local_events(self.tool, code, 0)
            monitoring.free_tool_id(self.tool)
            self.tool = None

    def started(self, code, offset):
        if is_ours(code):
            self.codes.append(code)
            sys.monitoring.set_local_events(self.tool, code, sys.monitoring.events.LINE)
        return sys.monitoring.DISABLE

    def line(self, code, number):
        if self.injection is not None and get_ident() == self.thread:
            self.injection.visit(sys._getframe(1))


LINES = Lines()


def interrupted_at_every_line(operation, folder, after, error=KeyboardInterrupt):
    """Run an operation again and again, raised in at its first line, its second, up to its end.

    Args:
        operation: Begins from the same state each time.
        folder: Of forbear's; its lines count.
        after: Called after each interruption with the place of it; asserts that all is well.
        error: What is raised.

    Returns:
        How many lines were interrupted.
    """
    for number in range(1, 20_000):
        injection = Injection(error(), number, str(Path(ROOT) / folder))
        try:
            with injection.armed():
                operation()
        except error:
            pass
        if injection.where is None:
            return number - 1
        after(injection.where)
    raise AssertionError("the operation does not end")


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
    theirs = {
        line.lineno
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in THEIRS
        for line in ast.walk(node)
        if isinstance(line, ast.stmt)
    }
    return managed, firsts | theirs | {node.lineno for node in tries}


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


# The clients: each with a pool of one connection.


class Httpx:
    library, prefix = httpx, ""

    def __init__(self, options):
        self.connections = 2 if "hedge" in options else 1
        self.transport = self.made("RetryTransport")(self.inner(), **options)
        self.settings = self.transport.port.settings
        kind = getattr(httpx, f"{self.prefix}Client")
        timeout = httpx.Timeout(5, pool=0.2)
        self.client = kind(transport=self.transport, trust_env=False, timeout=timeout)

    def made(self, name):
        return getattr(forbear.httpx, self.prefix + name)

    def inner(self):
        kind = getattr(httpx, f"{self.prefix}HTTPTransport")
        if self.connections > 1:
            kind = Counting
        return kind(verify=NO_TLS, limits=httpx.Limits(max_connections=self.connections))

    def call(self, url, *, streamed):
        if not streamed:
            response = self.client.get(url)
            return response.status_code, response.content
        with self.client.stream("GET", url) as response:
            return response.status_code, response.read()

    def lost(self):
        pool = self.transport.inner._pool
        left = [each for each in pool.connections if not (each.is_idle() or each.is_closed())]
        return left + pool._requests

    def close(self):
        self.client.close()


class Counting(httpx.AsyncHTTPTransport):
    """Counts what is sent, also where a request is cancelled before the server has seen it."""

    def __init__(self, **options):
        super().__init__(**options)
        self.sent = []

    async def handle_async_request(self, request):
        self.sent.append(request.url.path.rpartition("/")[0])
        return await super().handle_async_request(request)


class AsyncHttpx(Httpx):
    prefix = "Async"

    def __init__(self, options):
        self.runner = asyncio.Runner()
        super().__init__(options)

    def call(self, url, *, streamed):
        outcome = self.runner.run(self.acall(url, streamed))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def acall(self, url, streamed):
        try:
            if not streamed:
                response = await self.client.get(url)
                return response.status_code, response.content
            async with self.client.stream("GET", url) as response:
                return response.status_code, await response.aread()
        except BaseException as error:  # else it would end the event loop too
            return error

    def close(self):
        with self.runner:
            self.runner.run(self.client.aclose())


class Aiohttp(AsyncHttpx):
    def __init__(self, options):
        self.runner = asyncio.Runner()
        self.runner.run(self.open(**options))

    async def open(self, policy, **options):
        middleware = forbear.aiohttp.RetryMiddleware(policy, **options)
        self.settings = middleware.port.settings
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1),
            middlewares=(middleware,),
            timeout=aiohttp.ClientTimeout(connect=0.5, sock_read=5),
        )

    async def acall(self, url, streamed):
        try:
            async with self.session.get(url) as response:
                return response.status, await response.read()
        except BaseException as error:
            return error

    def lost(self):
        connector = self.session.connector
        return [*connector._acquired, *connector._waiters]

    def close(self):
        with self.runner:
            self.runner.run(self.session.close())


class Requests:
    def __init__(self, options):
        self.adapter = forbear.requests.RetryAdapter(pool_maxsize=1, pool_block=True, **options)
        self.settings = self.adapter.port.settings
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", self.adapter)

    def call(self, url, *, streamed):
        with self.session.get(url, stream=streamed, timeout=5) as response:
            return response.status_code, response.content

    def lost(self):
        return lost_of(self.adapter.poolmanager)

    def close(self):
        self.session.close()


class Urllib3:
    def __init__(self, options):
        self.manager = forbear.urllib3.RetryPoolManager(maxsize=1, block=True, timeout=5, **options)
        self.settings = self.manager.port.settings

    def call(self, url, *, streamed):
        response = self.manager.request("GET", url, preload_content=not streamed)
        try:
            return response.status, response.data
        finally:
            response.close()
            response.release_conn()

    def lost(self):
        return lost_of(self.manager)

    def close(self):
        self.manager.clear()


def lost_of(manager):
    pools = [manager.pools[key].pool for key in manager.pools.keys()]  # noqa: SIM118
    return [pool for pool in pools if pool.qsize() < pool.maxsize]


CLIENTS = {
    "httpx": Httpx, "httpx-async": AsyncHttpx, "aiohttp": Aiohttp, "requests": Requests,
    "urllib3": Urllib3,
}  # fmt: skip


# The ways that a call takes.


class Scenario:
    """One way of a call.

    Args:
        steps: Of the server.
        streamed: The caller reads the body.
        within: Seconds of ``forbear.deadline`` around the call; None: none.
        prepared: What is done with the shared parts before the call.
        options: Of the client, in place of those that all share.
    """

    def __init__(self, *steps, streamed=False, within=None, prepared=None, **options):
        self.steps, self.streamed, self.within = ",".join(steps), streamed, within
        self.prepared, self.options = prepared, options


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
OPENS = {"consecutive_failures": 1, "open_for": 1.0}
HEDGE = Hedge(delay=0.02)
ONE = ConcurrencyLimit(1, adaptive=False, scope="origin")
BROKEN = f"cut:70001;body={SIZE};etag=v1", f"200;body={SIZE};etag=v1"
SCENARIOS = {
    "success": Scenario("200;body=40"),
    "retry": Scenario("503;body=40", "200;body=40"),
    "retry after an error": Scenario("reset-head", "200;body=40"),
    "truncated": Scenario("cut:10;body=40", "200;body=40"),
    "exhausted": Scenario("503;body=40", gate=None),
    "exhausted by errors": Scenario("reset-head", gate=None),
    "held": Scenario("503;body=40", "503;body=40", "200;body=40", policy=PATIENT),
    "held to the end": Scenario("503;body=40", policy=PATIENT),
    "half-open": Scenario("200;body=40", prepared=opened, breaker=CircuitBreaker(**OPENS)),
    "failed probe": Scenario(
        "503;body=40", "200", prepared=opened, breaker=CircuitBreaker(**OPENS)
    ),
    "cooldown": Scenario("503;retry-after=1", "200;body=40", cooldown="all"),
    "resumed": Scenario(*BROKEN, streamed=True),
    "resumed inside": Scenario(*BROKEN),
    "deadline": Scenario("503;body=40", "200;body=40", within=60.0),
    "resumed under a deadline": Scenario(*BROKEN, streamed=True, within=60.0),
    "hedged, the first wins": Scenario("200;delay=60;body=40", "200;delay=900", hedge=HEDGE),
    "hedged, the second wins": Scenario("200;delay=300", "200;delay=20;body=40", hedge=HEDGE),
    "a slot": Scenario("503;body=40", "200;body=40", concurrency=ONE),
    "queued": Scenario("200;body=40", prepared=occupied, concurrency=ONE),
    "hedged, both fail": Scenario("503;delay=60", "500;delay=60", "200;body=40", hedge=HEDGE),
}


def scenarios_of(client):
    """Only an asynchronous client hedges."""
    named = SCENARIOS.items()
    return [name for name, one in named if client == "httpx-async" or "hedge" not in one.options]


class PassingClock(FakeClock):
    """Time passes too: the alarm of a second attempt rings by a timer of the event loop."""

    def monotonic(self):
        return super().monotonic() + time.monotonic()


class Shared:
    """A client, and what its calls share."""

    def __init__(self, client, scenario, server):
        self.hedge = copy(scenario.options.get("hedge"))  # a copy has its own tokens
        self.clock = FakeClock() if self.hedge is None else PassingClock()
        self.server, self.paths = server, []
        # Neither calls nor time add tokens: what is missing was spent.
        self.budget = RetryBudget(ratio=0, floor_per_second=0)
        self.gate, self.breaker = RetryGate(), CircuitBreaker()
        options = {
            "policy": POLICY, "gate": self.gate, "budget": self.budget, "breaker": self.breaker,
            "clock": self.clock, "random": lambda: 0.5, **scenario.options,
        }  # fmt: skip
        if "breaker" in scenario.options:
            self.breaker = options["breaker"] = CircuitBreaker(**OPENS)
        if self.hedge is not None:
            options["hedge"] = self.hedge
        self.other = None  # the slot of another call
        self.slots = copy(scenario.options.get("concurrency"))
        if self.slots is not None:
            options["concurrency"] = self.slots
        self.origin = server.url
        if scenario.prepared is not None:
            scenario.prepared(self, server.url)
        self.client = CLIENTS[client](options)

    def call(self, steps, *, streamed=False, within=None):
        """Call by new steps; return the answer and the path it was asked for at."""
        path = f"/s/{next(NUMBERS)}"
        url = f"{self.server.url}{path}/{steps}"
        self.paths.append(path)
        if within is None:
            return self.client.call(url, streamed=streamed)
        with forbear.deadline(within, clock=self.clock):
            return self.client.call(url, streamed=streamed)

    def faults(self, caught=None):
        """Say what has not come back; what was being sent when ``caught`` came is paid for."""
        now = self.clock.monotonic()
        counts = [len(self.server.requests(path)) for path in self.paths]
        if self.hedge is not None:
            counts = [self.client.transport.inner.sent.count(path) for path in self.paths]
        retries = sum(max(0, number - 1) for number in counts)
        limits = self.client.settings.limits
        retries += caught is not None and was_sending(caught)
        parts = [self.gate, self.budget, self.breaker, self.client.settings.sleeper]
        parts += [one.shared for one in limits.listed if isinstance(one.shared, Cooldown)]
        if self.hedge is not None:
            parts += [self.hedge, *self.hedge._times.values()]
        if self.slots is not None:
            parts.append(self.slots)
        if self.other is not None:
            self.other.free()
        for part in parts:
            if not part._lock.acquire(blocking=False):
                yield f"the lock of {type(part).__name__} is held"
                return
            part._lock.release()
        yield from self.gate_faults()
        yield from self.breaker_faults()
        if self.slots is not None and (self.slots.in_flight() or self.slots.waiting()):
            yield f"a slot is lost: {self.slots}"
        if (missing := 7 - self.budget.tokens(self.origin, now)) > retries:
            yield f"{missing:g} tokens are spent for {retries} retries"
        if self.budget.quiet and self.budget._buckets:
            yield "the budget is quiet and not full"
        if self.client.settings.sleeper.waiting():
            yield "a call seems to sleep"
        if CURRENT.get() is not None or HERE.ends_at != inf:
            yield "a context is left set"
        port = getattr(getattr(self.client, "transport", None), "port", None)
        backstop = getattr(port, "backstop", None)
        if backstop is not None and backstop.alarms.pending:
            yield "an attempt would still be cut"
        if self.hedge is not None:
            yield from self.hedge_faults(port.first.of_thread.alarms, retries)
        if self.client.lost():
            yield f"a connection is lost: {self.client.lost()}"

    def gate_faults(self):
        gate = self.gate
        if gate.held():
            yield f"{gate.held()} calls are held"
        for health in gate._origins.values():
            if any(place.cause is None for place in health.queue):
                yield "a place in the queue is taken"
        if gate.quiet and any(one.tokens < TOKENS for one in gate._origins.values()):
            yield "the gate is quiet and not well"

    def hedge_faults(self, alarms, sent):
        if alarms.pending:
            yield "a second attempt would still be sent"
        for times in self.hedge._times.values():
            if (missing := self.hedge.burst - times._tokens) > sent:
                yield f"{missing:g} tokens of the hedge are spent for {sent} attempts"

    def breaker_faults(self):
        breaker, circuits = self.breaker, self.breaker._circuits
        if any(circuit.probe for circuit in circuits.values()):
            yield "a permit is out"
        if breaker._unhealthy != {at: one for at, one in circuits.items() if not one.is_healthy}:
            yield "the breaker does not know who is unhealthy"
        off = {at for at, one in circuits.items() if one.state is not CircuitState.CLOSED}
        if breaker._off != off or breaker.is_closed == bool(off):
            yield "the breaker does not know who is off"
        if breaker.quiet and breaker._unhealthy:
            yield "the breaker is quiet and not well"


def was_sending(caught):
    for frame, line in traceback.walk_tb(caught.__traceback__):
        name, path = frame.f_code.co_name, frame.f_code.co_filename
        second = "handle_async_request(self.request)" in linecache.getline(path, line)
        if (name == "send" or second) and "adapters" in path:
            return True
    return False


def inject(client, name, server, number, error):
    """Make one call; return how it was injected into, and the faults."""
    CURRENT.set(None)
    scenario = SCENARIOS[name]
    shared = Shared(client, scenario, server)
    injection = Injection(error, number)
    caught = None
    try:
        with injection.armed():
            shared.call(scenario.steps, streamed=scenario.streamed, within=scenario.within)
    except BaseException as raised:
        caught = raised  # with its frames: nothing is left to the garbage collector
        if type(raised) is type(error) and raised is not error:
            raise
    faults = list(shared.faults(error if injection.is_beside else caught))
    # While the second attempt's cancellation of the first one is handled, CancelledError is that.
    won = isinstance(error.__context__, asyncio.CancelledError)
    if injection.where is not None and caught is None and not (injection.is_beside or won):
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
        shared.client.close()
    return injection, faults


def numbers(client, name, server, *, every_visit=False):
    """Count the lines of a call that gets through; return those to be interrupted."""
    visits = visits_of(client, name, server)
    if every_visit:
        return range(1, len(visits) + 1)
    first = {visit: number for number, visit in reversed(list(enumerate(visits, 1)))}
    last = {visit: number for number, visit in enumerate(visits, 1)}
    return sorted({*first.values(), *last.values()})


def new_numbers(client, name, server, seen):
    """Return the lines of a call that were not ``seen`` in other ways of it, and add them.

    Those of core and limits are httpx's to show: requests and urllib3 run the same ones from the
    same loop.
    """
    found = []
    for number, (code, line) in enumerate(visits_of(client, name, server), 1):
        if client in ("requests", "urllib3") and code.co_filename.startswith(DECIDING):
            continue
        # What a call has at these lines differs from one way of a call to the other.
        key = code, line, code.co_filename.endswith(SPINE) and name
        if key not in seen:
            seen.add(key)
            found.append(number)
    return found


def visits_of(client, name, server):
    for _ in range(2):  # the first imports what only a failure needs
        injection, faults = inject(client, name, server, 0, KeyboardInterrupt())
        assert not faults, faults
    return injection.visits


ERRORS = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "MemoryError": MemoryError,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--client", choices=CLIENTS, action="append")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--error", choices=ERRORS, default="KeyboardInterrupt")
    parser.add_argument("--at", type=int, help="only this line")
    parser.add_argument("--every-visit", action="store_true")
    asked = parser.parse_args()
    logging.getLogger("forbear").addHandler(logging.NullHandler())
    sys.setswitchinterval(SWITCH_INTERVAL)
    found = 0
    with FaultServer() as server, LINES.watched():
        for client in asked.client or CLIENTS:
            for name in asked.scenario or scenarios_of(client):
                tried = [asked.at]
                if not asked.at:
                    tried = numbers(client, name, server, every_visit=asked.every_visit)
                for number in tried:
                    error = ERRORS[asked.error]()
                    injection, faults = inject(client, name, server, number, error)
                    if faults:
                        found += 1
                        print(f"{client}, {name}, line {number}: {injection.where}")
                        for fault in faults:
                            print(f"    {fault}")
                print(f"{client}, {name}: {len(tried)} lines", flush=True)
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
