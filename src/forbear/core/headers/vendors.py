"""Vendors: what the bodies of one vendor's errors, and the error events of its streams, say.

``VENDORS`` has one row a vendor: statuses that only this vendor uses for "retry", and the
reader of the hint in the JSON body of an error. A body is read only where the headers do not say
the same. For that reason Azure (retry-after-ms), Discord, GitHub, Slack, Stripe and Telegram
(Retry-After) have no reader. Text for people is not read, because its wording may change.
Whatever a body holds, reading it raises nothing and takes time in proportion to its length.

Loaded with the first policy that names a vendor. Sources: RFC 8259 (JSON), RFC 6839 §3.1 (+json);
those of a vendor are named at its row or reader.
"""

from __future__ import annotations

from typing import NamedTuple

from ..checks import shown
from ..feature_checks import texts
from ..outcome import NO_HINT, Hint
from .fields import FOREVER, is_digits, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..policy import RetryPolicy


NO = Hint(None, False, None)


def vendor_hint(vendors: Iterable[str], status: int, media: str, body: bytes) -> Hint | None:
    """Return what the body of a response says about when, and whether, to retry.

    None if the body is not JSON, is malformed, or says nothing that one of these vendors has
    documented.

    Args:
        vendors: Names in ``VENDORS_WITH_BODY_HINTS``, as ``RetryPolicy.vendors`` holds them. The
            first that understands the body is obeyed.
        status: The status code; below 400 no body is read.
        media: The media type of the response.
        body: The whole body, without content coding.
    """
    is_json = media == "application/json" or media.endswith("+json")
    if status < 400 or not is_json:
        return None
    error = error_in(body)
    if error is not None:
        for vendor in vendors:
            read = VENDORS[vendor].read
            if read is not None and (hint := read(error)) is not None:
                return hint
    return None


def error_in(body: bytes) -> dict[str, object] | None:
    """The value of "error" in a JSON object, or in the first object of an array, as the streaming
    methods of Gemini return it. Numbers are their text.
    """
    value = parsed(body)
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error") if isinstance(value, dict) else None
    return error if isinstance(error, dict) else None


def parsed(body: bytes) -> object:
    """The value of a JSON document, with its numbers as text; None if it is none."""
    from json import loads  # only the failures of a policy with vendors need it

    try:
        # Text has no size that int() refuses, and no exponent that costs memory.
        return loads(body.decode(), parse_int=str, parse_float=str)
    except (ValueError, RecursionError):  # no UTF-8, no JSON, or brackets without end
        return None


def google(error: dict[str, object]) -> Hint | None:
    """A quota of a day ends the call, else the longest RetryInfo is the delay.

    google/rpc/error_details.proto: "Clients should wait until retry_delay amount of time has passed
    since receiving the error response before retrying." Google's own gemini-cli
    (googleQuotaErrors.ts) takes a QuotaFailure whose quotaId holds "PerDay" or "Daily" as terminal,
    and ignores the RetryInfo next to it: that one has been seen to name 8 to 22 s, which bring
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
    Format"). A negative one is malformed here.
    """
    seconds = number(value[:-1]) if isinstance(value, str) and value.endswith("s") else None
    return None if seconds is None else min(seconds, FOREVER)


def openai(error: dict[str, object]) -> Hint | None:
    """Money that is used up ends the call.

    help.openai.com 5955604, "Troubleshooting API rate limits and 429 errors": "Retrying a billing,
    spending, or quota error does not restore access." Its four codes come first; they may come
    with the type insufficient_quota, which used to be the code too.
    """
    return NO if error.get("code") in SPENT or error.get("type") in SPENT else None


SPENT = (  # a tuple, because a code may be any JSON, which no set takes
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "project_spend_limit_exceeded",
    "insufficient_quota",
    "billing_hard_limit_reached",  # images, with 400
    "billing_not_active",  # 429; reported in the community forum and in BerriAI/litellm#2743
)


def anthropic(error: dict[str, object]) -> Hint | None:
    """The monthly cap of a tier ends the call. Its status is 429, like a rate limit's.

    platform.claude.com, "Rate limits": "Retrying, including the SDKs' automatic retries, fails".
    """
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return NO if code == "enforced_spend_limit_reached" else None


# Error events: what a stream that was answered 200 says in its first event. Each reader takes the
# name of the event and its data, a JSON object whose numbers are text, and returns the status that
# the vendor gives this error, with the hint; None: it is no error that a retry can cure.


def vendor_event(vendors: Iterable[str], name: str, data: bytes) -> tuple[int, Hint] | None:
    """Return what an event reports, as the first of these vendors that understands it.

    Args:
        vendors: Names in ``VENDORS``, as ``RetryPolicy.vendors`` holds them.
        name: Of the event; in a frame of AWS the type of its exception.
        data: Of the event.
    """
    value = parsed(data)
    for vendor in vendors:
        read = VENDORS[vendor].read_event
        if read is not None:
            found = read(name, value if isinstance(value, dict) else {})
            if found is not None:
                return found
    return None


def google_event(name: str, value: dict[str, object]) -> tuple[int, Hint] | None:
    """ai.google.dev, "Troubleshooting guide": a chunk of the stream is the error itself."""
    error = value.get("error")
    if not isinstance(error, dict):
        return None
    code = text(error.get("code"))
    status = int(code) if is_digits(code) and len(code) == 3 else 0
    is_temporary = status == 429 or 500 <= status <= 599
    return (status, google(error) or NO_HINT) if is_temporary else None


def openai_event(name: str, value: dict[str, object]) -> tuple[int, Hint] | None:
    """``error`` and ``response.failed`` of the Responses API; an ``error`` alone in a chat.

    platform.openai.com, "Streaming events". The code or the type names the failure.
    """
    response = value.get("response")
    if value.get("type") == "response.failed" and isinstance(response, dict):
        error = response.get("error")
    elif isinstance(value.get("error"), dict):
        error = value["error"]
    else:
        error = value if "error" in (name, value.get("type")) else None
    if not isinstance(error, dict):
        return None
    hint = openai(error)
    if hint is not None:
        return 429, hint
    statuses = [OPENAI_STATUSES.get(text(error.get(key))) for key in ("code", "type")]
    status = statuses[0] or statuses[1]
    return None if status is None else (status, NO_HINT)


OPENAI_STATUSES = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "rate_limit": 429,
}


def anthropic_event(name: str, value: dict[str, object]) -> tuple[int, Hint] | None:
    """platform.claude.com, "Errors": types and statuses, and that a stream may send them too."""
    error = value.get("error")
    status = ANTHROPIC_STATUSES.get(text(error.get("type"))) if isinstance(error, dict) else None
    if status is None:
        return None
    return status, anthropic(error) or NO_HINT  # type: ignore[arg-type]


ANTHROPIC_STATUSES = {"overloaded_error": 529, "api_error": 500, "rate_limit_error": 429}


def bedrock_event(name: str, value: dict[str, object]) -> tuple[int, Hint] | None:
    """docs.aws.amazon.com, Bedrock Runtime, "ResponseStream": its exceptions and their statuses.

    Of modelStreamErrorException (424): "Retry your request." A validationException is final.
    """
    status = BEDROCK_STATUSES.get(name[:1].lower() + name[1:])
    return None if status is None else (status, NO_HINT)


BEDROCK_STATUSES = {
    "internalServerException": 500,
    "modelStreamErrorException": 424,
    "modelTimeoutException": 408,
    "serviceUnavailableException": 503,
    "throttlingException": 429,
}


def objects(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


class Vendor(NamedTuple):
    """The signs that one vendor uses for "retry" in addition to the statuses and headers of all.

    Attributes:
        statuses: Retried.
        hinted_statuses: Retried only if the response says when to retry.
        read: Returns the hint in the "error" of a JSON body; None: the body has none.
        read_event: Returns the status and the hint of an error event.
    """

    statuses: frozenset[int] = frozenset()
    hinted_statuses: frozenset[int] = frozenset()
    read: Callable[[dict[str, object]], Hint | None] | None = None
    read_event: Callable[[str, dict[str, object]], tuple[int, Hint] | None] | None = None


VENDORS: dict[str, Vendor] = {
    # platform.claude.com, "Errors": 529 is overloaded_error.
    "anthropic": Vendor(statuses=frozenset({529}), read=anthropic, read_event=anthropic_event),
    # learn.microsoft.com, "Set usage quota by key" of API Management: 403 and Retry-After once a
    # quota is used up. Its 429 says all it has to say in headers.
    "azure": Vendor(hinted_statuses=frozenset({403})),
    # Its errors are said by their statuses; those of a stream are frames of it.
    "bedrock": Vendor(read_event=bedrock_event),
    # developers.cloudflare.com, "Cloudflare 5xx errors". The origin may have acted before a 524.
    "cloudflare": Vendor(statuses=frozenset({520, 521, 522, 523, 524})),
    # docs.github.com, "Rate limits for the REST API": with retry-after or an exhausted quota.
    "github": Vendor(hinted_statuses=frozenset({403})),
    "google": Vendor(read=google, read_event=google_event),
    "openai": Vendor(read=openai, read_event=openai_event),
}

# Vendors whose hint is in the body, or in an event of a stream.
VENDORS_WITH_BODY_HINTS = tuple(
    sorted(name for name, vendor in VENDORS.items() if vendor.read or vendor.read_event)
)


def policy_for(policy: RetryPolicy, vendors: Iterable[str]) -> RetryPolicy:
    """Return ``policy.for_vendors(*vendors)``."""
    rows = {n: VENDORS[n] for n in names_of(vendors, VENDORS, "for_vendors('google', 'openai')")}
    return policy.replace(
        statuses=policy.statuses | {one for row in rows.values() for one in row.statuses},
        hinted_statuses=policy.hinted_statuses
        | {one for row in rows.values() for one in row.hinted_statuses},
        vendors=(*policy.vendors, *(name for name in rows if name in VENDORS_WITH_BODY_HINTS)),
    )


def with_body_hints(value: Iterable[str]) -> tuple[str, ...]:
    """Check ``RetryPolicy.vendors``."""
    return names_of(value, VENDORS_WITH_BODY_HINTS, "['google']")


def names_of(vendors: Iterable[str], known: Iterable[str], code: str) -> tuple[str, ...]:
    """Each name once, in order, so that policies that do the same are equal."""
    names = set(texts("vendors", vendors, code))
    if unknown := names.difference(known):
        least = min(unknown, key=repr)
        raise ValueError(f"vendor must be one of {', '.join(sorted(known))}, got {shown(least)}")
    return tuple(sorted(names))
