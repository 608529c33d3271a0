"""Checks: what users write, refused with a clear error or kept in a frozen object."""

from __future__ import annotations

from math import inf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


def shown(value: object) -> str:
    """A short repr, so that a message stays readable, without the password of a URL."""
    text = repr(value)
    scheme, is_url, rest = text.partition("://")
    if is_url and "@" in rest:
        text = f"{scheme}://…@{rest.rpartition('@')[2]}"
    return text if len(text) <= 60 else text[:57] + "…"


def to_install(extra: str) -> str:
    """The command that installs an extra.

    forbear is on no index, so its name alone would install whatever anyone publishes under it.
    """
    return f"pip install '.[{extra}]' in a checkout of forbear"


def check_number(name: str, value: object, least: float = -inf, advice: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    if not -inf < value < inf:
        raise ValueError(f"{name} must be finite, got {shown(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(value)}{advice}")


def check_positive_int(name: str, value: object, advice: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}{advice}")


def check_duration(name: str, value: object, *, none: str | None = None, zero: bool = True) -> None:
    """Seconds, at least 0; ``none`` says what None would mean where it is allowed."""
    if value is None and none is not None:
        return
    hint = f"; use None for {none}" if none is not None else ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, got {shown(value)}{hint}")
    if not 0 <= value < inf:  # also refuses NaN
        raise ValueError(f"{name} must be at least 0 and finite, got {shown(value)}{hint}")
    if value == 0 and not zero:
        raise ValueError(f"{name} must be more than 0 seconds, got {shown(value)}{hint}")


def check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def a_set(name: str, value: Any, example: str) -> frozenset[Any]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a set such as {example}, got {shown(value)}")
    return frozenset(value)


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


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        names = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {names}, got {shown(value)}")


@dataclass_transform(frozen_default=True)  # so that type checkers refuse an assignment too
class Frozen:
    """Base of immutable objects whose fields are the keyword arguments they are made of.

    Compared, hashed, shown and pickled by them. Written by hand because a frozen dataclass costs a
    millisecond at import, and importing a client is part of every program's start.

    A subclass names them in ``FIELDS`` and sets them in ``__init__`` with ``_set``.
    """

    __slots__ = ()
    FIELDS: tuple[str, ...] = ()

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.FIELDS}

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self._refuse(name, "set")

    def __delattr__(self, name: str) -> NoReturn:
        self._refuse(name, "deleted")

    def _refuse(self, name: str, change: str) -> NoReturn:
        cls = type(self).__name__
        raise AttributeError(
            f"{cls} cannot be changed, so {name!r} was not {change}; make a new one"
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self), *self._fields().values()))

    def __repr__(self) -> str:
        """Return the code that makes it: what differs from the default."""
        init: Any = type(self).__init__
        defaults = init.__defaults__ or ()
        usual = dict(zip(self.FIELDS[-len(defaults) :], defaults, strict=False))
        usual |= init.__kwdefaults__ or {}
        shown = (
            f"{name}={_in_order(value)}"
            for name, value in self._fields().items()
            if name not in usual or value != usual[name]
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[object, ...]:
        # What pickle and copy do by default with slots goes through __setattr__.
        return rebuilt, (type(self), self._fields())


def _in_order(value: object) -> str:
    if not isinstance(value, frozenset):
        return repr(value)
    # A set's own order changes from run to run; an enum's member is shown by its value.
    members = sorted(repr(getattr(member, "value", member)) for member in value)
    return f"{{{', '.join(members)}}}" if members else "set()"


def rebuilt(cls: Callable[..., object], fields: dict[str, object]) -> object:
    """Make a copy; ``__reduce__`` alone cannot pass keywords, nor ``partial`` what is copied."""
    return cls(**fields)
