"""Idempotency keys: what is sent, what is refused, and which requests carry one.

The corpus states K0-K7 and S1; the tables here are worked out by hand for the clauses it leaves
out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from forbear import idempotency
from forbear.core.headers import keys
from forbear.core.headers.keys import (
    GENERATED_FOR,
    PROFILES,
    RECOGNISED,
    STYLES,
    carries_key,
    check_profile,
    names_a_key,
    parse,
    parse_item,
    serialize,
)

CORPUS = json.loads(
    (Path(__file__).parents[1] / "corpus" / "idempotency_keys.json").read_text(encoding="utf-8")
)

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
HEX = UUID.replace("-", "")
ZERO = "00000000-0000-0000-0000-000000000000"


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CORPUS["cases"] if case["kind"] == kind]


# --- the corpus -------------------------------------------------------------------------------


def test_every_case_of_the_corpus_is_run_somewhere() -> None:
    run_here = {"serialize", "parse", "profile", "generate"}
    run_through_the_transports = {"lifecycle"}
    assert {case["kind"] for case in CORPUS["cases"]} == run_here | run_through_the_transports
    assert all(of_kind(kind) for kind in run_here | run_through_the_transports)


@pytest.mark.parametrize("case", of_kind("serialize"))
def test_corpus_serialize(case: dict[str, Any]) -> None:
    if case["expect"]["valid"]:
        assert serialize(**case["inputs"]) == case["expect"]["field_value"]
    else:
        with pytest.raises(ValueError):
            serialize(**case["inputs"])


@pytest.mark.parametrize("case", of_kind("parse"))
def test_corpus_parse(case: dict[str, Any]) -> None:
    value, expect = case["inputs"]["field_value"], case["expect"]
    assert parse_item(value) == (expect["key"] if expect["valid"] else None)
    if expect["valid"] and expect["usable"]:
        assert parse(value) == expect["key"]
    else:
        with pytest.raises(ValueError):
            parse(value)


@pytest.mark.parametrize("case", of_kind("profile"))
def test_corpus_profile(case: dict[str, Any]) -> None:
    key, profile = case["inputs"]["key"], case["inputs"]["profile"]
    if case["expect"]["valid"]:
        check_profile(key, profile)
        assert serialize(key, profile=profile) == key
    else:
        with pytest.raises(ValueError):
            check_profile(key, profile)
        with pytest.raises(ValueError):
            serialize(key, profile=profile)


@pytest.mark.parametrize("case", of_kind("generate"))
def test_corpus_generate(case: dict[str, Any]) -> None:
    assert re.fullmatch(case["expect"]["regex"], idempotency.generate(**case["inputs"]))


# --- K1, K2, K3: what is sent -----------------------------------------------------------------


@pytest.mark.parametrize("character", [chr(n) for n in range(0x21, 0x7F)])
def test_raw_sends_every_visible_ascii_character_verbatim(character: str) -> None:
    assert serialize(character) == character
    assert serialize(f"a{character}b", style="raw") == f"a{character}b"


@pytest.mark.parametrize("character", [chr(n) for n in range(0x20, 0x7F)])
def test_sf_string_sends_spaces_too_and_escapes_two_characters(character: str) -> None:
    # RFC 9651 4.1.6: a backslash before DQUOTE and backslash, nothing else is changed.
    sent = "\\" + character if character in {'"', "\\"} else character
    assert serialize(character, style="sf-string") == f'"{sent}"'


BAD_CHARACTERS = [
    *(pytest.param(chr(n), id=f"x{n:02x}") for n in (*range(0x20), 0x7F)),
    pytest.param("\x80", id="c1-control"),
    pytest.param("\xa0", id="no-break-space"),
    pytest.param("ü", id="latin-1"),
    pytest.param("１", id="fullwidth-digit"),  # NFKC would make it "1"
    pytest.param("\u212a", id="kelvin-sign"),  # lower-cases to "k"
    pytest.param("\u2028", id="line-separator"),
    pytest.param("\U0001f511", id="emoji"),
    pytest.param("\ud800", id="lone-surrogate"),
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("character", BAD_CHARACTERS)
def test_no_other_character_is_ever_sent_wherever_it_stands(character: str, style: str) -> None:
    for key in (character, f"{character}ab", f"a{character}b", f"ab{character}"):
        with pytest.raises(ValueError, match=rf"at position {key.index(character)}"):
            serialize(key, style=style)


@pytest.mark.parametrize("key", [" ", " a", "a ", "a b", "a  b"])
def test_spaces_are_kept_in_sf_string_and_refused_in_raw(key: str) -> None:
    assert serialize(key, style="sf-string") == f'"{key}"'
    with pytest.raises(ValueError, match='style="sf-string"'):
        serialize(key)


@pytest.mark.parametrize(
    ("key", "style", "sent"),
    [
        ('"', "sf-string", r'"\""'),
        ("\\", "sf-string", r'"\\"'),
        ('\\"', "sf-string", r'"\\\""'),
        ('"abc"', "sf-string", r'"\"abc\""'),
        ('""', "raw", '""'),  # K1 has no opinion on quotes; S1 will not take it for a key
        ("ABC", "raw", "ABC"),  # K3: not case-folded
        ("a,b;c=d", "raw", "a,b;c=d"),
        ("a%20b", "raw", "a%20b"),
    ],
)
def test_nothing_is_repaired(key: str, style: str, sent: str) -> None:
    assert serialize(key, style=style) == sent


@pytest.mark.parametrize("style", STYLES)
def test_the_limit_of_255_counts_the_key_and_not_its_quoting(style: str) -> None:
    assert len(serialize('"' * 255, style=style)) == (255 if style == "raw" else 2 * 255 + 2)
    with pytest.raises(ValueError, match="at most 255 characters, got 256"):
        serialize('"' * 256, style=style)


@pytest.mark.parametrize("key", [None, 17, b"abc", uuid.UUID(UUID)])
def test_a_key_that_is_no_str_is_a_type_error(key: Any) -> None:
    with pytest.raises(TypeError, match=f"got {type(key).__name__}"):
        serialize(key)
    with pytest.raises(TypeError):
        check_profile(key, "generic")


def test_an_unknown_style_or_profile_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="style must be one of 'raw', 'sf-string', got 'quoted'"):
        serialize("abc", style="quoted")
    with pytest.raises(
        ValueError, match=r"profile must be one of 'generic', 'stripe', .*, got 'Stripe'"
    ):
        serialize("abc", profile="Stripe")
    with pytest.raises(ValueError, match="profile must be one of"):
        check_profile("abc", "paypal")
    with pytest.raises(ValueError, match="profile must be one of"):
        idempotency.generate(profile="paypal")
    with pytest.raises(ValueError, match=r"got \[\]"):
        serialize("abc", style=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "key", ["", "s3cret-\x07-s3cret", "s3cret" * 50, "s3cretü", "s3cret s3cret\n"]
)
def test_messages_never_repeat_a_key(key: str, style: str, profile: str) -> None:
    with pytest.raises(ValueError) as refused:
        serialize(key, style=style, profile=profile)
    message = str(refused.value)
    assert "s3cret" not in message
    assert message.isprintable()
    assert message.isascii()


# --- K4: parse --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('  "abc"', "abc"),  # RFC 9651 4.2 steps 2 and 6: SP before and after is discarded
        ('"abc"   ', "abc"),
        ('" abc "', " abc "),
        (r'"\\"', "\\"),
        (r'"\"\\"', '"\\'),
        (r'"\\\""', '\\"'),
        ('"' + "k" * 1024 + '"', "k" * 1024),  # 3.3.3: parsers MUST support 1024
        ('"' + "k" * 100_000 + '"', "k" * 100_000),
        # Parameters, 4.2.3.2: every bare item and every shape of name; SP only after the semicolon.
        ('"abc";v', "abc"),
        ('"abc";  v', "abc"),
        ('"abc";v=?0;w=?1', "abc"),
        ('"abc";v=1;v=2', "abc"),
        ('"abc";v=-999999999999999', "abc"),
        ('"abc";v=007', "abc"),
        ('"abc";v=-0', "abc"),
        ('"abc";v=123456789012.345', "abc"),
        ('"abc";v=1.0', "abc"),
        ('"abc";v="x;y=\\"z\\""', "abc"),
        ('"abc";v=""', "abc"),
        ('"abc";v=*tok/en:x', "abc"),
        ('"abc";v=text/html', "abc"),
        ('"abc";v=::', "abc"),
        ('"abc";v=:aGVsbG8=:', "abc"),
        ('"abc";v=:aGVsbG8:', "abc"),  # 4.2.7: SHOULD NOT fail for missing padding
        ('"abc";v=:aGVsbG9=:', "abc"),  # nor for pad bits that are not zero
        ('"abc";v=@1659578233', "abc"),
        ('"abc";v=@-1', "abc"),
        ('"abc";v=%"f%c3%bc"', "abc"),
        ('"abc";v=%""', "abc"),
        ('"abc";*a-b_c.d*1=1', "abc"),
        ('"abc";v=1  ', "abc"),
    ],
)
def test_parse_reads_an_item_whose_bare_item_is_a_string(value: str, key: str) -> None:
    assert parse(value) == key
    assert parse_item(value) == key


MALFORMED = {
    "only-spaces": "   ",
    "leading-tab": '\t"abc"',  # 4.2 discards SP only
    "trailing-tab": '"abc"\t',
    "trailing-newline": '"abc"\n',
    "integer": "17",
    "decimal": "1.5",
    "token": "*a",
    "byte-sequence": ":YWJj:",
    "boolean": "?1",
    "date": "@1659578233",
    "display-string": '%"abc"',
    "inner-list": '("abc")',
    "list": '"a","b"',
    "list-of-one": '"a",',
    "two-items": '"a" "b"',
    "dictionary": 'k="abc"',
    "text-after": '"abc"d',
    "text-before": 'd"abc"',
    "typographic-quotes": "“abc”",
    "lone-quote": '"',
    "three-quotes": '"""',
    "escape-at-end": '"abc\\',
    "escaped-last-quote": '"abc\\"',
    "escaped-letter": '"\\a"',
    "escaped-apostrophe": '"\\\'"',
    "nul": '"a\x00b"',
    "tab-inside": '"a\tb"',
    "newline-inside": '"a\r\nb"',
    "del-inside": '"a\x7fb"',
    "latin-1-inside": '"ü"',
    "wide-inside": '"\U0001f511"',
    "surrogate-inside": '"\ud800"',
    "parameter-after-space": '"abc" ;v=1',
    "parameter-after-tab": '"abc";\tv=1',
    "parameter-without-name": '"abc";',
    "parameter-empty-name": '"abc";=1',
    "parameter-double-semicolon": '"abc";;v',
    "parameter-upper-case": '"abc";V=1',
    "parameter-digit-first": '"abc";1v=1',
    "parameter-non-ascii-name": '"abc";ü=1',
    "parameter-without-value": '"abc";v=',
    "parameter-space-before-value": '"abc";v= 1',
    "parameter-space-before-equals": '"abc";v =1',
    "parameter-inner-list": '"abc";v=(1)',
    "parameter-two-values": '"abc";v=1 2',
    "parameter-comma": '"abc";v=1,w',
    "integer-16-digits": '"abc";v=1234567890123456',
    "integer-minus": '"abc";v=-',
    "integer-plus": '"abc";v=+1',
    "integer-other-digits": '"abc";v=١',
    "integer-underscore": '"abc";v=1_0',
    "decimal-13-digits": '"abc";v=1234567890123.1',
    "decimal-4-places": '"abc";v=1.2345',
    "decimal-no-places": '"abc";v=1.',
    "decimal-no-whole": '"abc";v=.5',
    "decimal-exponent": '"abc";v=1.0e3.',
    "boolean-bare": '"abc";v=?',
    "boolean-other": '"abc";v=?2',
    "boolean-word": '"abc";v=?true',
    "bytes-unclosed": '"abc";v=:YWJj',
    "bytes-url-alphabet": '"abc";v=:_-8=:',
    "bytes-only-padding": '"abc";v=:=:',
    "bytes-much-padding": '"abc";v=:YQ===:',
    "bytes-padding-inside": '"abc";v=:YQ==YQ==:',
    "bytes-one-character": '"abc";v=:Y:',
    "bytes-space": '"abc";v=:YW Jj:',
    "date-decimal": '"abc";v=@1.5',
    "date-bare": '"abc";v=@',
    "display-no-quote": '"abc";v=%abc',
    "display-unclosed": '"abc";v=%"abc',
    "display-upper-case": '"abc";v=%"%C3%BC"',
    "display-short-escape": '"abc";v=%"%c"',
    "display-escape-at-end": '"abc";v=%"%',
    "display-not-utf-8": '"abc";v=%"%c3"',
    "display-surrogate": '"abc";v=%"%ed%a0%80"',
    "display-control": '"abc";v=%"\x01"',
    "string-unclosed": '"abc";v="x',
}


@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED)
def test_parse_is_strict(value: str) -> None:
    assert parse_item(value) is None
    with pytest.raises(ValueError, match=r"^field value"):
        parse(value)


def test_the_empty_string_parses_but_is_no_usable_key() -> None:
    assert parse_item('""') == ""
    assert parse_item('"";v=1') == ""
    with pytest.raises(ValueError, match="parses but is no usable key"):
        parse(' "" ')


@pytest.mark.parametrize("value", [None, b'"abc"', 17])
def test_a_field_value_that_is_no_str_is_a_type_error(value: Any) -> None:
    for read in (parse, parse_item):
        with pytest.raises(TypeError, match=f"must be a str, got {type(value).__name__}"):
            read(value)


@pytest.mark.parametrize(
    "value",
    [
        "s3cret",
        '"s3cret',
        '"s3cret\\n"',
        '"s3cret", "s3cret"',
        '"s3cret";V',
        ":s3cret:",
        '"s3cret";a="s3cret',
    ],
)
def test_parse_never_repeats_the_value(value: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse(value)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "value",
    [
        '"' + "\\\\" * 200_000,
        '"a"' + ";a=1" * 100_000 + "!",
        '"a";v=' + "1" * 400_000,
        '"a";v=:' + "Y" * 400_000,
        '"a";v=%"' + "%41" * 100_000,
        " " * 400_000,
        '"a"' + " " * 400_000 + "x",
        '"a";' + " " * 400_000,
    ],
    ids=lambda value: value[:8],
)
def test_a_hostile_value_takes_linear_time(value: str) -> None:
    # 400 kB in well under a second; a quadratic scan of it would take minutes.
    assert parse_item(value) is None


# --- K5: profiles -----------------------------------------------------------------------------

ACCEPTED = [
    ("generic", "k" * 255),
    ("generic", '!"#~'),
    ("stripe", "k" * 255),
    ("stripe", "KG5LxwFBepaKHyUD"),
    ("adyen", "k" * 64),
    ("adyen", "~" * 64),
    ("amazon-pay", "k" * 32),
    ("amazon-pay", "AZaz09-_"),
    ("amazon-pay", "-"),
    ("worldline-direct", "k" * 40),
    ("worldline-direct", UUID),
    ("aws-client-token", "k" * 64),
    ("aws-client-token", "!~"),
    ("google-request-id", UUID.upper()),  # RFC 9562 4: output lower case, input either
    ("google-request-id", "00000000-0000-0000-0000-000000000001"),
    ("google-request-id", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ("google-request-id", "123e4567-e89b-12d3-a456-426655440010"),  # version 1
    ("repeatability", UUID),
    ("repeatability", UUID.upper()),
    ("repeatability", ZERO),  # only Google's documentation refuses it
]
REFUSED = [
    ("generic", "k" * 256),
    ("stripe", "k" * 256),
    ("stripe", ""),
    ("adyen", "k" * 65),
    ("adyen", ""),
    ("adyen", "ü"),
    ("amazon-pay", "k" * 33),
    ("amazon-pay", UUID),
    ("amazon-pay", "a.b"),
    ("amazon-pay", "a~b"),
    ("amazon-pay", "a+b"),
    ("amazon-pay", "é"),
    ("amazon-pay", ""),
    ("worldline-direct", "k" * 41),
    ("worldline-direct", "kü"),
    ("worldline-direct", ""),
    ("aws-client-token", "k" * 65),
    ("aws-client-token", "kü"),
    ("google-request-id", ZERO),
    *(
        (profile, key)
        for profile in ("google-request-id", "repeatability")
        for key in (
            "",
            "order-17",
            HEX,  # without hyphens
            "{" + UUID + "}",
            "urn:uuid:" + UUID,
            UUID + "0",
            UUID[:-1],
            UUID[:-1] + "g",
            UUID.replace("-", "_"),
            "8e03978e40d5-43e8-bc93-6894-a57f9324",  # 36 characters, hyphens elsewhere
            UUID + " ",
            UUID[:-1] + "４",  # a fullwidth digit, which int(…, 16) would take
        )
    ),
    *(
        (profile, key)
        for profile in PROFILES
        for key in ("a b", "a\tb", "a\x00b", "a\r\nb", "a\x7fb")
    ),
]


@pytest.mark.parametrize(("profile", "key"), ACCEPTED)
def test_what_each_vendor_documents_is_accepted(profile: str, key: str) -> None:
    check_profile(key, profile)
    assert serialize(key, profile=profile) == key
    assert parse(serialize(key, style="sf-string", profile=profile)) == key


@pytest.mark.parametrize(("profile", "key"), REFUSED)
def test_what_no_vendor_promises_to_take_is_refused(profile: str, key: str) -> None:
    with pytest.raises(ValueError):
        check_profile(key, profile)
    with pytest.raises(ValueError):
        serialize(key, profile=profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_only_the_generic_profile_leaves_spaces_to_the_style(profile: str) -> None:
    """K2 allows "order 17" in sf-string; K5 asks K1 of every named vendor."""
    if profile == "generic":
        assert serialize("order 17", style="sf-string", profile=profile) == '"order 17"'
    else:
        with pytest.raises(ValueError, match="visible ASCII"):
            serialize("order 17", style="sf-string", profile=profile)


def test_messages_of_profiles_say_what_to_do() -> None:
    with pytest.raises(
        ValueError, match=r"'adyen' allows at most 64 characters, got 65; use .*generate\("
    ):
        check_profile("k" * 65, "adyen")
    with pytest.raises(
        ValueError, match=r"got '\.' at position 1; use .*generate\(profile='amazon-pay'\)"
    ):
        check_profile("a.b", "amazon-pay")
    with pytest.raises(
        ValueError, match=r"8-4-4-4-12 form, got 8 characters of another form; use .*generate\("
    ):
        check_profile("order-17", "repeatability")
    with pytest.raises(ValueError, match=r"UUID of zeros; use .*generate\("):
        check_profile(ZERO, "google-request-id")


# --- K6: generate -----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_generated_key_is_acceptable_to_its_profile_in_both_styles(profile: str) -> None:
    key = idempotency.generate(profile=profile)
    assert serialize(key, profile=profile) == key
    assert serialize(key, style="sf-string", profile=profile) == f'"{key}"'
    written = uuid.UUID(key)  # an independent reader of both forms
    assert (written.version, written.variant) == (4, uuid.RFC_4122)
    assert key == (written.hex if profile == "amazon-pay" else str(written))


def test_generated_keys_do_not_repeat() -> None:
    assert len({idempotency.generate() for _ in range(1000)}) == 1000


def test_only_post_and_patch_are_given_keys() -> None:
    assert frozenset({"POST", "PATCH"}) == GENERATED_FOR  # K7


def test_the_public_module_offers_the_three_functions() -> None:
    assert sorted(idempotency.__all__) == ["generate", "parse", "serialize"]
    assert idempotency.serialize is serialize
    assert idempotency.parse is parse
    for name in ("parse", "serialize"):
        assert getattr(keys, name) is getattr(idempotency, name)


def test_importing_the_keys_costs_no_heavy_module() -> None:
    code = (
        "import sys; before = set(sys.modules); import forbear.idempotency, forbear.core.key_options;"
        "print(sorted(set(sys.modules) - before))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.replace("'", "").strip("[]\n").split(", "))
    assert not loaded & {
        "dataclasses",
        "re",
        "uuid",
        "typing",
        "ipaddress",
        "urllib.parse",
        "random",
        "binascii",
    }


# --- S1: where a request carries a key --------------------------------------------------------

DATE = "Fri, 20 Nov 2026 12:00:00 GMT"
PLAIN = [
    ("Host", "api.example.com"),
    ("Accept-Encoding", "gzip"),
    ("Content-Type", "application/json"),
]

# (id, header lines, is a key, is named so that none is generated)
LINES: list[tuple[str, list[tuple[str, str]], bool, bool]] = [
    ("nothing", [], False, False),
    ("plain", PLAIN, False, False),
    ("draft", [*PLAIN, ("Idempotency-Key", UUID)], True, True),
    ("draft-first", [("Idempotency-Key", UUID), *PLAIN], True, True),
    ("lower", [("idempotency-key", "a")], True, True),
    ("upper", [("IDEMPOTENCY-KEY", "a")], True, True),
    ("quoted", [("Idempotency-Key", '"a"')], True, True),
    (
        "unquotable",
        [("Idempotency-Key", '"a')],
        True,
        True,
    ),  # judged by S1 only, which is not strict
    ("two-in-one-line", [("Idempotency-Key", "a, b")], True, True),
    ("latin-1", [("Idempotency-Key", "ü")], True, True),
    ("padded", [("Idempotency-Key", " \ta\t ")], True, True),
    ("empty", [("Idempotency-Key", "")], False, False),
    ("only-ows", [("Idempotency-Key", " \t ")], False, False),
    ("not-ows", [("Idempotency-Key", "\xa0")], True, True),  # OWS is SP and HTAB (RFC 9110 5.6.3)
    ("empty-string", [("Idempotency-Key", '""')], False, False),
    ("empty-string-padded", [("Idempotency-Key", ' ""\t')], False, False),
    ("empty-string-parameters", [("Idempotency-Key", '"";v=1')], False, False),
    ("two-quotes-and-more", [("Idempotency-Key", '""a')], True, True),
    ("a-space-in-quotes", [("Idempotency-Key", '" "')], True, True),
    ("two-lines", [("Idempotency-Key", "a"), ("Idempotency-Key", "b")], False, True),
    ("two-equal-lines", [("Idempotency-Key", "a"), ("idempotency-key", "a")], False, True),
    ("two-lines-one-empty", [("Idempotency-Key", ""), ("Idempotency-Key", "a")], False, True),
    ("two-lines-both-empty", [("Idempotency-Key", ""), ("Idempotency-Key", '""')], False, False),
    ("three-lines", [("Idempotency-Key", "a")] * 3, False, True),
    ("x", [("X-Idempotency-Key", "a")], True, True),
    ("x-empty", [("X-Idempotency-Key", " ")], False, False),
    ("x-empty-string", [("X-Idempotency-Key", '""')], True, True),  # only (a) is a structured field
    ("x-twice", [("X-Idempotency-Key", "a"), ("X-Idempotency-Key", "a")], False, True),
    ("paypal", [("paypal-request-id", "a")], True, True),
    ("paypal-empty", [("PayPal-Request-Id", "")], False, False),
    ("paypal-twice", [("PayPal-Request-Id", "a"), ("PayPal-Request-Id", "b")], False, True),
    ("x-and-paypal", [("X-Idempotency-Key", "a"), ("PayPal-Request-Id", "b")], True, True),
    (
        "draft-twice-and-x",
        [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("X-Idempotency-Key", "c")],
        True,
        True,
    ),
    ("draft-empty-and-x", [("Idempotency-Key", ""), ("X-Idempotency-Key", "c")], True, True),
    ("oasis", [("Repeatability-Request-ID", UUID), ("Repeatability-First-Sent", DATE)], True, True),
    (
        "oasis-other-order",
        [("repeatability-first-sent", DATE), ("repeatability-request-id", UUID)],
        True,
        True,
    ),
    ("oasis-id-alone", [("Repeatability-Request-ID", UUID)], False, True),
    ("oasis-date-alone", [("Repeatability-First-Sent", DATE)], False, False),
    (
        "oasis-date-empty",
        [("Repeatability-Request-ID", UUID), ("Repeatability-First-Sent", "")],
        False,
        True,
    ),
    (
        "oasis-id-empty",
        [("Repeatability-Request-ID", " "), ("Repeatability-First-Sent", DATE)],
        False,
        False,
    ),
    (
        "oasis-two-ids",
        [("Repeatability-Request-ID", UUID)] * 2 + [("Repeatability-First-Sent", DATE)],
        False,
        True,
    ),
    (
        "oasis-two-dates",
        [("Repeatability-Request-ID", UUID)] + [("Repeatability-First-Sent", DATE)] * 2,
        False,
        True,
    ),
    (
        "oasis-half-and-draft",
        [("Repeatability-Request-ID", UUID), ("Idempotency-Key", "a")],
        True,
        True,
    ),
    (
        "oasis-date-and-draft",
        [("Repeatability-First-Sent", DATE), ("Idempotency-Key", "a")],
        True,
        True,
    ),
    ("request-id", [("X-Request-Id", UUID)], False, False),
    (
        "traceparent",
        [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")],
        False,
        False,
    ),
    ("amz", [("amz-sdk-invocation-id", UUID)], False, False),
    (
        "prefix",
        [("Idempotency-Keys", "a"), ("Idempotency-Ke", "a"), ("Idempotency_Key", "a")],
        False,
        False,
    ),
    ("space-in-name", [("Idempotency-Key ", "a")], False, False),
    ("kelvin-sign", [("Idempotency-\u212aey", "a")], False, False),
    (
        "non-ascii-of-that-length",
        [("Idempotency-Ké ", "a"), ("idempotency-kéy", "a")],
        False,
        False,
    ),
]


@pytest.mark.parametrize(
    ("lines", "is_key", "is_named"), [pytest.param(*row[1:], id=row[0]) for row in LINES]
)
def test_which_requests_carry_a_key(
    lines: list[tuple[str, str]], is_key: bool, is_named: bool
) -> None:
    """Text or raw octets, and a single-pass iterator as well as a list."""
    assert carries_key(lines) is is_key
    assert names_a_key(lines) is is_named
    assert carries_key(iter(lines)) is is_key
    # Not latin-1 for all: no HTTP library could put the Kelvin sign on the wire.
    raw = [(name.encode("utf-8"), value.encode("latin-1")) for name, value in lines]
    assert carries_key(raw) is is_key
    assert names_a_key(raw) is is_named


@pytest.mark.parametrize(
    ("lines", "is_key", "is_named"),
    [
        ([("X-Order-Key", "a")], True, True),
        ([("X-ORDER-KEY", "a")], True, True),
        ([("X-Order-Key", " ")], False, False),
        ([("X-Order-Key", '""')], True, True),
        ([("X-Order-Key", "a"), ("X-Order-Key", "b")], False, True),
        ([("X-Order-Kez", "a")], False, False),
        ([("Idempotency-Key", "a")], True, True),
        ([("Idempotency-Key", '""')], False, False),  # built-in names keep their own rule
        ([("Repeatability-Request-ID", "a")], False, True),
        ([("Repeatability-First-Sent", "a")], False, False),
    ],
)
def test_further_headers_hold_a_key_on_a_single_line(
    lines: list[tuple[str, str]], is_key: bool, is_named: bool
) -> None:
    extra = frozenset(
        {"x-order-key", "idempotency-key", "repeatability-request-id", "repeatability-first-sent"}
    )
    for form in (lines, [(name.encode(), value.encode()) for name, value in lines]):
        assert carries_key(form, extra) is is_key
        assert names_a_key(form, extra) is is_named
    assert carries_key([("X-Order-Key", "a")]) is False


def test_octets_and_text_may_be_mixed_without_a_bytes_warning() -> None:
    # b"x" and "x" hash alike, so a set that held both would compare them (python -bb).
    lines: list[Any] = [
        (b"Idempotency-Key", "a"),
        ("Idempotency-Key", b"b"),
        ("PayPal-Request-Id", b"c"),
    ]
    assert carries_key(lines[:1])
    assert carries_key(lines[1:2])
    assert not carries_key(lines[:2])
    assert carries_key(lines)


def test_the_recognised_names_are_those_of_the_rule() -> None:
    assert {  # S1; Repeatability-First-Sent belongs to a key and is none
        "idempotency-key",
        "x-idempotency-key",
        "paypal-request-id",
        "repeatability-request-id",
    } == RECOGNISED
