"""Option checks: each option that a transport is given, checked before anything is sent.

Loaded with the first transport that is given one. An option that is a feature's is checked by the
feature, which is loaded only where it is given.
"""

from __future__ import annotations

from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from ..core.checks import check_bool, shown, tool
from ..core.feature_checks import check_methods, check_no_class, check_takes
from ..core.policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCK = {"monotonic": (), "time": (), "sleep": ("seconds",), "asleep": ("seconds",)}


def check_options(
    who: str,
    policy: object,
    options: Mapping[str, object],
    defaults: Mapping[str, object],
    addons: Mapping[str, str],
    *,
    awaits: bool,
    layered: bool,
) -> dict[str, object]:
    """Check the policy and the options of the class ``who``; return all options.

    Raises:
        TypeError, ValueError: What is wrong with them, and what to write instead.
    """
    # Some read inside what their caller does not stream, whatever its size.
    known = [name for name, value in defaults.items() if name != "prefetch" or value]
    if not options.keys() <= set(known):
        raise TypeError(tool("migration").unknown(who, options, known))
    given = {**defaults, **options}
    if not isinstance(policy, RetryPolicy):
        raise TypeError(
            f"policy must be a RetryPolicy, got {shown(policy)}: write"
            f" policy={tool('migration').policy_of(policy)}"
        )
    for option, name in addons.items():
        value = given[option]
        if isinstance(defaults[option], bool):  # a switch
            check_bool(option, value)
        elif value is not None and value is not defaults[option]:
            module = import_module(f"forbear.{name}")
            if hasattr(module, "layer") and not layered:
                raise TypeError(f"{who} takes no {option}: {module.REFUSED}")
            given[option] = module.check(value)
            if hasattr(module, "check_beside"):
                module.check_beside(given, defaults)
    check_plain(given)
    for option, value in () if awaits else given.items():
        if is_async(value):
            raise TypeError(
                f"{who} is synchronous and would not await {option}, got the coroutine"
                f" function {shown(value)}; give it a plain function"
            )
    return given


def check_plain(given: dict[str, Any]) -> None:
    """Check the options that are no feature's."""
    clock = given["clock"]
    if given["random"] is not None:
        check_takes("random", given["random"])
    if clock is not None:
        check_no_class("clock", clock)
        check_methods("clock", clock, CLOCK)
    listeners = given["on_event"]
    if callable(listeners):
        raise TypeError(
            f"on_event must be a list of functions, got one: write on_event=[{shown(listeners)}]"
        )
    given["on_event"] = listeners = tuple(listeners)
    for listener in listeners:
        if isinstance(listener, type):
            name = listener.__name__
            raise TypeError(f"on_event was given the class {name}: write on_event=[{name}(…)]")
        check_takes("on_event", listener, "event")
    for listener in filter(is_async, listeners):
        raise TypeError(
            f"on_event must be plain functions, got the coroutine function {shown(listener)}, which"
            " nobody would await; start a task in a plain function"
        )
    for option in ("body_buffer", "prefetch"):
        size = given[option]
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"{option} must be a number of bytes, 0 for none, got {shown(size)}")


def is_async(function: object) -> bool:
    """Is it a coroutine function, a ``functools.partial`` of one, or an object called as one?"""
    called = getattr(function, "__call__", None)  # noqa: B004  # inspected, not tested for
    return iscoroutinefunction(function) or iscoroutinefunction(called)
