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
    from . import addons as addons
    from . import aiohttp as aiohttp
    from . import asgi as asgi
    from . import events as events
    from . import httpx as httpx
    from . import httpx2 as httpx2
    from . import idempotency as idempotency
    from . import redis as redis
    from . import requests as requests
    from . import strategies as strategies
    from . import testing as testing
    from . import urllib3 as urllib3
    from . import wsgi as wsgi
    from .addons.breaker import CircuitBreaker as CircuitBreaker
    from .addons.budget import RetryBudget as RetryBudget
    from .addons.concurrency import ConcurrencyLimit as ConcurrencyLimit
    from .addons.event_streams import EventStreams as EventStreams
    from .addons.hedge import Hedge as Hedge
    from .addons.options import Options as Options
    from .addons.origins import Origins as Origins
    from .addons.pacing import Pacing as Pacing
    from .core.backoff import Exponential as Exponential
    from .core.backoff import Fixed as Fixed
    from .core.headers.hints import read_hint as read_hint
    from .core.outcome import FailureKind as FailureKind
    from .core.outcome import Reason as Reason
    from .core.policy import RetryPolicy as RetryPolicy
    from .engine.blocks import deadline as deadline
    from .engine.blocks import override as override
    from .errors import CircuitOpenError as CircuitOpenError
    from .errors import DeadlineExceeded as DeadlineExceeded
    from .errors import ForbearError as ForbearError
    from .idempotency import IdempotencyKeys as IdempotencyKeys
    from .limits.gate import RetryGate as RetryGate
    from .records import AttemptRecord as AttemptRecord
    from .records import CallRecord as CallRecord
    from .records import record_of as record_of

_PLACES = {
    "AttemptRecord": "records",
    "CallRecord": "records",
    "CircuitBreaker": "addons.breaker",
    "CircuitOpenError": "errors",
    "ConcurrencyLimit": "addons.concurrency",
    "DeadlineExceeded": "errors",
    "EventStreams": "addons.event_streams",
    "Exponential": "core.backoff",
    "FailureKind": "core.outcome",
    "Fixed": "core.backoff",
    "ForbearError": "errors",
    "Hedge": "addons.hedge",
    "IdempotencyKeys": "idempotency",
    "Options": "addons.options",
    "Origins": "addons.origins",
    "Pacing": "addons.pacing",
    "Reason": "core.outcome",
    "RetryBudget": "addons.budget",
    "RetryGate": "limits.gate",
    "RetryPolicy": "core.policy",
    "deadline": "engine.blocks",
    "override": "engine.blocks",
    "read_hint": "core.headers.hints",
    "record_of": "records",
}
# Imported when they are first used too; their libraries may not be installed.
_MODULES = (
    "addons", "aiohttp", "asgi", "events", "httpx", "httpx2", "idempotency", "redis",
    "requests", "strategies", "testing", "urllib3", "wsgi",
)  # fmt: skip

if not TYPE_CHECKING:  # which takes what is imported above as itself
    __all__ = list(_PLACES)


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None and name not in _MODULES:
        # Also for ``from . import x`` in here, which asks for the attribute before it imports.
        from .adapters.names import wrong_name

        raise wrong_name(__name__, name)
    from importlib import import_module

    if place is None:
        return import_module(f"forbear.{name}")
    value: object = getattr(import_module(f"forbear.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
