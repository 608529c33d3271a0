"""Stress: threads and event loops that share a transport's limits leave nothing of a call behind."""

import asyncio
import random
import threading
import time
from collections import Counter

import httpx
import pytest

import forbear
from forbear import ConcurrencyLimit, Fixed, RetryBudget, RetryGate, RetryPolicy, record_of
from forbear.events import CallEnded, CircuitTransition
from forbear.httpx import AsyncRetryTransport, RetryTransport

from ..threads import hasty, in_threads

THREADS, LOOPS = 16, 8
CALLS = 150  # of each thread and of each loop
TASKS = 5  # of each loop at once
CANCELLED = 2  # each second call of a loop is
ORIGINS = [f"http://{name}.example.com" for name in "abc"]
POLICY = RetryPolicy(max_attempts=4, backoff=Fixed(0), total_timeout=0.5)
STATUSES = [200] * 6 + [503] * 2 + [429]


class Unsteady(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers at random; keeps how often each call was sent, and the fewest tokens seen."""

    def __init__(self, budget):
        self.budget = budget
        self.sent = Counter()
        self.fewest = float("inf")
        self._lock = threading.Lock()

    def handle_request(self, request):
        tokens = self.budget.lowest(time.monotonic())
        with self._lock:
            self.sent[request.headers["X-Request-ID"]] += 1
            self.fewest = min(self.fewest, tokens)
        if random.random() < 0.1:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(random.choice(STATUSES), content=b"x" * 100)

    async def handle_async_request(self, request):
        try:
            return self.handle_request(request)  # counted before its deadline can cut it
        finally:
            await asyncio.sleep(0)


@pytest.mark.release
def test_threads_and_loops_on_one_transport_keep_count():
    gate = RetryGate()
    # It opens now and then. A 429 and a cancellation say nothing of an origin, and release a permit.
    breaker = forbear.CircuitBreaker(3, open_for=0.01)
    budget = RetryBudget(ratio=0.5, floor_per_second=50, burst=10)
    slots = ConcurrencyLimit(20, least=10)  # fewer than there are threads and tasks
    inner, ended, attempts = Unsteady(budget), Counter(), Counter()
    edges, recorded = Counter(), Counter()
    lock = threading.Lock()

    def listen(event):
        if isinstance(event, CircuitTransition):
            with lock:
                edges[event.to_state] += 1
        if isinstance(event, CallEnded):
            with lock:
                ended[event.request_id] += 1
                attempts[event.request_id] += event.attempts

    listen.wants_calls = True
    options = {"policy": POLICY, "gate": gate, "budget": budget, "breaker": breaker}
    options |= {"on_event": [listen], "concurrency": slots}
    one, many = RetryTransport(inner, **options), AsyncRetryTransport(inner, **options)

    def request(name):
        return httpx.Request("GET", random.choice(ORIGINS), headers={"X-Request-ID": name})

    def note(name, outcome):
        record = record_of(outcome)
        with lock:
            recorded[name] = 1 if record is None else len(record.attempts)

    def in_thread(n):
        for k in range(CALLS):
            name = f"thread {n}, {k}"
            try:
                note(name, one.handle_request(request(name)))
            except httpx.TransportError as error:
                note(name, error)

    async def send(name):
        try:
            note(name, await many.handle_async_request(request(name)))
        except httpx.TransportError as error:
            note(name, error)

    async def task(n, first):
        for k in range(first, CALLS, TASKS):
            name = f"loop {n}, {k}"
            if k % CANCELLED:
                await send(name)
                continue
            sending = asyncio.create_task(send(name))
            await asyncio.wait([sending], timeout=random.choice([0, 0, 0.01]))  # sent, or held
            sending.cancel()
            await asyncio.wait([sending])

    async def in_loop(n):
        await asyncio.gather(*(task(n, first) for first in range(TASKS)))

    def run(n):
        if n < THREADS:
            in_thread(n)
        else:
            asyncio.run(in_loop(n - THREADS))

    with hasty():
        in_threads(THREADS + LOOPS, run)
    calls = (THREADS + LOOPS) * CALLS
    assert edges["closed"] > 0  # a circuit has opened, and its probes have succeeded
    assert len(recorded) < calls
    assert recorded == Counter({name: inner.sent[name] for name in recorded})
    assert (set(ended.values()), len(ended)) == ({1}, calls)
    assert attempts.total() == inner.sent.total()
    assert min(inner.fewest, budget.lowest(time.monotonic())) >= 0
    assert (gate.held(), slots.in_flight(), slots.waiting()) == (0, 0, 0)
    assert not any(circuit.probe for circuit in breaker._circuits.values())
