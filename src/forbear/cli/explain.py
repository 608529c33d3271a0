"""``forbear explain``: what a policy retries, what a call then does, what may hurt.

The calls are played here, each on its own against a server in an outage, attempt by attempt and on
virtual time: the limits that a transport has by default and core/decide.py decide what follows each
attempt. No other call is made to the server; benchmarks/simulation/ plays whole fleets. The bounds
and the warnings are core/policy_check.py's. All durations and instants are seconds from the call's
beginning.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import NamedTuple, TextIO

from ..core.backoff import Backoff
from ..core.call import Call
from ..core.decide import decide
from ..core.outcome import (
    IDEMPOTENT_METHODS,
    RETRYABLE_KINDS,
    Failure,
    FailureKind,
    Phase,
    Reason,
    SendAgain,
)
from ..core.policy import DEFAULT_PATIENCE, RetryPolicy
from ..core.policy_check import extremes, longest_attempt, worst_case
from ..core.request import Request
from ..engine.settings import limits_of
from ..limits.gate import RetryGate
from . import BOLD, YELLOW, Page, add_policy_arguments, chosen, code_of, complain, spoken, teach

ABOUT = (
    "Say what a retry policy does before it does it: what is retried, after which waits, how a call"
    " fares that meets a server in an outage, how long a call can take, and which fields are likely"
    " to hurt. Sends nothing: the calls are simulated, with the limits that a transport has by"
    " default, and each is the only one of its process."
)
EXAMPLES = """\
examples:
  forbear explain                                        the default policy
  forbear explain batch                                  a preset; also --policy in other commands
  forbear explain --max-attempts 5 --base 0.5 --cap 20 --jitter full --patience 30
  forbear explain gateway --slo 2 --attempt-timeout 0.5  do calls stay within two seconds?
  forbear explain myservice.http:POLICY                  what your code uses; imports the module
  forbear explain env:MYAPP_RETRY_                       what RetryPolicy.from_env would return

The attribute may be a RetryPolicy, a Retry of forbear, urllib3 or httpx-retries, a number of
retries, or a function that returns one of these.

exit status: 0 explained, 2 it could not be (an argument is wrong).
"""
MOST_ROWS = 10  # of a table; the last one is shown too
HANGS_FOR = 5.0  # seconds of an attempt without a response, by default: httpx's own timeout
ASSUMED = " (--attempt-timeout says another)"
OUTAGE = 5.0  # seconds
WHY = {
    "first": "first attempt",
    "fast": "fast first retry",
    "backoff": "after its backoff",
    "probe": "held, sent as a probe",
    "healthy": "held until the server was healthy",
}
ENDS = {
    "attempts-exhausted": "max_attempts were sent",
    "origin-unhealthy": "the server is unhealthy, and the call is no longer held",
    "deadline": "total_timeout is over",
    "not-retried": "the policy does not retry it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    teach(parser, ABOUT, EXAMPLES)
    add = parser.add_argument
    add("--slo", type=float, metavar="S", help="seconds within which a call has to end")
    add("--attempt-timeout", type=float, metavar="S", help="seconds of one attempt at most")
    add_policy_arguments(parser, "policy")


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Explain what the arguments describe, return the exit status."""
    try:
        policy, attempt = chosen(options), options.attempt_timeout
        warnings = policy.check(slo=options.slo, attempt_timeout=attempt)
        schedules = {"backoff": policy.backoff, "throttle_backoff": policy.throttle_backoff}
        count = min(policy.max_attempts - 1, MOST_ROWS)
        waits = {name: ranges(one, count) for name, one in schedules.items() if one is not None}
    except (ValueError, TypeError) as mistake:
        return complain("explain", mistake)
    page = Page(out)
    if ":" in (options.policy or ""):
        page.text(f"{options.policy}, as a policy:")
    page.text(code_of(policy), BOLD)
    page.line()
    if policy.max_attempts == 1:
        page.text("retried: nothing; every request is sent once")
    else:
        show(page, policy, waits)
        show_calls(page, policy, attempt)
        page.line()
    page.text(f"worst case: {longest(policy, attempt)}")
    if policy.total_timeout is not None:
        page.text(f"total_timeout: no call continues after {spoken(policy.total_timeout)}")
    if warnings:
        page.line()
    for warning in warnings:
        page.text(f"warning: {warning}", YELLOW)
    page.line()
    page.text(f"in addition, where these options are given: {waits_of_options(policy)}")
    return 0


def show(page: Page, policy: RetryPolicy, waits: dict[str, list[tuple[float, float]]]) -> None:
    """Print the failures that are retried, and the waits before each retry."""
    page.text(f"retried: {retried(policy)}")
    page.text(f"methods: {repeated(policy)}")
    for name, found in waits.items():
        page.line()
        if name == "throttle_backoff":
            page.text("after throttling: 429, 503 with a time, a used-up quota")
        page.table(("retry", "wait"), rows(found))
        if policy.max_attempts - 1 > MOST_ROWS:
            page.line("…")
        fast = getattr(getattr(policy, name), "fast_first", None)
        if fast is not None:
            page.text(f"one fast first retry: {between(0.0, fast)}, while the server is healthy")
    page.text(holding(policy))
    if policy.hints == "obey":
        most = spoken(policy.max_retry_after)
        page.text(f"A server may ask for up to {most}; for more, its response is returned.")
    if policy.vendors:
        page.text(f"The JSON body of a response is read as well: {', '.join(policy.vendors)}.")


def holding(policy: RetryPolicy) -> str:
    """Say what happens while the server is unhealthy."""
    if policy.patience is None:
        return "No gate holds or refuses its retries while the server is unhealthy: no patience."
    if not policy.patience:
        return "While the server is unhealthy a failed call ends at once: patience is 0."
    return (
        "While the server is unhealthy a failed call is held, for at most"
        f" {spoken(policy.patience)}, and sent as a probe, or once the server is healthy."
    )


def waits_of_options(policy: RetryPolicy) -> str:
    """Say how long a ConcurrencyLimit and a Pacing let a call wait."""
    bound = "or total_timeout is over" if policy.total_timeout is not None else "however long"
    found = f"with concurrency= each attempt waits until a slot is free, {bound}"
    if policy.hints == "obey":
        found += f"; with pacing= a call waits for up to {spoken(policy.max_retry_after)} in all"
    return found


def show_calls(page: Page, policy: RetryPolicy, attempt_timeout: float | None) -> None:
    """Print what a call does that is the only one of its process, in three kinds of outage."""
    if policy.total_timeout == 0:  # nothing is sent
        return
    timeout = attempt_timeout or policy.attempt_timeout or HANGS_FOR
    assumed = "" if timeout in (attempt_timeout, policy.attempt_timeout) else ASSUMED
    outages = {
        "a server that always responds with 503": unavailable(),
        f"a server that hangs, attempts time out after {spoken(timeout)}{assumed}": (
            hanging(timeout)
        ),
        f"a server that responds with 503 for {spoken(OUTAGE)}, then 200": unavailable(OUTAGE),
    }
    for name, outage in outages.items():
        calls = play(policy, outage)
        page.line()
        page.text(f"A lone call meets {name}:")
        page.table(("attempt", "sent after", "p95", "calls", "why then"), attempts(calls))
        for text in endings(calls):
            page.text(text)


def attempts(calls: list[LoneCall]) -> list[tuple[str, ...]]:
    """Return a row for each attempt, without those in the middle if they are many."""
    most = max(len(one.sent) for one in calls)
    found: list[tuple[str, ...]] = []
    for number in range(most):
        if MOST_ROWS <= number + 1 < most:
            if number + 1 == MOST_ROWS:
                found.append(("…", "", "", "", ""))
            continue
        sent = [one.sent[number] for one in calls if len(one.sent) > number]
        times = [at for at, _ in sent]
        causes = Counter(WHY.get(why, why) for _, why in sent)
        cells = (spoken(middle(times)), spoken(middle(times, 0.95)), share(len(sent), calls))
        found.append((str(number + 1), *cells, " or ".join(one for one, _ in causes.most_common())))
    return found


def endings(calls: list[LoneCall]) -> list[str]:
    """How and when the calls end, the most frequent way first."""
    found = []
    ways = Counter((one.reason, one.ended_at is None) for one in calls)
    for (reason, is_cut), count in ways.most_common():
        is_all = count == len(calls)
        who = "The call" if is_all else f"{share(count, calls)} of the calls"
        same = [one for one in calls if (one.reason, one.ended_at is None) == (reason, is_cut)]
        times = [one.sent[-1][0] if one.ended_at is None else one.ended_at for one in same]
        usual, late = spoken(middle(times)), spoken(middle(times, 0.95))
        spread = usual if usual == late else f"{usual} (p95 {late})"
        if is_cut:
            found.append(f"{who}: still under way after {spread}.")
        elif reason is None:
            found.append(f"{who} succeed{'s' * is_all} after {spread}.")
        else:
            words = f": {ENDS[reason]}" if reason in ENDS else ""
            found.append(f"{who} fail{'s' * is_all} after {spread}, {reason}{words}.")
    return found


def middle(numbers: Sequence[float], rank: float = 0.5) -> float:
    """The median, or another quantile."""
    return sorted(numbers)[int(rank * len(numbers))]


def share(count: int, calls: list[LoneCall]) -> str:
    return f"{count / len(calls):.0%}"


def retried(policy: RetryPolicy) -> str:
    """The failures that are retried."""
    found = [" ".join(map(str, sorted(policy.statuses)))] if policy.statuses else []
    if hinted := policy.hinted_statuses - policy.statuses:
        found.append(f"{' '.join(map(str, sorted(hinted)))} that name a time")
    kinds = sorted(kind.value for kind in policy.failures)
    every = policy.failures == RETRYABLE_KINDS
    found += (
        ["failed connections, timeouts, resets, responses that are not HTTP"] if every else kinds
    )
    return ", ".join(found) or "what a server asks to have retried"


def repeated(policy: RetryPolicy) -> str:
    safe = sorted(policy.methods, key=lambda name: (name not in IDEMPOTENT_METHODS, name))
    unexecuted = "".join(f", or after {one}" for one in sorted(policy.unexecuted_statuses))
    return (
        f"{' '.join(safe) or 'none'}; others only with an Idempotency-Key, or if nothing was sent"
        f"{unexecuted}"
    )


def ranges(schedule: Backoff, retries: int) -> list[tuple[float, float]]:
    """The shortest and the longest wait before each retry.

    Raises:
        ValueError: A schedule of the user's own returns something that is no time to wait.
    """
    found, bounds = [], (0.0, 0.0)
    for number in range(1, retries + 1):
        bounds = extremes(schedule, number, *bounds)
        found.append(bounds)
    return found


def rows(waits: list[tuple[float, float]]) -> list[tuple[str, ...]]:
    """Return the cells; equal rows become one."""
    found: list[tuple[str, str]] = []
    for number, (shortest, longest) in enumerate(waits, 1):
        wait = between(shortest, longest)
        if found and found[-1][1] == wait:
            found[-1] = (f"{found[-1][0].partition(' ')[0]} – {number}", wait)
        else:
            found.append((str(number), wait))
    return list(found)


def between(shortest: float, longest: float) -> str:
    """Return the range of a wait; a unit that both ends share is written once."""
    lower, upper = spoken(shortest), spoken(longest)
    if lower == upper:
        return upper
    number, _, unit = lower.partition(" ")
    return f"{number if not shortest or upper.endswith(f' {unit}') else lower} – {upper}"


def longest(policy: RetryPolicy, attempt_timeout: float | None) -> str:
    """The worst case, in words."""
    attempt = longest_attempt(policy, attempt_timeout)
    own = policy.replace(hints="ignore")
    attempts = f"{policy.max_attempts:,} attempt{'s' * (policy.max_attempts > 1)}"
    is_patient = policy.max_attempts > 1 and (policy.patience or 0.0) > DEFAULT_PATIENCE
    probes = PROBES * is_patient
    if attempt == inf:
        waits = spoken(worst_case(own.replace(total_timeout=None), 0.0))
        return (
            f"{attempts}, {waits} of waits (holds included); add --attempt-timeout for the"
            f" total{probes}"
        )
    worst, hinted = worst_case(own, attempt_timeout), worst_case(policy, attempt_timeout)
    asked = f"; {spoken(hinted)} if the server asks for {spoken(policy.max_retry_after)} each time"
    return (
        f"{spoken(worst)}, {attempts} of {spoken(attempt)} with all waits at their longest"
        f"{asked if hinted > worst else ''}{probes}"
    )


PROBES = "; attempts sent as probes come in addition, because with this patience they use up none"
CALLS = 200  # whose 95th percentile leaves ten
# A held call checks several times a second, so fewer calls are played for a long patience, and a
# call without an end is cut off.
MOST_WAITS = 100_000
REQUEST = Request("GET", "https://origin.invalid:443")
UNAVAILABLE = Failure(FailureKind.STATUS, Phase.ANSWERED, status=503)
TIMED_OUT = Failure(FailureKind.READ_TIMEOUT, Phase.SENT, error="ReadTimeout")
FIRST, FAST = "first", "fast"
NOT_RETRIED = "not-retried"  # the policy does not list it


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
        ended_at: When the call ended; None: it was still under way when it was cut off.
        reason: Why it failed; None: it succeeded.
    """

    sent: list[tuple[float, str]]
    ended_at: float | None
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
            why = str(hold.cause)
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
            reason = getattr(verdict, "reason", NOT_RETRIED)
            return LoneCall(sent, now, str(reason)), waits
        call.note(failure, now, *verdict)
        why = FAST if call.used_fast_first and not was_fast else str(verdict.source)
        now += verdict.delay
    return LoneCall(sent, None, None), MOST_WAITS
