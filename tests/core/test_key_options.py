"""IdempotencyKeys: what a user may configure, and what is refused with which words."""

import copy
import pickle
from typing import Any

import pytest

from forbear.idempotency import IdempotencyKeys

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
