"""Fields: the header lines of an answer, and the grammar that they share. Floor: decides.

Knows lines, list members and numbers; the meaning of a field belongs to hints.py, quota.py and
dates.py. Python's own parsers accept more than the grammar (``int`` takes ``1_000`` and ``١٢٠``,
``float`` ``1e3`` and ``nan``, ``str.strip`` removes NBSP), so text is checked here before it is
converted.

Sources: RFC 9110 §5.1 (names), §5.3 (several lines), §5.5 and §5.6.3 (OWS), §5.6.1.2 (empty
members).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    Line: TypeAlias = tuple[str, str] | tuple[bytes, bytes]
    Found: TypeAlias = dict[str, list[str]]

__all__ = ["OWS", "Names", "collect", "is_digits", "members", "number"]

OWS = " \t"  # optional whitespace is nothing else (RFC 9110 §5.6.3)

_DIGITS = "0123456789"
# Digits that can matter: 10**30 nanoseconds exceed every limit; a fraction is cut after as many.
_LONGEST = 30


class Names:
    """Lower-case header names, for either type that a library may hand over.

    Two dicts, because a look-up of text among octets is a BytesWarning under ``python -bb``.
    """

    __slots__ = ("lengths", "octets", "text")

    def __init__(self, names: Iterable[str]) -> None:
        self.text = {name: name for name in names}
        self.octets = {name.encode(): name for name in self.text}
        self.lengths = frozenset(map(len, self.text))


def collect(lines: Iterable[Line], names: Names) -> Found:
    """Return the trimmed values of the lines called one of ``names``, in wire order, by name."""
    text, octets, lengths = names.text, names.octets, names.lengths
    found: Found = {}
    for name, value in lines:
        if len(name) not in lengths:  # most lines end here
            continue
        known = octets.get(name.lower()) if isinstance(name, bytes) else text.get(name.lower())
        # The Kelvin sign lowers to "k", and is no letter of a header name.
        if known is None or not name.isascii():
            continue
        shown = value.decode("latin-1") if isinstance(value, bytes) else value
        found.setdefault(known, []).append(shown.strip(OWS))
    return found


def members(text: str) -> list[str]:
    """Return the comma-separated members, trimmed, without empty ones."""
    return [member for part in text.split(",") if (member := part.strip(OWS))]


def number(text: str) -> float | None:
    """Return the value of ``1*DIGIT [ "." 1*DIGIT ]``, infinite if beyond all use; None for any
    other text.
    """
    if is_digits(text) and len(text) <= _LONGEST:
        return float(text)
    whole, point, fraction = text.partition(".")
    if not is_digits(whole) or (point and not is_digits(fraction)):
        return None
    whole = whole.lstrip("0") or "0"
    return float(f"{whole}.{fraction[:_LONGEST]}") if len(whole) <= _LONGEST else float("inf")


def is_digits(text: str) -> bool:
    """Whether ``text`` is one or more of 0-9; ``str.isdigit`` also accepts digits like ²."""
    return text != "" and not text.strip(_DIGITS)
