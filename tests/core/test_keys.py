"""Idempotency keys: the corpus (K0-K7, S1), and by hand the clauses that it leaves out."""

import copy
import json
import pickle
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from forbear import idempotency
from forbear.core.headers.structured import parse_item
from forbear.core.request import RECOGNISED, carries_key
from forbear.idempotency import PROFILES, STYLES, IdempotencyKeys, check_profile, parse, serialize

CORPUS = json.loads((Path(__file__).parents[1] / "corpus/idempotency_keys.json").read_text("utf-8"))
UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
ZERO = "00000000-0000-0000-0000-000000000000"


def result(function: Any, *given: Any, **named: Any) -> Any:
    """What it returns, or ValueError."""
    try:
        return function(*given, **named)
    except ValueError:
        return ValueError


@pytest.mark.parametrize("case", CORPUS["cases"], ids=lambda case: case["id"])
def test_corpus(case: dict[str, Any]) -> None:
    kind, inputs, expect = case["kind"], case["inputs"], case["expect"]
    is_valid = expect.get("valid")
    if kind == "serialize":
        assert result(serialize, **inputs) == (expect["field_value"] if is_valid else ValueError)
    elif kind == "parse":
        key = expect["key"] if is_valid else None
        assert parse_item(inputs["field_value"]) == key
        expected = key if is_valid and expect["usable"] else ValueError
        assert result(parse, inputs["field_value"]) == expected
    elif kind == "profile":
        assert result(check_profile, **inputs) is (None if is_valid else ValueError)
        assert result(serialize, **inputs) == (inputs["key"] if is_valid else ValueError)
    elif kind == "generate":
        assert re.fullmatch(expect["regex"], idempotency.generate(**inputs))
    else:
        assert kind == "lifecycle", "which is run through the transports"


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
        for style, profile in product(STYLES, PROFILES):
            with pytest.raises(ValueError) as refused:
                serialize(key, style=style, profile=profile)
            message = str(refused.value)
            assert "s3cret" not in message
            assert message.isprintable()
            assert message.isascii()


def test_parse_reads_an_item_whose_bare_item_is_a_string() -> None:
    """K4"""
    strings = {
        '  "abc"': "abc", '"abc"   ': "abc",  # RFC 9651 4.2 steps 2 and 6: SP around is discarded
        '" abc "': " abc ", r'"\\"': "\\", r'"\"\\"': '"\\', r'"\\\""': '\\"',
        '"' + "k" * 1024 + '"': "k" * 1024,  # 3.3.3: parsers MUST support 1024
        '"' + "k" * 100_000 + '"': "k" * 100_000,
    }  # fmt: skip
    # 4.2.3.2: every bare item and every shape of name; SP only after the semicolon.
    parameters = [
        "v", "  v", "v=?0;w=?1", "v=1;v=2", "v=-999999999999999", "v=007", "v=-0",
        "v=123456789012.345", "v=1.0", 'v="x;y=\\"z\\""', 'v=""', "v=*tok/en:x", "v=text/html",
        "v=::", "v=:aGVsbG8=:", "v=:aGVsbG8:",  # 4.2.7: SHOULD NOT fail for missing padding
        "v=:aGVsbG9=:",  # nor for pad bits that are not zero
        "v=@1659578233", "v=@-1", 'v=%"f%c3%bc"', 'v=%""', "*a-b_c.d*1=1", "v=1  ",
    ]  # fmt: skip
    for value, key in {**strings, **{f'"abc";{each}': "abc" for each in parameters}}.items():
        assert parse(value) == parse_item(value) == key


MALFORMED_PARAMETERS = [
    "", "=1", ";v", "V=1", "1v=1", "ü=1", "v=", "v= 1", "v =1", "v=(1)", "v=1 2", "v=1,w",
    "v=1234567890123456", "v=-", "v=+1", "v=١", "v=1_0", "v=1234567890123.1", "v=1.2345", "v=1.",
    "v=.5", "v=1.0e3.", "v=?", "v=?2", "v=?true", "v=:YWJj", "v=:_-8=:", "v=:=:", "v=:YQ===:",
    "v=:YQ==YQ==:", "v=:Y:", "v=:YW Jj:", "v=@1.5", "v=@", "v=%abc", 'v=%"abc', 'v=%"%C3%BC"',
    'v=%"%c"', 'v=%"%', 'v=%"%c3"', 'v=%"%ed%a0%80"', 'v=%"\x01"', 'v="x',
]  # fmt: skip
MALFORMED = [
    *(f'"abc";{parameter}' for parameter in MALFORMED_PARAMETERS),
    "   ", '\t"abc"',  # 4.2 discards SP only
    '"abc"\t', '"abc"\n', "17", "1.5", "*a", ":YWJj:", "?1", "@1659578233", '%"abc"', '("abc")',
    '"a","b"', '"a",', '"a" "b"', 'k="abc"', '"abc"d', 'd"abc"', "“abc”", '"', '"""', '"abc\\',
    '"abc\\"', '"\\a"', '"\\\'"', '"a\x00b"', '"a\tb"', '"a\r\nb"', '"a\x7fb"', '"ü"',
    '"\U0001f511"', '"\ud800"', '"abc" ;v=1', '"abc";\tv=1',
]  # fmt: skip


def test_parse_is_strict() -> None:
    for value in MALFORMED:
        assert parse_item(value) is None
        with pytest.raises(ValueError, match=r"^field value"):
            parse(value)


def test_a_hostile_value_takes_linear_time() -> None:
    # 100 kB in well under a second; a quadratic scan of it would take minutes.
    for value in [
        '"' + "\\\\" * 50_000, '"a"' + ";a=1" * 25_000 + "!", '"a";v=' + "1" * 100_000,
        '"a";v=:' + "Y" * 100_000, '"a";v=%"' + "%41" * 25_000, " " * 100_000,
        '"a"' + " " * 100_000 + "x", '"a";' + " " * 100_000,
    ]:  # fmt: skip
        assert parse_item(value) is None


ACCEPTED = {  # K5
    "generic": ["k" * 255, '!"#~'], "stripe": ["k" * 255, "KG5LxwFBepaKHyUD"],
    "adyen": ["k" * 64, "~" * 64], "amazon-pay": ["k" * 32, "AZaz09-_", "-"],
    "worldline-direct": ["k" * 40, UUID], "aws-client-token": ["k" * 64, "!~"],
    # RFC 9562 4: output lower case, input either; the last one is of version 1
    "google-request-id": [UUID.upper(), ZERO[:-1] + "1", "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "123e4567-e89b-12d3-a456-426655440010"],
    "repeatability": [UUID, UUID.upper(), ZERO],  # only Google's documentation refuses zero
}  # fmt: skip


def test_what_each_vendor_documents_is_accepted() -> None:
    for profile, keys in ACCEPTED.items():
        for key in keys:
            check_profile(key, profile)
            assert serialize(key, profile=profile) == key
            assert parse(serialize(key, style="sf-string", profile=profile)) == key


# S1: where a request carries a key.
KEY, X_KEY, PAYPAL = "Idempotency-Key", "X-Idempotency-Key", "PayPal-Request-Id"
REPEATED, SENT = "Repeatability-Request-ID", "Repeatability-First-Sent"
DATE = "Fri, 20 Nov 2026 12:00:00 GMT"
PLAIN = [("Host", "api.example.com"), ("Accept-Encoding", "gzip"), ("Content-Type", "text/plain")]
CARRIED = [
    [*PLAIN, (KEY, UUID)], [(KEY, UUID), *PLAIN], [("idempotency-key", "a")],
    [("IDEMPOTENCY-KEY", "a")], [(KEY, '"a"')],
    [(KEY, '"a')],  # judged by S1 only, which is not strict
    [(KEY, "a, b")], [(KEY, "ü")], [(KEY, " \ta\t ")],
    [(KEY, "\xa0")],  # OWS is SP and HTAB (RFC 9110 5.6.3)
    [(KEY, '""a')], [(KEY, '" "')], [(X_KEY, "a")],
    [(X_KEY, '""')],  # only Idempotency-Key is a structured field
    [("paypal-request-id", "a")], [(X_KEY, "a"), (PAYPAL, "b")],
    [(KEY, "a"), (KEY, "b"), (X_KEY, "c")], [(KEY, ""), (X_KEY, "c")],
    [(REPEATED, UUID), (SENT, DATE)], [(SENT.lower(), DATE), (REPEATED.lower(), UUID)],
    [(REPEATED, UUID), (KEY, "a")], [(SENT, DATE), (KEY, "a")],
]  # fmt: skip
NAMED = [  # and not carried: none is generated beside it
    [(KEY, "a"), (KEY, "b")], [(KEY, "a"), ("idempotency-key", "a")], [(KEY, ""), (KEY, "a")],
    [(KEY, "a")] * 3, [(X_KEY, "a"), (X_KEY, "a")], [(PAYPAL, "a"), (PAYPAL, "b")],
    [(REPEATED, UUID)], [(REPEATED, UUID), (SENT, "")], [(REPEATED, UUID)] * 2 + [(SENT, DATE)],
    [(REPEATED, UUID)] + [(SENT, DATE)] * 2,
]  # fmt: skip
NEITHER = [
    [], PLAIN, [(KEY, "")], [(KEY, " \t ")], [(KEY, '""')], [(KEY, ' ""\t')], [(KEY, '"";v=1')],
    [(KEY, ""), (KEY, '""')], [(X_KEY, " ")], [(PAYPAL, "")], [(SENT, DATE)],
    [(REPEATED, " "), (SENT, DATE)], [("X-Request-Id", UUID)],
    [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")],
    [("amz-sdk-invocation-id", UUID)],
    [("Idempotency-Keys", "a"), ("Idempotency-Ke", "a"), ("Idempotency_Key", "a")],
    [("Idempotency-Key ", "a")], [("Idempotency-\u212aey", "a")],
    [("Idempotency-Ké ", "a"), ("idempotency-kéy", "a")],
]  # fmt: skip


@pytest.mark.parametrize(
    ("cases", "is_key", "is_named"),
    [(CARRIED, True, True), (NAMED, False, True), (NEITHER, False, False)],
)
def test_which_requests_carry_a_key(cases: Any, is_key: bool, is_named: bool) -> None:
    """Text or raw bytes, and a single-pass iterator as well as a list."""
    for lines in cases:
        # Not latin-1 for all: no HTTP library could put the Kelvin sign on the wire.
        raw = [(name.encode("utf-8"), value.encode("latin-1")) for name, value in lines]
        for given in (lines, raw):
            assert carries_key(given) is carries_key(iter(given)) is is_key
            assert idempotency.names_a_key(given) is is_named


def test_the_names_of_the_rules() -> None:
    """S1 and K7; Repeatability-First-Sent belongs to a key and is none."""
    assert {name.lower() for name in (KEY, X_KEY, PAYPAL, REPEATED)} == RECOGNISED
    assert frozenset({"POST", "PATCH"}) == idempotency.GENERATED_FOR


ORIGINS = [
    ("https://api.example.com", "https://api.example.com:443"),
    ("http://api.example.com", "http://api.example.com:80"),
    ("https://api.example.com:80", "https://api.example.com:80"),
    ("HTTPS://API.Example.COM", "https://api.example.com:443"),
    ("http://localhost:08080", "http://localhost:8080"), ("http://10.0.0.1", "http://10.0.0.1:80"),
    ("http://my_service:1", "http://my_service:1"), ("http://h:65535", "http://h:65535"),
    ("https://example.com.", "https://example.com.:443"),  # a name of its own to TLS and to cookies
    ("http://[::1]", "http://[::1]:80"), ("https://[2001:DB8::A]:8443", "https://[2001:db8::a]:8443"),
    ("http://[::ffff:192.0.2.1]", "http://[::ffff:192.0.2.1]:80"),
    ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example:443"),
]  # fmt: skip


def test_origins_are_kept_in_one_form() -> None:
    """Which is its own normal form."""
    for given, kept in ORIGINS:
        configured = IdempotencyKeys(origins=[given])
        assert configured.origins == {kept}
        assert configured.covers(kept)
        assert not configured.covers("https://other.example:443")
        assert IdempotencyKeys(origins=[kept]) == configured


def test_what_is_no_origin_is_refused() -> None:
    cases = [
        "", "api.example.com", "//api.example.com", "https:api.example.com", "https:/api.example.com",
        "https://", "https://:443", "ftp://api.example.com", "wss://api.example.com",
        " https://api.example.com", "https://user@api.example.com", "https://user:hunter2",
        "https://user:hunter2@api.example.com", "https://*.example.com", "*", "https://a b.example",
        *(f"https://api.example.com{end}" for end in (" ", "\n", "/", "/v1", "?x", "#x", "\\x")),
        "https://bücher.example", "https://ex\u212aample.com", "https://a%62c.example",
        "https://a,https://b", *(f"https://h:{port}" for port in (
            "", "0", "000", "65536", "-1", "+1", "1_0", "٤٤٣", "443:443", "9" * 5000)),
        *(f"https://{host}" for host in (
            "::1", "[::1", "[]", "[::1]443", "[::1]:", "[1.2.3.4]", "[fe80::1%25eth0]",
            "[fe80::1%eth0]", "[v1.x]", "[::1/]")),
    ]  # fmt: skip
    says = r'^origins must be http or https.*; write "https://api\.example\.com"'
    for given in cases:
        with pytest.raises(ValueError, match=says) as refused:
            IdempotencyKeys(origins=[given])
        assert "hunter2" not in str(refused.value)
        assert "v1" not in str(refused.value).replace("[v1.x]", "")


@pytest.mark.parametrize("fields", [
    {}, {"header": "X-Order-Key", "style": "sf-string", "profile": "adyen", "generate": False},
    {"recognise": ("A", "B"), "lifetime": 300, "origins": {"https://b", "http://a:81"}},
], ids=["defaults", "names", "collections"])  # fmt: skip
def test_equal_fields_make_equal_objects_that_hash_pickle_and_copy(fields: dict[str, Any]) -> None:
    one, other = IdempotencyKeys(**fields), IdempotencyKeys(**fields)
    assert one == other
    assert hash(one) == hash(other)
    assert one != IdempotencyKeys(**{**fields, "lifetime": 7.0})
    assert one != "Idempotency-Key"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(one, protocol))
        assert (again, again.recognised) == (one, one.recognised)
    assert copy.copy(one) == copy.deepcopy(one) == one
    assert eval(repr(one)) == one
    assert "\n" not in repr(one)
