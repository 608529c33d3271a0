"""Idempotency keys: what is sent, what is refused, and which requests carry one.

The corpus states K0-K7 and S1; the tables here are worked out by hand for the clauses it leaves
out.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forbear import idempotency
from forbear.core.headers.structured import parse_item
from forbear.core.request import GENERATED_FOR, RECOGNISED, carries_key, names_a_key
from forbear.idempotency import PROFILES, STYLES, check_profile, parse, serialize

CORPUS = json.loads(
    (Path(__file__).parents[1] / "corpus" / "idempotency_keys.json").read_text(encoding="utf-8")
)

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
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


BAD_CHARACTERS = [
    *map(chr, (*range(0x20), 0x7F)), "\x80", "\xa0", "ü",
    "１",  # NFKC would make it "1"
    "\u212a",  # lower-cases to "k"
    "\u2028", "\U0001f511", "\ud800",
]  # fmt: skip


def test_no_other_character_is_ever_sent_wherever_it_stands() -> None:
    for character in BAD_CHARACTERS:
        for style in STYLES:
            for key in (character, f"{character}ab", f"a{character}b", f"ab{character}"):
                with pytest.raises(ValueError, match=rf"at position {key.index(character)}"):
                    serialize(key, style=style)


def test_messages_never_repeat_a_key() -> None:
    for key in ["", "s3cret-\x07-s3cret", "s3cret" * 50, "s3cretü", "s3cret s3cret\n"]:
        for style in STYLES:
            for profile in PROFILES:
                with pytest.raises(ValueError) as refused:
                    serialize(key, style=style, profile=profile)
                message = str(refused.value)
                assert "s3cret" not in message
                assert message.isprintable()
                assert message.isascii()


# --- K4: parse --------------------------------------------------------------------------------


def test_parse_reads_an_item_whose_bare_item_is_a_string() -> None:
    cases = [
        ('  "abc"', "abc"),  # RFC 9651 4.2 steps 2 and 6: SP before and after is discarded
        ('"abc"   ', "abc"), ('" abc "', " abc "), (r'"\\"', "\\"), (r'"\"\\"', '"\\'),
        (r'"\\\""', '\\"'),
        ('"' + "k" * 1024 + '"', "k" * 1024),  # 3.3.3: parsers MUST support 1024
        ('"' + "k" * 100_000 + '"', "k" * 100_000),
        # Parameters, 4.2.3.2: every bare item and every shape of name; SP only after the semicolon.
        ('"abc";v', "abc"), ('"abc";  v', "abc"), ('"abc";v=?0;w=?1', "abc"),
        ('"abc";v=1;v=2', "abc"), ('"abc";v=-999999999999999', "abc"), ('"abc";v=007', "abc"),
        ('"abc";v=-0', "abc"), ('"abc";v=123456789012.345', "abc"), ('"abc";v=1.0', "abc"),
        ('"abc";v="x;y=\\"z\\""', "abc"), ('"abc";v=""', "abc"), ('"abc";v=*tok/en:x', "abc"),
        ('"abc";v=text/html', "abc"), ('"abc";v=::', "abc"), ('"abc";v=:aGVsbG8=:', "abc"),
        ('"abc";v=:aGVsbG8:', "abc"),  # 4.2.7: SHOULD NOT fail for missing padding
        ('"abc";v=:aGVsbG9=:', "abc"),  # nor for pad bits that are not zero
        ('"abc";v=@1659578233', "abc"), ('"abc";v=@-1', "abc"), ('"abc";v=%"f%c3%bc"', "abc"),
        ('"abc";v=%""', "abc"), ('"abc";*a-b_c.d*1=1', "abc"), ('"abc";v=1  ', "abc"),
    ]  # fmt: skip
    for value, key in cases:
        assert parse(value) == key
        assert parse_item(value) == key


MALFORMED = [
    "   ", '\t"abc"',  # 4.2 discards SP only
    '"abc"\t', '"abc"\n', "17", "1.5", "*a", ":YWJj:", "?1", "@1659578233", '%"abc"', '("abc")',
    '"a","b"', '"a",', '"a" "b"', 'k="abc"', '"abc"d', 'd"abc"', "“abc”", '"', '"""', '"abc\\',
    '"abc\\"', '"\\a"', '"\\\'"', '"a\x00b"', '"a\tb"', '"a\r\nb"', '"a\x7fb"', '"ü"',
    '"\U0001f511"', '"\ud800"', '"abc" ;v=1', '"abc";\tv=1', '"abc";', '"abc";=1', '"abc";;v',
    '"abc";V=1', '"abc";1v=1', '"abc";ü=1', '"abc";v=', '"abc";v= 1', '"abc";v =1', '"abc";v=(1)',
    '"abc";v=1 2', '"abc";v=1,w', '"abc";v=1234567890123456', '"abc";v=-', '"abc";v=+1',
    '"abc";v=١', '"abc";v=1_0', '"abc";v=1234567890123.1', '"abc";v=1.2345', '"abc";v=1.',
    '"abc";v=.5', '"abc";v=1.0e3.', '"abc";v=?', '"abc";v=?2', '"abc";v=?true', '"abc";v=:YWJj',
    '"abc";v=:_-8=:', '"abc";v=:=:', '"abc";v=:YQ===:', '"abc";v=:YQ==YQ==:', '"abc";v=:Y:',
    '"abc";v=:YW Jj:', '"abc";v=@1.5', '"abc";v=@', '"abc";v=%abc', '"abc";v=%"abc',
    '"abc";v=%"%C3%BC"', '"abc";v=%"%c"', '"abc";v=%"%', '"abc";v=%"%c3"', '"abc";v=%"%ed%a0%80"',
    '"abc";v=%"\x01"', '"abc";v="x',
]  # fmt: skip


def test_parse_is_strict() -> None:
    for value in MALFORMED:
        assert parse_item(value) is None
        with pytest.raises(ValueError, match=r"^field value"):
            parse(value)


def test_a_hostile_value_takes_linear_time() -> None:
    cases = [
        '"' + "\\\\" * 50_000, '"a"' + ";a=1" * 25_000 + "!", '"a";v=' + "1" * 100_000,
        '"a";v=:' + "Y" * 100_000, '"a";v=%"' + "%41" * 25_000, " " * 100_000,
        '"a"' + " " * 100_000 + "x", '"a";' + " " * 100_000,
    ]  # fmt: skip
    for value in cases:
        # 100 kB in well under a second; a quadratic scan of it would take minutes.
        assert parse_item(value) is None


# --- K5: profiles -----------------------------------------------------------------------------

ACCEPTED = [
    ("generic", "k" * 255), ("generic", '!"#~'), ("stripe", "k" * 255),
    ("stripe", "KG5LxwFBepaKHyUD"), ("adyen", "k" * 64), ("adyen", "~" * 64),
    ("amazon-pay", "k" * 32), ("amazon-pay", "AZaz09-_"), ("amazon-pay", "-"),
    ("worldline-direct", "k" * 40), ("worldline-direct", UUID), ("aws-client-token", "k" * 64),
    ("aws-client-token", "!~"),
    ("google-request-id", UUID.upper()),  # RFC 9562 4: output lower case, input either
    ("google-request-id", "00000000-0000-0000-0000-000000000001"),
    ("google-request-id", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ("google-request-id", "123e4567-e89b-12d3-a456-426655440010"),  # version 1
    ("repeatability", UUID), ("repeatability", UUID.upper()),
    ("repeatability", ZERO),  # only Google's documentation refuses it
]  # fmt: skip


def test_what_each_vendor_documents_is_accepted() -> None:
    for profile, key in ACCEPTED:
        check_profile(key, profile)
        assert serialize(key, profile=profile) == key
        assert parse(serialize(key, style="sf-string", profile=profile)) == key


# --- K6: generate -----------------------------------------------------------------------------


def test_only_post_and_patch_are_given_keys() -> None:
    assert frozenset({"POST", "PATCH"}) == GENERATED_FOR  # K7


# --- S1: where a request carries a key --------------------------------------------------------

DATE = "Fri, 20 Nov 2026 12:00:00 GMT"
PLAIN = [
    ("Host", "api.example.com"), ("Accept-Encoding", "gzip"), ("Content-Type", "application/json"),
]  # fmt: skip

# (header lines, is a key, is named so that none is generated)
LINES = [
    ([], False, False), (PLAIN, False, False), ([*PLAIN, ("Idempotency-Key", UUID)], True, True),
    ([("Idempotency-Key", UUID), *PLAIN], True, True), ([("idempotency-key", "a")], True, True),
    ([("IDEMPOTENCY-KEY", "a")], True, True), ([("Idempotency-Key", '"a"')], True, True),
    ([("Idempotency-Key", '"a')], True, True),  # judged by S1 only, which is not strict
    ([("Idempotency-Key", "a, b")], True, True), ([("Idempotency-Key", "ü")], True, True),
    ([("Idempotency-Key", " \ta\t ")], True, True), ([("Idempotency-Key", "")], False, False),
    ([("Idempotency-Key", " \t ")], False, False),
    ([("Idempotency-Key", "\xa0")], True, True),  # OWS is SP and HTAB (RFC 9110 5.6.3)
    ([("Idempotency-Key", '""')], False, False), ([("Idempotency-Key", ' ""\t')], False, False),
    ([("Idempotency-Key", '"";v=1')], False, False), ([("Idempotency-Key", '""a')], True, True),
    ([("Idempotency-Key", '" "')], True, True),
    ([("Idempotency-Key", "a"), ("Idempotency-Key", "b")], False, True),
    ([("Idempotency-Key", "a"), ("idempotency-key", "a")], False, True),
    ([("Idempotency-Key", ""), ("Idempotency-Key", "a")], False, True),
    ([("Idempotency-Key", ""), ("Idempotency-Key", '""')], False, False),
    ([("Idempotency-Key", "a")] * 3, False, True), ([("X-Idempotency-Key", "a")], True, True),
    ([("X-Idempotency-Key", " ")], False, False),
    ([("X-Idempotency-Key", '""')], True, True),  # only (a) is a structured field
    ([("X-Idempotency-Key", "a"), ("X-Idempotency-Key", "a")], False, True),
    ([("paypal-request-id", "a")], True, True), ([("PayPal-Request-Id", "")], False, False),
    ([("PayPal-Request-Id", "a"), ("PayPal-Request-Id", "b")], False, True),
    ([("X-Idempotency-Key", "a"), ("PayPal-Request-Id", "b")], True, True),
    ([("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("X-Idempotency-Key", "c")], True, True),
    ([("Idempotency-Key", ""), ("X-Idempotency-Key", "c")], True, True),
    ([("Repeatability-Request-ID", UUID), ("Repeatability-First-Sent", DATE)], True, True),
    ([("repeatability-first-sent", DATE), ("repeatability-request-id", UUID)], True, True),
    ([("Repeatability-Request-ID", UUID)], False, True),
    ([("Repeatability-First-Sent", DATE)], False, False),
    ([("Repeatability-Request-ID", UUID), ("Repeatability-First-Sent", "")], False, True),
    ([("Repeatability-Request-ID", " "), ("Repeatability-First-Sent", DATE)], False, False),
    ([("Repeatability-Request-ID", UUID)] * 2 + [("Repeatability-First-Sent", DATE)], False, True),
    ([("Repeatability-Request-ID", UUID)] + [("Repeatability-First-Sent", DATE)] * 2, False, True),
    ([("Repeatability-Request-ID", UUID), ("Idempotency-Key", "a")], True, True),
    ([("Repeatability-First-Sent", DATE), ("Idempotency-Key", "a")], True, True),
    ([("X-Request-Id", UUID)], False, False),
    ([("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")], False, False),
    ([("amz-sdk-invocation-id", UUID)], False, False),
    ([("Idempotency-Keys", "a"), ("Idempotency-Ke", "a"), ("Idempotency_Key", "a")], False, False),
    ([("Idempotency-Key ", "a")], False, False), ([("Idempotency-\u212aey", "a")], False, False),
    ([("Idempotency-Ké ", "a"), ("idempotency-kéy", "a")], False, False),
]  # fmt: skip


def test_which_requests_carry_a_key() -> None:
    """Text or raw bytes, and a single-pass iterator as well as a list."""
    for lines, is_key, is_named in LINES:
        assert carries_key(lines) is is_key
        assert names_a_key(lines) is is_named
        assert carries_key(iter(lines)) is is_key
        # Not latin-1 for all: no HTTP library could put the Kelvin sign on the wire.
        raw = [(name.encode("utf-8"), value.encode("latin-1")) for name, value in lines]
        assert carries_key(raw) is is_key
        assert names_a_key(raw) is is_named


def test_the_recognised_names_are_those_of_the_rule() -> None:
    assert {  # S1; Repeatability-First-Sent belongs to a key and is none
        "idempotency-key",
        "x-idempotency-key",
        "paypal-request-id",
        "repeatability-request-id",
    } == RECOGNISED
