"""forbear for requests: ``RetryAdapter`` and ``mount``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
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

from .adapters.urllib3.deadlines import keep_deadlines
from .adapters.urllib3.errors import classify
from .adapters.urllib3.requests import RequestsPort
from .core.checks import shown
from .engine.settings import DEFAULT_POLICY, Settings, options_of_client
from .errors import CircuitOpenError as CircuitOpen
from .errors import DeadlineExceeded as Exceeded

if TYPE_CHECKING:
    from typing import Never, Unpack

    from .adapters.urllib3.requests import Cert, Proxies, Source, Timeouts
    from .addons.options import Options
    from .core.policy import RetryPolicy

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


class CircuitOpenError(CircuitOpen, requests.RequestException):
    """Nothing was sent: this origin is refused now. Also a ``requests.RequestException``."""


class DeadlineExceeded(Exceeded, requests.Timeout):
    """The deadline of the call is over. Also a ``requests.Timeout``."""


class RetryAdapter(BaseAdapter):
    """An adapter that retries failed requests where a repetition is safe. Thread-safe; pickles.

    ``mount(session)`` puts it around the adapters of a session. With ``stream=False`` each attempt
    includes the body, so a body that breaks is a failure like any other. It sends through another
    adapter, ``inner``, and what else it is asked for, such as ``poolmanager``, is that one's.

    Examples:
        >>> session.mount("https://", RetryAdapter(RetryPolicy(max_attempts=3)))

    Args:
        policy: When and how often to retry. A block changes it by ``forbear.override``.
        inner: The adapter that sends. None: an HTTPAdapter. The retries of ``inner`` itself are set
            to 0 with a warning.
        pool_connections: How many hosts keep a pool of connections, as in HTTPAdapter.
        pool_maxsize: How many connections are kept for each host.
        pool_block: Whether an attempt waits for a free connection to its host.
        **options: gate, budget, breaker, cooldown, origins, strategy, concurrency, pacing,
            addons; retry_if, before_attempt, idempotency, body_buffer; resume, event_streams;
            on_event, name, contact, announce_attempts, stop_outer_retries; clock, random.
            ``help(forbear.Options)`` explains each.

    Raises:
        TypeError: An option is unknown or of the wrong type; the message says what to write.
        ValueError: A value is out of its range.
    """

    _forbear_sends = True

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        *,
        inner: BaseAdapter | None = None,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        pool_block: bool = DEFAULT_POOLBLOCK,
        **options: Unpack[Options[Predicate]],
    ) -> None:
        if isinstance(policy, BaseAdapter):
            raise TypeError(
                f"policy must be a RetryPolicy, got {shown(policy)}: write RetryAdapter(inner=…)"
            )
        is_other = isinstance(inner, (type, requests.Session))
        if inner is not None and (is_other or not callable(getattr(inner, "send", None))):
            raise TypeError(
                f"inner must be an adapter of requests, got {shown(inner)}; for those of a"
                " session use forbear.requests.mount(session)"
            )
        super().__init__()
        self.given = policy, options
        if inner is None:
            inner = HTTPAdapter(pool_connections, pool_maxsize, pool_block=pool_block)
        self.inner = inner
        self._connect()
        take_over_retries(inner)

    def __init_subclass__(cls, **named: object) -> None:
        super().__init_subclass__(**named)
        # A pool with a pinned certificate, say, would silently never be made.
        for name in vars(HTTPAdapter):
            if name[0] != "_" and hasattr(cls, name) and not hasattr(RetryAdapter, name):
                raise TypeError(
                    f"{cls.__name__}.{name} would not be used: RetryAdapter sends through another"
                    " adapter; write RetryAdapter(policy, inner=ThatAdapter(…))"
                )

    def _connect(self) -> None:
        """Make what does not pickle."""
        settings = Settings("RetryAdapter", *self.given)
        self.port = RequestsPort(settings, CircuitOpenError, DeadlineExceeded)
        self.port.send_once = self.send_once
        keep_deadlines(getattr(self.inner, "poolmanager", None))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "port"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._connect()

    if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

        def __getattr__(self, name: str) -> object:
            if name == "inner" or name.startswith("__"):
                raise AttributeError(name)
            return getattr(self.inner, name)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Timeouts = None,
        verify: bool | str = True,
        cert: Cert = None,
        proxies: Proxies = None,
    ) -> requests.Response:
        """Send a prepared request; retry it where that is allowed and useful. As HTTPAdapter's."""
        source = request, stream, timeout, verify, cert, proxies
        return self.port.fetch(source, request.body, stream)

    def send_once(self, source: Source) -> requests.Response:
        """Send once, through the inner adapter."""
        request, stream, timeout, verify, cert, proxies = source
        inner: Any = self.inner
        if proxies:  # it would make the pools of a new proxy by itself
            with suppress(Exception):  # no proxy for it, or a wrong one: the inner adapter's matter
                proxy: Any = select_proxy(request.url or "", dict(proxies))
                keep_deadlines(inner.proxy_manager_for(prepend_scheme_if_needed(proxy, "http")))
        # By name, as a session does: adapters may take nothing else.
        response: Any = inner.send(
            request, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies
        )
        response.connection = self  # digest authentication resends through it
        return response  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the pools and wake waiting calls; they end with their last outcome."""
        self.port.settings.sleeper.close()
        self.inner.close()

    def __repr__(self) -> str:
        limits, inner = self.port.settings.limits, type(self.inner).__name__
        return f"<{type(self).__module__}.{type(self).__name__} {limits!r} over {inner}>"


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
    check_session(session)
    if any(isinstance(adapter, RetryAdapter) for adapter in session.adapters.values()):
        raise ValueError(
            "an adapter of this session retries already: mount first, then for one host"
            " session.mount(host, RetryAdapter(policy)); to change its policy mount plain adapters"
        )
    named = options_of_client(policy, options)
    inners = {id(adapter): adapter for adapter in session.adapters.values()}
    wrappers = {key: RetryAdapter(inner=inner, **named) for key, inner in inners.items()}
    for prefix, adapter in session.adapters.items():
        wrapper = wrappers[id(adapter)]
        wrapper.port.session = ref(session)  # weak: the session has the adapter
        session.adapters[prefix] = wrapper  # not mount(), which would sort them anew
    return session


def is_mounted(session: requests.Session) -> bool:
    """Say whether all requests of a session are retried: every adapter of it is a RetryAdapter.

    False also if only those of some prefixes are, such as ``https://``.

    Raises:
        TypeError: It is not a session of requests.
    """
    check_session(session)
    return all(isinstance(adapter, RetryAdapter) for adapter in session.adapters.values())


def take_over_retries(inner: BaseAdapter) -> None:
    """Switch off the retries of an adapter below, since two loops would multiply."""
    retries = getattr(inner, "max_retries", None)
    if isinstance(retries, Retry) and (retries.total not in (0, False) or retries.status_forcelist):
        inner.max_retries = Retry(0, read=False)  # type: ignore[attr-defined]
        from .engine.frames import warn

        warn(
            f"{type(inner).__name__}(max_retries={retries.total!r}) under RetryAdapter was set to"
            " 0: attempts would multiply. forbear retries by itself, with a delay and under its"
            " limits; RetryPolicy.from_urllib3(Retry(…)) is the nearest policy to a Retry."
        )


def check_session(session: object) -> None:
    if not isinstance(session, requests.Session):
        from .adapters.names import wrong_client

        raise TypeError(wrong_client("forbear.requests.mount", session))


if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

    def __getattr__(name: str) -> Never:
        from .adapters.names import wrong_name

        raise wrong_name(__name__, name)
