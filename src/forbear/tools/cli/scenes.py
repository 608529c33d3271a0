"""Scenes of the demo: what goes wrong, what is sent, what must be true afterwards. Floor: acts.

A scene plays once for each caller, on a path of its own. Its judge looks at what the caller got and
at the server's ledger, and says in words what it saw and which claims did not hold.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from ...core.policy import RetryPolicy
from ...core.verdict import Reason
from ...shared.budget import RetryBudget
from .callers import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...testing.server import Arrival
    from .callers import Answer, Caller

__all__ = ["SCENES", "SECRET", "Scene", "Seen"]

SECRET = "s3cr3t-of-the-demo"  # noqa: S105  # in every path, query and Authorization header; must never be told
UPLOAD = bytes(range(256)) * 400  # 102,400 bytes: more than one chunk
CALLS_IN_OUTAGE = 100
OUTAGE_POLICY = RetryPolicy.latency_sensitive()
AT_ONCE = 0.3  # seconds; a caller that was told at once, on a busy machine too
OVERRUN = 0.3  # seconds; 50 ms are promised, the rest is for a busy machine
ASKED = 1.0  # seconds of the Retry-After that is waited for
DEADLINE = 0.5  # seconds


class Seen(NamedTuple):
    """What one caller's part of a scene showed.

    Attributes:
        server: What the server saw, in words.
        broken: Claims that did not hold, in words; none if all is well.
    """

    server: str
    broken: Sequence[str]


class Scene(NamedTuple):
    """One fault.

    Attributes:
        title: What is tried.
        promise: Number and words of the promise that it shows.
        fault: What the server does, in words.
        steps: The same as a script of FaultServer.
        order: What each caller sends.
        judge: Says what was seen.
    """

    title: str
    promise: str
    fault: str
    steps: tuple[int | str, ...]
    order: Order
    judge: Callable[[Caller, list[Answer], list[Arrival]], Seen]


def judge_throttled(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    gap = gap_between(arrivals)
    return Seen(
        f"{requests(arrivals)}, {gap:.2f} s apart",
        unmet(
            (len(arrivals) == 2, f"2 requests were to come, {len(arrivals)} came"),
            (
                gap >= ASKED,
                f"the second came {gap:.3f} s after the answer that asked for {ASKED:g} s",
            ),
            *got(answers, 200),
        ),
    )


def judge_saved(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    retries = answers[0].record.retries
    return Seen(
        requests(arrivals),
        unmet(
            (len(arrivals) == 2, f"2 requests were to come, {len(arrivals)} came"),
            (
                retries == len(arrivals) - 1,
                f"the story that came with the response tells of {retries} retries",
            ),
            *got(answers, 200),
        ),
    )


def judge_keyless(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    error = answers[0].error
    return Seen(
        f"{requests(arrivals)}, {executed(arrivals)}",
        unmet(
            (len(arrivals) == 1, f"it was to be sent once, {len(arrivals)} came"),
            (times_executed(arrivals) <= 1, f"it was executed {times_executed(arrivals)} times"),
            (
                caller.is_own(error),
                f"the caller was to get {caller.family}'s own error, got {shown(error)}",
            ),
            (
                bool(getattr(error, "__notes__", ())),
                "the error does not tell the story of the attempts",
            ),
            *refused(answers, Reason.METHOD_NOT_REPLAYABLE),
        ),
    )


def judge_keyed(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    keys = {arrival.key for arrival in arrivals}
    return Seen(
        f"{requests(arrivals)}, {executed(arrivals)}",
        unmet(
            (len(arrivals) == 2, f"2 requests were to come, {len(arrivals)} came"),
            (times_executed(arrivals) == 1, f"it was executed {times_executed(arrivals)} times"),
            (len(keys) == 1 and None not in keys, "the attempts did not carry the same key"),
            *got(answers, 200),
        ),
    )


def judge_replayed_upload(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    return Seen(
        f"{requests(arrivals)}, {whole(arrivals)}",
        unmet(
            (len(arrivals) == 2, f"2 requests were to come, {len(arrivals)} came"),
            *all_whole(arrivals),
            *got(answers, 200),
        ),
    )


def judge_one_shot(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    return Seen(
        f"{requests(arrivals)}, {whole(arrivals)}",
        unmet(
            (len(arrivals) == 1, f"1 request was to come, {len(arrivals)} came"),
            *all_whole(arrivals),
            *got(answers, 503),
            *refused(answers, Reason.BODY_CONSUMED),
        ),
    )


def judge_too_long(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    return Seen(
        requests(arrivals),
        unmet(
            (len(arrivals) == 1, f"1 request was to come, {len(arrivals)} came"),
            *at_once(answers),
            *got(answers, 503),
            *refused(answers, Reason.RETRY_AFTER_TOO_LONG),
        ),
    )


def judge_hanging(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    elapsed, error = answers[0].elapsed, answers[0].error
    return Seen(
        requests(arrivals),
        unmet(
            (elapsed <= DEADLINE + OVERRUN, f"the call took {elapsed:.2f} s"),
            (
                elapsed >= DEADLINE - 0.05,
                f"the call ended {elapsed:.2f} s after it began, long before its deadline",
            ),
            (
                caller.is_own(error),
                f"the caller was to get {caller.family}'s own error, got {shown(error)}",
            ),
            *refused(answers, Reason.DEADLINE),
        ),
    )


def judge_no_time(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    return Seen(
        requests(arrivals),
        unmet(
            (len(arrivals) == 1, f"1 request was to come, {len(arrivals)} came"),
            *at_once(answers),
            *got(answers, 503),
            *refused(answers, Reason.DEADLINE),
        ),
    )


def judge_nonsense(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    return Seen(
        requests(arrivals),
        unmet(
            (len(arrivals) == 3, f"3 requests were to come, {len(arrivals)} came"),
            *got(answers, 200),
        ),
    )


def judge_outage(caller: Caller, answers: list[Answer], arrivals: list[Arrival]) -> Seen:
    budget, calls = RetryBudget(), len(answers)
    seconds = sum(answer.elapsed for answer in answers)
    allowed = budget.burst + budget.ratio * calls + budget.floor_per_second * seconds
    retries = len(arrivals) - calls
    return Seen(
        f"{requests(arrivals)} for {calls} calls",
        unmet(
            (retries <= allowed, f"{retries} retries, the budget allows {allowed:.0f}"),
            (
                retries >= budget.burst,
                f"{retries} retries, although the budget starts with {budget.burst:g}",
            ),
            *got(answers, 503),
        ),
    )


SCENES = (
    Scene(
        "A throttled GET",
        "P3: never sooner than the server asked",
        "answers 429 with Retry-After: 1, then 200",
        ("429;retry-after=1", 200),
        Order(),
        judge_throttled,
    ),
    Scene(
        "A GET whose connection is dropped",
        "P7: the caller gets an ordinary response, with the story of the attempts attached",
        "reads the request and resets the connection, then answers 200",
        ("reset", 200),
        Order(),
        judge_saved,
    ),
    Scene(
        "A POST without an idempotency key",
        "P1: what is not safe to repeat is executed at most once; the caller gets the client's own error",
        "executes it, then resets the connection instead of answering",
        ("reset", 200),
        Order("POST", content=b"one order"),
        judge_keyless,
    ),
    Scene(
        "The same POST with an Idempotency-Key",
        "P1: a key makes it safe to send again: the server executes it once and answers twice",
        "executes it, then resets the connection instead of answering",
        ("reset", 200),
        Order("POST", headers={"Idempotency-Key": "order-4711"}, content=b"one order"),
        judge_keyed,
    ),
    Scene(
        "An upload from memory",
        "P2: a body is sent whole every time (SHA-256 of what arrived)",
        "answers 503, then 200",
        (503, 200),
        Order("PUT", content=UPLOAD),
        judge_replayed_upload,
    ),
    Scene(
        "An upload from a generator, which can be read only once",
        "P2: whole or not at all: never an empty body later; the caller gets the server's real answer",
        "answers 503, and would answer 200 next",
        (503, 200),
        Order("PUT", content=UPLOAD, one_shot=True),
        judge_one_shot,
    ),
    Scene(
        "A Retry-After longer than anybody waits",
        "P3: if the server asks for longer than we may wait, its answer is returned at once",
        "answers 503 with Retry-After: 3600",
        ("503;retry-after=3600",),
        Order(),
        judge_too_long,
    ),
    Scene(
        f"A deadline of {DEADLINE:g} s on a server that hangs",
        "P4: the call ends with its deadline, as a timeout of the client's own kind",
        "reads the request and never answers",
        ("hang",),
        Order(seconds=DEADLINE),
        judge_hanging,
    ),
    Scene(
        "A deadline of 1 s and a Retry-After of 5 s",
        "P4: no wait is begun that cannot be followed by an attempt",
        "answers 503 with Retry-After: 5, and would answer 200 next",
        ("503;retry-after=5", 200),
        Order(seconds=1.0),
        judge_no_time,
    ),
    Scene(
        "A server that talks nonsense",
        "P8: nothing a server sends can crash or stall a call",
        'answers 503 with "Retry-After: soon", then bytes that are not HTTP, then 200',
        ("503;retry-after=soon", "garbage", 200),
        Order(),
        judge_nonsense,
    ),
    Scene(
        f"An outage: {CALLS_IN_OUTAGE} GETs, one after the other",
        f"P5: retries stay a small share of traffic; without a budget it would see"
        f" {CALLS_IN_OUTAGE * OUTAGE_POLICY.max_attempts}",
        "answers 503 to everything; the policy is RetryPolicy.latency_sensitive()",
        (503,),
        Order(times=CALLS_IN_OUTAGE, policy=OUTAGE_POLICY),
        judge_outage,
    ),
)


def unmet(*claims: tuple[bool, str]) -> list[str]:
    return [otherwise for holds, otherwise in claims if not holds]


def got(answers: list[Answer], status: int) -> list[tuple[bool, str]]:
    others = [answer for answer in answers if answer.status != status]
    what = shown(others[0].error or others[0].status) if others else ""
    return [(not others, f"the caller was to get {status}, got {what}")]


def refused(answers: list[Answer], reason: Reason) -> list[tuple[bool, str]]:
    given = answers[0].record.reason
    return [(given is reason, f"the story was to end with {reason.value}, it says {given}")]


def at_once(answers: list[Answer]) -> list[tuple[bool, str]]:
    elapsed = answers[0].elapsed
    return [(elapsed <= AT_ONCE, f"the caller was to be told at once, it took {elapsed:.2f} s")]


def all_whole(arrivals: list[Arrival]) -> list[tuple[bool, str]]:
    broken = [arrival for arrival in arrivals if not is_whole(arrival)]
    size = broken[0].body_bytes if broken else 0
    return [(not broken, f"a body of {size} bytes arrived instead of {len(UPLOAD)}")]


def is_whole(arrival: Arrival) -> bool:
    return arrival.body_complete and arrival.sha256 == hashlib.sha256(UPLOAD).hexdigest()


def gap_between(arrivals: list[Arrival]) -> float:
    """Seconds from the first answer to the second request; 0 if there were no two."""
    if len(arrivals) < 2:
        return 0.0
    first, second = arrivals[:2]
    assert first.ended_at is not None
    return second.started_at - first.ended_at


def requests(arrivals: list[Arrival]) -> str:
    return f"{len(arrivals)} request{'' if len(arrivals) == 1 else 's'}"


def times_executed(arrivals: list[Arrival]) -> int:
    return sum(arrival.executed for arrival in arrivals)


def executed(arrivals: list[Arrival]) -> str:
    count = times_executed(arrivals)
    return "executed once" if count == 1 else f"executed {count} times"


def whole(arrivals: list[Arrival]) -> str:
    count = sum(is_whole(arrival) for arrival in arrivals)
    if count == len(arrivals):
        return "body whole" if count == 1 else "bodies whole"
    return f"{count} whole"


def shown(outcome: object) -> str:
    return type(outcome).__name__ if isinstance(outcome, Exception) else str(outcome)
