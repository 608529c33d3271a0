"""forbear for urllib3: ``RetryPoolManager``, ``RetryProxyManager`` and ``Retry``. Floor: acts.

The managers are urllib3's own with pools that retry, so redirects stay urllib3's: each hop is a
call. ``Retry`` is for libraries that take nothing else, and stricter; see its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any

try:
    import urllib3
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.urllib3 needs urllib3: {to_install('urllib3')}") from None

from urllib3 import exceptions
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import PoolKey
from urllib3.response import BaseHTTPResponse

from . import errors
from .adapters.urllib3_bodies import PLAIN, position_of
from .adapters.urllib3_errors import classify
from .adapters.urllib3_pool import PoolPort, PoolRequest
from .adapters.urllib3_resume import LARGE, is_resumable
from .adapters.urllib3_retry import Retry
from .adapters.urllib3_sockets import Punctual
from .sending.checking import DEFAULTS
from .sending.context import CURRENT
from .sending.settings import DEFAULT_POLICY, Options, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from .core.policy import RetryPolicy

__all__ = [
    "CircuitOpenError",
    "DeadlineExceeded",
    "Retry",
    "RetryPoolManager",
    "RetryProxyManager",
    "classify",
]

current = CURRENT.get


class CircuitOpenError(errors.CircuitOpenError, exceptions.HTTPError):
    """Nothing was sent: this origin is refused now. Also a urllib3 ``HTTPError``."""


class DeadlineExceeded(errors.DeadlineExceeded, exceptions.TimeoutError):
    """The deadline of the call is over. Also a ``urllib3.exceptions.TimeoutError``."""


class ManagerPort(PoolPort):
    """The port that all pools of one manager share."""

    circuit_open_error = CircuitOpenError
    deadline_exceeded = DeadlineExceeded


class RetryingPool(Punctual):
    """The part of a pool that retries; the rest is urllib3's."""

    retry_port: ManagerPort
    retries: Any
    is_http2 = False

    def urlopen(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        retries: Any = None,
        *,
        preload_content: bool = True,
        release_conn: bool | None = None,
        **named: Any,
    ) -> BaseHTTPResponse:
        """Do the same as ``HTTPConnectionPool.urlopen``; ``Retry(total=False)`` sends once."""
        port = self.retry_port
        started_at = port.clock.monotonic()
        if body is None and "body_pos" in named:
            named["body_pos"] = None  # after a 303; urllib3 before 2.8 forgets to
        default, redirects = port.latest
        if retries is not None or default is not self.retries:
            redirects = port.redirects(retries, named.get("redirect", True), self.retries)
        # Who keeps the connection of a response that is read leaves the reading to urllib3; over
        # HTTP/2 its responses are read when they come, and release no connection.
        preload = preload_content and (release_conn is None or release_conn) and not self.is_http2
        named["preload_content"] = preload_content and not preload
        named["release_conn"] = False if preload else release_conn
        named["retries"] = redirects
        scope = current()
        if (
            redirects.total is False
            or port.special
            or (scope is not None and not scope.asks_nothing)
            or type(body) not in PLAIN
            or not port.shared.quiet
        ):
            source = self, method, url, body, headers, preload, named
            setting = False if redirects.total is False else None
            return port.send_all(source, started_at, setting)  # type: ignore[no-any-return]
        response: Any = None
        held: list[Any] | None = None
        try:
            try:
                response = super().urlopen(method, url, body, headers, **named)  # type: ignore[misc]
                if response.status < 300 and port.is_plain and port.shared.quiet:
                    if not preload:
                        if not (port.resumes and is_resumable(response)):
                            return response  # type: ignore[no-any-return]
                    elif (response.length_remaining or 0) <= LARGE:
                        _ = response.data
                        response.release_conn()
                        return response  # type: ignore[no-any-return]
                held = [response]
            except Exception as error:
                held = [error]
                if response is not None:
                    request = PoolRequest(self, method, url, body, headers, preload, named)
                    held[0] = port.load_error(request, response, error)
            response = None  # nothing keeps it while the call waits
            source = self, method, url, body, headers, preload, named
            return port.take_over(source, started_at, scope, held)  # type: ignore[no-any-return]
        except BaseException:
            port.let_go(held.pop() if held and response is None else response)
            raise

    def send_once(self, *arguments: Any, **named: Any) -> Any:
        """Send once, as urllib3 does it."""
        return super().urlopen(*arguments, **named)  # type: ignore[misc]  # of the pool below


class RetryingHTTPPool(RetryingPool, HTTPConnectionPool):  # type: ignore[misc]
    """A pool of connections to one http host."""


class RetryingHTTPSPool(RetryingPool, HTTPSConnectionPool):  # type: ignore[misc]
    """A pool of connections to one https host."""


class ManagerOptions(Options[Callable[[BaseHTTPResponse], bool | None]], total=False):
    """Options of a pool manager: forbear's, and urllib3's own, which are left to urllib3."""

    timeout: Any
    maxsize: int
    block: bool
    retries: Any
    source_address: tuple[str, int] | None
    socket_options: Any
    key_file: str | None
    key_password: str | None
    cert_file: str | None
    cert_reqs: int | str | None
    ca_certs: str | None
    ca_cert_data: str | bytes | None
    ssl_version: int | str | None
    ssl_context: Any
    assert_hostname: str | bool | None
    assert_fingerprint: str | None
    server_hostname: str | None
    proxy_url: str
    proxy_headers: Mapping[str, str] | None
    proxy_ssl_context: Any


class RetryPoolManager(urllib3.PoolManager):
    """A PoolManager that retries failed requests where a repetition is safe. Thread-safe.

    urllib3 follows redirects, and ``retries=`` of a request counts redirects only; each redirect is
    a call of its own. ``retries=False`` and ``Retry(total=False)`` send once. PoolManager's own
    options (timeout, maxsize, block, cert_reqs …) are taken too.

    Examples:
        >>> answer = RetryPoolManager(RetryPolicy(max_attempts=3)).request("GET", url)

    Args:
        policy: When and how often to retry. A block changes it by ``forbear.override``.
        num_pools: How many hosts keep a pool of connections, as in PoolManager.
        headers: Headers of every request that brings none, as in PoolManager.
        **options: gate, budget, breaker, cooldown, origins, strategy; retry_if, before_attempt,
            idempotency, body_buffer; resume; on_event, name, contact, announce_attempts,
            stop_outer_retries; clock, random. ``help(forbear.Options)`` explains each.

    Raises:
        TypeError: An option is unknown or of the wrong type; the message says what to write.
        ValueError: A value is out of its range.
    """

    base: type[urllib3.PoolManager] = urllib3.PoolManager

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        num_pools: int = 10,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[ManagerOptions],
    ) -> None:
        who = type(self).__name__
        if "prefetch" in options:
            raise TypeError(
                f"{who} takes no prefetch: with preload_content=True the body is read inside"
                " anyway, whatever its size"
            )
        if "proxy_url" not in options and self.base is urllib3.ProxyManager:
            raise TypeError(
                f"{who} needs proxy_url='http://…'; without a proxy use RetryPoolManager"
            )
        theirs = {name: value for name, value in options.items() if is_urllib3s(name, self.base)}
        ours = {name: value for name, value in options.items() if name not in theirs}
        self.port = ManagerPort(Settings(who, policy, ours))
        if ours.get("origins") is not None:
            self.port.manager = self  # a cycle: its pools may be all that is kept of it
        named: Any = theirs
        self.base.__init__(self, num_pools=num_pools, headers=headers, **named)
        self.pool_classes_by_scheme = {"http": RetryingHTTPPool, "https": RetryingHTTPSPool}

    def urlopen(self, method: str, url: str, redirect: bool = True, **kw: Any) -> BaseHTTPResponse:  # type: ignore[override]
        """Do the same as ``PoolManager.urlopen``."""
        body = kw.get("body")
        if type(body) not in PLAIN and kw.get("body_pos") is None:
            kw["body_pos"] = position_of(body)  # the hops of a redirect begin there too
        return super().urlopen(method, url, redirect, **kw)

    def _new_pool(self, *arguments: Any, **named: Any) -> HTTPConnectionPool:
        pool: Any = super()._new_pool(*arguments, **named)
        pool.retry_port = self.port
        pool.is_http2 = pool.ConnectionCls.__module__.startswith("urllib3.http2")
        return pool  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Close the pools and wake calls that wait; they end with what they have."""
        self.port.sleeper.close()
        super().clear()

    def __repr__(self) -> str:
        return f"<forbear.urllib3.{type(self).__name__} {self.port.limits!r}>"


class RetryProxyManager(RetryPoolManager, urllib3.ProxyManager):
    """The same through a proxy: ``RetryProxyManager(policy, proxy_url="http://proxy:3128")``.

    Options as of RetryPoolManager and ``urllib3.ProxyManager``.
    """

    base = urllib3.ProxyManager


def is_urllib3s(name: str, base: type[urllib3.PoolManager]) -> bool:
    """Is this an option of urllib3's own manager? A version may have more than are listed here."""
    if name in DEFAULTS:
        return False
    return (
        name in ManagerOptions.__annotations__
        or f"key_{name}" in PoolKey._fields
        or name in signature(base).parameters
    )
