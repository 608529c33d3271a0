"""forbear: retries that know when to stop, for httpx, httpx2, aiohttp, requests and urllib3.

>>> import httpx
>>> from forbear.httpx import wrap
>>> client = wrap(httpx.Client())

Names are resolved when they are first used, so that ``import forbear`` costs next to nothing and
imports no third-party package.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import aiohttp as aiohttp
    from . import asgi as asgi
    from . import httpx as httpx
    from . import httpx2 as httpx2
    from . import idempotency as idempotency
    from . import redis as redis
    from . import requests as requests
    from . import testing as testing
    from . import urllib3 as urllib3
    from . import wsgi as wsgi
    from .core.event_streams import EventStreams as EventStreams
    from .core.headers.hints import read_hint as read_hint
    from .core.outcome import Failure as Failure
    from .core.outcome import FailureKind as FailureKind
    from .core.outcome import Fault as Fault
    from .core.outcome import Hint as Hint
    from .core.outcome import Phase as Phase
    from .core.outcome import Reason as Reason
    from .core.policy import PolicyFields as PolicyFields
    from .core.policy import RetryPolicy as RetryPolicy
    from .core.record import AttemptRecord as AttemptRecord
    from .core.record import CallRecord as CallRecord
    from .core.record import record_of as record_of
    from .core.strategy import Backoff as Backoff
    from .core.strategy import Exponential as Exponential
    from .core.strategy import Fixed as Fixed
    from .core.strategy import RetryStrategy as RetryStrategy
    from .core.strategy import RetryToken as RetryToken
    from .engine.context import deadline as deadline
    from .engine.context import override as override
    from .engine.settings import Options as Options
    from .errors import CircuitOpenError as CircuitOpenError
    from .errors import DeadlineExceeded as DeadlineExceeded
    from .errors import ForbearError as ForbearError
    from .errors import RetryRefused as RetryRefused
    from .idempotency import IdempotencyKeys as IdempotencyKeys
    from .limits.breaker import CircuitBreaker as CircuitBreaker
    from .limits.budget import AwsStandard as AwsStandard
    from .limits.budget import RetryBudget as RetryBudget
    from .limits.budget import TokenBucket as TokenBucket
    from .limits.concurrency import ConcurrencyLimit as ConcurrencyLimit
    from .limits.gate import RetryGate as RetryGate
    from .limits.hedge import Hedge as Hedge
    from .limits.limits import StandardStrategy as StandardStrategy
    from .limits.origins import Origins as Origins
    from .limits.pacing import Pacing as Pacing

_PLACES = {
    "AttemptRecord": "core.record",
    "AwsStandard": "limits.budget",
    "Backoff": "core.strategy",
    "CallRecord": "core.record",
    "CircuitBreaker": "limits.breaker",
    "CircuitOpenError": "errors",
    "ConcurrencyLimit": "limits.concurrency",
    "DeadlineExceeded": "errors",
    "EventStreams": "core.event_streams",
    "Exponential": "core.strategy",
    "Failure": "core.outcome",
    "FailureKind": "core.outcome",
    "Fault": "core.outcome",
    "Fixed": "core.strategy",
    "ForbearError": "errors",
    "Hedge": "limits.hedge",
    "Hint": "core.outcome",
    "IdempotencyKeys": "idempotency",
    "Options": "engine.settings",
    "Origins": "limits.origins",
    "Pacing": "limits.pacing",
    "Phase": "core.outcome",
    "PolicyFields": "core.policy",
    "Reason": "core.outcome",
    "RetryBudget": "limits.budget",
    "RetryGate": "limits.gate",
    "RetryPolicy": "core.policy",
    "RetryRefused": "errors",
    "RetryStrategy": "core.strategy",
    "RetryToken": "core.strategy",
    "StandardStrategy": "limits.limits",
    "TokenBucket": "limits.budget",
    "deadline": "engine.context",
    "override": "engine.context",
    "read_hint": "core.headers.hints",
    "record_of": "core.record",
}

# Imported when they are first used too; their libraries may not be installed.
_MODULES = (
    "aiohttp", "asgi", "httpx", "httpx2", "idempotency", "redis", "requests", "testing", "urllib3",
    "wsgi",
)  # fmt: skip

__all__ = [
    "AttemptRecord",
    "AwsStandard",
    "Backoff",
    "CallRecord",
    "CircuitBreaker",
    "CircuitOpenError",
    "ConcurrencyLimit",
    "DeadlineExceeded",
    "EventStreams",
    "Exponential",
    "Failure",
    "FailureKind",
    "Fault",
    "Fixed",
    "ForbearError",
    "Hedge",
    "Hint",
    "IdempotencyKeys",
    "Options",
    "Origins",
    "Pacing",
    "Phase",
    "PolicyFields",
    "Reason",
    "RetryBudget",
    "RetryGate",
    "RetryPolicy",
    "RetryRefused",
    "RetryStrategy",
    "RetryToken",
    "StandardStrategy",
    "TokenBucket",
    "deadline",
    "override",
    "read_hint",
    "record_of",
]


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None and name not in _MODULES:
        from .adapters import wrong_name

        raise wrong_name(__name__, name)
    from importlib import import_module

    if place is None:
        return import_module(f"forbear.{name}")
    value: object = getattr(import_module(f"forbear.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
