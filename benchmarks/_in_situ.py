"""In situ: what retrying adds to `client.get()`, between other work, when the caches are cold.

A loop that does nothing but call keeps everything in the caches, and a retry, which runs more code
than a success, gains most from that. So the client itself builds the request and reads the body
here, each call is timed on its own, and before it the program has done something else. The answers
are made right before the call, as a transport would have just received them.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime, parsedate_to_datetime
from statistics import median
from typing import Any
from urllib.parse import parse_qsl, urlencode

from _calls import BARE_AGAIN, Effort, Goal, in_order, of_peer
from _candidates import BODIES_ALONE, CANDIDATES, FORBEAR, LOOP, PEER, Candidate, Setting
from _measure import Lane, Track, best_bare, figure, interleave
from _stubs import URL, Family, Sleeps

ROWS = (LOOP, FORBEAR, BODIES_ALONE, PEER, "httpware Retry")
STATUSES: dict[str, tuple[int, ...]] = {"success": (200,), "retry": (503, 200)}
GOALS: dict[str, dict[str, dict[str, Goal]]] = {
    "success": {"sync": {FORBEAR: of_peer(0.85)}, "async": {FORBEAR: of_peer(0.7)}},
    "retry": {flavour: {FORBEAR: of_peer(1.5)} for flavour in ("sync", "async")},
}
TIMES = 5  # the rounds of the other measures: one call varies by more than retrying adds to it
NUMBERS = [1_000 + number for number in range(10_000)]  # 400 kB: ten first caches of a core
RECORDS = [
    {"id": number, "name": f"item {number}", "price": number / 7, "tags": ["a", "b"]}
    for number in range(10)
]
WORDS = re.compile(r"\w+")


def in_situ(
    family: Family, flavour: str, effort: Effort, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    """Microseconds of CPU added to one `client.get()`: of 200, and of 503 and then 200.

    The bare client gets 200 in both, so a retry's figure has the stub's second sending in it.
    """
    found: dict[str, Any] = {
        part: _timed(family, flavour, effort, chosen, statuses)
        for part, statuses in STATUSES.items()
    }
    return {"unit": "us", **found}


def _timed(
    family: Family,
    flavour: str,
    effort: Effort,
    chosen: Sequence[Candidate],
    statuses: tuple[int, ...],
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    with ExitStack() as stack:
        sleeps = stack.enter_context(Sleeps()) if statuses != (200,) else None
        track = stack.enter_context(Track())
        lanes = [
            _lane(family, flavour, name, lambda s: family.send_of(flavour, s.inner), (200,), None)
            for name in ("bare", BARE_AGAIN)
        ]
        for candidate in CANDIDATES:
            if candidate.name not in ROWS:
                continue
            absence = candidate.absence(family.name, flavour)
            if absence:
                rows[candidate.name] = {"skipped": absence}
            elif candidate in chosen:
                lanes.append(
                    _lane(family, flavour, candidate.name, candidate.make, statuses, sleeps)
                )
        for lane in lanes:
            track.warm_up(lane, effort.chunk_seconds, most=20)
        bare, *others = lanes
        samples = interleave(
            lambda: _turn(track, bare),
            {lane.name: lambda lane=lane: (_turn(track, lane),) for lane in others},
            effort.rounds * TIMES,
            effort.patience,
        )
        best = best_bare(samples)
        for name, turns in samples.items():
            rows[name] = figure(turns, best, lambda s: (s.parts[0] - s.bare) / 1e3).as_dict()
    return {"bare": best / 1e3, "rows": in_order(rows)}


def _turn(track: Track, lane: Lane) -> float:
    """The median of some calls, since one that is interrupted costs twice as much."""
    return median(track.run(lane, 1) for _ in range(lane.count))


def _lane(
    family: Family,
    flavour: str,
    name: str,
    make: Callable[[Setting], Callable[[Any], Any]],
    statuses: tuple[int, ...],
    sleeps: Sleeps | None,
) -> Lane:
    inner = family.scripted(flavour)
    send = make(Setting(family, flavour, inner, sleeps=sleeps, plenty=sleeps is not None))
    answers: list[Any] = []

    def prepare(calls: int) -> None:
        for answer in answers:
            # The client's stream refers back to its response, which the track has frozen, so the
            # two would never be collected.
            answer.stream = None
        other_work()
        answers[:] = [family.response(status) for _ in range(calls) for status in statuses]
        inner.answers.extend(answers)

    return Lane(name, family.client(flavour, send).get, URL, prepare)


def other_work() -> None:
    """What a program does between two calls: code of several modules, and a walk over numbers.

    It leaves little of the last call in the first caches and in the branch predictor. The walk is
    no longer because calls that have lost their second cache as well vary too much to compare.
    """
    text = json.dumps(RECORDS)
    total = sum(Decimal(str(record["price"])) for record in json.loads(text))
    day = datetime(2026, 11, 20, tzinfo=UTC) + timedelta(days=len(WORDS.findall(text)) % 7)
    fields = {"until": format_datetime(day), "total": str(total)}
    until = dict(parse_qsl(urlencode(fields)))["until"]
    textwrap.wrap(f"{parsedate_to_datetime(until)} {text[:500]}", 40)
    sum(NUMBERS)
