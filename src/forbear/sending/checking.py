"""Checking: says what is wrong with the options of a transport. Floor: acts.

Each message says what was given, and the code to write instead.
"""

from __future__ import annotations

from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from ..core.checks import a_switch, shown, to_install
from ..shared.gate import RetryGate
from ..shared.hedge import Hedge

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DEFAULTS", "check_options", "checked_contact", "is_async", "names"]

DEFAULTS: dict[str, Any] = {
    "gate": ...,  # one of the transport's own
    "budget": None,
    "breaker": None,
    "cooldown": "off",
    "origins": None,
    "strategy": None,
    "idempotency": None,
    "retry_if": None,
    "before_attempt": None,
    "on_event": (),
    "body_buffer": 0,
    "resume": True,
    "contact": None,
    "announce_attempts": False,
    "stop_outer_retries": False,
    "name": "default",
    "clock": None,
    "random": None,
}


def names() -> Any:
    """The module that knows what to write; loaded when something is refused."""
    from ..policy_tools import names

    return names


# What to write in place of True.
OBJECTS = {
    "gate": "RetryGate()",
    "budget": "RetryBudget()",
    "breaker": "CircuitBreaker()",
    "origins": 'Origins(["https://a", "https://b"])',
    "strategy": "AwsStandard()",
    "hedge": "Hedge()",
    "idempotency": 'IdempotencyKeys(origins=["https://api.example.com"])',
}


def check_options(given: dict[str, Any]) -> None:
    """Say what is wrong with the options, and what to write instead."""
    for option in (*OBJECTS, "clock"):
        value = given[option]
        if isinstance(value, type):
            code = names().code_of_class(value)
            raise TypeError(f"{option} was given the class {value.__name__}: write {option}={code}")
        if isinstance(value, bool) and option in OBJECTS:
            code = OBJECTS[option] if value else None
            raise TypeError(f"{option} is an object or None, not {value}: write {option}={code}")
    strategy, gate, breaker = given["strategy"], given["gate"], given["breaker"]
    if strategy is not None:
        if gate is not ... and gate is not None:
            raise ValueError("give strategy= or gate=, not both: a strategy decides by itself")
        for option in ("budget", "breaker", "cooldown", "origins"):
            if given[option] != DEFAULTS[option]:
                raise ValueError(
                    f"give strategy= or {option}=, not both: StandardStrategy takes {option}="
                    " itself"
                )
        if given["hedge"] is not None:
            raise ValueError("give strategy= or hedge=, not both: a strategy decides by itself")
        check_has("strategy", strategy, STRATEGY)
        check_quiet(strategy)
    is_breaker = all(hasattr(breaker, name) for name in BREAKER)
    if breaker is not None and not is_breaker:
        raise TypeError(f"breaker must be a CircuitBreaker, or None for none, got {shown(breaker)}")
    origins = given["origins"]
    if origins is not None and not hasattr(origins, "covers"):
        raise TypeError(
            'origins must be Origins(["https://a", "https://b"]), or None, got ' + shown(origins)
        )
    if given["hedge"] is not None and not isinstance(given["hedge"], Hedge):
        raise TypeError(f"hedge must be a Hedge, or None for none, got {shown(given['hedge'])}")
    if gate is not ... and gate is not None and not isinstance(gate, RetryGate):
        raise TypeError(f"gate must be a RetryGate, or None for none, got {shown(gate)}")
    if given["budget"] is not None:
        check_budget(given["budget"])
    if given["clock"] is not None:
        check_has("clock", given["clock"], ("monotonic", "time", "sleep", "asleep"))
    keys = given["idempotency"]
    if keys is not None and not hasattr(keys, "covers"):
        raise TypeError(f"idempotency must be IdempotencyKeys(), or None, got {shown(keys)}")
    for option in ("retry_if", "before_attempt"):
        if given[option] is not None and not callable(given[option]):
            raise TypeError(f"{option} must be a function, got {shown(given[option])}")
    listeners = given["on_event"]
    if callable(listeners):
        raise TypeError(
            f"on_event must be a list of functions, got one: write on_event=[{shown(listeners)}]"
        )
    given["on_event"] = listeners = tuple(listeners)
    for listener in filter(is_async, listeners):
        raise TypeError(
            f"on_event must be plain functions, got the coroutine function {shown(listener)}, which"
            " nobody would await; start a task in a plain function"
        )
    for option in ("body_buffer", "prefetch"):
        octets = given[option]
        if isinstance(octets, bool) or not isinstance(octets, int) or octets < 0:
            raise ValueError(f"{option} must be a number of bytes, 0 for none, got {shown(octets)}")
    for option in ("resume", "announce_attempts", "stop_outer_retries"):
        a_switch(option, given[option])


def is_async(function: Any) -> bool:
    """Is it a coroutine function, a ``functools.partial`` of one, or an object called as one?"""
    while isinstance(function, partial):
        function = function.func
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # inspected, not asked for
    )


BREAKER = ("admit", "record", "release", "refused_for")
STRATEGY = ("acquire_initial_token", "refresh_token", "record_success", "release")


def check_has(option: str, value: object, methods: Iterable[str]) -> None:
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{option} has no method {' and no '.join(missing)}, got {shown(value)}")


def check_budget(budget: object) -> None:
    methods = ("deposit", "spend", "refund")
    if not all(callable(getattr(budget, method, None)) for method in methods) or not hasattr(
        budget, "hinted_cost"
    ):
        raise TypeError(
            "budget must be a RetryBudget or a RedisBudget, or None for no limit, got "
            + shown(budget)
        )


def check_quiet(strategy: Any) -> None:
    try:
        _ = strategy.quiet
    except AttributeError as error:
        raise TypeError(
            f"strategy has no attribute quiet, got {shown(strategy)}; write quiet = True if nothing"
            " needs to be recorded of a call that succeeds at once, else False"
        ) from error
    except Exception:  # of a property: the first call meets it again
        return


def checked_contact(contact: str) -> str:
    """The ``From`` value of RFC 9110 section 10.1.2: one machine-usable address."""
    try:
        from email_validator import EmailNotValidError, validate_email
    except ImportError:
        raise ImportError(f"contact= needs email-validator: {to_install('contact')}") from None
    try:
        found = validate_email(
            contact, check_deliverability=False, allow_smtputf8=False, strict=True
        )
    except EmailNotValidError as error:
        raise ValueError(
            f"contact must be one e-mail address such as 'ops@example.com', got {shown(contact)}:"
            f" {error}"
        ) from None
    address: str | None = found.ascii_email
    assert address is not None
    return address
