"""Rounds: candidates timed in turn with the bare call, and what may be said of the figures.

Order within a round is B A B C B D …, candidates shuffled, so that each one has a chunk of the bare
call on either side. What is read is the CPU time of this thread, never the wall clock. A round is
*quiet* for a candidate when both neighbours were within QUIET of the fastest bare chunk of the run;
medians and ranges are taken over quiet rounds, because a shared machine has phases in which
everything is nearly twice as slow. The collector stays on, but what was set up before a chunk is
frozen out of its reach, for good.
"""

from __future__ import annotations

import asyncio
import gc
import random
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from statistics import median
from time import thread_time_ns
from typing import Any, Self

QUIET = 1.15  # a neighbouring bare chunk may cost this many times the best one seen
LEAST = 5  # rounds that a median is taken over, the least disturbed ones if too few were quiet


@dataclass
class Lane:
    """How one candidate is called, and what is laid out before each batch of calls."""

    name: str
    send: Callable[[Any], Any]
    request: Any
    prepare: Callable[[int], None] | None = None
    # Calls to prepare at a time: few enough that what is laid out stays in the cache.
    batch: int | None = None
    sends_per_call: int = 1  # the bare lane of a retried call sends as often as the candidates do
    count: int = 0
    chunk: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        # A code object of its own: the interpreter specialises a call site for what it sees there,
        # and a shared loop would be specialised for whichever candidate ran last.
        source = _async_chunk if _is_async(self.send) else _sync_chunk
        self.chunk = types.FunctionType(source.__code__.replace(), source.__globals__)


def _is_async(send: Callable[[Any], Any]) -> bool:
    function = getattr(send, "__func__", send)
    return asyncio.iscoroutinefunction(function) or bool(getattr(send, "is_async", False))


def _sync_chunk(send: Callable[[Any], Any], request: Any, count: int) -> int:
    start = thread_time_ns()
    for _ in repeat(None, count):
        send(request)
    return thread_time_ns() - start


async def _async_chunk(send: Callable[[Any], Awaitable[Any]], request: Any, count: int) -> int:
    start = thread_time_ns()
    for _ in repeat(None, count):
        await send(request)
    return thread_time_ns() - start


class Track:
    """Runs chunks, sync or inside one event loop that lives as long as the track."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        gc.collect()
        gc.freeze()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.close()
        gc.collect()

    def run(self, lane: Lane, count: int) -> float:
        """Nanoseconds of CPU per call over `count` calls."""
        spent = 0
        left = count
        while left > 0:
            calls = min(left, lane.batch or left)
            left -= calls
            if lane.prepare is not None:
                lane.prepare(calls)
            # What the batch before left behind; everything older is frozen, so this is quick.
            gc.collect()
            gc.freeze()
            nanoseconds = lane.chunk(lane.send, lane.request, calls * lane.sends_per_call)
            if asyncio.iscoroutine(nanoseconds):
                nanoseconds = self._loop.run_until_complete(nanoseconds)
            spent += nanoseconds
        return spent / count

    def warm_up(self, lane: Lane, chunk_seconds: float, *, most: int) -> None:
        """Let the interpreter specialise, then choose how many calls fill a chunk."""
        for _ in range(3):
            self.run(lane, 30)
        cost = self.run(lane, 30)
        lane.count = max(20, min(most, int(chunk_seconds * 1e9 / max(cost, 1.0))))


@dataclass(frozen=True)
class Sample:
    """What one candidate's turn cost, and the bare chunks on either side of it."""

    parts: tuple[float, ...]
    before: float
    after: float

    @property
    def bare(self) -> float:
        return (self.before + self.after) / 2

    def is_quiet(self, best: float) -> bool:
        return max(self.before, self.after) <= best * QUIET


def interleave(
    bare: Callable[[], float],
    candidates: Mapping[str, Callable[[], tuple[float, ...]]],
    rounds: int,
    patience: int,
) -> dict[str, list[Sample]]:
    """Give every candidate `rounds` turns, each between two chunks of the bare call.

    Those with fewer than half of them quiet get more, up to `patience` times as many.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in candidates}
    order = list(candidates)
    before = bare()
    for played in range(rounds * patience):
        if played >= rounds:
            best = best_bare(samples)
            order = [
                name for name in order if 2 * sum(s.is_quiet(best) for s in samples[name]) < rounds
            ]
        random.shuffle(order)
        for name in order:
            parts = candidates[name]()
            after = bare()
            samples[name].append(Sample(parts, before, after))
            before = after
    return samples


def best_bare(samples: Mapping[str, Sequence[Sample]]) -> float:
    """The fastest bare chunk of a run: what "quiet" is measured against."""
    return min(min(s.before, s.after) for turns in samples.values() for s in turns)


@dataclass(frozen=True)
class Figure:
    """Median and range of one candidate over its quiet rounds, in the unit the measure states."""

    median: float
    low: float
    high: float
    all_median: float  # over every round, quiet or not
    quiet: int
    rounds: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def figure(samples: Sequence[Sample], best: float, value: Callable[[Sample], float]) -> Figure:
    """Summarise one candidate over its quiet rounds, or over the least disturbed if few were."""
    ranked = sorted(samples, key=lambda s: max(s.before, s.after))
    quiet = sum(s.is_quiet(best) for s in ranked)
    kept = [value(s) for s in ranked[: max(quiet, LEAST)]]
    every = [value(s) for s in samples]
    return Figure(median(kept), min(kept), max(kept), median(every), quiet, len(every))


def spread(values: Sequence[float]) -> Figure:
    """Median and range of plain repetitions that have no bare neighbour."""
    return Figure(
        median(values), min(values), max(values), median(values), len(values), len(values)
    )
