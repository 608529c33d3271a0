"""Port for aiohttp: how a middleware prepares, sends once, classifies, and hands over."""

from __future__ import annotations

from asyncio import Task
from contextvars import ContextVar
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

import aiohttp

from ...core.call import RECORD, SENDS
from ...core.headers.fields import begins_events
from ...core.outcome import FailureKind
from ...core.request import Request, known_origin
from ...engine.calls import sent_request, with_story
from ...engine.clock import SYSTEM_CLOCK
from ...engine.driver import DRAIN_BYTES, ENDLESS, LATE, WHOLE, note_prefetch
from ...engine.errors import ConsumedBody, DeadlineCut
from ...engine.settings import OFF
from ...engine.tasks import cut_after
from .bodies import PLAIN, Live, Replaced
from .errors import classify, idle_since, is_full, is_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
    from aiohttp.abc import AbstractCookieJar
    from yarl import URL

    from ...core.call import Call, Story
    from ...core.headers.fields import Line
    from ...core.outcome import Failure
    from ...core.policy import RetryPolicy
    from ...engine.context import CallContext
    from ...engine.outgoing import Hop, Outgoing
    from ...engine.port import Backstop, Ending, PrefetchResult, Source
    from ...engine.settings import Settings
    from ...errors import CircuitOpenError, DeadlineExceeded
    from .guard import Guard

    Lines = Sequence[tuple[str, str]]
    Given = tuple[ClientRequest, ClientHandlerType]  # a request, and what sends it
    # The timer of a call, and what its last hop has left: the error that ended it, if one did.
    Last = tuple[object, Hop | BaseException]


class AiohttpRequest(Request):
    """The facts that a decision reads of a ClientRequest.

    Attributes:
        handler: What sends it: the session, or the next middleware.
    """

    __slots__ = ("handler",)

    handler: ClientHandlerType

    def header_lines(self) -> Iterable[tuple[str, str]]:
        return self.headers.items()  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        return self.target.raw_path_qs  # type: ignore[no-any-return]


HOLDS = aiohttp.connector.Connection, Task  # which end with a response; the task writes the body
# Of the task that makes the calls. All hops of one call share their timer.
LAST_HOP: ContextVar[Last | None] = ContextVar("forbear_last_hop", default=None)


def cookie_for(url: URL, jar: AbstractCookieJar) -> str:
    """The value that a jar gives for the ``Cookie`` of a request to a URL; "" for none."""
    return "; ".join(f"{one.key}={one.coded_value}" for one in jar.filter_cookies(url).values())


class AiohttpPort:
    """The port of one middleware."""

    body_name = "_body"
    decodes, repeats = True, False
    backstop: Backstop | None = staticmethod(cut_after)

    def __init__(
        self, settings: Settings, circuit_open_error: type[CircuitOpenError],
        deadline_exceeded: type[DeadlineExceeded],
    ) -> None:  # fmt: skip
        self.settings = settings
        self.clock = settings.clock
        self.stream_error: Callable[[str], Exception] = aiohttp.ClientPayloadError
        self.stream_timeout: Callable[[str], Exception] = aiohttp.SocketTimeoutError
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded

    # A call begins.

    def prepare(
        self, source: Given, started_at: float, context: CallContext | None, setting: object
    ) -> Outgoing:
        """Return what is sent in place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
            The error that ended this very call, which the session retries once by itself.
        """
        from ...engine.prepare import outgoing_for

        request, hop, last = source[0], None, LAST_HOP.get()
        if last is not None:
            LAST_HOP.set(None)
            timer, left = last
            if timer is request._timer:
                if isinstance(left, BaseException):
                    raise left
                hop = left
        body = None if type(request.body) in PLAIN else request.body
        return outgoing_for(self, source, request, body, started_at, context, setting, hop)

    def guard_of(self, request: ClientRequest, body: aiohttp.Payload, hop: Hop | None) -> Guard:
        from .guard import Guard

        guard = body if hop is None else hop.guard
        if isinstance(guard, Guard) and body in (guard, guard.payload):
            return guard  # of a forbear above us, or of the last hop
        return Guard(body, self.settings.body_buffer)

    def bound(self, outgoing: Outgoing) -> None:
        """Nothing: ``send_in_time`` reads the limits of what it sends."""

    def view_of(self, source: Given) -> AiohttpRequest:
        (request, handler), names = source, self.settings.key_names
        url = request.url
        origin = known_origin(url.scheme, url.raw_host or "", url.port)
        view = AiohttpRequest(request.method, origin, request.headers, names, url, request)
        view.handler = handler
        return view

    def copied(
        self, request: ClientRequest, lines: Lines | None = None, url: URL | None = None
    ) -> ClientRequest:
        copy = object.__new__(type(request))  # the constructor would make the body anew
        copy.__dict__ = {**vars(request), "headers": request.headers.copy()}
        copy.headers.update(lines or ())
        if url is not None:
            copy.url = copy.original_url = url
        return copy

    def url_at(self, url: URL, scheme: str, host: str, port: int) -> URL:
        return url.with_scheme(scheme).with_host(host).with_port(port)

    def host_of(self, url: URL) -> str:
        return url.host_port_subcomponent or ""

    # Each attempt.

    async def renew(self, call: Call) -> None:
        """Wait for the task that wrote the last attempt's body: else two tasks could read one."""
        await sent_request(call).close()
        if call.request.original.session.closed:  # it has lost its connector
            raise with_story(self, call, call.last_error or self.closed_error())

    async def transmit(self, call: Call, request: ClientRequest) -> ClientResponse:
        if call.history:
            request.update_expect_continue()  # its future serves one response only
        handler = call.request.handler  # type: ignore[attr-defined]
        response = call.live = await self.send_in_time(request, handler, call.outgoing)
        return response

    async def send_in_time(
        self, request: ClientRequest, handler: ClientHandlerType, outgoing: Outgoing | None
    ) -> ClientResponse:
        """Send one attempt within its limits.

        Raises:
            DeadlineCut: The deadline is over.
            ConsumedBody: The request's body cannot be replayed.
        """
        left = inf if outgoing is None else outgoing.deadline_at - self.clock.monotonic()
        each = inf if outgoing is None else outgoing.policy.attempt_timeout or inf
        try:
            with cut_after(min(left, each)):
                return await handler(request)
        except (aiohttp.ClientConnectionError, AttributeError) as error:
            if is_lost(error):
                raise aiohttp.ClientConnectionResetError("Connection lost") from error
            if isinstance(error.__cause__, ConsumedBody | DeadlineCut):  # a guard has raised it
                raise error.__cause__ from None
            raise
        if left <= each:
            raise DeadlineCut
        # Nobody knows whether anything was sent.
        raise aiohttp.SocketTimeoutError(f"attempt_timeout, {each:g} s, was over")

    def consumed(self, call: object, error: Exception) -> Exception:
        return aiohttp.ClientConnectionError(f"The request cannot be resent: {error}.")

    async def received(self, call: Call, response: ClientResponse) -> ClientResponse:
        if call.rest is None:
            sent = sent_request(call)
            note_prefetch(call, await self.prefetched(sent, response, call.policy, call.outgoing))
        return response

    async def prefetched(
        self, request: object, response: ClientResponse, policy: RetryPolicy,
        outgoing: Outgoing | None,
    ) -> PrefetchResult:  # fmt: skip
        """Wait for the whole of a small body: it stays in aiohttp's own buffer, for the caller."""
        content, length = response.content, response.content_length
        if content.is_eof():
            return WHOLE
        if (
            policy is OFF
            or response.status in policy.statuses
            or response.content_type.startswith(ENDLESS)
            or length is None
            # aiohttp stops reading where its buffer is full: of an encoded body nobody knows when.
            or length > min(self.settings.prefetch, content.get_read_buffer_limits()[1])
            or "Content-Encoding" in response.headers
        ):
            return None
        try:
            broken = content.exception()  # else it would be waited for
            if isinstance(broken, Exception):
                return broken
            deadline_at = inf if outgoing is None else outgoing.deadline_at
            with cut_after(deadline_at - self.clock.monotonic()):
                await content.wait_eof()
                return WHOLE
            return DeadlineCut()
        except Exception as error:
            return error

    # After each attempt.

    status_of = staticmethod(attrgetter("status"))

    def head_of(self, response: ClientResponse) -> tuple[int, Sequence[Line]]:
        return response.status, response.raw_headers

    def story_of(self, response: ClientResponse) -> object:
        return getattr(response, RECORD, None)

    def attach(self, response: ClientResponse, story: Story) -> None:
        setattr(response, RECORD, story)

    def add_headers(self, response: ClientResponse, lines: Mapping[str, str]) -> None:
        headers = response.headers.copy()
        headers.update(lines)
        response._cache["headers"] = type(response.headers)(headers)

    def keep_cookies(self, call: Call, response: ClientResponse) -> None:
        from ...engine.prepare import renew_cookies

        url, jar = call.request.original.url, call.request.original.session.cookie_jar
        before = cookie_for(url, jar)
        jar.update_cookies_from_headers(response.headers.getall("Set-Cookie"), response.url)
        renew_cookies(self, call, before, cookie_for(url, jar), merges=True)

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        failure = classify(error)
        if failure.kind is FailureKind.CONNECT_TIMEOUT and is_full(call.request.original):
            failure = failure._replace(kind=FailureKind.POOL)
        if type(error) is TimeoutError:
            call.deadline_at = self.clock.monotonic()  # ClientTimeout.total is over
        return failure

    async def close_idle(self, call: Call) -> bool:
        """Close connections that were idle before the attempt was sent, and are still.

        aiohttp does not show whether a connection is a new one. But it opens none while another is
        idle, so where there are such, the attempt broke on one like them. The last idle one is not
        recognized, so it costs an attempt as a new one does.
        """
        sent_at = SYSTEM_CLOCK.true_monotonic() - (self.clock.monotonic() - call.sent_at)
        idle = idle_since(sent_request(call), sent_at)
        for protocol in idle:
            protocol.close()  # the connector drops what is closed by itself
        return bool(idle)

    async def close_unused(self, response: ClientResponse | Exception | None) -> None:
        if response is not None and not isinstance(response, Exception):
            response.close()

    # Bodies.

    def live(self, request: object, response: ClientResponse, ends_at: float = inf) -> Live:
        return Live(response, ends_at)

    def has_ended(self, response: ClientResponse) -> bool:
        content = response.content
        # An empty one may be a stream of events that ended too early.
        return content.is_eof() and (
            content.total_bytes > 0 or not begins_events(*self.head_of(response))
        )

    def is_open(self, response: ClientResponse) -> bool:
        is_open = response.status != 101 and not self.has_ended(response)
        return is_open and self.settings.watches_bodies

    def is_quick(self, call: Call, response: ClientResponse) -> bool:
        return call.prefetch_result is not LATE and not self.is_long(response)

    def is_long(self, response: ClientResponse) -> bool:
        return max(response.content_length or 0, response.content.total_bytes) > DRAIN_BYTES

    def is_resumable(self, request: ClientRequest, response: ClientResponse) -> bool:
        """Not an encoded one: aiohttp decodes while it reads, and a range counts raw bytes."""
        lines, is_get = response.headers, request.method == "GET"
        has_validator = "etag" in lines or "last-modified" in lines
        return is_get and has_validator and "content-encoding" not in lines

    def put_back(
        self, response: ClientResponse, live: Source, pieces: list[bytes],
        ending: Ending | Exception,
    ) -> ClientResponse:  # fmt: skip
        from ...engine.bodies import rest_of

        again = aiohttp.ClientPayloadError("the body has broken before")
        content = response.content = Replaced(response.content, rest_of((), ending, live, again))
        for piece in pieces:  # they are here at once, as what aiohttp has received
            content.feed_data(piece)
        if ending is WHOLE:
            content.feed_eof()
        return response

    def pieces_of(self, response: ClientResponse) -> list[bytes]:
        return [response.content.read_nowait()]

    def with_body(self, response: ClientResponse, pieces: list[bytes] | None) -> ClientResponse:
        return self.put_back(response, self.live(None, response), pieces or [], WHOLE)

    def shown(self, response: ClientResponse, request: object, source: Source) -> ClientResponse:
        copy = object.__new__(type(response))
        fields = vars(response).items()
        copy.__dict__ = {name: one for name, one in fields if not isinstance(one, HOLDS)}
        copy.content = Replaced(response.content, source)
        return copy

    def surround(
        self, request: object, response: ClientResponse, make: Callable[[Source], Source]
    ) -> ClientResponse:
        response.content = Replaced(response.content, make(Live(response, inf)))
        return response

    def source_of_rest(self, call: Call, response: ClientResponse) -> Source:
        live = self.live(None, response)
        live.response = response  # its finalizer would close the body
        return live

    # The end.

    def note_hop(self, call: Call, response: ClientResponse) -> None:
        setattr(response, SENDS, True)
        if 300 <= response.status < 400 and call.policy is not OFF:
            from ...engine.outgoing import Hop

            LAST_HOP.set((call.request.original._timer, Hop(call)))

    def reopen(
        self, outgoing: Outgoing | None, response: ClientResponse, begin: Callable[[], Call]
    ) -> ClientResponse:
        if outgoing is not None and outgoing.reads_until != inf and not self.has_ended(response):
            from ...engine.refusals import body_is_late

            left = outgoing.reads_until - self.clock.monotonic()
            live = Live(response, SYSTEM_CLOCK.true_monotonic() + left)
            live.late = lambda: body_is_late(self, begin())
            response.content = Replaced(response.content, live)
        return response

    def status_error(self, call: Call, response: ClientResponse, body: object) -> Exception:
        return aiohttp.ClientResponseError(
            response.request_info, response.history, status=response.status,
            message=response.reason or "", headers=response.headers,
        )  # fmt: skip

    def final_error(self, call: Call, error: Exception) -> Exception:
        return error

    def closed_error(self) -> Exception:
        return aiohttp.ClientConnectionError(
            "The session or its middleware was closed while the call waited."
        )
