"""forbear for requests: ``RetryAdapter`` and ``mount``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

try:
    import requests
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.requests needs requests: {to_install('requests')}") from None

from requests.adapters import DEFAULT_POOLBLOCK, DEFAULT_POOLSIZE, BaseAdapter, HTTPAdapter
from requests.utils import prepend_scheme_if_needed, select_proxy
from urllib3.util import Retry

from .adapters.urllib3.deadlines import LARGE, keep_deadlines
from .adapters.urllib3.errors import classify
from .adapters.urllib3.request import PLAIN, origin_at
from .adapters.urllib3.requests import RequestsPort
from .core.checks import shown, suggesting, tool
from .engine.calls import note_success
from .engine.current import CURRENT
from .engine.frames import warn
from .engine.settings import DEFAULT_POLICY, DEFAULTS, Settings, options_of_client
from .errors import CircuitOpenError as CircuitOpen
from .errors import DeadlineExceeded as Exceeded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Never, Unpack

    from .adapters.urllib3.requests import Cert, Timeouts
    from .core.policy import RetryPolicy
    from .engine.options import Options

__all__ = [
    "CircuitOpenError",
    "DeadlineExceeded",
    "RetryAdapter",
    "classify",
    "is_mounted",
    "mount",
]

Predicate = Callable[[requests.Response], bool | None]
AnySession = TypeVar("AnySession", bound=requests.Session)
current = CURRENT.get
# Attributes that callers read, and change, on the adapter of a session.
POOLS = (*HTTPAdapter.__attrs__, "poolmanager", "proxy_manager")


class CircuitOpenError(CircuitOpen, requests.RequestException):
    """Nothing was sent: this origin is refused now. Also a ``requests.RequestException``."""


class DeadlineExceeded(Exceeded, requests.Timeout):
    """The deadline of the call is over. Also a ``requests.Timeout``."""


class RetryAdapter(HTTPAdapter):
    """An HTTPAdapter that retries failed requests where a repetition is safe. Thread-safe; pickles.

    ``mount(session)`` puts it around the adapters of a session. With ``stream=False`` each attempt
    includes the body, so a body that breaks is a failure like any other. Another adapter can be
    wrapped as ``inner``, or be a second base class: each attempt goes through ``super().send``, and
    unknown options go to ``super().__init__``. A subclass that gives HTTPAdapter its arguments by
    position, such as hishel's CacheAdapter, must be ``inner``.

    Examples:
        >>> session.mount("https://", RetryAdapter(RetryPolicy(max_attempts=3)))

    Args:
        policy: When and how often to retry. A block changes it by ``forbear.override``.
        inner: The adapter that sends. None: this one. The retries of ``inner`` itself are set to 0
            with a warning; its other attributes, such as ``poolmanager``, are found on this one.
        pool_connections: How many hosts keep a pool of connections, as in HTTPAdapter.
        pool_maxsize: How many connections are kept for each host.
        pool_block: Whether an attempt waits for a free connection to its host.
        **options: gate, budget, breaker, cooldown, origins, strategy, concurrency, pacing;
            retry_if, before_attempt, idempotency, body_buffer; resume, event_streams;
            on_event, name, contact, announce_attempts, stop_outer_retries; clock, random.
            ``help(forbear.Options)`` explains each.

    Raises:
        TypeError: An option is unknown or of the wrong type; the message says what to write.
        ValueError: A value is out of its range.
    """

    inner: BaseAdapter | None = None
    _forbear_sends = True
    __attrs__ = [*HTTPAdapter.__attrs__, "given", "inner"]  # noqa: RUF012  # what requests pickles

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        *others: Never,
        inner: BaseAdapter | None = None,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        pool_block: bool = DEFAULT_POOLBLOCK,
        **options: Unpack[Options[Predicate]],
    ) -> None:
        if others:
            raise TypeError(
                "RetryAdapter takes only its policy by position; an adapter above it gave it"
                " HTTPAdapter's arguments so: write RetryAdapter(policy, inner=ThatAdapter(…))"
            )
        if "max_retries" in options:
            raise TypeError(tool("migration").unknown("RetryAdapter", options, DEFAULTS))
        if "prefetch" in options:
            raise TypeError(
                "RetryAdapter takes no prefetch: what is not streamed is read inside anyway,"
                " whatever its size"
            )
        if inner is not None and not callable(getattr(inner, "send", None)):
            raise TypeError(f"inner must be an adapter of requests, got {shown(inner)}")
        given: dict[str, Any] = dict(options)
        cooperative: dict[str, Any] = {}
        if next_adapter(type(self)) is not HTTPAdapter:
            cooperative = {name: given.pop(name) for name in options if name not in DEFAULTS}
        self._take(policy, given)
        if inner is not None:
            take_over_retries(inner)
        super().__init__(
            pool_connections=pool_connections,
            pool_maxsize=pool_maxsize,
            pool_block=pool_block,
            **cooperative,
        )
        if inner is not None:
            self._stand_for(inner)

    def _take(self, policy: RetryPolicy, options: dict[str, Any]) -> None:
        """Check and take the options, which are kept for pickling."""
        settings = Settings("RetryAdapter", policy, options)
        if "budget" not in options and options.get("strategy") is None:
            options["budget"] = settings.limits.budget
        self.given = policy, options
        self.port = RequestsPort(settings, CircuitOpenError, DeadlineExceeded, self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._take(*state["given"])
        own = {name: value for name, value in state.items() if name != "inner"}
        super().__setstate__(own)
        if state["inner"] is not None:
            self._stand_for(state["inner"])

    def _stand_for(self, inner: BaseAdapter) -> None:
        """Show the inner adapter's attributes to code that reads them on this one."""
        self.inner = inner
        for name in POOLS:
            if hasattr(inner, name):
                vars(self).pop(name, None)  # and __getattr__ finds it
        managers = (
            getattr(inner, "poolmanager", None),
            *getattr(inner, "proxy_manager", {}).values(),
        )
        for manager in managers:
            keep_deadlines(manager)

    if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

        def __getattr__(self, name: str) -> Any:
            if self.inner is None or name.startswith("__"):
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            return getattr(self.inner, name)

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """Do the same as HTTPAdapter, or as the inner adapter if there is one."""
        adapter: Any = super() if self.inner is None else self.inner
        adapter.init_poolmanager(*arguments, **named)
        keep_deadlines(self.poolmanager)

    def proxy_manager_for(self, *arguments: Any, **named: Any) -> Any:
        """Do the same as HTTPAdapter, or as the inner adapter if there is one."""
        adapter: Any = super() if self.inner is None else self.inner
        manager = adapter.proxy_manager_for(*arguments, **named)
        keep_deadlines(manager)
        return manager

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Timeouts = None,
        verify: bool | str = True,
        cert: Cert = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a prepared request; retry it where that is allowed and useful. As HTTPAdapter's."""
        port = self.port
        started_at = port.clock.monotonic()
        scope = current()
        if (
            port.special
            or (scope is not None and not scope.asks_nothing)
            or type(request.body) not in PLAIN
            or not port.shared.quiet
        ):
            source = request, stream, timeout, verify, cert, proxies
            return port.send_all(source, started_at)
        response: requests.Response | None = None
        held: list[requests.Response | Exception | None] | None = None
        try:
            try:
                response = self.send_once(request, stream, timeout, verify, cert, proxies)
                if response.status_code < 300 and (
                    stream
                    or (
                        (getattr(response.raw, "length_remaining", None) or 0) <= LARGE
                        and (response.content or not port.is_empty_stream(response, request.method))
                    )
                ):
                    if stream:
                        source = request, stream, timeout, verify, cert, proxies
                        begin = partial(port.call_after_first, source, started_at, scope)
                        response = port.watched(response, begin)
                    if not (port.is_plain and port.shared.quiet):
                        origin, status = origin_at(request.url), response.status_code
                        method = request.method or "GET"
                        note_success(port.settings, method, origin, status, started_at)
                    return response
                held = [response]
            except Exception as error:
                port.close(response)
                held = [error]
            response = None  # so that only the call holds it while it waits
            source = request, stream, timeout, verify, cert, proxies
            return port.take_over(source, started_at, scope, held)
        except BaseException:
            port.close(held.pop() if held and response is None else response)
            raise

    def send_once(
        self, request: requests.PreparedRequest, stream: bool, timeout: Timeouts,
        verify: bool | str, cert: Cert, proxies: Mapping[str, str] | None,
    ) -> requests.Response:  # fmt: skip
        """Send once, through the inner adapter if there is one."""
        inner = self.inner
        send: Any = super().send if inner is None else inner.send
        if proxies and inner is not None:  # it would make the pools of a new proxy by itself
            wanted: Any = request.url, proxies
            with suppress(Exception):  # no proxy for it, or a wrong one: the inner adapter's matter
                proxy: Any = select_proxy(*wanted)
                self.proxy_manager_for(prepend_scheme_if_needed(proxy, "http"))
        response: Any = None
        try:
            # By name, as a session does: adapters may take nothing else.
            response = send(
                request, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies
            )
            if inner is not None:
                response.connection = self  # digest authentication resends through it
            return response  # type: ignore[no-any-return]
        except BaseException:
            self.port.close(response)
            raise

    def close(self) -> None:
        """Close the pools and wake waiting calls; they end with their last outcome."""
        self.port.settings.sleeper.close()
        adapter: Any = super() if self.inner is None else self.inner
        adapter.close()

    def __repr__(self) -> str:
        over = "" if self.inner is None else f" over {type(self.inner).__name__}"
        return (
            f"<{type(self).__module__}.{type(self).__name__} {self.port.settings.limits!r}{over}>"
        )


@suggesting
def mount(
    session: AnySession, policy: RetryPolicy | None = None, **options: Unpack[Options[Predicate]]
) -> AnySession:
    """Make a session retry, and return the same session.

    A RetryAdapter is put around each adapter that is mounted. All of them share one gate, budget
    and breaker. An adapter that is mounted later does not retry. Call it before threads share the
    session.

    Examples:
        >>> session = mount(requests.Session(), RetryPolicy(max_attempts=3))

    Args:
        session: A ``requests.Session``, or an object of a subclass.
        policy: When and how often to retry. None: ``RetryPolicy()``.
        **options: Those of RetryAdapter; ``help(forbear.Options)`` explains each.

    Raises:
        ValueError: An adapter of the session retries already, or a value is out of its range.
        TypeError: This is not a session of requests, or an option is wrong.
    """
    if not isinstance(session, requests.Session):
        raise not_a_session(session)
    if any(isinstance(adapter, RetryAdapter) for adapter in session.adapters.values()):
        raise ValueError(
            "an adapter of this session retries already: mount first, then for one host"
            " session.mount(host, RetryAdapter(policy)); to change its policy mount plain adapters"
        )
    named = options_of_client(policy, options)
    wrappers: dict[int, RetryAdapter] = {}
    for prefix, adapter in list(session.adapters.items()):
        if id(adapter) not in wrappers:
            wrapper = wrappers[id(adapter)] = RetryAdapter(inner=adapter, **named)
            wrapper.port.session = ref(session)  # weak: the session has the adapter
        session.adapters[prefix] = wrappers[id(adapter)]  # not mount(), which would sort them anew
    return session


def is_mounted(session: requests.Session) -> bool:
    """Say whether all requests of a session are retried: every adapter of it is a RetryAdapter.

    False also if only those of some prefixes are, such as ``https://``.

    Raises:
        TypeError: It is not a session of requests.
    """
    if not isinstance(session, requests.Session):
        raise not_a_session(session)
    return all(isinstance(adapter, RetryAdapter) for adapter in session.adapters.values())


def next_adapter(kind: type[RetryAdapter]) -> type:
    """The class that ``super()`` in RetryAdapter means for objects of ``kind``."""
    order = kind.__mro__
    return order[order.index(RetryAdapter) + 1]


def take_over_retries(inner: BaseAdapter) -> None:
    """Switch off the retries of an adapter below, since two loops would multiply."""
    retries = getattr(inner, "max_retries", None)
    if isinstance(retries, Retry) and (retries.total not in (0, False) or retries.status_forcelist):
        inner.max_retries = Retry(0, read=False)  # type: ignore[attr-defined]
        warn(
            f"{type(inner).__name__}(max_retries={retries.total!r}) under RetryAdapter was set to"
            " 0: attempts would multiply. forbear retries by itself, with a delay and under its"
            " limits; RetryPolicy.from_urllib3(Retry(…)) is the nearest policy to a Retry."
        )


def not_a_session(value: object) -> TypeError:
    from .adapters.names import wrong_client

    return TypeError(wrong_client("forbear.requests.mount", value))


if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

    def __getattr__(name: str) -> Never:
        from .adapters.names import wrong_name

        raise wrong_name(__name__, name)
