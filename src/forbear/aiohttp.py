"""forbear for aiohttp: ``RetryMiddleware``, ``wrap``. Floor: acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

try:
    import aiohttp
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.aiohttp needs aiohttp: {to_install('aiohttp')}") from None

from . import errors
from .adapters import aiohttp_errors
from .adapters.aiohttp_port import AiohttpPort
from .adapters.aiohttp_request import LAST_HOP, PLAIN
from .adapters.wrong_client import wrong_client
from .sending.context import CURRENT
from .sending.loop import arun
from .sending.settings import DEFAULT_POLICY, PREFETCH, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self, Unpack

    from .core.outcome import Failure
    from .core.policy import RetryPolicy
    from .sending.settings import FamilyOptions

__all__ = ["CircuitOpenError", "DeadlineExceeded", "RetryMiddleware", "classify", "unwrap", "wrap"]

Predicate = Callable[[aiohttp.ClientResponse], bool | Awaitable[bool | None] | None]
current = CURRENT.get
last_hop = LAST_HOP.get


class CircuitOpenError(errors.CircuitOpenError, aiohttp.ClientConnectionError):
    """Nothing was sent: a strategy refuses this origin now. Also an ``aiohttp.ClientError``."""


class DeadlineExceeded(errors.DeadlineExceeded, aiohttp.ServerTimeoutError):
    """The deadline of the call is over. Also an ``aiohttp.ServerTimeoutError``.

    Like all timeouts of aiohttp it is an ``asyncio.TimeoutError`` too.
    """


class RetryMiddleware:
    """A client middleware that retries failed requests where a repetition is safe.

    For example ``aiohttp.ClientSession(middlewares=(RetryMiddleware(),))``. Several sessions may
    share one, of one event loop at a time. In a list of middlewares those after it run for each
    attempt, those before it once. ``ClientTimeout.total`` of the session holds for the whole call:
    attempts, waits and body; ``sock_connect`` and ``sock_read`` hold for each attempt. An answer
    after which the request is sent again leaves no cookie in the session's jar. A download that
    aiohttp decodes is not resumed.

    Args:
        policy: When and how often to retry. None: ``RetryPolicy()``. A block changes it by
            ``forbear.override``, one request by ``middlewares=(retrying.with_policy(…),)``.
        **options: gate, budget, breaker, cooldown, origins, strategy; retry_if, before_attempt,
            idempotency, body_buffer; prefetch, resume; on_event, name, contact, announce_attempts,
            stop_outer_retries; clock, random. ``help(forbear.Options)`` explains each.

    Raises:
        TypeError, ValueError: An option is wrong; the message says what to write.
    """

    def __init__(
        self, policy: RetryPolicy | None = None, **options: Unpack[FamilyOptions[Predicate]]
    ) -> None:
        given: dict[str, Any] = {"prefetch": PREFETCH, **options}
        policy = DEFAULT_POLICY if policy is None else policy
        settings = Settings(type(self).__name__, policy, given, awaits=True)
        self.port = port = AiohttpPort(settings, CircuitOpenError, DeadlineExceeded)
        self._setting: Any = None
        self._special = settings.special
        self._shared: Any = settings.limits.shared
        self._is_plain = port.is_plain and not port.looks

    def with_policy(self, setting: RetryPolicy | Mapping[str, Any] | bool) -> Self:
        """Return a middleware with another policy, which shares all else with this one.

        Examples:
            >>> await session.get(url, middlewares=(retrying.with_policy({"max_attempts": 2}),))

        Args:
            setting: A RetryPolicy, a mapping of its fields, or False to forward each request once.

        Raises:
            TypeError, ValueError: It is none of these.
        """
        self.port.settings.resolve(None, setting)
        changed = object.__new__(type(self))
        changed.__dict__ = {**vars(self), "_setting": setting, "_special": True}
        return changed

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request, again where that is allowed and useful."""
        port = self.port
        started_at = port.clock.monotonic()
        scope = current()
        source, outgoing = (request, handler), None
        if (
            self._special
            or (scope is not None and not scope.asks_nothing)
            or type(request.body) not in PLAIN
            or last_hop() is not None
        ):
            outgoing = port.prepare(source, started_at, scope, self._setting)
        if not self._shared.quiet and not port.begins(request.url, started_at):
            return await arun(port.call_of(source, outgoing, started_at, scope), port)  # type: ignore[no-any-return]
        outcome: Any = None
        ahead = None
        try:
            if outgoing is None:
                outcome = await handler(request)
                if not outcome.content.is_eof():
                    ahead = await port.read_ahead(outcome, port.policy)
            else:
                sent, policy = outgoing.request, outgoing.policy
                outcome, ahead = await port.attempt(sent, handler, outgoing, policy, started_at)
            if outcome.status < 300 and not isinstance(ahead, Exception) and not port.looks:
                if not outcome.content.is_eof():
                    port.look_after(outcome, (source, outgoing, started_at, scope), scope)
                if not (self._is_plain and outgoing is None and self._shared.quiet):
                    port.succeeded(request, outcome, outgoing, started_at)
                return outcome  # type: ignore[no-any-return]
        except Exception as error:
            outcome = error
        except BaseException:
            await port.let_go(outcome)
            port.cancelled(port.call_of(source, outgoing, started_at, scope))
            raise
        call: Any = None
        try:
            call = port.call_of(source, outgoing, started_at, scope)
            call = port.first_failed(call, ahead if isinstance(ahead, Exception) else None)
            call.live, outcome = outcome, None  # nothing keeps it while the call waits
            return await arun(call, port)  # type: ignore[no-any-return]
        except BaseException:
            await port.let_go(call.live if outcome is None else outcome)
            raise

    def close(self) -> None:
        """Wake the calls that wait; they end with what they have. Later calls go on as before."""
        self.port.sleeper.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.port.limits!r}>"


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
    if any(isinstance(one, RetryMiddleware) for one in middlewares_of(session)):
        raise ValueError(
            "this session is wrapped already; call unwrap(session) first to change its policy"
        )
    set_middlewares(session, (*middlewares_of(session), RetryMiddleware(policy, **options)))
    return session


def unwrap(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Undo ``wrap``; return the session.

    Raises:
        ValueError: It is not wrapped.
        TypeError: It is not a session of aiohttp.
    """
    found = middlewares_of(session)
    left = tuple(one for one in found if not isinstance(one, RetryMiddleware))
    if len(left) == len(found):
        raise ValueError("this session is not wrapped; wrap(session) does that")
    set_middlewares(session, left)
    return session


def middlewares_of(session: aiohttp.ClientSession) -> tuple[Any, ...]:
    if not isinstance(session, aiohttp.ClientSession):
        raise TypeError(wrong_client("forbear.aiohttp.wrap", session))
    return tuple(session._middlewares or ())


def set_middlewares(session: aiohttp.ClientSession, middlewares: tuple[Any, ...]) -> None:
    # Past __setattr__, which in debug mode warns of names that it does not know.
    object.__setattr__(session, "_middlewares", middlewares)


def classify(error: BaseException) -> Failure:
    """Say what an exception means: its kind, and how far the request got. Never raises."""
    return aiohttp_errors.classify(error)
