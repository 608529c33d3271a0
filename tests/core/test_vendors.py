"""Vendors: what the JSON body of an error says, after their documentation and public reports."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forbear import RetryPolicy
from forbear.core.headers.fields import media_type
from forbear.core.headers.hints import joined
from forbear.core.headers.vendors import VENDORS, VENDORS_WITH_BODY_HINTS, vendor_hint
from forbear.core.outcome import NO_HINT, Hint

JSON = "application/json"
NO = Hint(None, False, None)
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"


def said(body: object, *vendors: str, status: int = 429, kind: str = JSON) -> Hint | None:
    raw_bytes = body if isinstance(body, bytes) else json.dumps(body).encode()
    media = media_type([("Content-Type", kind)])
    return vendor_hint(vendors or VENDORS_WITH_BODY_HINTS, status, media, raw_bytes)


def google(*details: object) -> dict[str, Any]:
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": list(details)}}


def info(delay: object) -> dict[str, Any]:
    return {"@type": RETRY_INFO, "retryDelay": delay}


def after(seconds: float) -> Hint:
    return Hint(seconds, None, "google.rpc.retryinfo")


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_policy_for_a_vendor_reads_all_that_it_has_documented(vendor: str) -> None:
    """Also of one that says it in the events of its streams alone."""
    reads = (vendor,) if vendor in VENDORS_WITH_BODY_HINTS else ()
    assert RetryPolicy().for_vendors(vendor).vendors == reads


# RooCodeInc/Roo-Code#3883, a quota of a minute.
MINUTE = {
    "quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier",
    "quotaDimensions": {"location": "global", "model": "gemini-2.5-flash"}, "quotaValue": "250000",
}  # fmt: skip
# help.openai.com 5955604; before 2026 the code was the type.
MESSAGE = "You exceeded your current quota, please check your plan and billing details."
QUOTA = {"type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
OPENAI_QUOTA = {"error": {"message": MESSAGE, **QUOTA}}


def failed(*quotas: dict[str, Any]) -> dict[str, Any]:
    return {"@type": QUOTA_FAILURE, "violations": [MINUTE, *quotas]}


@pytest.mark.parametrize(("details", "hint"), [
    ([failed(), {"@type": "google.rpc.Help", "links": []}, info("26s")], after(26.0)),
    ([info("5s"), info("9s"), {**info("5s"), "@type": "google.rpc.RetryInfo"}], after(9.0)),
    # Gemini named 22 s beside a free tier's quota of 250 requests a day.
    ([failed({"quotaId": "GenerateRequestsPerDayPerModel-FreeTier"}), info("22s")], NO),
    ([info("22s"), failed({"quotaId": "DailyRequests"})], NO),
])  # fmt: skip
def test_the_longest_delay_counts_unless_a_quota_of_a_day_is_used_up(details, hint):
    """Streaming methods answer with an array."""
    assert said(google(*details), "google") == said([google(*details)], "google") == hint


@pytest.mark.parametrize(("delay", "seconds"), [
    ("17s", 17.0), ("0.5s", 0.5), ("3.000000001s", 3.000000001), ("45.837906927s", 45.837906927),
    ("0s", 0.0), ("315576000000s", 2147483648.0), ("9" * 5000 + "s", 2147483648.0),
    *((malformed, None) for malformed in (
        "-3s", "+3s", "1e999s", "NaNs", "Infinitys", "17", "s", "", ".5s", "1_000s", " 17s", "17s ",
        "17ms", "1m", "١٧s", 17, 17.0, True, None, [], ["17s"], {"seconds": "17"})),
], ids=lambda value: repr(value)[:40])  # fmt: skip
def test_a_duration_is_read_as_protobuf_writes_it(delay: object, seconds: float | None) -> None:
    expected = None if seconds is None else after(seconds)
    assert said(google(info(delay)), "google") == expected


@pytest.mark.parametrize(("kind", "code"), [
    ("insufficient_quota", "insufficient_quota"), ("insufficient_quota", None),
    ("insufficient_quota", "project_spend_limit_exceeded"), (None, "credit_balance_exhausted"),
    (None, "organization_spend_limit_exceeded"), (None, "organization_usage_limit_exceeded"),
    ("invalid_request_error", "billing_hard_limit_reached"),  # dfinke/PowerShellAI#127
    ("billing_not_active", "billing_not_active"),  # BerriAI/litellm#2743
])  # fmt: skip
def test_openai_ends_where_money_is_used_up(kind: str | None, code: str | None) -> None:
    assert said({"error": {"type": kind, "code": code}}, "openai") == NO


@pytest.mark.parametrize(("kind", "is_read"), [
    (JSON, True), ("application/json; charset=UTF-8", True), ("Application/JSON ;x=y", True),
    ("application/problem+json", True), ("text/json", False), ("text/html", False),
    ("text/event-stream", False), ("application/jsonl", False), ("", False),
], ids=repr)  # fmt: skip
def test_only_json_of_errors_is_read(kind: str, is_read: bool) -> None:
    read = [n for n in (200, 302, 399, 400, 503) if said(OPENAI_QUOTA, status=n, kind=kind)]
    assert read == ([400, 503] if is_read else [])


GOOD = json.dumps(OPENAI_QUOTA)
MALFORMED = {
    "empty": b"", "cut": GOOD[:-1].encode(), "two values": (GOOD * 2).encode(),
    "utf-16": GOOD.encode("utf-16"), "latin-1": GOOD.replace("quota,", "quotä").encode("latin-1"),
    "brackets without end": b"[" * 65_536,
    "deep": b'{"error":' * 6000 + b"1" + b"}" * 6000,
    "no object": b'"insufficient_quota"', "no error": b'{"type": "insufficient_quota"}',
    "error is text": b'{"error": "insufficient_quota"}', "an empty array": b"[]",
    "an array in an array": f"[[{GOOD}]]".encode(),
}  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_no_hint(body: bytes) -> None:
    assert said(body) is None


def test_reading_takes_no_longer_than_the_body_is() -> None:
    """The worst bodies of 64 KiB take some milliseconds, not seconds."""
    begun = time.thread_time()
    for start in (b"[", b'{"error":', b"9", b'"'):
        said((start * 65_536)[:65_536])
    said(google(info("9" * 60_000 + "s")))
    assert time.thread_time() - begun < 10.0


WORDS = st.sampled_from([
    "error", "details", "@type", "retryDelay", RETRY_INFO, QUOTA_FAILURE, "violations", "quotaId",
    "seconds", "nanos", "17s", "code", "type", "insufficient_quota", "error_code",
])  # fmt: skip
TEXTS = WORDS | st.text(max_size=5)
NUMBERS = st.integers() | st.floats() | st.from_regex(r"-?\d*\.?\d*s?")
ANY_JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
DETAIL = {"@type": st.sampled_from([RETRY_INFO, QUOTA_FAILURE]), "retryDelay": ANY_JSON}
DETAILS = st.lists(st.fixed_dictionaries(DETAIL, optional={"violations": ANY_JSON}), max_size=3)
ERRORS = st.fixed_dictionaries({"error": ANY_JSON | st.fixed_dictionaries({"details": DETAILS})})


@settings(max_examples=20)
@given(st.binary(max_size=200) | (ANY_JSON | ERRORS).map(lambda value: json.dumps(value).encode()))
@example(b'{"error": {"code": "\\ud800", "details": [{"@type": "\\ud800"}]}}')
def test_any_body_gives_a_sound_hint_or_none(body: bytes) -> None:
    """Never an exception; a delay within what headers may ask for; never a yes."""
    hint = said(body)
    if hint is not None:
        assert (hint.delay is None) == (hint.source is None)
        assert hint.delay is None or 0 <= hint.delay <= 2147483648
        assert hint.should_retry in (None, False)
        assert hint != NO_HINT


@pytest.mark.parametrize(("headers", "word", "together"), [
    (NO_HINT, None, NO_HINT), (NO_HINT, after(5.0), after(5.0)),
    (Hint(3.0, None, "retry-after"), after(5.0), Hint(3.0, None, "retry-after")),
    (Hint(3.0, None, "retry-after"), NO, Hint(3.0, False, "retry-after")),
    (Hint(None, True, None), NO, NO),
    (Hint(None, True, None), after(5.0), Hint(5.0, True, "google.rpc.retryinfo")),
    (NO, after(5.0), Hint(5.0, False, "google.rpc.retryinfo")),
])  # fmt: skip
def test_headers_go_before_the_body_and_any_no_beats_a_yes(headers, word, together):
    assert joined(headers, word) == together


def test_every_vendor_adds_something() -> None:
    assert all(any(row) for row in VENDORS.values())


@pytest.mark.parametrize("given", [[], set(), iter(())])
def test_no_vendor_is_the_default_whatever_holds_it(given: Any) -> None:
    assert hash(RetryPolicy(vendors=given)) == hash(RetryPolicy())
    assert RetryPolicy(vendors=given) == RetryPolicy()


@pytest.mark.parametrize("given", [0, None, "", "openai"])
def test_what_is_no_sequence_of_vendors_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="vendors must be"):
        RetryPolicy(vendors=given)
