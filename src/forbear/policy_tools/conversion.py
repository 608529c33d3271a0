"""Conversion: the nearest policy to another library's retry settings.

Reads attributes and imports nothing: their meaning was read in urllib3 2.0.7 and 2.8.0,
``util/retry.py``, and in httpx-retries 0.6.0, ``retry.py`` and ``transport.py``. The nearest policy
never sends more often than theirs would, for any kind of failure, and waits as long as theirs.

Both libraries retry a dead server as often and as quickly as any other. ``patience`` is None, so
that a converted policy does too: a transport's ``RetryGate`` neither holds nor refuses its retries.

``RetryPolicy.from_urllib3`` differs from urllib3 so:

- A ``Retry-After`` above ``retry_after_max`` ends the call, where urllib3 waits less than asked.
- A method outside ``allowed_methods`` is retried with an idempotency key, or if nothing was sent;
  urllib3 retries it after TLS and proxy errors too.
- ``allowed_methods=None``, any method, becomes the default ``methods``: name those that may take
  effect twice, ``policy.replace(methods={..., "POST"})``.
- No limit at all becomes 11 attempts, urllib3's own default. Redirects are left to the client.
- ``raise_on_status`` raises the client's own error for the status, which is ``MaxRetryError`` for
  urllib3 only; also for a POST that was not retried, whose response urllib3 returns.
- Left out are statuses below 400 (see ``retry_if``) and methods that a subclass overrides.

``RetryPolicy.from_httpx_retries`` differs from httpx-retries so:

- ``total_timeout`` bounds waits and attempts, where theirs adds up waits only, and ``max_attempts``
  is what fits into it with waits at their longest.
- A ``Retry-After`` above ``max_backoff_wait`` ends the call, where theirs retries too soon.
- A method outside ``allowed_methods`` is retried with an idempotency key, or if nothing was sent.
- The server's own ``x-should-retry`` is obeyed.
- A kind of failure stays in ``failures`` if ``retry_on_exceptions`` has all its exceptions.
- Left out are statuses below 400, ``validate_response`` (see ``retry_if``), and overridden methods.
"""

from __future__ import annotations

from math import ceil, floor, inf

from ..core.checks import Frozen, check_duration, check_number, shown
from ..core.outcome import RETRYABLE_KINDS, FailureKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Fields = dict[str, Any]  # of a policy, or of a Retry, whose types nobody has checked

K = FailureKind

# The settings of ``Retry(n)`` other than its total; the last four are absent from older versions.
DEFAULTS: Fields = {
    **dict.fromkeys(("connect", "read", "redirect", "status", "other")),
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

# Which kinds of failure each of urllib3's counts counts. A ProxyError may be of two.
COUNTED = {
    "connect": {K.DNS, K.REFUSED, K.CONNECT_TIMEOUT, K.UNPROCESSED, K.PROXY},
    "read": {K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT, K.RESET, K.PROTOCOL},
    "other": {K.TLS, K.PROXY},
}
WITHOUT_END = 11  # attempts where urllib3 would never end: its own default of 10 retries
LONGEST = 2.0**31  # seconds; an unlimited wait as a number, where hints saturate too


class Doubling(Frozen):
    """``base × 2**(n - 1)`` seconds before retry n, as urllib3 and httpx-retries jitter and cut it.

    ``Exponential`` cuts a wait before its jitter, and has no wait that is left out.

    Args:
        base: Seconds before the first retry, before jitter.
        cap: No wait is longer, in seconds.
        share: The wait is multiplied by a random number from [1 - share, 1].
        seconds: A random number from [0, seconds] is added to the wait.
        first_at_once: There is no wait before the first retry.
    """

    base: float
    cap: float
    share: float
    seconds: float
    first_at_once: bool

    __slots__ = FIELDS = tuple(__annotations__)

    def __init__(
        self, base: float, cap: float, share: float, seconds: float, first_at_once: bool
    ) -> None:
        self._set(base=base, cap=cap, share=share, seconds=seconds, first_at_once=first_at_once)

    @property
    def jitter(self) -> float:
        """0: the waits have none."""
        return self.share or self.seconds

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        if attempt <= 1 and self.first_at_once:
            return 0.0
        jitter = random()
        full = self.base * 2.0 ** min(attempt - 1, 900)  # so that a product never is infinite
        return min(full * (1 - self.share + self.share * jitter) + self.seconds * jitter, self.cap)


def fields_of(retry: Any) -> Fields:
    """Return the fields of the policy nearest to a ``urllib3.Retry`` or a number of retries."""
    if isinstance(retry, int):  # bool too: urllib3 counts True as 1 and False as no retries
        settings = {**DEFAULTS, "total": retry}
    elif all(hasattr(retry, name) for name in MUST_HAVE):
        settings = {name: getattr(retry, name, default) for name, default in DEFAULTS.items()}
        settings["total"] = retry.total
    else:
        takes = "a urllib3.Retry or a whole number of retries"
        raise TypeError(f"from_urllib3 takes {takes}, got {shown(retry)}")
    attempts, failures, by_status = counts_of(settings)
    statuses = errors(settings["status_forcelist"] or ()) if by_status else frozenset()
    obeys = bool(settings["respect_retry_after_header"])
    # With total=None urllib3 does not use Retry-After to choose statuses.
    is_hinted = obeys and by_status and settings["total"]
    fields = {
        "max_attempts": attempts,
        "backoff": backoff_of(settings),
        "patience": None,
        "statuses": statuses,
        "hinted_statuses": errors(settings["RETRY_AFTER_STATUS_CODES"] if is_hinted else ()),
        "failures": failures,
        "max_retry_after": seconds(settings["retry_after_max"]),
        "hints": "obey" if obeys else "ignore",
        "on_exhausted": "raise" if settings["raise_on_status"] and statuses else "return",
    }
    allowed = settings["allowed_methods"]
    if allowed:  # None, False, empty: any method, which a policy cannot say
        names = [allowed] if isinstance(allowed, str) else allowed
        # urllib3 looks for the upper-case name: others never match.
        fields["methods"] = {n for n in names if n and n.isascii() and n == n.upper()}
    return fields


def counts_of(settings: Fields) -> tuple[int, frozenset[FailureKind], bool]:
    """Attempts in all, the kinds of failure that may use them, and whether statuses may."""
    names = ("total", "connect", "read", "status", "other", "redirect")
    counts = {name: count(name, settings[name]) for name in names}
    failures = RETRYABLE_KINDS
    for name, kinds in COUNTED.items():
        if counts[name] == 0:
            failures -= kinds
    by_status = counts["status"] != 0
    # urllib3 gives up at any count below 0.
    if counts["total"] == 0 or any(limit is not None and limit < 0 for limit in counts.values()):
        return 1, failures, by_status
    del counts["redirect"]  # redirects are the client's
    limits = [limit for limit in counts.values() if limit]
    return min(limits, default=WITHOUT_END - 1) + 1, failures, by_status


def count(name: str, value: object) -> int | None:
    """Retries of one kind; None: not limited."""
    if value is None or value == inf:
        return None
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name} of a Retry must be a number or None, got {shown(value)}")
    return floor(value) if value > -inf else -1


def errors(statuses: Iterable[object]) -> frozenset[int]:
    return frozenset(int(s) for s in statuses if isinstance(s, int) and 400 <= s <= 599)


def backoff_of(settings: Fields) -> Doubling:
    """urllib3's own: 0, then 2f, 4f … plus 0 to j seconds, at most the cap."""
    names = ("backoff_factor", "backoff_jitter", "backoff_max")
    f, j, cap = (seconds(settings[name]) for name in names)
    return Doubling(f, cap, 0.0, j, first_at_once=True)


def seconds(value: float) -> float:
    return min(max(0.0, value), LONGEST)


# httpx's exceptions that mean a kind of failure (adapters/httpx/errors.py).
RAISED: dict[FailureKind, tuple[str, ...]] = {
    **dict.fromkeys((K.DNS, K.REFUSED, K.TLS), ("ConnectError",)),
    K.CONNECT_TIMEOUT: ("ConnectTimeout",),
    K.READ_TIMEOUT: ("ReadTimeout",),
    K.WRITE_TIMEOUT: ("WriteTimeout",),
    K.TIMEOUT: ("TimeoutException",),
    K.PROXY: ("ProxyError",),
    K.RESET: ("ReadError", "WriteError", "CloseError", "RemoteProtocolError"),
    **dict.fromkeys((K.PROTOCOL, K.UNPROCESSED), ("RemoteProtocolError",)),
}
# The bases by which they can be named: of every one, and of some.
EVERY = {"TransportError", "RequestError", "HTTPError", "Exception", "BaseException"}
BASE = {
    "RemoteProtocolError": "ProtocolError",
    **dict.fromkeys(("ConnectError", "ReadError", "WriteError", "CloseError"), "NetworkError"),
    **dict.fromkeys(("ConnectTimeout", "ReadTimeout", "WriteTimeout"), "TimeoutException"),
}
HTTPX_RETRIES = (
    "total", "allowed_methods", "status_forcelist", "retryable_exceptions", "backoff_factor",
    "respect_retry_after_header", "max_backoff_wait", "backoff_jitter", "attempts_made",
)  # fmt: skip


def fields_of_httpx_retries(retry: Any) -> Fields:
    """Return the fields of the policy nearest to an ``httpx_retries.Retry``."""
    if not all(hasattr(retry, name) for name in HTTPX_RETRIES):
        raise TypeError(f"from_httpx_retries takes an httpx_retries.Retry, got {shown(retry)}")
    for name in ("total", "attempts_made"):
        value = getattr(retry, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            fault = f"must be a whole number, at least 0, got {shown(value)}"
            raise ValueError(f"{name} of a Retry {fault}")
    check_duration("max_backoff_wait", retry.max_backoff_wait)
    left = getattr(retry, "total_timeout", None)
    check_duration("total_timeout", left, none="no limit")
    backoff = backoff_of_httpx_retries(retry)
    attempts = max(1, retry.total - retry.attempts_made + 1)
    if left is not None:
        left -= getattr(retry, "elapsed_sleep", 0.0)
        if left <= 0:  # its waits are used up: it sends once, and that may take any time
            attempts, left = 1, None
        else:
            attempts = min(attempts, 1 + slept_out(retry, left))
    named = {getattr(cls, "__name__", "") for cls in retry.retryable_exceptions}
    return {
        "max_attempts": attempts,
        "backoff": backoff,
        "patience": None,
        "statuses": errors(retry.status_forcelist),
        "conflict_with_key": False,
        "failures": {kind for kind, raised in RAISED.items() if all_named(raised, named)},
        "methods": frozenset(name for name in retry.allowed_methods if name and name.isascii()),
        "total_timeout": left,
        "max_retry_after": seconds(retry.max_backoff_wait),
        "hints": "obey" if retry.respect_retry_after_header else "ignore",
    }


def all_named(raised: tuple[str, ...], named: set[str]) -> bool:
    """Is each of these exceptions in ``named``, itself or by a base?"""
    return all(not named.isdisjoint({name, BASE.get(name, name), *EVERY}) for name in raised)


def slept_out(retry: Any, limit: float) -> float:
    """Retries after which its waits, at their longest, have reached the limit and it ends."""
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
    """Its first wait with the longest jitter, before the cap."""
    return retry.backoff_factor * 2.0 ** min(retry.attempts_made + 1, 1000)  # type: ignore[no-any-return]


def backoff_of_httpx_retries(retry: Any) -> Doubling:
    """Its own: before retry n, f × 2**n times a number from [1 - j, 1], at most the cap."""
    check_duration("backoff_factor", retry.backoff_factor)
    check_number("backoff_jitter", retry.backoff_jitter)
    j, cap = retry.backoff_jitter, seconds(retry.max_backoff_wait)
    if not 0 <= j <= 1:
        raise ValueError(f"backoff_jitter of a Retry must be in [0, 1], got {shown(j)}")
    return Doubling(seconds(longest_of_httpx_retries(retry)), cap, j, 0.0, first_at_once=False)
