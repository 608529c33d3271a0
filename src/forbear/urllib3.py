"""forbear for urllib3: ``RetryPoolManager``, ``RetryProxyManager`` and ``Retry``.

The managers are urllib3's own with pools that retry, so redirects stay urllib3's: each hop is a
call. ``Retry`` is for libraries that take nothing else, and stricter; see its docstring.
"""

from __future__ import annotations

from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

try:
    import urllib3
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.urllib3 needs urllib3: {to_install('urllib3')}") from None

from urllib3 import exceptions
from urllib3.poolmanager import PoolKey
from urllib3.response import BaseHTTPResponse

from .adapters.urllib3.deadlines import DEADLINE_POOLS
from .adapters.urllib3.errors import classify
from .adapters.urllib3.pool import PoolPort, PoolRequest, warn_of_retries
from .adapters.urllib3.port import PLAIN
from .engine.settings import DEFAULT_POLICY, DEFAULTS, Settings
from .errors import CircuitOpenError as CircuitOpen
from .errors import DeadlineExceeded as Exceeded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from .adapters.urllib3.options import ManagerOptions
    from .adapters.urllib3.pool import Retries
    from .adapters.urllib3.retry import Retry
    from .core.policy import RetryPolicy

__all__ = [
    "CircuitOpenError",
    "DeadlineExceeded",
    "Retry",
    "RetryPoolManager",
    "RetryProxyManager",
    "classify",
]


class CircuitOpenError(CircuitOpen, exceptions.HTTPError):
    """Nothing was sent: this origin is refused now. Also a urllib3 ``HTTPError``."""


class DeadlineExceeded(Exceeded, exceptions.TimeoutError):
    """The deadline of the call is over. Also a ``urllib3.exceptions.TimeoutError``."""


class RetryingPool(urllib3.HTTPConnectionPool):
    """The part of a pool that retries; the rest is urllib3's."""

    retry_port: PoolPort

    @cached_property
    def is_http2(self) -> bool:
        return self.ConnectionCls.__module__.startswith("urllib3.http2")

    def urlopen(  # type: ignore[override]  # what else it takes is passed on
        self,
        method: str,
        url: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        retries: Retries = None,
        *,
        preload_content: bool = True,
        release_conn: bool | None = None,
        **named: Any,
    ) -> BaseHTTPResponse:
        """Do the same as ``HTTPConnectionPool.urlopen``; ``Retry(total=False)`` sends once."""
        port = self.retry_port
        if body is None and "body_pos" in named:
            named["body_pos"] = None  # after a 303; urllib3 before 2.8 forgets to
        redirects = port.redirects(retries, named.get("redirect", True), self.retries)
        # With release_conn=False urllib3 must read the body itself, or the caller would lose the
        # connection it wants to keep; over HTTP/2 responses are read at once and release none.
        preload = preload_content and (release_conn is None or release_conn) and not self.is_http2
        named["preload_content"] = preload_content and not preload
        named["release_conn"] = False if preload else release_conn
        named["retries"] = redirects
        request = PoolRequest(self, method, url, body, headers, preload, named)
        setting = False if redirects.total is False else None
        return port.fetch(request, body, not preload, setting)

    def send_once(self, request: PoolRequest, named: dict[str, Any]) -> BaseHTTPResponse:
        return super().urlopen(request.method, request.url, request.body, request.headers, **named)


class RetryPoolManager(urllib3.PoolManager):
    """A PoolManager that retries failed requests where a repetition is safe. Thread-safe.

    urllib3 follows redirects, and ``retries=`` of a request counts redirects only; each redirect is
    a call of its own. ``retries=False`` and ``Retry(total=False)`` send once. PoolManager's own
    options (timeout, maxsize, block, cert_reqs …) are taken too.

    Examples:
        >>> response = RetryPoolManager(RetryPolicy(max_attempts=3)).request("GET", url)

    Args:
        policy: When and how often to retry. A block changes it by ``forbear.override``.
        num_pools: How many hosts keep a pool of connections, as in PoolManager.
        headers: Headers of every request that brings none, as in PoolManager.
        **options: gate, budget, breaker, cooldown, origins, strategy, concurrency, pacing,
            addons; retry_if, before_attempt, idempotency, body_buffer; resume, event_streams;
            on_event, name, contact, announce_attempts, stop_outer_retries; clock, random.
            ``help(forbear.Options)`` explains each.

    Raises:
        TypeError: An option is unknown or of the wrong type; the message says what to write.
        ValueError: A value is out of its range.
    """

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        num_pools: int = 10,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[ManagerOptions],
    ) -> None:
        make = super().__init__
        known = {*signature(make).parameters, *(f[4:] for f in PoolKey._fields)} - DEFAULTS.keys()
        theirs: Any = {name: value for name, value in options.items() if name in known}
        ours = {name: value for name, value in options.items() if name not in known}
        settings = Settings(type(self).__name__, policy, ours)
        self.port = PoolPort(settings, CircuitOpenError, DeadlineExceeded)
        warn_of_retries(theirs.get("retries"), "pool manager")
        if ours.get("origins") is not None:
            self.port.manager = self  # a cycle, but callers may keep nothing of it but a pool
        make(num_pools=num_pools, headers=headers, **theirs)
        own = {"retry_port": self.port}
        self.pool_classes_by_scheme = {
            scheme: type(kind.__name__, (RetryingPool, *kind.__bases__), own)
            for scheme, kind in DEADLINE_POOLS.items()
        }

    def urlopen(self, method: str, url: str, redirect: bool = True, **kw: Any) -> BaseHTTPResponse:  # type: ignore[override]
        """Do the same as ``PoolManager.urlopen``."""
        body = kw.get("body")
        if type(body) not in PLAIN and kw.get("body_pos") is None:
            from .adapters.urllib3.guard import position_of

            kw["body_pos"] = position_of(body)  # so that each hop of a redirect begins there
        return super().urlopen(method, url, redirect, **kw)

    def clear(self) -> None:
        """Close the pools and wake waiting calls; they end with their last outcome."""
        self.port.settings.sleeper.close()
        super().clear()

    def __repr__(self) -> str:
        return f"<forbear.urllib3.{type(self).__name__} {self.port.settings.limits!r}>"


class RetryProxyManager(RetryPoolManager, urllib3.ProxyManager):
    """The same through a proxy: ``RetryProxyManager(policy, proxy_url="http://proxy:3128")``.

    Options as of RetryPoolManager and ``urllib3.ProxyManager``.
    """


if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

    def __getattr__(name: str) -> type[Retry]:
        if name == "Retry":  # loaded when it is used: the managers need none of it
            from .adapters.urllib3.retry import Retry

            globals()[name] = Retry
            return Retry
        from .adapters.names import wrong_name

        raise wrong_name(__name__, name)
