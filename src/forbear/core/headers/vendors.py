"""Vendors: how some servers say "try again" and "do not" in ways of their own. Floor: decides.

``VENDORS`` has one row a vendor: statuses that only this vendor uses for "try again", and the
reader of its word in the JSON body of an error. A word is read only where the headers do not say
the same. For that reason Azure (retry-after-ms), Discord, GitHub, Slack, Stripe and Telegram
(Retry-After) have no reader. Text for people is not read: its wording is no promise.

Whatever a body holds, reading it raises nothing and takes time in proportion to its length.

Sources: RFC 8259 (JSON), RFC 6839 §3.1 (+json); those of a vendor stand beside its row or reader.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..outcome import Hint
from .dates import FOREVER
from .fields import OWS, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["LONGEST_BODY", "SPEAKING", "VENDORS", "Vendor", "joined", "vendor_hint"]

LONGEST_BODY = 65_536  # octets; a longer body is none of the errors described here

NO = Hint(None, False, None)


def vendor_hint(
    vendors: Iterable[str], status: int, content_type: str | None, body: bytes
) -> Hint | None:
    """Return what the body of an answer says about when, and whether, to send again.

    None if the body is not JSON, is longer than ``LONGEST_BODY``, is malformed, or says nothing
    that one of these vendors has documented.

    Args:
        vendors: Names in ``SPEAKING``, as ``RetryPolicy.vendors`` holds them. The first that
            understands the body is obeyed.
        status: The status code; below 400 no body is read.
        content_type: The Content-Type of the answer.
        body: The whole body, without content coding.
    """
    if status < 400 or len(body) > LONGEST_BODY or not is_json(content_type):
        return None
    error = error_in(body)
    if error is not None:
        for vendor in vendors:
            read = VENDORS[vendor].read
            if read is not None and (hint := read(error)) is not None:
                return hint
    return None


def joined(hint: Hint, word: Hint | None) -> Hint:
    """Return the hint of the headers with the word of the body added.

    A delay in the headers goes before one in the body; any no beats any yes.
    """
    if word is None:
        return hint
    delay, source = (word.delay, word.source) if hint.delay is None else (hint.delay, hint.source)
    return Hint(delay, False if word.should_retry is False else hint.should_retry, source)


def is_json(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip(OWS).lower()
    return kind == "application/json" or ("/" in kind and kind.endswith("+json"))


def error_in(body: bytes) -> dict[str, Any] | None:
    """The value of "error" in a JSON object, or in the first object of an array, as the streaming
    methods of Gemini answer. Numbers are their text.
    """
    from json import loads  # only the failures of a policy with vendors need it

    try:
        # Text has no size that int() refuses, and no exponent that costs memory.
        value = loads(body.decode(), parse_int=str, parse_float=str, parse_constant=refuse)
    except (ValueError, RecursionError):  # no UTF-8, no JSON, or brackets without end
        return None
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error") if isinstance(value, dict) else None
    return error if isinstance(error, dict) else None


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def google(error: dict[str, Any]) -> Hint | None:
    """A quota of a day ends the call, else the longest RetryInfo is the delay.

    google/rpc/error_details.proto: "Clients should wait until retry_delay amount of time has passed
    since receiving the error response before retrying." Google's own gemini-cli
    (googleQuotaErrors.ts) takes a QuotaFailure whose quotaId holds "PerDay" or "Daily" as terminal,
    without a look at the RetryInfo beside it: that one has been seen to name 8 to 22 s, which bring
    no quota of a day back (ai.google.dev, "Rate limits": it resets at midnight Pacific time).
    """
    longest: float | None = None
    for detail in objects(error.get("details")):
        kind = text(detail.get("@type")).rpartition("/")[2]
        if kind == "google.rpc.QuotaFailure":
            quotas = [text(one.get("quotaId")) for one in objects(detail.get("violations"))]
            if any("PerDay" in quota or "Daily" in quota for quota in quotas):
                return NO
        elif kind == "google.rpc.RetryInfo":
            delay = duration(detail.get("retryDelay"))
            if delay is not None and (longest is None or delay > longest):
                longest = delay
    return None if longest is None else Hint(longest, None, "google.rpc.retryinfo")


def duration(value: object) -> float | None:
    """The seconds of a google.protobuf.Duration: ``"3.000000001s"`` (protobuf.dev, "ProtoJSON
    Format"), or its fields. A negative one is malformed here.
    """
    if isinstance(value, dict):
        nanos = text(value.get("nanos", "0"))
        if len(nanos) > 9:
            return None
        value = f"{text(value.get('seconds', '0'))}.{nanos.zfill(9)}s"
    seconds = number(value[:-1]) if isinstance(value, str) and value.endswith("s") else None
    return None if seconds is None else min(seconds, FOREVER)


def openai(error: dict[str, Any]) -> Hint | None:
    """Money that is used up ends the call.

    help.openai.com 5955604, "Troubleshooting API rate limits and 429 errors": "Retrying a billing,
    spending, or quota error does not restore access." Its four codes come first; they may stand
    beside the type insufficient_quota, which used to be the code too.
    """
    return NO if error.get("code") in SPENT or error.get("type") in SPENT else None


SPENT = (  # a tuple, because a code may be any JSON, which no set takes
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "project_spend_limit_exceeded",
    "insufficient_quota",
    "billing_hard_limit_reached",  # images, with 400
    "billing_not_active",  # 429; told in the community forum and in BerriAI/litellm#2743
)


def anthropic(error: dict[str, Any]) -> Hint | None:
    """The monthly cap of a tier ends the call. It answers 429 like a rate limit.

    platform.claude.com, "Rate limits": "Retrying, including the SDKs' automatic retries, fails".
    """
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return NO if code == "enforced_spend_limit_reached" else None


def objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


class Vendor(NamedTuple):
    """What one vendor uses for "try again" beside the statuses and headers of all.

    Attributes:
        statuses: Retried.
        hinted_statuses: Retried only if the answer says when to come back.
        read: Returns the word in the "error" of a JSON body; None: the body has none.
    """

    statuses: frozenset[int] = frozenset()
    hinted_statuses: frozenset[int] = frozenset()
    read: Callable[[dict[str, Any]], Hint | None] | None = None


VENDORS: dict[str, Vendor] = {
    # platform.claude.com, "Errors": 529 is overloaded_error.
    "anthropic": Vendor(statuses=frozenset({529}), read=anthropic),
    # learn.microsoft.com, "Set usage quota by key" of API Management: 403 and Retry-After once a
    # quota is used up. Its 429 says all it has to say in headers.
    "azure": Vendor(hinted_statuses=frozenset({403})),
    # developers.cloudflare.com, "Cloudflare 5xx errors". The origin may have acted before a 524.
    "cloudflare": Vendor(statuses=frozenset({520, 521, 522, 523, 524})),
    # docs.github.com, "Rate limits for the REST API": with retry-after or an exhausted quota.
    "github": Vendor(hinted_statuses=frozenset({403})),
    "google": Vendor(read=google),
    "openai": Vendor(read=openai),
}

# Vendors whose word is in the body.
SPEAKING = tuple(sorted(name for name, vendor in VENDORS.items() if vendor.read is not None))
