"""Settings: the policy that the arguments of a command describe. Floor: acts."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.backoff import Exponential, Fixed
from ...core.outcome import RETRYABLE_KINDS, FailureKind
from ...core.policy import RetryPolicy
from ...policy_tools.presets import PRESETS
from .retries import httpx_retries_retry, urllib3_retry

if TYPE_CHECKING:
    import argparse

__all__ = ["PRESET_NAMES", "Chosen", "add_policy_arguments", "chosen", "code_of", "value_of"]

FIELDS = ("max_attempts", "max_retry_after", "total_timeout", "hints", "statuses", "methods")
SCHEDULE = ("base", "cap", "factor", "jitter")
PRESET_NAMES = tuple(PRESETS)


class Chosen(NamedTuple):
    """A policy, and where it comes from.

    Attributes:
        policy: As described.
        library: Whose settings it was converted from: "urllib3", "httpx-retries" or None.
    """

    policy: RetryPolicy
    library: str | None = None


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Say how a policy is described; ``options.policy`` is for the command to add."""
    group = parser.add_argument_group(
        "the policy (durations: seconds); what is left out is as by default"
    )
    add = group.add_argument
    add("--max-attempts", type=int, metavar="N", help="sends in all, the first one included")
    add("--base", type=float, metavar="S", help="wait before the first retry, before jitter")
    add("--cap", type=float, metavar="S", help="longest wait")
    add("--factor", type=float, metavar="X", help="growth from one wait to the next")
    add(
        "--jitter",
        metavar="KIND",
        help="full, equal, decorrelated, none, or a number: 0.2 is ±20 %%",
    )
    add("--max-retry-after", type=float, metavar="S", help="longest wait that a server may ask for")
    add("--total-timeout", type=float, metavar="S", help="for the whole call")
    add("--hints", metavar="HOW", help="obey or ignore what servers ask for")
    add("--statuses", metavar="N,N", help="statuses that are retried")
    add("--methods", metavar="A,B", help="methods that are safe to repeat")
    add(
        "--vendors",
        metavar="A,B",
        help="what these use for 'try again', too: github, anthropic, cloudflare",
    )
    add(
        "--from-urllib3",
        metavar="RETRY",
        help="the nearest policy to a urllib3 'Retry(…)', or to a number",
    )
    add(
        "--from-httpx-retries",
        metavar="RETRY",
        help="the nearest one to a 'Retry(…)' of httpx-retries",
    )


def chosen(options: argparse.Namespace) -> Chosen:
    """The policy that the arguments describe.

    Raises:
        ValueError, TypeError: They describe none.
    """
    start = starting_point(options)
    policy = start.policy
    schedule = {
        name: getattr(options, name) for name in SCHEDULE if getattr(options, name) is not None
    }
    if "jitter" in schedule:
        schedule["jitter"] = jitter(schedule["jitter"])
    changes = {
        name: getattr(options, name) for name in FIELDS if getattr(options, name) is not None
    }
    if "statuses" in changes:
        changes["statuses"] = statuses(changes["statuses"])
    if "methods" in changes:
        changes["methods"] = frozenset(word.upper() for word in words(changes["methods"]))
    if schedule:
        now = policy.backoff._fields() if isinstance(policy.backoff, Exponential) else {}
        changes["backoff"] = Exponential(**{**now, **schedule})
    policy = policy.replace(**changes)
    if options.vendors is not None:
        policy = policy.for_vendors(*words(options.vendors))
    return start._replace(policy=policy)


def starting_point(options: argparse.Namespace) -> Chosen:
    given = [
        name
        for name, value in (
            ("a policy by name", options.policy),
            ("--from-urllib3", options.from_urllib3),
            ("--from-httpx-retries", options.from_httpx_retries),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other; give one of them")
    if options.from_urllib3 is not None:
        return Chosen(RetryPolicy.from_urllib3(urllib3_retry(options.from_urllib3)), "urllib3")
    if options.from_httpx_retries is not None:
        retry = httpx_retries_retry(options.from_httpx_retries)
        return Chosen(RetryPolicy.from_httpx_retries(retry), "httpx-retries")
    if options.policy is None:
        return Chosen(RetryPolicy())
    name = options.policy.replace("-", "_")
    if name in PRESETS:
        return Chosen(getattr(RetryPolicy, name)())
    if ":" in options.policy:
        return found(options.policy)
    raise ValueError(
        f"there is no preset {options.policy!r}; choose among {', '.join(PRESETS)}, or write module:attribute"
    )


def found(place: str) -> Chosen:
    """The policy at ``module:attribute``, or the nearest one to what is there; importing runs the
    module.
    """
    module, _, path = place.partition(":")
    if (
        os.getcwd() not in sys.path
    ):  # as python -m does, and every server that is told module:attribute
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
        if callable(value):
            value = value()
    except (Exception, SystemExit) as error:  # whatever their module does
        told = " ".join(str(error).split())
        raise ValueError(f"cannot get {place}: {type(error).__name__}: {told}") from None
    if isinstance(value, RetryPolicy):
        return Chosen(value)
    own = getattr(value, "policy", None)
    if isinstance(own, RetryPolicy):
        return Chosen(own)
    for library, convert in (
        ("httpx-retries", RetryPolicy.from_httpx_retries),
        ("urllib3", RetryPolicy.from_urllib3),
    ):
        try:
            return Chosen(convert(value), library)
        except TypeError:
            continue
    raise ValueError(
        f"{place} is a {type(value).__name__}, not a RetryPolicy, a Retry, or a function that returns one"
    )


def words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def statuses(text: str) -> frozenset[int]:
    try:
        return frozenset(map(int, words(text)))
    except ValueError:
        raise ValueError(f"--statuses must be numbers with commas between, got {text!r}") from None


def jitter(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def code_of(policy: RetryPolicy) -> str:
    """The policy as Python code that makes it: how often and when, and what is not as by
    default.
    """
    default = RetryPolicy()
    always = ("max_attempts", "backoff") if policy.max_attempts > 1 else ("max_attempts",)
    fields = [
        f"{name}={value_of(getattr(policy, name))}"
        for name in RetryPolicy.FIELDS
        if name in always or getattr(policy, name) != getattr(default, name)
    ]
    return f"RetryPolicy({', '.join(fields)})"


def value_of(value: object) -> str:
    """The value of one field as Python code."""
    if isinstance(value, frozenset):
        if not value:
            return "set()"
        if value <= RETRYABLE_KINDS:
            return f"{{{', '.join(f'FailureKind.{FailureKind(kind).name}' for kind in sorted(value))}}}"
        return f"{{{', '.join(map(repr, sorted(value)))}}}"
    if isinstance(value, Exponential):
        told = {"factor": 2.0, "immediate_first": False}
        fields = [
            f"{name}={one!r}"
            for name, one in value._fields().items()
            if name not in told or told[name] != one
        ]
        return f"Exponential({', '.join(fields)})"
    if isinstance(value, Fixed):
        return f"Fixed({value.seconds!r})"
    return repr(value)
