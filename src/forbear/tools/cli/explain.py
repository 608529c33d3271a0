"""``forbear explain``: what a policy retries, how long that takes, and what in it is likely to
hurt. Floor: acts.

Reads the arguments, prints the table or JSON, has the picture drawn. The figures are
core/schedule.py's and simulation/waits.py's, the warnings ``RetryPolicy.check``'s.
"""

from __future__ import annotations

import argparse
import json
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from ...core.outcome import IDEMPOTENT_METHODS, RETRYABLE_KINDS, FailureKind
from ...policy_tools.worst_case import PHASES, longest_attempt, worst_case
from ..simulation.waits import SEED, TIMES, outlook
from .page import BOLD, YELLOW, Page, complain, spoken, teach
from .settings import PRESET_NAMES, add_policy_arguments, chosen, code_of, value_of

if TYPE_CHECKING:
    from ...core.policy import RetryPolicy
    from ..simulation.waits import Retry

__all__ = ["add_arguments", "run"]

ABOUT = (
    "Say what a retry policy does before it does it: what is sent again, how long calls wait for it, how long a call"
    " can take, how many requests can come of one, and which fields are likely to hurt. Sends nothing."
)
EXAMPLES = f"""\
examples:
  forbear explain                                        the default policy
  forbear explain batch                                  a preset
  forbear explain --max-attempts 5 --base 0.5 --cap 20 --jitter full
  forbear explain myservice.http:POLICY                  what your code uses; imports the module
  forbear explain --from-urllib3 'Retry(10, status_forcelist=[503])'
  forbear explain --from-httpx-retries 'Retry(total=5, backoff_factor=0.5)'
  forbear explain gateway --slo 2 --attempt-timeout 0.5  do calls stay within two seconds?
  forbear explain --layers 3                             three services in a row retry so
  forbear explain batch --plot waits.png                 a picture (pip install 'forbear[plot]')

presets: {", ".join(PRESET_NAMES)}

'Retry(…)' is parsed, not run; literals, sets, HTTPStatus.X, HTTPMethod.X and exceptions of httpx
are understood.

exit status: 0 explained, 2 it could not be (an argument is wrong, a file cannot be written).
"""
MOST_ROWS = (
    20  # of the table; the waits after that are as long as the last, or nobody lives to see them
)
MOST_LAYERS = 10
# Kinds of failure that are told together.
GROUPS = (
    (
        "failed connections",
        {FailureKind.DNS, FailureKind.REFUSED, FailureKind.TLS, FailureKind.PROXY},
    ),
    ("timeouts", {kind for kind in RETRYABLE_KINDS if kind.value.endswith("timeout")}),
    ("resets", {FailureKind.RESET, FailureKind.UNPROCESSED}),
    ("answers that are not HTTP", {FailureKind.PROTOCOL}),
)
# What the fields are called where a policy comes from.
THEIRS = {
    "urllib3": {
        "backoff": "backoff_factor",
        "methods": "allowed_methods",
        "max_attempts": "total",
        "hints": "respect_retry_after_header",
        "max_retry_after": "retry_after_max",
    },
    "httpx-retries": {
        "backoff": "backoff_factor",
        "methods": "allowed_methods",
        "max_attempts": "total",
        "hints": "respect_retry_after_header",
        "max_retry_after": "max_backoff_wait",
        "total_timeout": "total_timeout",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    parser.add_argument(
        "policy",
        nargs="?",
        metavar="POLICY",
        help="a preset, or module:attribute (the default policy)",
    )
    parser.add_argument(
        "--slo", type=float, metavar="S", help="seconds within which a call has to be answered"
    )
    parser.add_argument(
        "--attempt-timeout", type=float, metavar="S", help="seconds that one attempt takes at most"
    )
    parser.add_argument(
        "--layers", type=int, metavar="N", help="how many services in a row retry so"
    )
    parser.add_argument(
        "--no-budget", action="store_true", help="as if the transport had budget=None"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the waits into FILE: .png, .svg or .pdf"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    add_policy_arguments(parser)


class Explained(NamedTuple):
    """All that is said of a policy."""

    policy: RetryPolicy
    library: str | None
    retries: list[Retry]
    throttled: list[Retry]
    attempt: float  # seconds at most, infinite if not known
    slo: float | None
    layers: int | None
    warnings: list[str]


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Explain what the arguments describe, return the exit status."""
    try:
        explained = explain(options)
        if options.plot is not None:
            from ..simulation.fan import (
                draw,
            )  # before anything is printed one learns that it is missing

            title = (
                f"{explained.policy.max_attempts} attempts, {value_of(explained.policy.backoff)}"
            )
            draw(options.plot, explained.retries, title=title, slo=explained.slo)
    except (ValueError, TypeError, ImportError) as mistake:
        return complain("explain", mistake)
    except OSError as error:
        return complain("explain", f"cannot write {options.plot}: {error.strerror or error}")
    if options.json:
        print(json.dumps(as_json(explained), indent=1), file=out)
    else:
        show(Page(out), explained)
    return 0


def explain(options: argparse.Namespace) -> Explained:
    """Work out what the arguments ask for.

    Raises:
        ValueError, TypeError: One of them cannot be.
    """
    policy, library = chosen(options)
    if options.layers is not None and not 1 <= options.layers <= MOST_LAYERS:
        raise ValueError(f"--layers must be from 1 to {MOST_LAYERS}, got {options.layers}")
    warnings = policy.check(slo=options.slo, attempt_timeout=options.attempt_timeout)
    if policy.max_attempts > 1:
        if options.no_budget:
            warnings.append(
                f"budget: none: when all calls fail, {load(policy)}; leave the transport its RetryBudget()"
            )
        elif library is not None:
            warnings.append(
                f"budget: {library} has none: when all calls fail, {load(policy)}; forbear's transports have one"
            )
    count = min(policy.max_attempts - 1, MOST_ROWS)
    throttled = [] if policy.throttle_backoff is None else outlook(policy.throttle_backoff, count)
    return Explained(
        policy, library, outlook(policy.backoff, count), throttled, longest_attempt(policy, options.attempt_timeout),
        options.slo, options.layers, warnings,
    )  # fmt: skip


def load(policy: RetryPolicy) -> str:
    return f"the load is {policy.max_attempts} times as high"


def show(page: Page, explained: Explained) -> None:
    policy, library = explained.policy, explained.library
    if library is not None:
        page.text(f"The nearest policy to that Retry of {library}, which sends no more often:")
    page.text(code_of(policy), indent="    ", colour=BOLD)
    page.line()
    if policy.max_attempts == 1:
        page.text("retried: nothing; every request is sent once")
    else:
        page.text(f"retried: {retried(policy)}", indent="  ")
        page.text(f"methods: {repeated(policy)}", indent="  ")
        page.line()
        page.table(*table(explained.retries))
        if policy.max_attempts - 1 > MOST_ROWS:
            page.line(f"… and {policy.max_attempts - 1 - MOST_ROWS:,} more")
        page.text(how(explained.retries, policy), indent="  ")
        if explained.throttled:
            page.heading("after throttling: 429, 503 with a time, a used-up quota")
            page.table(*table(explained.throttled))
            page.text(how(explained.throttled, policy), indent="  ")
    page.line()
    for line in limits(explained):
        page.text(line, indent="  ")
    if explained.warnings:
        page.line()
    for warning in explained.warnings:
        field, _, text = warning.partition(": ")
        theirs = THEIRS.get(library or "", {}).get(field)
        page.marked(
            "warning:",
            f"{field if theirs is None else f'{field} ({theirs} there)'}: {text}",
            YELLOW,
        )


def retried(policy: RetryPolicy) -> str:
    """After what."""
    outcomes = [" ".join(map(str, sorted(policy.statuses)))] if policy.statuses else []
    if policy.hinted_statuses - policy.statuses:
        outcomes.append(
            f"{' '.join(map(str, sorted(policy.hinted_statuses - policy.statuses)))} that name a time"
        )
    left = set(policy.failures)
    for name, kinds in GROUPS:
        if kinds <= left:
            outcomes.append(name)
            left -= kinds
    outcomes += sorted(kind.value for kind in left)
    return ", ".join(outcomes) or "what a server asks to have sent again"


def repeated(policy: RetryPolicy) -> str:
    usual = [
        name
        for name in ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY")
        if name in policy.methods
    ]
    names = " ".join([*usual, *sorted(policy.methods - IDEMPOTENT_METHODS)]) or "none by itself"
    return f"{names}; others only with an Idempotency-Key, or if nothing was sent"


def table(retries: list[Retry]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows; rows that are the same are one."""
    heads = ("retry", "wait between", "mean", "all so far: mean", "p95", "worst")
    rows: list[tuple[str, ...]] = []
    for one in retries:
        cells = (
            spoken(one.longest)
            if one.shortest == one.longest
            else f"{short(one)} – {spoken(one.longest)}",
            *map(spoken, (one.mean, one.so_far, one.quantiles[-1], one.worst)),
        )
        if rows and rows[-1][1:] == cells:
            rows[-1] = (f"{rows[-1][0].partition(' ')[0]} – {one.number}", *cells)
        else:
            rows.append((str(one.number), *cells))
    return heads, rows


def short(one: Retry) -> str:
    """The lower end of a range, without the unit if both have the same."""
    lower, upper = spoken(one.shortest), spoken(one.longest)
    if not one.shortest:
        return "0"
    return lower.partition(" ")[0] if lower.partition(" ")[2] == upper.partition(" ")[2] else lower


def how(retries: list[Retry], policy: RetryPolicy) -> str:
    """Where the figures come from, and what else decides about a wait."""
    simulated = f"{TIMES:,} simulated calls (seed {SEED})"
    if any(one.mean_is_drawn for one in retries):
        source = f"Means and p95 are of {simulated} where they cannot be worked out."
    elif any(one.quantiles_are_drawn for one in retries):
        source = f"Means are worked out, p95 is of {simulated} where it cannot be."
    else:
        source = "All figures are worked out."
    hints = "What a server asks for (Retry-After and relatives) is ignored."
    if policy.hints == "obey":
        spread = f" (plus up to {policy.hint_spread * 100:.3g} %)" if policy.hint_spread else ""
        hints = (
            f"Retry-After and its relatives win over the wait up to {spoken(policy.max_retry_after)}{spread};"
            " above that the response is returned at once."
        )
    at_once = ""
    if getattr(policy.backoff, "immediate_first", False):
        at_once = " One retry of a call comes at once, if an idle connection was lost."
    return f"{source} {hints}{at_once}"


def limits(explained: Explained) -> list[str]:
    """How long, and how often, at most."""
    policy, attempt = explained.policy, explained.attempt
    attempts = f"{policy.max_attempts:,} attempt{'s' * (policy.max_attempts > 1)}"
    own, hinted = worst_cases(explained)
    lines = []
    if attempt == inf:
        waits = worst_case(policy.replace(hints="ignore", total_timeout=None), 0.0)
        lines.append(
            f"worst case: {attempts} and {spoken(waits)} of waits; give --attempt-timeout to know what that is in all"
        )
    else:
        phases = (
            f" (attempt_timeout {PHASES} times)" if longest_attempt(policy, None) == attempt else ""
        )
        lines.append(
            f"worst case: {spoken(own)}, {attempts} of {spoken(attempt)}{phases} with all waits at their longest"
        )
    if own < inf and hinted > own:
        lines[-1] += (
            f"; {spoken(hinted)} if the server asks for {spoken(policy.max_retry_after)} each time"
        )
    if policy.total_timeout is not None:
        lines.append(f"total_timeout: no call goes on after {spoken(policy.total_timeout)}")
    if explained.slo is not None:
        lines.append(
            f"SLO {spoken(explained.slo)}: retries may take a third of it, {spoken(explained.slo / 3)},"
            " so that a call that needed them is in time"
        )
    if explained.layers is not None:
        product = " × ".join([str(policy.max_attempts)] * explained.layers)
        total = policy.max_attempts**explained.layers
        lines.append(
            f"layers: {explained.layers} that retry so make up to {product} = {total:,} requests of one, when the last"
            f" is down; forbear's RetryContextMiddleware keeps it at {policy.max_attempts}"
        )
    return lines


def worst_cases(explained: Explained) -> tuple[float, float]:
    """By the policy's own waits, and with what a server may ask for."""
    policy, attempt = explained.policy, None if explained.attempt == inf else explained.attempt
    return worst_case(policy.replace(hints="ignore"), attempt), worst_case(policy, attempt)


def as_json(explained: Explained) -> dict[str, Any]:
    policy = explained.policy
    own, hinted = (None if one == inf else one for one in worst_cases(explained))
    return {
        "policy": {name: plain(value) for name, value in policy._fields().items()},
        "code": code_of(policy),
        "converted_from": explained.library,
        "retries": [row(one) for one in explained.retries],
        "retries_after_throttling": [row(one) for one in explained.throttled],
        "attempt_timeout": None if explained.attempt == inf else explained.attempt,
        "worst_case": hinted,
        "worst_case_without_hints": own,
        "slo": explained.slo,
        "layers": explained.layers,
        "most_requests": None
        if explained.layers is None
        else policy.max_attempts**explained.layers,
        "warnings": [
            {"field": field, "text": text}
            for field, _, text in (warning.partition(": ") for warning in explained.warnings)
        ],
    }


def row(one: Retry) -> dict[str, Any]:
    told = one._asdict()
    told["p05"], told["p50"], told["p95"] = told.pop("quantiles")
    return told


def plain(value: object) -> Any:
    if isinstance(value, frozenset):
        return sorted(getattr(one, "value", one) for one in value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
