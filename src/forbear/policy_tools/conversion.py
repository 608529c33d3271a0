"""Conversion: the nearest policy to another library's retry settings. Floor: decides.

Reads attributes and imports nothing: what they mean was read in urllib3 2.0.7 and 2.8.0,
``util/retry.py``, and in httpx-retries 0.6.0, ``retry.py`` and ``transport.py``. The nearest policy
never sends more often than theirs would, for any kind of failure; what has no counterpart is left
out (``RetryPolicy.from_urllib3`` and ``from_httpx_retries`` say what).
"""

from __future__ import annotations

from math import ceil, floor, inf

from ..core.backoff import Exponential
from ..core.checks import a_duration, a_number, shown
from ..core.outcome import RETRYABLE_KINDS, FailureKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["fields_of", "fields_of_httpx_retries"]

K = FailureKind

# What ``Retry(n)`` has beside its total; the last four are absent from older versions.
DEFAULTS: dict[str, Any] = {
    "connect": None,
    "read": None,
    "redirect": None,
    "status": None,
    "other": None,
    "allowed_methods": frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE"}),
    "status_forcelist": frozenset(),
    "backoff_factor": 0,
    "raise_on_status": True,
    "respect_retry_after_header": True,
    "backoff_max": 120,
    "backoff_jitter": 0.0,
    "retry_after_max": 21_600,
    "RETRY_AFTER_STATUS_CODES": frozenset({413, 429, 503}),
}
MUST_HAVE = ("total", *tuple(DEFAULTS)[:-4])

# urllib3's counts per kind of failure: which kinds each of them counts. A ProxyError may be of
# either.
COUNTED: dict[str, frozenset[FailureKind]] = {
    "connect": frozenset({K.DNS, K.REFUSED, K.CONNECT_TIMEOUT, K.UNPROCESSED, K.PROXY}),
    "read": frozenset({K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT, K.RESET, K.PROTOCOL}),
    "other": frozenset({K.TLS, K.PROXY}),
}
WITHOUT_END = 11  # attempts where urllib3 would go on for ever: its own default of 10 retries
LONGEST = 2.0**31  # seconds; an unlimited wait as a number, where hints saturate too


def fields_of(retry: object) -> dict[str, Any]:
    """The fields of the policy nearest to a ``urllib3.Retry`` or a number of retries; others keep
    their defaults.
    """
    settings = settings_of(retry)
    attempts, failures, by_status = counts_of(settings)
    statuses = (
        frozenset(filter(is_error, settings["status_forcelist"] or ()))
        if by_status
        else frozenset()
    )
    obeys = bool(settings["respect_retry_after_header"])
    hinted = (
        obeys and by_status and bool(settings["total"])
    )  # with total=None urllib3 does not look at it
    fields = {
        "max_attempts": attempts,
        "backoff": backoff_of(settings),
        "statuses": statuses,
        "hinted_statuses": frozenset(
            filter(is_error, settings["RETRY_AFTER_STATUS_CODES"]) if hinted else ()
        ),
        "failures": failures,
        "max_retry_after": seconds(settings["retry_after_max"]),
        "hints": "obey" if obeys else "ignore",
        "on_exhausted": "raise" if settings["raise_on_status"] and statuses else "return",
    }
    allowed = settings["allowed_methods"]
    if allowed:  # None, False, empty: any method, which a policy cannot say
        names = [allowed] if isinstance(allowed, str) else allowed
        # urllib3 looks for the upper-case name: others never match.
        fields["methods"] = frozenset(
            name for name in names if name and name.isascii() and name == name.upper()
        )
    return fields


def settings_of(retry: Any) -> dict[str, Any]:
    if isinstance(retry, int):  # bool too: urllib3 counts True as 1 and False as no retries
        return {**DEFAULTS, "total": retry}
    for name in MUST_HAVE:
        if not hasattr(retry, name):
            raise TypeError(
                f"from_urllib3 takes a urllib3.Retry or a whole number of retries, got {shown(retry)}"
            )
    return {
        "total": retry.total,
        **{name: getattr(retry, name, DEFAULTS[name]) for name in DEFAULTS},
    }


def counts_of(settings: dict[str, Any]) -> tuple[int, frozenset[FailureKind], bool]:
    """Attempts in all, the kinds of failure that may use them, and whether statuses may."""
    counts = {
        name: count(name, settings[name])
        for name in ("total", "connect", "read", "status", "other", "redirect")
    }
    failures = RETRYABLE_KINDS
    for name, kinds in COUNTED.items():
        if counts[name] == 0:
            failures -= kinds
    by_status = counts["status"] != 0
    given = [limit for limit in counts.values() if limit is not None]
    if counts["total"] == 0 or min(given, default=0) < 0:  # urllib3 gives up at any count below 0
        return 1, failures, by_status
    del counts["redirect"]  # redirects are the client's
    limits = [limit for limit in counts.values() if limit]
    return min(limits, default=WITHOUT_END - 1) + 1, failures, by_status


def count(name: str, value: Any) -> int | None:
    """Retries of one kind; None: not limited."""
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name} of a Retry must be a number or None, got {shown(value)}")
    if -inf < value < inf:
        return floor(value)
    return -1 if value == -inf else None


def is_error(status: object) -> bool:
    return isinstance(status, int) and 400 <= status <= 599


def backoff_of(settings: dict[str, Any]) -> Exponential:
    """The schedule whose second wait is urllib3's, which waits 0, then 2f, 4f … plus 0 to j
    seconds.

    Exponential's random part is a share of the wait, urllib3's a number of seconds j: with these
    numbers the second wait is drawn from [2f, 2f + j] in both, and none is shorter than f × 2**(n -
    1), but for the cap.
    """
    f, j, cap = (
        seconds(settings[name]) for name in ("backoff_factor", "backoff_jitter", "backoff_max")
    )
    if not j:
        return Exponential(min(f, cap), cap, jitter="none", immediate_first=True)
    if not f:
        return Exponential(min(j, cap), cap, factor=1.0, jitter="full", immediate_first=True)
    return Exponential(min(f + j / 4, cap), cap, jitter=j / (4 * f + j), immediate_first=True)


def seconds(value: float) -> float:
    return min(max(0.0, value), LONGEST)


# httpx's exceptions that mean a kind of failure (_httpx_family/errors.py), each with the bases it
# can be named by.
TIMEOUT = frozenset({"TimeoutException"})
NETWORK = frozenset({"NetworkError"})
EVERY = frozenset({"TransportError", "RequestError", "HTTPError", "Exception", "BaseException"})
DISCONNECTED = frozenset({"RemoteProtocolError", "ProtocolError"}) | EVERY
REFUSED = (frozenset({"ConnectError"}) | NETWORK | EVERY,)
RAISED: dict[FailureKind, tuple[frozenset[str], ...]] = {
    K.DNS: REFUSED,
    K.REFUSED: REFUSED,
    K.TLS: REFUSED,
    K.CONNECT_TIMEOUT: (frozenset({"ConnectTimeout"}) | TIMEOUT | EVERY,),
    K.READ_TIMEOUT: (frozenset({"ReadTimeout"}) | TIMEOUT | EVERY,),
    K.WRITE_TIMEOUT: (frozenset({"WriteTimeout"}) | TIMEOUT | EVERY,),
    K.TIMEOUT: (TIMEOUT | EVERY,),
    K.PROXY: (frozenset({"ProxyError"}) | EVERY,),
    K.RESET: (
        *(
            frozenset({name}) | NETWORK | EVERY
            for name in ("ReadError", "WriteError", "CloseError")
        ),
        DISCONNECTED,
    ),
    K.PROTOCOL: (DISCONNECTED,),
    K.UNPROCESSED: (DISCONNECTED,),
}
HTTPX_RETRIES = (
    "total", "allowed_methods", "status_forcelist", "retryable_exceptions", "backoff_factor",
    "respect_retry_after_header", "max_backoff_wait", "backoff_jitter", "attempts_made",
)  # fmt: skip


def fields_of_httpx_retries(retry: Any) -> dict[str, Any]:
    """The fields of the policy nearest to an ``httpx_retries.Retry``; others keep their
    defaults.
    """
    for name in HTTPX_RETRIES:
        if not hasattr(retry, name):
            raise TypeError(f"from_httpx_retries takes an httpx_retries.Retry, got {shown(retry)}")
    for name in ("total", "attempts_made"):
        value = getattr(retry, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(
                f"{name} of a Retry must be a whole number, at least 0, got {shown(value)}"
            )
    a_duration("max_backoff_wait", retry.max_backoff_wait)
    left, spent = getattr(retry, "total_timeout", None), getattr(retry, "elapsed_sleep", 0.0)
    a_duration("total_timeout", left, none="no limit")
    backoff = backoff_of_httpx_retries(retry)
    attempts = max(1, retry.total - retry.attempts_made + 1)
    if left is not None:
        left -= spent
        if left <= 0:  # it has slept all it may: it sends once, and so long that may take
            attempts, left = 1, None
        else:
            attempts = min(attempts, 1 + slept_out(retry, left))
    named = {getattr(cls, "__name__", "") for cls in retry.retryable_exceptions}
    return {
        "max_attempts": attempts,
        "backoff": backoff,
        "statuses": frozenset(int(status) for status in retry.status_forcelist if is_error(status)),
        "conflict_with_key": False,
        "failures": frozenset(
            kind for kind, raised in RAISED.items() if all(bases & named for bases in raised)
        ),
        "methods": frozenset(name for name in retry.allowed_methods if name and name.isascii()),
        "total_timeout": left,
        "max_retry_after": seconds(retry.max_backoff_wait),
        "hints": "obey" if retry.respect_retry_after_header else "ignore",
    }


def slept_out(retry: Any, limit: float) -> float:
    """Retries after which its waits, at their longest, have reached the limit: then it sends no
    more.
    """
    wait, cap, retries = longest_of_httpx_retries(retry), seconds(retry.max_backoff_wait), 0
    if not wait:
        return inf
    while limit > 0:
        if wait >= cap:
            return retries + ceil(limit / cap)
        limit -= wait
        wait *= 2
        retries += 1
    return retries


def longest_of_httpx_retries(retry: Any) -> float:
    """Its first wait, if drawn at the longest, before the cap."""
    return retry.backoff_factor * 2.0 ** min(retry.attempts_made + 1, 1000)  # type: ignore[no-any-return]


def backoff_of_httpx_retries(retry: Any) -> Exponential:
    """Its waits: before retry n, f × 2**n times a number drawn from [1 - j, 1], at most
    ``max_backoff_wait``.

    From [1 - j, 1] of a wait is ± j / (2 - j) around 1 - j / 2 of it.
    """
    a_duration("backoff_factor", retry.backoff_factor)
    a_number("backoff_jitter", retry.backoff_jitter)
    j, cap = retry.backoff_jitter, seconds(retry.max_backoff_wait)
    if not 0 <= j <= 1:
        raise ValueError(f"backoff_jitter of a Retry must be in [0, 1], got {shown(j)}")
    longest = longest_of_httpx_retries(retry)
    if j in (0, 1):
        return Exponential(min(longest, cap), cap, jitter="full" if j else "none")
    return Exponential(min(longest * (1 - j / 2), cap), cap, jitter=j / (2 - j))
