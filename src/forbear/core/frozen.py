"""Frozen: the base of the objects that a user configures once.

Compared, hashed, shown and pickled by its fields. Written by hand because a frozen dataclass costs
a millisecond at import, and importing a client is part of every program's start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


@dataclass_transform(frozen_default=True)  # so that type checkers refuse an assignment too
class Frozen:
    """Base of immutable objects whose fields are the keyword arguments they are made of.

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
