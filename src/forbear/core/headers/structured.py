"""Structured fields (RFC 9651): Strings with parameters, alone or in a List, and Dictionaries.

The grammar of RFC 9651 §4.2 as regular expressions. All repetitions are possessive, so that every
character is read a bounded number of times. Values stay text, which tells their kind: a String
begins with a quote, an Integer is digits alone. Loaded with the first RateLimit header on a
failure, or the first key that may be one.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_STRING = r'"(?:[\x20!#-\[\]-~]|\\["\\])*+"'
_KEY = r"[a-z*][a-z0-9_.*-]*+"
_OCTET = "%[89ab][0-9a-f]"  # a further one of a character in UTF-8
_BARE_ITEM = rf"""(?>
    -?[0-9]{{1,12}}\.[0-9]{{1,3}}
    | @?-?[0-9]{{1,15}}
    | {_STRING}
    | [A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*+
    | \?[01]
    | :(?!=)(?:[A-Za-z0-9+/]{{4}})*+(?:[A-Za-z0-9+/]{{2,3}})?+={{0,2}}:  # without padding too
    | %"(?:[\x20!#$&-~] | %[0-7][0-9a-f] | %(?:c[2-9a-f]|d[0-9a-f]){_OCTET}
        | %e(?:[0-9abcef]{_OCTET}|d%[89][0-9a-f]){_OCTET} | %f[0-4](?:{_OCTET}){{3}})*+"
)"""
_PARAMETER = rf";\x20*+({_KEY})(?:=({_BARE_ITEM}))?+"
_PARAMETERS = rf"(?:;\x20*+{_KEY}(?:={_BARE_ITEM})?+)*+"
_ITEM = _BARE_ITEM + _PARAMETERS
_INNER_LIST = rf"\(\x20*+(?:{_ITEM}(?:\x20++{_ITEM})*+\x20*+)?+\)"
_NEXT = r"[\x20\t]*+(?:\Z|,[\x20\t]*+(?!\Z))"  # a comma, but not after the last member

_parameter = re.compile(_PARAMETER, re.VERBOSE)
_item = re.compile(rf"\x20*+({_STRING}){_PARAMETERS}\x20*+", re.VERBOSE)
_list_member = re.compile(rf"({_STRING})({_PARAMETERS}){_NEXT}", re.VERBOSE)
_dictionary_member = re.compile(
    rf"({_KEY})(?:=(?:({_BARE_ITEM})|{_INNER_LIST}))?+{_PARAMETERS}{_NEXT}", re.VERBOSE
)


def parse_item(field_value: str) -> str | None:
    """Return the String of an Item field value, which may be empty; None for a malformed one."""
    if not isinstance(field_value, str):
        raise TypeError(f"field value must be a str, got {type(field_value).__name__}; decode it")
    found = _item.fullmatch(field_value)
    return None if found is None else _unquoted(found[1])


def parse_list(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the Strings of a List, each with its parameters by name.

    Of equal names the last one counts (§4.2.3.2); one without a value has none.

    Raises:
        ValueError: The text is malformed, or has another member than a String.
    """
    for found in _members(_list_member, text):
        yield _unquoted(found[1]), dict(_parameter.findall(found[2]))


def parse_dictionary(text: str) -> Iterator[tuple[str, str]]:
    """Yield all names with their bare items; an Inner List, or no value, is empty.

    Raises:
        ValueError: The text is malformed.
    """
    for found in _members(_dictionary_member, text):
        yield found[1], found[2] or ""


def _members(member: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        found = member.match(text, at)
        if found is None:
            raise ValueError(f"no member of a structured field at position {at}")
        yield found
        at = found.end()


def _unquoted(string: str) -> str:
    return re.sub(r"\\(.)", r"\1", string[1:-1])
