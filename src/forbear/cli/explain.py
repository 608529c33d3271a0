"""``forbear explain``: what a policy retries, what a call then does, what may hurt.

The calls are played here, each on its own against a server in an outage, attempt by attempt and on
virtual time: the limits that a transport has by default and core/decide.py decide what follows each
attempt. No other call is made to the server; benchmarks/simulation/ plays whole fleets. All
durations and instants are seconds from the call's beginning.

The rule of thumb for a service-level objective (SLO), the time in which a call has to end: all
retries together take at most a third of it, so that a call which needed them is still in time.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from random import Random
from typing import NamedTuple

from ..core.call import Call
from ..core.checks import check_duration
from ..core.decide import decide
from ..core.outcome import (
    IDEMPOTENT_METHODS,
    TIMEOUT_STATUSES,
    Failure,
    FailureKind,
    Phase,
    Reason,
    SendAgain,
)
from ..core.policy import DEFAULT_PATIENCE, RetryPolicy
from ..core.request import Request
from ..core.waits import ranges
from ..engine.settings import limits_of
from ..limits.gate import RetryGate
from . import add_policy_arguments, chosen, complain, say, spoken, table

ABOUT = (
    "Say what a retry policy does before it does it: what is retried, after which waits, how a call"
    " fares that meets a server in an outage, how long a call can take, and which fields are likely"
    " to hurt. Sends nothing: the calls are simulated, with the limits that a transport has by"
    " default, and each is the only one of its process."
)
EXAMPLES = """\
examples:
  forbear explain                                        the default policy
  forbear explain batch                                  a preset
  forbear explain --max-attempts 5 --backoff base=0.5,cap=20,jitter=full --patience 30
  forbear explain gateway --slo 2 --attempt-timeout 0.5  do calls stay within two seconds?
  forbear explain myservice.http:POLICY                  what your code uses; imports the module

The attribute may be a RetryPolicy, a Retry of forbear, urllib3 or httpx-retries, a number of
retries, or a function that returns one of these.

exit status: 0 explained, 2 it could not be (an argument is wrong).
"""
MOST_ROWS = 10  # of a table; the last one is shown too
MOST_RETRIES = 1_000  # whose waits are computed; later ones are like the last of them
ATTEMPT = 5.0  # seconds of an attempt at most, by default: httpx's own timeout
OUTAGE = 5.0  # seconds
SHARE = 3  # a third of the SLO is for retries: the first attempt and a slow response need the rest
MOST_SENT = 3  # attempts of a lone call before its server is unhealthy (limits/gate.py)
# Servers and gateways respond so after they have executed a request, or have passed it on.
DOUBTFUL = TIMEOUT_STATUSES | {500, 502}

Waits = dict[str, list[tuple[float, float]]]  # by schedule: the shortest and the longest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_policy_arguments(parser)
    # Without a default of its own, which would replace what --policy gave.
    given, same = argparse.SUPPRESS, "the same as --policy"
    parser.add_argument("policy", nargs="?", default=given, metavar="POLICY", help=same)
    parser.add_argument("--slo", type=float, metavar="S", help="seconds in which a call has to end")


def run(options: argparse.Namespace) -> int:
    """Explain what the arguments describe, return the exit status."""
    try:
        policy, slo = chosen(options), options.slo
        check_duration("slo", slo, none="no objective", zero=False)
        schedules = {"backoff": policy.backoff, "throttle_backoff": policy.throttle_backoff}
        count = min(policy.max_attempts - 1, MOST_RETRIES)
        waits = {name: ranges(one, count) for name, one in schedules.items() if one is not None}
    except (ValueError, TypeError) as mistake:
        return complain("explain", mistake)
    attempt = policy.attempt_timeout or ATTEMPT
    say(repr(policy))
    print()
    if policy.max_attempts == 1:
        say("retried: nothing; every request is sent once")
    elif policy.total_timeout == 0:
        say("retried: nothing; no request is sent")
    else:
        show(policy, waits)
        show_calls(policy, attempt)
    worst, hinted = worst_case(policy, waits, attempt), worst_case(policy, waits, attempt, hints=1)
    print()
    say(
        f"worst case: {spoken(worst)}, with all attempts of {spoken(attempt)} (--attempt-timeout),"
        f" all waits at their longest and the patience; {spoken(hinted)} if the server asks for"
        " max_retry_after each time"
    )
    if (policy.patience or 0.0) > DEFAULT_PATIENCE:
        say("Attempts sent as probes come in addition: with this patience they use up none.")
    for warning in advice(policy, waits, attempt, slo):
        print()
        say(f"warning: {warning}")
    return 0


def show(policy: RetryPolicy, waits: Waits) -> None:
    """Print the failures that are retried, and the waits before each retry."""
    statuses = " ".join(map(str, sorted(policy.statuses)))
    say(f"statuses: {statuses or 'none'}; failures: {' '.join(sorted(policy.failures)) or 'none'}")
    say(
        f"methods: {' '.join(sorted(policy.methods)) or 'none'}; others with an Idempotency-Key, or"
        " if nothing was sent"
    )
    for name, found in waits.items():
        rows = [
            (str(number), f"{spoken(shortest)} – {spoken(longest)}")
            for number, (shortest, longest) in enumerate(found[:MOST_ROWS], 1)
        ]
        print()
        table(("retry", f"wait ({name})"), rows)
    fast = getattr(policy.backoff, "fast_first", None)
    if fast is not None:
        print()
        say(
            f"One fast first retry, after 0 s – {spoken(fast)}, comes before these, unless after a"
            " timeout, a server hint, or while the server is unhealthy."
        )


def worst_case(policy: RetryPolicy, waits: Waits, attempt: float, *, hints: float = 0) -> float:
    """Return the seconds that a call can take whose attempts and waits are at their longest.

    ``hints`` is 1 for a server that asks for ``max_retry_after`` each time.
    """
    asked = 0.0 if policy.hints == "ignore" else hints * policy.max_retry_after
    asked += policy.hint_spread * max(asked, 1.0) if asked else 0.0
    longest = [max(asked, wait) for wait in longest_waits(policy, waits)]
    more = policy.max_attempts - 1 - len(longest)
    held = policy.patience or 0.0 if longest else 0.0
    total = policy.max_attempts * attempt + sum(longest) + more * max(longest, default=0.0) + held
    return total if policy.total_timeout is None else min(total, policy.total_timeout)


def longest_waits(policy: RetryPolicy, waits: Waits) -> list[float]:
    """The longest before each retry, by either schedule; one fast first retry may be longer."""
    found = [max(longest for _, longest in both) for both in zip(*waits.values(), strict=True)]
    fast = getattr(policy.backoff, "fast_first", None) or 0.0
    return [max(fast, wait) for wait in found[:1]] + found[1:]


def advice(policy: RetryPolicy, waits: Waits, attempt: float, slo: float | None) -> list[str]:
    """Say what is likely to hurt, each text beginning with the field to change.

    No text is no proof: the load that the retries of all calls make is a matter of the budget.
    """
    if policy.max_attempts == 1:
        return []
    unsafe = sorted(policy.methods - IDEMPOTENT_METHODS)
    doubtful = sorted(policy.unexecuted_statuses & DOUBTFUL)
    found: dict[str, object] = {
        f"methods: {' and '.join(unsafe)} may take effect twice: a request that the server executed"
        " is resent when its response is lost; send an Idempotency-Key, or name the"
        " unexecuted_statuses": unsafe,
        f"unexecuted_statuses: {' and '.join(map(str, doubtful))} may follow a request that the"
        " server executed, which then takes effect twice; 429 is what a rate limiter"
        " sends": doubtful,
        "hints: a server that says when to retry is retried sooner, and fails again": (
            policy.hints == "ignore"
        ),
        "hint_spread: clients that get the same Retry-After retry in the same second; 0.1 adds up"
        " to 10 %": policy.hints == "obey" and policy.hint_spread == 0 < policy.max_retry_after,
        f"patience: 0 ends a failed call as soon as its server is unhealthy: in an outage only"
        f" about the first {MOST_SENT} of its {policy.max_attempts} attempts are sent": (
            policy.patience == 0 and policy.max_attempts > MOST_SENT
        ),
    }
    for name, both in waits.items():
        has_no_wait = not any(longest for _, longest in both[:2])
        found[f"{name}: no wait at all; wait at least Exponential(base=0.1)"] = has_no_wait
        found[
            f"{name}: no jitter: clients that fail together retry together; jitter='full' spreads"
            " them"
        ] = not has_no_wait and all(shortest == longest for shortest, longest in both)
    if slo is not None:
        elapsed = list(accumulate(wait + attempt for wait in longest_waits(policy, waits)))
        fitting = 1 + sum(so_far <= slo / SHARE for so_far in elapsed)
        found[
            f"max_attempts: its retries can take {spoken(elapsed[-1])}, more than a third of the"
            f" SLO of {spoken(slo)}; max_attempts={fitting} would fit, or shorter waits"
        ] = elapsed[-1] > slo / SHARE and (policy.total_timeout or inf) > slo / SHARE
        worst = worst_case(policy, waits, attempt, hints=1)
        found[
            f"total_timeout: a call can take {spoken(worst)}, more than the SLO;"
            f" total_timeout={slo:g} ends it in time"
        ] = worst > slo
    return [text for text, holds in found.items() if holds]


def show_calls(policy: RetryPolicy, attempt: float) -> None:
    """Print what a call does that is the only one of its process, in three kinds of outage."""
    outages = {
        "a server that always responds with 503": unavailable(),
        f"a server that hangs, attempts time out after {spoken(attempt)}": hanging(attempt),
        f"a server that responds with 503 for {spoken(OUTAGE)}, then 200": unavailable(OUTAGE),
    }
    for name, outage in outages.items():
        calls = play(policy, outage)
        print()
        say(f"A lone call meets {name}:")
        table(("attempt", "sent after", "p95", "calls", "why then"), attempts(calls))
        for text in endings(calls):
            say(text)


def attempts(calls: list[LoneCall]) -> list[tuple[str, ...]]:
    """Return a row for each attempt, without those in the middle if they are many."""
    most = max(len(one.sent) for one in calls)
    found: list[tuple[str, ...]] = []
    for number in (*range(min(most, MOST_ROWS - 1)), *range(max(MOST_ROWS, most) - 1, most)):
        sent = [one.sent[number] for one in calls if len(one.sent) > number]
        times = [at for at, _ in sent]
        causes = Counter(why for _, why in sent).most_common()
        cells = (spoken(middle(times)), spoken(middle(times, 0.95)), share(len(sent), calls))
        found.append((str(number + 1), *cells, " or ".join(one for one, _ in causes)))
    return found


def endings(calls: list[LoneCall]) -> list[str]:
    """How and when the calls end, the most frequent way first."""
    found = []
    for reason, count in Counter(one.reason for one in calls).most_common():
        times = [one.ended_at for one in calls if one.reason == reason]
        usual, late = spoken(middle(times)), spoken(middle(times, 0.95))
        how = f"fail after {usual} (p95 {late}): {reason}"
        found.append(f"{share(count, calls)} {how if reason else f'succeed after {usual}'}")
    return found


def middle(numbers: Sequence[float], rank: float = 0.5) -> float:
    """The median, or another quantile."""
    return sorted(numbers)[int(rank * len(numbers))]


def share(count: int, calls: list[LoneCall]) -> str:
    return f"{count / len(calls):.0%}"


CALLS = 200  # whose 95th percentile leaves ten
# A held call checks several times a second, so fewer calls are played for a long patience, and a
# call without an end is cut off.
MOST_WAITS = 100_000
REQUEST = Request("GET", "https://origin.invalid:443")
UNAVAILABLE = Failure(FailureKind.STATUS, Phase.ANSWERED, status=503)
TIMED_OUT = Failure(FailureKind.READ_TIMEOUT, Phase.SENT, error="ReadTimeout")
FIRST, FAST = "first attempt", "fast first retry"


class Outage(NamedTuple):
    """How an attempt fails that is sent before the outage is over; later ones succeed."""

    failure: Failure
    takes: float = 0.0  # seconds until an attempt has failed
    lasts: float = inf  # seconds


class LoneCall(NamedTuple):
    """The course of one call.

    Attributes:
        sent: When each attempt was sent, and why then: FIRST, FAST, the source of its delay
            ("backoff"), or the cause for which the gate released it ("probe", "healthy").
        ended_at: When the call ended.
        reason: Why it failed; None: it succeeded.
    """

    sent: list[tuple[float, str]]
    ended_at: float
    reason: str | None


def unavailable(seconds: float = inf) -> Outage:
    """A server that responds 503 at once, for so many seconds or always."""
    return Outage(UNAVAILABLE, lasts=seconds)


def hanging(timeout: float) -> Outage:
    """A server that never responds; each attempt times out after so many seconds."""
    return Outage(TIMED_OUT, takes=timeout)


def play(policy: RetryPolicy, outage: Outage) -> list[LoneCall]:
    """Return what ``CALLS`` calls do, each the only one of its process; fewer if they take long."""
    found: list[LoneCall] = []
    waits = 0
    while len(found) < CALLS and waits < MOST_WAITS:
        call, waited = play_one(policy, outage, Random(f"{len(found)} decisions").random)
        found.append(call)
        waits += waited
    return found


def play_one(
    policy: RetryPolicy, outage: Outage, random: Callable[[], float]
) -> tuple[LoneCall, int]:
    """Play one call as engine/loop.py does; return what it did, and how many waits that took."""
    limits = limits_of(random, gate=RetryGate())
    call = Call(policy, REQUEST, limits, 0.0, policy.max_attempts)
    if policy.total_timeout is not None:
        call.deadline_at = policy.total_timeout
    sent: list[tuple[float, str]] = []
    now, why = 0.0, FIRST
    limits.begin(call, 0.0, now)
    for waits in range(MOST_WAITS + 1):
        if (hold := call.hold) is not None:
            wait = limits.admit(call, now)
            if wait:
                now += wait
                continue
            call.hold = None
            call.add_to_story("held", max(0.0, now - hold.ready_at))
            if wait is None:
                return LoneCall(sent, now, str(Reason.ORIGIN_UNHEALTHY)), waits
            why = f"held ({hold.cause})"
        call.sending(now)
        sent.append((now, why))
        failure = outage.failure if now < outage.lasts else None
        if failure is not None:
            now += outage.takes
            if now > call.deadline_at:
                now, failure = call.deadline_at, TIMED_OUT
                call.barred = Reason.DEADLINE
        limits.observe(call, failure, now)
        if failure is None:
            return LoneCall(sent, now, None), waits
        was_fast = call.used_fast_first
        verdict = decide(call, failure, now)
        if type(verdict) is not SendAgain:
            return LoneCall(sent, now, str(getattr(verdict, "reason", "not retried"))), waits
        call.note(failure, now, *verdict)
        why = FAST if call.used_fast_first and not was_fast else str(verdict.source)
        now += verdict.delay
    return LoneCall(sent, now, "cut off, still under way"), MOST_WAITS
