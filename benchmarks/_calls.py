"""Calls: what one costs over the bare inner transport, when it succeeds and when it is retried.

Three measures: `success` (CPU added to a call that needs no retry), `retry` (CPU added by each
retry of 503, 503, 200 and of two refused connections with the waits stubbed, and what a wait of
zero does) and `garbage` (objects per call that only the cyclic collector can free; exact). What
answers is in _stubs.py, who is compared in _candidates.py.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from _candidates import (
    BODIES_ALONE,
    CANDIDATES,
    CONTACT,
    COUNTED,
    FORBEAR,
    HEDGED,
    IN_DEADLINE,
    ONE_OPTION,
    PEER,
    TIMED,
    WITH_BREAKER,
    Candidate,
    Setting,
)
from _measure import Lane, Track, best_bare, figure, interleave
from _stubs import Family, Sleeps

FLAVOURS = ("sync", "async")
BARE_AGAIN = "bare again (noise)"
RETRIED = (503, 503, 200)
REFUSED = (None, None, 200)
RETRIES = 2
BATCH = 100  # calls


@dataclass(frozen=True)
class Effort:
    """How much work a run is worth."""

    rounds: int
    chunk_seconds: float
    patience: int  # times the rounds, if too few were quiet
    exact_calls: int  # for figures that are counted rather than timed


def in_order(rows: dict[str, Any]) -> dict[str, Any]:
    """Rows in the order of the candidates, whether they ran or not; all others come first."""
    places = {candidate.name: place for place, candidate in enumerate(CANDIDATES)}
    return dict(sorted(rows.items(), key=lambda item: places.get(item[0], -1)))


def zero_wait() -> float:
    return 0.0


def success(
    family: Family, flavour: str, effort: Effort, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    """Nanoseconds of CPU added to a call that is answered 200 at once."""
    with Track() as track:
        bare = Lane(
            "bare", family.send_of(flavour, family.answering(flavour)), family.request(flavour)
        )
        lanes = [
            Lane(
                BARE_AGAIN,
                family.send_of(flavour, family.answering(flavour)),
                family.request(flavour),
            )
        ]
        rows: dict[str, Any] = {}
        for candidate in CANDIDATES:
            absence = candidate.absence(family.name, flavour)
            if absence:
                rows[candidate.name] = {"skipped": absence}
            elif candidate in chosen:
                send = candidate.make(Setting(family, flavour, family.answering(flavour)))
                lanes.append(Lane(candidate.name, send, family.request(flavour)))
        for lane in (bare, *lanes):
            track.warm_up(lane, effort.chunk_seconds, most=1_000_000)
        samples = interleave(
            lambda: track.run(bare, bare.count),
            {lane.name: lambda lane=lane: (track.run(lane, lane.count),) for lane in lanes},
            effort.rounds,
            effort.patience,
        )
        best = best_bare(samples)
        for name, turns in samples.items():
            rows[name] = figure(turns, best, lambda s: s.parts[0] - s.bare).as_dict()
    return {"unit": "ns", "bare": best, "rows": in_order(rows)}


def retry(
    family: Family, flavour: str, effort: Effort, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    """Microseconds of CPU per retry: 503, 503, 200 over three bare sendings, by two.

    What a candidate does once per call is in it by half. `stubbed` has every sleep replaced by a
    no-op and the candidate's own schedule; `refused` is the same after two refused connections;
    `zero` sleeps for real, for a wait of zero. `sleep_calls` counts, per call, how often a sleep
    function was called for that wait of zero.
    """
    return {
        "unit": "us",
        "stubbed": _timed_retries(family, flavour, effort, chosen, RETRIED, stubbed=True),
        "refused": _timed_retries(family, flavour, effort, chosen, REFUSED, stubbed=True),
        "zero": _timed_retries(family, flavour, effort, chosen, RETRIED, stubbed=False),
        "sleep_calls": _sleep_calls(family, flavour, effort, chosen),
    }


Script = tuple[int | None, ...]  # statuses; None is a refused connection


def _timed_retries(
    family: Family,
    flavour: str,
    effort: Effort,
    chosen: Sequence[Candidate],
    script: Script,
    *,
    stubbed: bool,
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    with ExitStack() as stack:
        sleeps = stack.enter_context(Sleeps()) if stubbed else None
        track = stack.enter_context(Track())
        inner = family.scripted(flavour)
        bare = Lane(
            "bare",
            family.send_of(flavour, inner) if None not in script else family.caught(flavour, inner),
            family.request(flavour),
            _script(family, inner, script),
            BATCH,
            sends_per_call=len(script),
        )
        track.warm_up(bare, effort.chunk_seconds / 4, most=800)
        turns: dict[str, Callable[[], tuple[float, ...]]] = {}
        for candidate in CANDIDATES:
            if candidate.success_only:
                continue
            absence = candidate.absence(family.name, flavour)
            if absence:
                rows[candidate.name] = {"skipped": absence}
            elif candidate in chosen:
                turns[candidate.name] = _retried_turn(
                    track, family, flavour, candidate, effort, script, sleeps
                )
        samples = interleave(
            lambda: track.run(bare, bare.count), turns, effort.rounds, effort.patience
        )
        best = best_bare(samples) if samples else 0.0
        for name, taken in samples.items():
            rows[name] = figure(
                taken, best, lambda s: (s.parts[0] - s.bare) / RETRIES / 1e3
            ).as_dict()
    return {"bare": best / 1e3, "rows": in_order(rows)}


def _retried_turn(
    track: Track,
    family: Family,
    flavour: str,
    candidate: Candidate,
    effort: Effort,
    script: Script,
    sleeps: Sleeps | None,
) -> Callable[[], tuple[float, ...]]:
    inner = family.scripted(flavour)
    wait = zero_wait if sleeps is None else None
    send = candidate.make(Setting(family, flavour, inner, wait=wait, sleeps=sleeps, plenty=True))
    lane = Lane(
        candidate.name, send, family.request(flavour), _script(family, inner, script), BATCH
    )
    track.warm_up(lane, effort.chunk_seconds, most=400)
    return lambda: (track.run(lane, lane.count),)


def _script(family: Family, inner: Any, statuses: Script) -> Callable[[int], None]:
    """Lay out the answers for a number of calls: a response of its own for every sending."""

    def prepare(calls: int) -> None:
        inner.answers.clear()
        inner.answers.extend(
            None if status is None else family.response(status)
            for _ in range(calls)
            for status in statuses
        )

    return prepare


def _sleep_calls(
    family: Family, flavour: str, effort: Effort, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    calls = effort.exact_calls
    for candidate in chosen:
        if candidate.success_only or candidate.absence(family.name, flavour):
            continue
        with Sleeps() as sleeps:
            inner = family.scripted(flavour)
            setting = Setting(family, flavour, inner, wait=zero_wait, sleeps=sleeps, plenty=True)
            send = candidate.make(setting)
            _script(family, inner, RETRIED)(calls)
            _run_calls(flavour, send, family.request(flavour), calls)
            rows[candidate.name] = sleeps.count / calls
    return rows


def _run_calls(flavour: str, send: Callable[[Any], Any], request: Any, calls: int) -> int:
    """Make the calls and return how many objects only the cyclic collector could free."""

    async def all_of_them() -> int:
        for _ in range(calls):
            await send(request)
        return gc.collect()

    gc.collect()
    gc.freeze()  # only what the calls leave is looked at
    if flavour == "async":
        return asyncio.run(all_of_them())
    for _ in range(calls):
        send(request)
    return gc.collect()


def garbage(
    family: Family, flavour: str, effort: Effort, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    """Objects per call left to the cyclic collector: a success, after 503s, after refusals."""
    scripts = {"success": (200,), "503, 503, 200": RETRIED, "refused, refused, 200": REFUSED}
    rows: dict[str, Any] = {}
    calls = effort.exact_calls
    for candidate in CANDIDATES:
        absence = candidate.absence(family.name, flavour)
        if absence:
            rows[candidate.name] = {"skipped": absence}
            continue
        if candidate not in chosen:
            continue
        counts = rows[candidate.name] = {}
        for title, script in scripts.items():
            if candidate.success_only and title != "success":
                continue
            with Sleeps() as sleeps:
                inner = family.scripted(flavour)
                send = candidate.make(Setting(family, flavour, inner, sleeps=sleeps, plenty=True))
                request = family.request(flavour)
                for count in (20, calls):  # the first ones make what is made once
                    _script(family, inner, script)(count)
                    gc.disable()
                    try:
                        counts[title] = _run_calls(flavour, send, request, count) / count
                    finally:
                        gc.enable()
    return {"unit": "objects per call", "calls": calls, "rows": rows}


@dataclass(frozen=True)
class Goal:
    """The most that a row should cost: `plus`, and `times` the row `of` of the same run."""

    plus: float = 0.0
    times: float = 0.0
    of: str | None = None

    def most(self, rows: Mapping[str, Any]) -> float | None:
        """In the unit of the rows; None if the row it is compared with was not measured."""
        if self.of is None:
            return self.plus
        median = rows.get(self.of, {}).get("median")
        return None if median is None else self.plus + self.times * median


def of_peer(times: float) -> Goal:
    return Goal(times=times, of=PEER)


# Of forbear's own rows: nanoseconds for a success, microseconds for a retry.
_SUCCESS = {
    BODIES_ALONE: of_peer(0.25),
    "forbear, budget=None": of_peer(0.25),
    WITH_BREAKER: of_peer(0.25),
    COUNTED: Goal(2_500),
    **{name: Goal(4_000) for name in ONE_OPTION},
}
# A retry waits for 50 ms and more, so a thousandth of that is seen by nobody.
_RETRY = dict.fromkeys((FORBEAR, BODIES_ALONE, WITH_BREAKER, TIMED), Goal(50.0))
GOALS: dict[str, dict[str, dict[str, Goal]]] = {
    "success": {
        "sync": {
            **_SUCCESS,
            FORBEAR: of_peer(0.8),
            TIMED: Goal(1_600),
            CONTACT: Goal(1_400),
            IN_DEADLINE: Goal(2_800),
        },
        "async": {
            **_SUCCESS,
            FORBEAR: of_peer(0.85),
            TIMED: Goal(3_000),
            CONTACT: Goal(1_600),
            IN_DEADLINE: Goal(4_600),
            HEDGED: Goal(4_000),
        },
    },
    **{kind: dict.fromkeys(("sync", "async"), _RETRY) for kind in ("stubbed", "refused")},
}
