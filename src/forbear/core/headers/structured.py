"""Structured fields (RFC 9651): bare items, keys and parameters.

Each scanner takes the text and the position to start at, follows the algorithm of RFC 9651 §4.2
step by step, and returns the thing read with the position after it. It raises ValueError for text
that the RFC says fails to parse, and nothing else for any text; every character is read a bounded
number of times. Messages name the position, never the value.

Loaded with the first RateLimit header on a failure, or the first key that may be one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Kind: TypeAlias = str  # as §3.3 names it: a Token is no String and a Date no Integer
    Value: TypeAlias = str | int | float | bool | bytes

# Sets, because `"" in "0123"` is true.

# Sets, because `"" in "0123"` is true.
_DIGIT = frozenset("0123456789")
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_LETTERS = _LOWER | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_KEY_START = _LOWER | {"*"}
_KEY = _LOWER | _DIGIT | frozenset("_-.*")
_TOKEN_START = _LETTERS | {"*"}
_TOKEN = _LETTERS | _DIGIT | frozenset("!#$%&'*+-.^_`|~:/")
_BASE64 = _LETTERS | _DIGIT | frozenset("+/")
_LOWER_HEX = _DIGIT | frozenset("abcdef")


def bare_item(text: str, at: int) -> tuple[Kind, Value, int]:
    """Scan one bare item (§4.2.3.1).

    Returns:
        Its kind, its value and the position after it. A Date is its Unix seconds; a Decimal is a
        float, which holds its 15 digits exactly enough to compare.
    """
    first = text[at : at + 1]
    if first == '"':
        string, at = _string(text, at + 1)
        return "String", string, at
    if first in _DIGIT or first == "-":
        number, at = _number(text, at)
        return ("Integer" if isinstance(number, int) else "Decimal"), number, at
    if first in _TOKEN_START:
        end = run(text, at + 1, _TOKEN)
        return "Token", text[at:end], end
    if first == "?":
        if text[at + 1 : at + 2] not in {"0", "1"}:
            raise ValueError(f"a Boolean is ?0 or ?1, and there is neither at position {at}")
        return "Boolean", text[at + 1] == "1", at + 2
    if first == ":":
        raw_bytes, at = _byte_sequence(text, at + 1)
        return "Byte Sequence", raw_bytes, at
    if first == "@":
        seconds, end = _number(text, at + 1)
        if not isinstance(seconds, int):
            raise ValueError(f"a Date is whole seconds, unlike the Decimal at position {at + 1}")
        return "Date", seconds, end
    if first == "%":
        shown, at = _display_string(text, at + 1)
        return "Display String", shown, at
    found = ascii(first) if first else "nothing"
    raise ValueError(f"no structured-field item begins with {found}, at position {at}")


def parameters(text: str, at: int) -> tuple[dict[str, tuple[Kind, Value]], int]:
    """Scan the parameters that follow an item (§4.2.3.2); there may be none.

    Of equal names the last one counts; a name without a value is Boolean true.
    """
    found: dict[str, tuple[Kind, Value]] = {}
    while text[at : at + 1] == ";":
        name, at = key(text, skip_spaces(text, at + 1))
        found[name] = "Boolean", True
        if text[at : at + 1] == "=":
            kind, value, at = bare_item(text, at + 1)
            found[name] = kind, value
    return found, at


def key(text: str, at: int) -> tuple[str, int]:
    """Scan the name of a parameter or Dictionary member (§4.2.3.3)."""
    if text[at : at + 1] not in _KEY_START:
        raise ValueError(f"a name begins with a-z or *, and there is none at position {at}")
    end = run(text, at + 1, _KEY)
    return text[at:end], end


def skip_spaces(text: str, at: int) -> int:
    """Return the position of the next character that is not SP (a tab is not SP)."""
    return run(text, at, frozenset(" "))


def run(text: str, at: int, allowed: frozenset[str], most: int | None = None) -> int:
    """Return the position of the next character that is not ``allowed``, at most ``most`` on."""
    end = len(text) if most is None else min(len(text), at + most)
    while at < end and text[at] in allowed:
        at += 1
    return at


def _string(text: str, at: int) -> tuple[str, int]:  # §4.2.5; `at` is after the opening quote
    opened = at - 1
    characters: list[str] = []
    while at < len(text):
        character = text[at]
        if character == '"':
            return "".join(characters), at + 1
        if character == "\\":
            at += 1
            character = text[at : at + 1]
            if character not in {'"', "\\"}:
                raise ValueError(f'only " and \\ may follow a backslash, unlike at position {at}')
        elif not " " <= character <= "~":
            raise ValueError(f"a String holds only %x20-7E, got {character!a} at position {at}")
        characters.append(character)
        at += 1
    raise ValueError(f"the String that begins at position {opened} is not closed")


def _number(text: str, at: int) -> tuple[int | float, int]:  # §4.2.4
    start = at
    digits = at + 1 if text[at : at + 1] == "-" else at
    at = run(text, digits, _DIGIT, most=16)  # one more than is legal, to see that it is too long
    whole = at - digits
    if whole == 0:
        raise ValueError(f"a number needs a digit at position {at}")
    if text[at : at + 1] != ".":
        if whole > 15:
            raise ValueError(f"an Integer has at most 15 digits, unlike that at position {start}")
        return int(text[start:at]), at
    fraction = at + 1
    at = run(text, fraction, _DIGIT, most=4)
    if whole > 12 or not 1 <= at - fraction <= 3:
        raise ValueError(
            "a Decimal has 1 to 12 digits before and 1 to 3 after its point,"
            f" unlike that at position {start}"
        )
    return float(text[start:at]), at


def _byte_sequence(text: str, at: int) -> tuple[bytes, int]:  # §4.2.7; `at` is after the colon
    end_of_data = run(text, at, _BASE64)
    end = run(text, end_of_data, frozenset("="))
    length, padding = end_of_data - at, end - end_of_data
    # Missing padding is no fault there (a SHOULD); one lone base64 character encodes nothing.
    is_base64 = length % 4 != 1 and padding <= 2 and (length or not padding)
    if text[end : end + 1] != ":" or not is_base64:
        raise ValueError(f"the Byte Sequence at position {at - 1} is not base64 between colons")
    from binascii import a2b_base64  # only here: hardly any field that we read has one

    return a2b_base64(text[at:end_of_data] + "=" * (-length % 4)), end + 1


def _display_string(text: str, at: int) -> tuple[str, int]:  # §4.2.10; `at` is after the percent
    end = text.find('"', at + 1)
    inside = text[at + 1 : end]
    if text[at : at + 1] != '"' or end < 0 or not all(" " <= char <= "~" for char in inside):
        raise ValueError(f'a Display String is %x20-7E between %" and ", unlike at {at - 1}')
    plain, *escaped = inside.split("%")
    if not all(part[:1] in _LOWER_HEX and part[1:2] in _LOWER_HEX for part in escaped):
        raise ValueError(f"two lower-case hexadecimal digits follow each % after position {at}")
    raw_bytes = plain.encode() + b"".join(bytes.fromhex(p[:2]) + p[2:].encode() for p in escaped)
    try:
        return raw_bytes.decode(), end + 1
    except UnicodeDecodeError:
        raise ValueError(f"the Display String at position {at - 1} is not UTF-8") from None


def parse_item(field_value: str) -> str | None:
    """Return the String of an Item field value, which may be empty; None for a malformed one."""
    try:
        return string_item(field_value)
    except ValueError:
        return None


def string_item(field_value: str) -> str:
    if not isinstance(field_value, str):
        raise TypeError(f"field value must be a str, got {type(field_value).__name__}; decode it")
    try:
        kind, value, at = bare_item(field_value, skip_spaces(field_value, 0))
        at = skip_spaces(field_value, parameters(field_value, at)[1])
    except ValueError as error:
        raise ValueError(
            f"field value is no structured-field Item: {error}; write the key in double quotes"
        ) from None
    if not isinstance(value, str) or kind != "String":
        raise ValueError(f"field value must be a String, got a {kind}; write it in double quotes")
    if at < len(field_value):
        raise ValueError(
            f"field value must be one Item, got more text at position {at}; send one key, one line"
        )
    return value
