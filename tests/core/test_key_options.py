"""IdempotencyKeys: what a user may configure, and what is refused with which words."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from forbear.core.headers.keys import carries_key
from forbear.core.key_options import IdempotencyKeys


def test_the_defaults_are_those_of_the_design() -> None:
    given = IdempotencyKeys()
    assert repr(given) == "IdempotencyKeys()"
    assert (given.header, given.style, given.profile) == ("Idempotency-Key", "raw", "generic")
    assert (given.generate, given.recognise) == (True, ())
    assert (given.lifetime, given.origins) == (86_400.0, None)
    assert given.recognised == {"idempotency-key"}
    assert given.covers("https://anywhere.example:443")


def test_the_names_it_recognises_are_lower_case() -> None:
    given = IdempotencyKeys(
        header="X-Amz-Pay-Idempotency-Key", recognise=["X-Order-Key", "x-order-key"]
    )
    assert given.recognise == ("X-Order-Key", "x-order-key")
    assert given.recognised == {"x-amz-pay-idempotency-key", "x-order-key"}
    assert carries_key(
        [("x-amz-pay-idempotency-key", "8e03978e40d543e8bc936894a57f9324")], given.recognised
    )


ORIGINS = [
    ("https://api.example.com", "https://api.example.com:443"),
    ("http://api.example.com", "http://api.example.com:80"),
    ("https://api.example.com:443", "https://api.example.com:443"),
    ("https://api.example.com:80", "https://api.example.com:80"),
    ("HTTPS://API.Example.COM", "https://api.example.com:443"),
    ("http://localhost:8080", "http://localhost:8080"),
    ("http://localhost:08080", "http://localhost:8080"), ("http://10.0.0.1", "http://10.0.0.1:80"),
    ("http://my_service:1", "http://my_service:1"), ("http://h:65535", "http://h:65535"),
    ("https://example.com.", "https://example.com.:443"),  # a name of its own to TLS and to cookies
    ("http://[::1]", "http://[::1]:80"),
    ("https://[2001:DB8::A]:8443", "https://[2001:db8::a]:8443"),
    ("http://[::ffff:192.0.2.1]", "http://[::ffff:192.0.2.1]:80"),
    ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example:443"),
]  # fmt: skip


def test_origins_are_kept_in_one_form() -> None:
    for given, kept in ORIGINS:
        configured = IdempotencyKeys(origins=[given])
        assert configured.origins == {kept}
        assert configured.covers(kept)
        assert not configured.covers("https://other.example:443")
        assert IdempotencyKeys(origins=[kept]) == configured  # the form is its own normal form


def test_an_empty_set_of_origins_is_an_empty_set() -> None:
    assert IdempotencyKeys(origins=()).origins == frozenset()
    assert not IdempotencyKeys(origins=set()).covers("https://api.example.com:443")


def test_what_is_no_origin_is_refused() -> None:
    cases = [
        "", "api.example.com", "//api.example.com", "https:api.example.com",
        "https:/api.example.com", "https://", "https://:443", "ftp://api.example.com",
        "wss://api.example.com", " https://api.example.com", "https://api.example.com ",
        "https://api.example.com\n", "https://api.example.com/", "https://api.example.com/v1",
        "https://api.example.com?x", "https://api.example.com#x", "https://api.example.com\\x",
        "https://user@api.example.com", "https://user:hunter2@api.example.com",
        "https://user:hunter2", "https://*.example.com", "*", "https://bücher.example",
        "https://ex\u212aample.com", "https://a%62c.example", "https://a b.example",
        "https://a,https://b", "https://h:", "https://h:0", "https://h:000", "https://h:65536",
        "https://h:-1", "https://h:+1", "https://h:1_0", "https://h:٤٤٣", "https://h:443:443",
        "https://h:" + "9" * 5000, "https://::1", "https://[::1", "https://[]", "https://[::1]443",
        "https://[::1]:", "https://[1.2.3.4]", "https://[fe80::1%25eth0]", "https://[fe80::1%eth0]",
        "https://[v1.x]", "https://[::1/]",
    ]  # fmt: skip
    for given in cases:
        with pytest.raises(
            ValueError, match=r'^origins must be http or https.*; write "https://api\.example\.com"'
        ) as refused:
            IdempotencyKeys(origins=[given])
        assert "hunter2" not in str(refused.value)
        assert "v1" not in str(refused.value).replace("[v1.x]", "")


def test_messages_say_what_was_given_and_what_to_write() -> None:
    cases = [
        ({"header": ""}, ValueError,
            "header must be a header name .* got an empty one; write the name alone"),
        ({"header": "Idempotency Key"}, ValueError, "got ' ' after 'Idempotency'"),
        ({"header": "Idempotency-Key:"}, ValueError, "got ':' after 'Idempotency-Key'"),
        ({"header": "Key\r\nX: y"}, ValueError, r"got '\\r' after 'Key'"),
        ({"header": "Schlüssel"}, ValueError, r"got '\\xfc' after 'Schl'"),
        ({"header": b"Idempotency-Key"}, TypeError, "header must be a str, got one bytes"),
        ({"header": None}, TypeError, "header must be a str, got one NoneType"),
        ({"style": "quoted"}, ValueError, "style must be one of 'raw', 'sf-string', got 'quoted'"),
        ({"style": None}, ValueError, "style must be one of 'raw', 'sf-string', got None"),
        ({"profile": "adyen2"}, ValueError, "profile must be one of 'generic', .*, got 'adyen2'"),
        ({"generate": 1}, TypeError, "generate must be True or False, got 1"),
        ({"generate": "no"}, TypeError, "generate must be True or False, got 'no'"),
        ({"recognise": "X-Key"}, TypeError,
            r'recognise must be an iterable of str, got a single str; write \("X-'),
        ({"recognise": b"X-Key"}, TypeError, "got a single bytes"),
        ({"recognise": None}, TypeError,
            "recognise must be an iterable of str, got a single NoneType"),
        ({"recognise": [b"X-Key"]}, TypeError, "recognise must hold only str, got one bytes"),
        ({"recognise": ["X-Key", "X Key"]}, ValueError,
            "recognise must be a header name .* got ' ' after 'X'"),
        ({"lifetime": 0}, ValueError,
            "lifetime must be more than 0 seconds and finite, got 0; write how long"),
        ({"lifetime": -1.5}, ValueError, r"got -1\.5"),
        ({"lifetime": float("nan")}, ValueError, "got nan"),
        ({"lifetime": float("inf")}, ValueError, "got inf"),
        ({"lifetime": 10**400}, ValueError, "got 1000"),
        ({"lifetime": True}, TypeError, "lifetime must be a number of seconds, got True"),
        ({"lifetime": "60"}, TypeError,
            "lifetime must be a number of seconds, got '60'; write 86_400.0"),
        ({"lifetime": None}, TypeError, "lifetime must be a number of seconds, got None"),
        ({"origins": "https://a"}, TypeError,
            r'origins must be an iterable of str, got a single str; write \{"https:'),
        ({"origins": [b"https://a"]}, TypeError, "origins must hold only str, got one bytes"),
        ({"origins": 17}, TypeError, "origins must be an iterable of str, got a single int"),
        ({"origins": ["*.example"]}, ValueError, "got one with another scheme, or none"),
        ({"origins": ["https://u:hunter2@h"]}, ValueError, "got one with a user name"),
        ({"origins": ["https://h/"]}, ValueError, "got one with a path, a query or a fragment"),
        ({"origins": ["https://*.h"]}, ValueError, r"got one with '\*\.h' for a host"),
        ({"origins": ["https://h:0"]}, ValueError, "after the host that is no port"),
        ({"headers": "X-Key"}, TypeError, "headers"),
    ]  # fmt: skip
    for fields, error, message in cases:
        with pytest.raises(error, match=message) as refused:
            IdempotencyKeys(**fields)
        assert "hunter2" not in str(refused.value)
        assert len(str(refused.value)) < 300


def test_a_header_line_given_for_a_name_is_not_repeated() -> None:
    with pytest.raises(ValueError) as refused:
        IdempotencyKeys(header="Authorization: Bearer s3cret")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"header": "X-Order-Key", "style": "sf-string", "profile": "adyen", "generate": False},
        {"recognise": ("A", "B"), "lifetime": 300, "origins": {"https://b", "http://a:81"}},
    ],
    ids=["defaults", "names", "collections"],
)
def test_equal_fields_make_equal_objects_that_hash_pickle_and_copy(fields: dict[str, Any]) -> None:
    one = IdempotencyKeys(**fields)
    assert one == IdempotencyKeys(**fields)
    assert hash(one) == hash(IdempotencyKeys(**fields))
    assert one != IdempotencyKeys(**{**fields, "lifetime": 7.0})
    assert one != "Idempotency-Key"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(one, protocol))
        assert again == one
        assert again.recognised == one.recognised
    assert copy.copy(one) == copy.deepcopy(one) == one
    assert eval(repr(one)) == one
    assert "\n" not in repr(one)


def test_each_field_takes_part_in_equality() -> None:
    others: list[dict[str, Any]] = [
        {"header": "X-Key"},
        {"style": "sf-string"},
        {"profile": "stripe"},
        {"generate": False},
        {"recognise": ("X-Key",)},
        {"lifetime": 1},
        {"origins": ()},
    ]
    assert len({IdempotencyKeys(), *(IdempotencyKeys(**fields) for fields in others)}) == 1 + len(
        others
    )


def test_it_cannot_be_changed() -> None:
    given = IdempotencyKeys(origins=["https://a"])
    with pytest.raises(
        AttributeError, match="cannot be changed, so 'lifetime' was not set; make a new one"
    ):
        given.lifetime = 1.0
    with pytest.raises(AttributeError, match="cannot be changed"):
        del given.origins
    with pytest.raises(AttributeError):
        given.header_name = "X"  # type: ignore[attr-defined]
    assert not hasattr(given, "__dict__")
    assert given == IdempotencyKeys(origins=["https://a"])


def test_it_takes_keywords_only() -> None:
    with pytest.raises(TypeError):
        IdempotencyKeys("X-Key")  # type: ignore[misc]
