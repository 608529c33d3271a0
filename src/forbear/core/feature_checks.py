"""Feature checks: of what few are given, and the parts of each feature's ``check`` of its option.

Each message says what was given, and the code to write instead.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, dataclass_transform

from .checks import T, check_number, rebuilt, shown, suggesting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from _typeshed import DataclassInstance


@dataclass_transform()
def begins_anew(cls: type[T]) -> type[T]:
    """Make a dataclass of an option's class, of which a copy in another process begins anew."""

    def reduced(self: DataclassInstance) -> tuple[object, ...]:
        return rebuilt, (type(self), {one.name: getattr(self, one.name) for one in fields(self)})

    made: Any = dataclass(eq=False, repr=False)(cls)  # a type checker lets no method be set
    made.__init__, made.__reduce__ = suggesting(made.__init__), reduced
    return cls


def check_is(option: str, value: object, cls: type[T], wanted: str, code: str) -> T:
    """Return the value, which must be a ``cls``; ``code`` makes one."""
    check_made(option, value, code)
    if not isinstance(value, cls):
        raise TypeError(f"{option} must be {wanted}, got {shown(value)}")
    return value


def check_share(name: str, value: float, least: float = 0, advice: str = "") -> None:
    check_number(name, value, least)
    if value > 1:
        raise ValueError(f"{name} must be at most 1, got {value}{advice}")


def check_made(option: str, value: object, code: str) -> None:
    """Refuse True, False and a class where an object is expected."""
    check_no_class(option, value)
    if isinstance(value, bool):
        code = code if value else "None"
        raise TypeError(f"{option} is an object or None, not {value}: write {option}={code}")


def check_no_class(option: str, value: object) -> None:
    if isinstance(value, type):
        code = f"{option}={value.__name__}(…)"
        raise TypeError(f"{option} was given the class {value.__name__}: write {code}")


def check_methods(option: str, value: object, methods: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse an object of the user's own whose methods are not these, with these arguments."""
    if missing := [name for name in methods if not callable(getattr(value, name, None))]:
        raise TypeError(f"{option} has no method {' and no '.join(missing)}, got {shown(value)}")
    for method, takes in methods.items():
        check_takes(f"{option}.{method}", getattr(value, method), *takes)


def check_takes(name: str, function: Callable[..., object], *takes: str) -> None:
    """Refuse a function of the user's that cannot be called with these arguments."""
    from inspect import signature  # takes a while to load, and few give functions

    by_place = [one for one in takes if not one.endswith("=")]
    by_name = {one[:-1]: one for one in takes if one.endswith("=")}
    try:
        signature(function).bind(*by_place, **by_name)
    except ValueError:  # of a built-in function that Python does not describe
        return
    except TypeError as error:
        fault = f"{getattr(function, '__qualname__', type(function).__name__)} is not: {error}"
        raise TypeError(f"{name} must be a function of ({', '.join(takes)}), {fault}") from None


def texts(name: str, given: Iterable[str], example: str) -> tuple[str, ...]:
    """Several str; others are named by their type only: the bytes of a URL may hold a password."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        kind = type(given).__name__
        raise TypeError(f"{name} must be an iterable of str, got a single {kind}; write {example}")
    strings = tuple(given)
    wrong = [type(string).__name__ for string in strings if not isinstance(string, str)]
    if wrong:
        raise TypeError(f"{name} must hold only str, got one {wrong[0]}; write {example}")
    return strings


def check_backoff(name: str, value: object) -> None:
    delay = getattr(value, "delay", None)
    if not callable(delay):
        raise TypeError(
            f"{name} must be Exponential(…), Fixed(…) or an object with"
            f" delay(attempt, previous, random), got {shown(value)}"
        )
    check_no_class(name, value)
    if not type(value).__module__.startswith("forbear."):  # ours do, and each request may have one
        check_takes(f"{name}.delay", delay, "attempt", "previous", "random")


def check_scope(scope: object, *names: str) -> None:
    """ValueError: it is none of the names, nor a function of the request."""
    if not callable(scope) and scope not in names:
        allowed = f"{', '.join(map(repr, names))} or a function of the request"
        raise ValueError(f"scope must be {allowed}, got {shown(scope)}")
    if callable(scope):
        check_takes("scope", scope, "request")
