"""``forbear explain``: what a policy retries, how long that takes, what may hurt. Floor: acts.

The figures are policy_tools/worst_case.py's and simulation/waits.py's, the warnings
``RetryPolicy.check``'s.
"""

from __future__ import annotations

import argparse
from math import inf
from typing import TextIO

from ...core.outcome import IDEMPOTENT_METHODS, RETRYABLE_KINDS
from ...core.policy import RetryPolicy
from ...policy_tools.worst_case import longest_attempt, worst_case
from ..simulation.waits import CALLS, Retry, outlook
from . import complain, teach
from .settings import add_policy_arguments, chosen, code_of
from .tables import BOLD, YELLOW, Page, spoken

__all__ = ["add_arguments", "run"]

ABOUT = (
    "Say what a retry policy does before it does it: what is sent again, how long calls wait for"
    " it, how long a call can take, and which fields are likely to hurt. Sends nothing."
)
EXAMPLES = """\
examples:
  forbear explain                                        the default policy
  forbear explain batch                                  a preset; also --policy in other commands
  forbear explain --max-attempts 5 --base 0.5 --cap 20 --jitter full
  forbear explain gateway --slo 2 --attempt-timeout 0.5  do calls stay within two seconds?
  forbear explain myservice.http:POLICY                  what your code uses; imports the module

The attribute may be a RetryPolicy, a Retry of forbear, urllib3 or httpx-retries, a number of
retries, or a function that returns one of these.

exit status: 0 explained, 2 it could not be (an argument is wrong).
"""
HEADS = ("retry", "wait between", "mean", "all so far: mean", "p95", "worst")
MOST_ROWS = 20  # of the table; later waits are as long as the last


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    add = parser.add_argument
    add("--slo", type=float, metavar="S", help="seconds within which a call has to be answered")
    add("--attempt-timeout", type=float, metavar="S", help="seconds of one attempt at most")
    add_policy_arguments(parser, "policy")


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Explain what the arguments describe, return the exit status."""
    try:
        policy, attempt = chosen(options), options.attempt_timeout
        warnings = policy.check(slo=options.slo, attempt_timeout=attempt)
        count = min(policy.max_attempts - 1, MOST_ROWS)
        schedules = {"backoff": policy.backoff, "throttle_backoff": policy.throttle_backoff}
        waits = {name: outlook(one, count) for name, one in schedules.items() if one is not None}
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
    page.text(f"worst case: {longest(policy, attempt)}")
    if policy.total_timeout is not None:
        page.text(f"total_timeout: no call goes on after {spoken(policy.total_timeout)}")
    if warnings:
        page.line()
    for warning in warnings:
        page.text(f"warning: {warning}", YELLOW)
    return 0


def show(page: Page, policy: RetryPolicy, waits: dict[str, list[Retry]]) -> None:
    """Print the failures that are retried, and the waits before each retry."""
    page.text(f"retried: {retried(policy)}")
    page.text(f"methods: {repeated(policy)}")
    for name, retries in waits.items():
        page.line()
        if name == "throttle_backoff":
            page.text("after throttling: 429, 503 with a time, a used-up quota")
        page.table(HEADS, rows(retries))
        if len(retries) == MOST_ROWS:
            page.line("…")
    page.text(f"Means and p95 are those of {CALLS:,} simulated calls.")
    page.text(holding(policy))
    if policy.hints == "obey":
        most = spoken(policy.max_retry_after)
        page.text(f"A server may ask for up to {most}; for more, its answer is returned.")
    if policy.vendors:
        page.text(f"The JSON body of an answer is read as well: {', '.join(policy.vendors)}.")


def holding(policy: RetryPolicy) -> str:
    """What happens while the server is unwell, in words."""
    if not policy.patience:
        return "After two failures in a row of a server a call ends with its answer: no patience."
    return (
        "After two failures in a row of a server its calls are held, each for at most"
        f" {spoken(policy.patience)}, and go one by one as other calls succeed."
    )


def retried(policy: RetryPolicy) -> str:
    """The failures that are retried."""
    found = [" ".join(map(str, sorted(policy.statuses)))] if policy.statuses else []
    if hinted := policy.hinted_statuses - policy.statuses:
        found.append(f"{' '.join(map(str, sorted(hinted)))} that name a time")
    kinds = sorted(kind.value for kind in policy.failures)
    every = policy.failures == RETRYABLE_KINDS
    found += ["failed connections, timeouts, resets, answers that are not HTTP"] if every else kinds
    return ", ".join(found) or "what a server asks to have sent again"


def repeated(policy: RetryPolicy) -> str:
    safe = sorted(policy.methods, key=lambda name: (name not in IDEMPOTENT_METHODS, name))
    return (
        f"{' '.join(safe) or 'none'}; others only with an Idempotency-Key, or if nothing was sent"
    )


def rows(retries: list[Retry]) -> list[tuple[str, ...]]:
    """Cells; rows that are the same are one."""
    found: list[tuple[str, ...]] = []
    for one in retries:
        figures = (one.mean, one.mean_so_far, one.p95_so_far, one.worst_so_far)
        cells = (between(one), *map(spoken, figures))
        if found and found[-1][1:] == cells:
            found[-1] = (f"{found[-1][0].partition(' ')[0]} – {one.number}", *cells)
        else:
            found.append((str(one.number), *cells))
    return found


def between(one: Retry) -> str:
    """The range of a wait; a unit that both ends share stands once."""
    lower, upper = spoken(one.shortest), spoken(one.longest)
    if lower == upper:
        return upper
    number, _, unit = lower.partition(" ")
    return f"{number if not one.shortest or upper.endswith(f' {unit}') else lower} – {upper}"


def longest(policy: RetryPolicy, attempt_timeout: float | None) -> str:
    """The worst case, in words."""
    attempt = longest_attempt(policy, attempt_timeout)
    own = policy.replace(hints="ignore")
    attempts = f"{policy.max_attempts:,} attempt{'s' * (policy.max_attempts > 1)}"
    if attempt == inf:
        waits = spoken(worst_case(own.replace(total_timeout=None), 0.0))
        return (
            f"{attempts} and {waits} of waits, those held among them; with"
            " --attempt-timeout it says what that is in all"
        )
    worst, hinted = worst_case(own, attempt_timeout), worst_case(policy, attempt_timeout)
    asked = f"; {spoken(hinted)} if the server asks for {spoken(policy.max_retry_after)} each time"
    return (
        f"{spoken(worst)}, {attempts} of {spoken(attempt)} with all waits at their longest"
        f"{asked if hinted > worst else ''}"
    )
