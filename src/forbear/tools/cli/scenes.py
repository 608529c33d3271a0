"""Scenes: what goes wrong in the demo, and what must be true afterwards. Floor: acts.

A scene plays once for each caller, on a path of its own. ``judge`` looks at what the caller got and
at the server's ledger, says in words what the server saw, and which claims did not hold.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ...core.policy import RetryPolicy
from ...core.verdict import Reason
from ...testing.server import Arrival
from .callers import Answer, Caller, Order

__all__ = ["SCENES", "SECRET", "Scene", "judge", "shown"]

SECRET = "s3cr3t-of-the-demo"  # noqa: S105  # in every path, query and header; must never be told
UPLOAD = bytes(range(256)) * 400  # 102,400 bytes: more than one chunk
CALLS_IN_OUTAGE = 100
CALLS_AT_ONCE = 20
OUTAGE_POLICY = RetryPolicy.latency_sensitive()
LATE = 0.45  # seconds that a busy machine may need on top of what is promised; a wait has 0.5
ASKED = 1.0  # seconds of the Retry-After that is waited for
DEADLINE = 0.5  # seconds


class Scene(NamedTuple):
    """One fault.

    Attributes:
        title: What is tried.
        promise: Number and words of the promise that it shows.
        fault: What the server does, in words.
        steps: The same as a script of FaultServer.
        order: What each caller sends.
        ends: Requests that the server is to see, the status that the caller is to get (None: an
            error of the client's own), how the story of the attempts is to end.
    """

    title: str
    promise: str
    fault: str
    steps: tuple[int | str, ...]
    order: Order = Order()
    ends: tuple[int, int | None, Reason | None] = (2, 200, None)


def judge(
    scene: Scene, caller: Caller, answers: list[Answer], arrivals: list[Arrival]
) -> tuple[str, list[str]]:
    """Say in words what the server saw, and which claims did not hold."""
    count, order, answer = len(arrivals), scene.order, answers[0]
    requests, status, reason = scene.ends
    saw = f"{count} request{'s' * (count != 1)}"
    broken: list[str] = []

    def claim(holds: bool, otherwise: str) -> None:
        if not holds:
            broken.append(otherwise)

    claim(count == requests, f"{requests} requests were to come, {count} came")
    if order.times > 1:
        saw += f" for {order.times} calls"
    else:
        claim(answer.record.retries == count - 1, f"it tells of {answer.record.retries} retries")
        ended = answer.record.reason
        claim(ended is reason, f"the story was to end with {reason}, not {ended}")
    if status is None:
        own = f"the caller was to get {caller.family}'s own error, got {shown(answer)}"
        claim(caller.is_own(answer.error), own)
        claim(bool(getattr(answer.error, "__notes__", ())), "the error does not tell its story")
    for other in [one for one in answers if status not in (None, one.status)][:1]:
        claim(False, f"the caller was to get {status}, got {shown(other)}")
    if order.seconds and status is None:
        in_time = order.seconds - 0.05 <= answer.elapsed <= order.seconds + LATE
        claim(in_time, f"the call took {answer.elapsed:.2f} s, not {order.seconds:g} s")
    elif requests == 1:
        told = f"the caller was to be told at once, it took {answer.elapsed:.2f} s"
        claim(answer.elapsed <= LATE, told)
    if order.method == "POST":
        times = sum(arrival.executed for arrival in arrivals)
        saw += f", executed {'once' if times == 1 else f'{times} times'}"
        claim(times == 1, f"it was executed {times} times")
        keys = {arrival.key for arrival in arrivals}
        claim(len(keys) == 1, "the attempts did not carry the same key")
    if order.content == UPLOAD:
        digest = hashlib.sha256(UPLOAD).hexdigest()
        parts = [one for one in arrivals if one.sha256 != digest or not one.body_complete]
        saw += f", {'bodies' if count > 1 else 'body'} {'not ' * bool(parts)}whole"
        for part in parts:
            claim(False, f"a body of {part.body_bytes} bytes arrived instead of {len(UPLOAD)}")
    if f"429;retry-after={ASKED:g}" in scene.steps:
        gap = 0.0
        if count > 1 and arrivals[0].ended_at is not None:
            gap = arrivals[1].started_at - arrivals[0].ended_at
        saw += f", {gap:.2f} s apart"
        claim(gap >= ASKED, f"the second came after {gap:.3f} s, {ASKED:g} s were asked for")
    return saw, broken


def shown(answer: Answer) -> str:
    return str(answer.status) if answer.error is None else type(answer.error).__name__


POST = Order("POST", content=b"one order")
SCENES = (
    Scene(
        "A POST without an idempotency key",
        "P1: what is not safe to repeat is executed at most once;"
        " the caller gets the client's own error",
        "executes it, then resets the connection instead of answering",
        ("reset", 200),
        POST,
        ends=(1, None, Reason.METHOD_NOT_REPLAYABLE),
    ),
    Scene(
        "The same POST with an Idempotency-Key",
        "P1: a key makes it safe to send again: the server executes it once and answers twice",
        "executes it, then resets the connection instead of answering",
        ("reset", 200),
        POST._replace(headers={"Idempotency-Key": "order-4711"}),
    ),
    Scene(
        "An upload from memory",
        "P2: a body is sent whole every time (SHA-256 of what arrived)",
        "answers 503, then 200",
        (503, 200),
        Order("PUT", content=UPLOAD),
    ),
    Scene(
        "An upload from a generator, which can be read only once",
        "P2: whole or not at all: never an empty body later;"
        " the caller gets the server's real answer",
        "answers 503, and would answer 200 next",
        (503, 200),
        Order("PUT", content=UPLOAD, one_shot=True),
        ends=(1, 503, Reason.BODY_CONSUMED),
    ),
    Scene(
        "A throttled GET",
        "P3: never sooner than the server asked",
        "answers 429 with Retry-After: 1, then 200",
        ("429;retry-after=1", 200),
    ),
    Scene(
        "A Retry-After longer than anybody waits",
        "P3: if the server asks for longer than we may wait, its answer is returned at once",
        "answers 503 with Retry-After: 3600",
        ("503;retry-after=3600",),
        ends=(1, 503, Reason.RETRY_AFTER_TOO_LONG),
    ),
    Scene(
        f"A deadline of {DEADLINE:g} s on a server that hangs",
        "P4: the call ends with its deadline, as a timeout of the client's own kind",
        "reads the request and never answers",
        ("hang",),
        Order(seconds=DEADLINE),
        ends=(1, None, Reason.DEADLINE),
    ),
    Scene(
        "A deadline of 1 s and a Retry-After of 5 s",
        "P4: no wait is begun that cannot be followed by an attempt",
        "answers 503 with Retry-After: 5, and would answer 200 next",
        ("503;retry-after=5", 200),
        Order(seconds=1.0),
        ends=(1, 503, Reason.DEADLINE),
    ),
    Scene(
        f"A dead server: {CALLS_IN_OUTAGE} GETs, one after the other",
        f"P5: what succeeds lets retries go: one is sent, and then none; without that it would see"
        f" {CALLS_IN_OUTAGE * OUTAGE_POLICY.max_attempts}",
        "answers 503 to everything; the policy is RetryPolicy.latency_sensitive()",
        (503,),
        Order(times=CALLS_IN_OUTAGE, policy=OUTAGE_POLICY),
        ends=(CALLS_IN_OUTAGE + 1, 503, None),
    ),
    Scene(
        f"A short outage under {CALLS_AT_ONCE} GETs at once",
        "P5: calls are held, and not lost; one goes as a probe, and what succeeds lets others go",
        f"answers 503 to {CALLS_AT_ONCE} requests, then 200",
        (503,) * CALLS_AT_ONCE + (200,),
        Order(times=CALLS_AT_ONCE, at_once=True),
        ends=(2 * CALLS_AT_ONCE, 200, None),
    ),
    Scene(
        "A GET whose connection is dropped",
        "P7: the caller gets an ordinary response, with the story of the attempts attached",
        "reads the request and resets the connection, then answers 200",
        ("reset", 200),
    ),
    Scene(
        "A server that talks nonsense",
        "P8: nothing a server sends can crash or stall a call",
        'answers 503 with "Retry-After: soon", then bytes that are not HTTP, then 200',
        ("503;retry-after=soon", "garbage", 200),
        ends=(3, 200, None),
    ),
)
