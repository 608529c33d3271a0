"""forbear for aiohttp: ``RetryMiddleware``, ``wrap``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

try:
    import aiohttp
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.aiohttp needs aiohttp: {to_install('aiohttp')}") from None

from .adapters.aiohttp.bodies import PLAIN
from .adapters.aiohttp.errors import REPEATED, classify
from .adapters.aiohttp.port import LAST_HOP, AiohttpPort
from .core.call import SENDS
from .engine.calls import call_of
from .engine.current import CURRENT
from .engine.first import go_on, let_go
from .engine.loop import run
from .engine.settings import DEFAULT_POLICY, OFF, PREFETCH, Settings
from .errors import CircuitOpenError as CircuitOpen
from .errors import DeadlineExceeded as Exceeded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Never, Self, Unpack

    from .addons.options import FamilyOptions
    from .core.policy import RetryPolicy
    from .engine.calls import Held

__all__ = [
    "CircuitOpenError",
    "DeadlineExceeded",
    "RetryMiddleware",
    "classify",
    "is_wrapped",
    "unwrap",
    "wrap",
]

Predicate = Callable[[aiohttp.ClientResponse], bool | Awaitable[bool | None] | None]


class CircuitOpenError(CircuitOpen, aiohttp.ClientConnectionError):
    """Nothing was sent: a strategy refuses this origin now. Also an ``aiohttp.ClientError``."""


class DeadlineExceeded(Exceeded, aiohttp.ServerTimeoutError):
    """The deadline of the call is over. Also an ``aiohttp.ServerTimeoutError``.

    Like all timeouts of aiohttp it is an ``asyncio.TimeoutError`` too.
    """


class RetryMiddleware:
    """A client middleware that retries failed requests where a repetition is safe.

    For example ``aiohttp.ClientSession(middlewares=(RetryMiddleware(),))``. Several sessions may
    share one, of one event loop at a time. In a list of middlewares those after it run for each
    attempt, those before it once. ``ClientTimeout.total`` of the session holds for the whole call:
    attempts, delays and body; ``sock_connect`` and ``sock_read`` hold for each attempt. A download
    that aiohttp decodes is not resumed.

    Args:
        policy: When and how often to retry. None: ``RetryPolicy()``. A block changes it by
            ``forbear.override``, one request by ``middlewares=(retrying.with_policy(…),)``.
        **options: gate, budget, breaker, cooldown, origins, strategy, concurrency, pacing,
            addons; retry_if, before_attempt, idempotency, body_buffer; prefetch, resume,
            event_streams; on_event, name, contact, announce_attempts, stop_outer_retries;
            clock, random. ``help(forbear.Options)`` explains each.

    Raises:
        TypeError, ValueError: An option is wrong; the message says what to write.
    """

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        **options: Unpack[FamilyOptions[Predicate]],
    ) -> None:
        policy = DEFAULT_POLICY if policy is None else policy
        settings = Settings(type(self).__name__, policy, options, awaits=True, prefetch=PREFETCH)
        self.port = AiohttpPort(settings, CircuitOpenError, DeadlineExceeded)
        self._setting: object = None

    def with_policy(self, setting: RetryPolicy | Mapping[str, object] | bool) -> Self:
        """Return a middleware with another policy, which shares all else with this one.

        Examples:
            >>> await session.get(url, middlewares=(retrying.with_policy({"max_attempts": 2}),))

        Args:
            setting: A RetryPolicy, a mapping of its fields, or False to retry nothing. Then aiohttp
                itself still sends an idempotent request again over a new connection.

        Raises:
            TypeError, ValueError: It is none of these.
        """
        from .engine.prepare import policy_of

        policy_of(self.port.settings, None, setting, "setting")
        changed = object.__new__(type(self))
        changed.__dict__ = {**vars(self), "_setting": setting}
        return changed

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request; retry it where that is allowed and useful."""
        port, settings = self.port, self.port.settings
        started_at, context = port.clock.monotonic(), CURRENT.get()
        source, outgoing = (request, handler), None
        if (
            settings.special
            or self._setting is not None
            or (context is not None and not context.asks_nothing)
            or type(request.body) not in PLAIN
            or LAST_HOP.get() is not None
        ):
            outgoing = port.prepare(source, started_at, context, self._setting)
        facts = source, outgoing, started_at, context
        held: Held = [None]
        try:
            if not settings.shared.quiet:
                held[0] = call_of(port, *facts)
                return await run(held[0], port)
            try:
                sent = request if outgoing is None else outgoing.request
                # Only there: a name would keep a failed one alive for as long as the call waits.
                held[0] = await port.send_in_time(sent, handler, outgoing)
                setattr(held[0], SENDS, True)  # nothing else shows that forbear sent it
                is_accepted = held[0].status < 300 and port.has_ended(held[0])
                if is_accepted and settings.is_plain and settings.shared.quiet:
                    return held[0]  # type: ignore[no-any-return]
            except Exception as error:
                held[0] = error
            return await go_on(port, held, *facts)
        except BaseException as error:
            await let_go(port, held, *facts)
            is_off = outgoing is not None and outgoing.policy is OFF
            if isinstance(error, REPEATED) and not is_off:
                LAST_HOP.set((request._timer, error))
            raise

    def close(self) -> None:
        """Wake waiting calls; they end with their last outcome. Later calls run as before."""
        self.port.settings.sleeper.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.port.settings.limits!r}>"


def wrap(
    session: aiohttp.ClientSession,
    policy: RetryPolicy | None = None,
    **options: Unpack[FamilyOptions[Predicate]],
) -> aiohttp.ClientSession:
    """Make a session that is already built retry, and return the same session.

    The session keeps its connector, timeouts and middlewares, which run once for each call. A
    request that is given ``middlewares=`` of its own goes without. ``unwrap`` undoes this.

    Examples:
        >>> session = wrap(aiohttp.ClientSession(), RetryPolicy(max_attempts=3))

    Args:
        session: An ``aiohttp.ClientSession``.
        policy: When and how often to retry. None: ``RetryPolicy()``.
        **options: Those of RetryMiddleware; ``help(forbear.Options)`` explains each.

    Raises:
        ValueError: The session is wrapped already, or a value is out of its range.
        TypeError: This is not a session of aiohttp, or an option is wrong.
    """
    if is_wrapped(session):
        raise ValueError(
            "this session is wrapped already; call unwrap(session) first to change its policy"
        )
    session._middlewares = (*middlewares_of(session), RetryMiddleware(policy, **options))
    return session


def unwrap(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Undo ``wrap``; return the session.

    Raises:
        ValueError: It is not wrapped.
        TypeError: It is not a session of aiohttp.
    """
    if not is_wrapped(session):
        raise ValueError("this session is not wrapped; wrap(session) does that")
    found = middlewares_of(session)
    session._middlewares = tuple(one for one in found if not isinstance(one, RetryMiddleware))
    return session


def is_wrapped(session: aiohttp.ClientSession) -> bool:
    """Say whether a session retries: by ``wrap``, or by a RetryMiddleware among its middlewares.

    A request that is given ``middlewares=`` of its own goes without those of the session.

    Raises:
        TypeError: It is not a session of aiohttp.
    """
    return any(isinstance(one, RetryMiddleware) for one in middlewares_of(session))


def middlewares_of(session: object) -> tuple[aiohttp.ClientMiddlewareType, ...]:
    if not isinstance(session, aiohttp.ClientSession):
        from .adapters.names import wrong_client

        raise TypeError(wrong_client("forbear.aiohttp.wrap", session))
    return tuple(session._middlewares or ())


if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

    def __getattr__(name: str) -> Never:
        from .adapters.names import wrong_name

        raise wrong_name(__name__, name)
