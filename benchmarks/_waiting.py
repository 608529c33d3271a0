"""Waiting: what thousands of calls between two attempts hold in asyncio, and how late they wake.

Every call is a task around the sending of one request that was built beforehand and is not counted;
the first answer is a 503 of its own, the second a 200. Memory is what tracemalloc sees allocated
once all calls wait. Lateness is the instant of the second sending less the planned one, the plans
evenly spread over some time. The floor is a task that does nothing but asyncio.sleep.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

from _candidates import CANDIDATES, Candidate, Setting
from _stubs import Family, Plan

FLOOR = "task + asyncio.sleep"
FAR = 90.0  # seconds; nobody wakes while memory is counted
# Calls; they make and import what is made once, and show how long beginning a wait takes.
WARM_UP = 100
# The first call wakes after so many times the CPU that sending and waking all of them takes.
MARGIN = 2.5
ROWS = (
    "minimal loop",
    "forbear",
    "forbear, one listener",
    "httpx-retries",
    "httpware Retry",
    "backoff",
    "stamina",
    "tenacity",
)
GOALS = {"bytes": {"forbear": 4000}}


def waiting(
    family: Family, calls: int, spread: float, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    """Bytes per waiting call, lateness in milliseconds (p50, p99, maximum), CPU per call."""
    rows: dict[str, Any] = {FLOOR: asyncio.run(_measured(_Floor(), calls, spread))}
    for candidate in CANDIDATES:
        if candidate.name not in ROWS:
            continue
        absence = candidate.absence(family.name, "async")
        if absence:
            rows[candidate.name] = {"skipped": absence}
        elif candidate in chosen:
            rows[candidate.name] = asyncio.run(_measured(_Calls(family, candidate), calls, spread))
    return {"unit": "bytes, ms", "calls": calls, "spread": spread, "rows": rows}


class _Floor:
    def requests(self, plans: list[Plan]) -> list[Any]:
        return plans

    async def holding(self, plan: Any) -> None:
        await asyncio.sleep(FAR)

    async def late(self, plan: Any) -> None:
        plan.sends = 1
        await asyncio.sleep(plan.at - time.monotonic())
        plan.late = time.monotonic() - plan.at


class _Calls:
    def __init__(self, family: Family, candidate: Candidate) -> None:
        inner = family.deferring()
        self._family = family
        send = candidate.make(Setting(family, "async", inner, wait=inner.remaining, plenty=True))
        self.holding: Callable[[Any], Any] = send
        self.late: Callable[[Any], Any] = send

    def requests(self, plans: list[Plan]) -> list[Any]:
        return [self._family.request("async", plan=plan) for plan in plans]


async def _measured(subject: _Floor | _Calls, calls: int, spread: float) -> dict[str, float]:
    await _lateness(subject, WARM_UP, spread=0.01, ahead=0.05)
    first = await _lateness(subject, WARM_UP, spread=0.01, ahead=0.05)
    held = await _memory(subject, calls)
    ahead = 0.05 + MARGIN * calls * first["cpu_us"] / 1e6
    return {"bytes": held, **await _lateness(subject, calls, spread, ahead)}


async def _memory(subject: _Floor | _Calls, calls: int) -> float:
    plans = [Plan() for _ in range(calls)]
    requests = subject.requests(plans)
    tasks: list[Any] = [None] * calls
    for plan in plans:
        plan.at = time.monotonic() + FAR
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for index, request in enumerate(requests):
            tasks[index] = asyncio.create_task(subject.holding(request))
        await asyncio.sleep(0)
        while isinstance(subject, _Calls) and any(plan.sends == 0 for plan in plans):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return held / calls


async def _lateness(
    subject: _Floor | _Calls, calls: int, spread: float, ahead: float
) -> dict[str, float]:
    plans = [Plan() for _ in range(calls)]
    requests = subject.requests(plans)
    gc.collect()
    gc.freeze()
    cpu = time.process_time()
    start = time.monotonic() + ahead
    for index, plan in enumerate(plans):
        plan.at = start + spread * index / calls
    tasks = [asyncio.create_task(subject.late(request)) for request in requests]
    await asyncio.gather(*tasks)
    cpu = time.process_time() - cpu
    late = sorted(plan.late * 1e3 for plan in plans)
    return {
        "p50": late[len(late) // 2],
        "p99": late[min(len(late) - 1, len(late) * 99 // 100)],
        "max": late[-1],
        "cpu_us": cpu / calls * 1e6,
    }
