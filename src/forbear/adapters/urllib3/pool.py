"""Pool: how a call is sent through a pool of urllib3, and its body read."""

from __future__ import annotations

from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPHeaderDict, HTTPResponse, exceptions
from urllib3.util import Retry, Timeout
from urllib3.util.proxy import connection_requires_http_tunnel

from ...engine.errors import ConsumedBody
from ...errors import ForbearError
from .port import Urllib3Port, Urllib3Request, origin_at, path_of

if TYPE_CHECKING:
    from urllib3 import PoolManager

    from ...core.call import Call
    from .guard import Body
    from .port import Limited

    Retries = Retry | bool | int | None

READ_ERRORS = (exceptions.TimeoutError, exceptions.ProtocolError, exceptions.SSLError)


class RedirectsOnly(Retry):
    """A urllib3 Retry that only counts redirects, because forbear retries."""

    _forbear_sends = True

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return False


def warn_of_retries(retries: object, whose: str) -> bool:
    """Warn if ``retries=`` asks for more than redirects; say whether it did."""
    counts = ("total", "connect", "read", "status", "other")
    is_number = isinstance(retries, int) and retries is not False
    if not is_number and not any(getattr(retries, count, None) for count in counts):
        return False
    from ...engine.frames import warn

    warn(
        f"retries={retries} of this {whose} counts redirects only: the pool manager retries by"
        " itself, as its RetryPolicy says; RetryPolicy.from_urllib3(Retry(…)) makes one"
    )
    return True


class PoolRequest:
    """One request to a pool. ``before_attempt`` is shown a copy; it may change the headers."""

    __slots__ = ("body", "headers", "method", "named", "pool", "preload", "url")

    def __init__(self, *parts: Any) -> None:
        # ``preload``: the body is read inside; ``named``: further arguments of ``urlopen``.
        self.pool, self.method, self.url, self.body, self.headers, self.preload, self.named = parts

    def copy(self) -> PoolRequest:
        headers = HTTPHeaderDict(self.headers)
        head = self.pool, self.method, self.url, self.body, headers
        return PoolRequest(*head, self.preload, self.named)


class PoolPort(Urllib3Port[PoolRequest, HTTPResponse]):
    """The port that all pools of one manager share.

    Attributes:
        manager: Where there are several origins: makes the pool of another one.
    """

    manager: PoolManager
    _has_warned = False
    # Most calls give no Retry: the one that was made for the default of their pool.
    latest: tuple[object, Retry] = (..., Retry.DEFAULT)
    status_of = staticmethod(attrgetter("status"))
    is_redirect = staticmethod(methodcaller("get_redirect_location"))
    raw_of = staticmethod(lambda response: response)
    send_once = staticmethod(lambda request: request.pool.send_once(request, request.named))

    def view_of(self, source: PoolRequest) -> Urllib3Request:
        if source.headers is None:
            source.headers = source.pool.headers
        method, names = source.method.upper(), self.settings.key_names
        origin = origin_at(source.url, source.pool)
        view = Urllib3Request(method, origin, source.headers, names, source.url, source)
        view.streams = not source.preload
        timeout = source.named.get("timeout", Timeout.DEFAULT_TIMEOUT)
        view.timeout = source.pool.timeout if timeout is Timeout.DEFAULT_TIMEOUT else timeout
        return view

    def guard_of(self, request: PoolRequest, body: object, hop: object) -> Body:
        from .guard import guard_of

        guard = guard_of(body, request.named.get("body_pos"), self.settings.body_buffer)
        is_hop = bool(getattr(request.named["retries"], "history", None))
        if is_hop and not guard.replayable and not guard.is_sent:  # retries were off before it
            raise self.consumed(None, ConsumedBody("it was sent before the redirect"))
        return guard

    def move(self, request: PoolRequest, url: str) -> None:
        pool = request.pool = self.manager.connection_from_url(url)
        proxy, config = self.manager.proxy, self.manager.proxy_config
        if proxy is None or connection_requires_http_tunnel(proxy, config, pool.scheme):
            url = path_of(url)
        request.url = url

    def send_as(
        self, view: object, limits: Limited, request: PoolRequest, timeout: Timeout | float | None
    ) -> HTTPResponse:
        named = {**request.named, "timeout": timeout}
        if getattr(limits, "rest", None) is not None:
            # The Range header would be sent along, and the URL of another origin may have another
            # body, whose rest must not be joined to this beginning.
            named["redirect"] = False
        if limits.guard is not None:  # it seeks a file back by itself
            named["body_pos"] = None
        return request.pool.send_once(request, named)  # type: ignore[no-any-return]

    def load(self, request: PoolRequest, response: HTTPResponse) -> None:
        """Leave the response as ``preload_content=True`` does: read, its connection released.

        Raises:
            What urllib3 would have raised, mostly a MaxRetryError.
        """
        try:
            _ = response.data
        except BaseException as error:
            response.close()
            response.release_conn()
            retries = request.named["retries"]
            if retries and isinstance(error, READ_ERRORS) and not isinstance(error, ForbearError):
                retries.increment(
                    request.method, request.url, error=error, _pool=request.pool,
                    _stacktrace=error.__traceback__,
                )  # fmt: skip
            raise
        response.release_conn()

    def consumed(self, call: object, error: Exception) -> Exception:
        return exceptions.ProtocolError(f"The request cannot be resent: {error}.")

    def with_raw(self, response: HTTPResponse, raw: HTTPResponse) -> HTTPResponse:
        return raw

    copy_of = with_raw

    def status_error(self, call: Call, response: HTTPResponse, body: object) -> Exception:
        message = exceptions.ResponseError.SPECIFIC_ERROR.format(status_code=response.status)
        original = call.request.original
        reason = exceptions.ResponseError(message)
        return exceptions.MaxRetryError(original.pool, original.url, reason)

    def closed_error(self) -> Exception:
        message = "The pools were closed while the call waited."
        return exceptions.ClosedPoolError(None, message)  # type: ignore[arg-type]

    def redirects(self, retries: Retries, redirect: bool, default: Retries) -> Retry:
        """The part of a Retry that is not ours to decide.

        Errors are raised as urllib3 raises them when nothing is left: with ``read=0`` and so on.
        """
        if retries is None and default is self.latest[0]:
            return self.latest[1]
        given = Retry.from_int(retries, redirect=redirect, default=default)
        if type(given) is RedirectsOnly or given.total is False:  # False: sent once, as it is
            return given
        if not self._has_warned and not given.history:
            self._has_warned = warn_of_retries(retries, "request")
        made = object.__new__(RedirectsOnly)
        vars(made).update(
            vars(given),
            total=given.total if given.redirect is None or given.redirect is True else None,
            # False: the error itself, without MaxRetryError.
            connect=False if given.connect is False else 0,
            read=False if given.read is False else 0,
            status=0,
            other=0,
        )
        if given is default:
            self.latest = (given, made)
        return made
