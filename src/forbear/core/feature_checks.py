"""Feature checks: the parts of each feature's ``check`` of its own option.

Each message says what was given, and the code to write instead.
"""

from __future__ import annotations

from .checks import check_takes, shown, tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    T = TypeVar("T")


def check_is(option: str, value: object, cls: type[T], wanted: str, code: str) -> T:
    """Return the value, which must be a ``cls``; ``code`` makes one."""
    check_made(option, value, code)
    if not isinstance(value, cls):
        raise TypeError(f"{option} must be {wanted}, got {shown(value)}")
    return value


def check_made(option: str, value: object, code: str) -> None:
    """Refuse True, False and a class where an object is expected."""
    check_no_class(option, value)
    if isinstance(value, bool):
        code = code if value else "None"
        raise TypeError(f"{option} is an object or None, not {value}: write {option}={code}")


def check_no_class(option: str, value: object) -> None:
    if isinstance(value, type):
        code = tool("migration").code_of_class(value)
        raise TypeError(f"{option} was given the class {value.__name__}: write {option}={code}")


def check_has(option: str, value: object, methods: Iterable[str]) -> None:
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{option} has no method {' and no '.join(missing)}, got {shown(value)}")


def check_methods(option: str, value: object, methods: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse an object of the user's own whose methods do not take these arguments."""
    for method, takes in methods.items():
        check_takes(f"{option}.{method}", getattr(value, method), *takes)
