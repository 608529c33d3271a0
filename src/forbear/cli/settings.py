"""Settings: the policy that the arguments of a command describe."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from ..core.headers.hints import VENDORS
from ..core.policy import RetryPolicy
from ..core.strategy import Exponential

PRESETS = ("latency_sensitive", "high_availability", "batch", "gateway", "disabled")
SCHEDULE = ("base", "cap", "factor", "jitter")


def words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def statuses(text: str) -> frozenset[int]:
    return frozenset(map(int, words(text)))


def jitter(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


NO_GATE = "none"  # of --patience; None is what argparse has for an option that is not given


def patience(text: str) -> float | str:
    return NO_GATE if text == NO_GATE else float(text)


# option, type, placeholder, help
ARGUMENTS: tuple[tuple[str, Any, str, str], ...] = (
    ("--max-attempts", int, "N", "attempts in all, the first one included"),
    ("--base", float, "S", "wait before the first retry, before jitter"),
    ("--cap", float, "S", "longest wait"),
    ("--factor", float, "X", "growth from one wait to the next"),
    ("--jitter", jitter, "KIND", "full, equal, decorrelated, none, or 0.2 for ±20 %%"),
    ("--patience", patience, "S", "longest hold while the server is unhealthy; none: no gate"),
    ("--max-retry-after", float, "S", "longest wait that a server may ask for"),
    ("--total-timeout", float, "S", "for the whole call"),
    ("--hints", str, "HOW", "obey or ignore what servers ask for"),
    ("--statuses", statuses, "N,N", "statuses that are retried"),
    ("--methods", lambda text: words(text.upper()), "A,B", "methods that are safe to retry"),
    ("--vendors", words, "A,B", f"hints in their bodies: {', '.join(VENDORS)}"),
)
NAMES = [option[2:].replace("-", "_") for option, *_ in ARGUMENTS]


def add_policy_arguments(parser: argparse.ArgumentParser, whole: str = "--policy") -> None:
    """Add what describes a policy; ``whole`` is the argument for all of it."""
    group = parser.add_argument_group("the policy (durations: seconds)")
    about = f"{', '.join(PRESETS)}; or module:attribute, a RetryPolicy or a Retry (the default)"
    how: dict[str, Any] = {} if whole.startswith("-") else {"nargs": "?"}
    group.add_argument(whole, metavar="POLICY", help=about, **how)
    for option, kind, placeholder, text in ARGUMENTS:
        group.add_argument(option, type=kind, metavar=placeholder, help=text)


def chosen(options: argparse.Namespace) -> RetryPolicy:
    """The policy that the arguments describe.

    Raises:
        ValueError, TypeError: They describe none.
    """
    policy = RetryPolicy() if options.policy is None else named(options.policy)
    given = {name: value for name in NAMES if (value := getattr(options, name)) is not None}
    if given.get("patience") == NO_GATE:
        given["patience"] = None
    vendors = given.pop("vendors", ())
    schedule = {name: given.pop(name) for name in SCHEDULE if name in given}
    if schedule:
        now = policy.backoff if isinstance(policy.backoff, Exponential) else Exponential()
        same = {name: getattr(now, name) for name in SCHEDULE}
        given["backoff"] = Exponential(**{**same, **schedule})
    policy = policy.replace(**given)
    return policy.for_vendors(*vendors) if vendors else policy


def named(name: str) -> RetryPolicy:
    """The preset of that name, or the policy at ``module:attribute``; importing runs the module.

    A Retry of another library becomes the nearest policy.
    """
    if name.replace("-", "_") in PRESETS:
        name = f"forbear:RetryPolicy.{name.replace('-', '_')}"
    module, colon, path = name.partition(":")
    if not colon:
        known = ", ".join(PRESETS)
        raise ValueError(f"there is no preset {name!r}; choose among {known}, or module:attribute")
    if os.getcwd() not in sys.path:  # as python -m has it
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = import_module(module)
        for attribute in path.split("."):
            value = getattr(value, attribute)
        value = value() if callable(value) else value
    except (Exception, SystemExit) as error:  # whatever the module does
        text = " ".join(str(error).split())
        raise ValueError(f"cannot get {name}: {type(error).__name__}: {text}") from None
    for own in (value, getattr(value, "policy", None)):  # of a forbear.urllib3.Retry
        if isinstance(own, RetryPolicy):
            return own
    for convert in (RetryPolicy.from_httpx_retries, RetryPolicy.from_urllib3):
        with suppress(TypeError):
            return convert(value)
    kind = type(value).__name__
    raise ValueError(f"{name} is a {kind}, not a RetryPolicy or Retry, nor a function of one")


def code_of(policy: RetryPolicy) -> str:
    """The policy as Python code: attempts, schedule, and all fields that are not the default's."""
    default = RetryPolicy()
    fields = [
        f"{name}={shown(getattr(policy, name))}"
        for name in RetryPolicy.FIELDS
        if name in ("max_attempts", "backoff") or getattr(policy, name) != getattr(default, name)
    ]
    return f"RetryPolicy({', '.join(fields)})"


def shown(value: object) -> str:
    if not isinstance(value, frozenset):
        return repr(value)
    members = sorted(repr(getattr(one, "value", one)) for one in value)  # a set has no order
    return f"{{{', '.join(members)}}}" if members else "set()"
