"""Port for requests and urllib3: how a call is sent, classified and handed over.

Both are synchronous, and requests sends through urllib3. ``RequestsPort`` (requests.py) and
``PoolPort`` (pool.py) add what one of them does.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError
from urllib3.util import Timeout, parse_url

from ...core.call import RECORD, SENDS
from ...core.headers.fields import as_text
from ...core.outcome import Failure
from ...core.request import DEFAULT_PORTS, Request, known_origin
from ...engine.calls import call_after_first, call_of, note_success
from ...engine.clock import SYSTEM_CLOCK
from ...engine.current import CURRENT
from ...engine.driver import DRAIN_BYTES, WHOLE, discard, watched
from ...engine.errors import ConsumedBody, Instead
from ...engine.loop import drive_call
from ...engine.settings import OFF
from .deadlines import HERE, close_idle, has_arrived, least, phases_of, read_timeout, socket_of
from .errors import classify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence
    from typing import Protocol, Self

    from ...core.call import Call, Story
    from ...core.headers.fields import Line
    from ...engine.outgoing import Outgoing
    from ...engine.port import Ending, Live, Port, Sendable, Source
    from ...engine.settings import Settings
    from ...errors import CircuitOpenError, DeadlineExceeded

    class EitherResponse(Protocol):
        """A response of requests or of urllib3."""

        @property
        def headers(self) -> MutableMapping[str, str]: ...
        def close(self) -> None: ...

    class EitherRequest(Sendable, Protocol):
        """A request of requests, or one to a pool of urllib3."""

        body: Any

        @property
        def headers(self) -> MutableMapping[str, str | bytes]: ...
        def copy(self) -> Self: ...

    Lines = Sequence[tuple[str, str]]
    Limited = Call | Outgoing  # what bounds an attempt in time
else:
    Port = Generic
AnyRequest = TypeVar("AnyRequest", bound="EitherRequest")
AnyResponse = TypeVar("AnyResponse", bound="EitherResponse")
current = CURRENT.get
LEAST = 0.001  # seconds; urllib3 refuses 0
PLAIN = frozenset({type(None), bytes, str})  # can be replayed as they are
CHALLENGES = (401, 407)  # the client resends the request with credentials


class Urllib3Port(Port[AnyRequest, AnyResponse]):
    """The port that requests and urllib3 share. Each adds the methods that stand first here."""

    body_name = "body"
    decodes = repeats = False
    backstop = None

    if TYPE_CHECKING:
        send_once: Callable[[Any], AnyResponse]  # what a source has

        @staticmethod
        def raw_of(response: AnyResponse, /) -> HTTPResponse: ...
        @staticmethod
        def is_redirect(response: AnyResponse, /) -> object: ...  # will the caller follow it?
        def load(self, request: Any, response: AnyResponse) -> None: ...
        def with_raw(self, response: AnyResponse, raw: HTTPResponse) -> AnyResponse: ...
        def move(self, request: AnyRequest, url: str) -> None: ...  # a copy
        def send_as(
            self, view: Urllib3Request, limits: Limited, request: AnyRequest, timeout: Any
        ) -> AnyResponse: ...
        def copy_of(self, response: AnyResponse, raw: HTTPResponse) -> AnyResponse: ...

    def __init__(
        self,
        settings: Settings,
        circuit_open_error: type[CircuitOpenError],
        deadline_exceeded: type[DeadlineExceeded],
    ) -> None:
        self.settings = settings
        self.clock = settings.clock
        self.stream_error, self.stream_timeout = ProtocolError, read_timeout
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded

    # A call begins.

    def fetch(
        self, source: Any, body: object, streams: bool, setting: object = None
    ) -> AnyResponse:
        """Send a request; retry it where that is allowed and useful.

        The fast path: a response below 300 whose body is whole, or the caller's to read, is handed
        over without there having been a call.
        """
        started_at, context, settings = self.clock.monotonic(), current(), self.settings
        shared = settings.shared
        view: Any = None
        live: AnyResponse | Exception | None = None
        call = outgoing = None
        if (
            setting is not None
            or settings.special
            or (context is not None and not context.asks_nothing)
            or type(body) not in PLAIN
        ):
            from ...engine.prepare import outgoing_for  # loaded with the first that is changed

            view = self.view_of(source)
            guarded = None if type(body) in PLAIN else body
            outgoing = outgoing_for(
                self, source, view.original, guarded, started_at, context, setting, None
            )
        if not shared.quiet or (outgoing is not None and outgoing.policy is OFF):
            return self.run(call_of(self, source, outgoing, started_at, context))
        facts = source, outgoing, started_at, context
        try:
            try:
                if outgoing is None:
                    live = self.send_once(source)
                else:
                    live = self.sent(view, outgoing, outgoing.request)
                status = self.status_of(live)
                if status < 300 and (streams or not self.is_long(live)):
                    if streams:
                        begin = partial(call_after_first, self, *facts)
                        live = self.reopen(outgoing, live, begin, view)
                        sent: Any = outgoing and outgoing.request
                        live = watched(self, sent, live, begin)
                    else:
                        if outgoing is not None:
                            live = self.in_time(live, outgoing.deadline_at)
                        self.load(source, live)
                    if not (settings.is_plain and shared.quiet):
                        view = self.view_of(source)
                        note_success(settings, view.method, view.origin, status, started_at)
                    return live
            except Exception as error:
                self.close(live)
                live = error
            call = call_after_first(self, *facts)
            call.live, live = live, None  # so that only the call holds it while it waits
            if isinstance(call.live, ConsumedBody):
                call.live = self.consumed(call, call.live)
            if not isinstance(call.live, Exception):
                try:
                    call.live = self.read(call, call.live)
                except Exception as error:
                    call.live = error
            return self.run(call)
        except BaseException:
            self.close(live)
            if call is not None:
                self.close(call.live)
            raise

    def copied(
        self, request: AnyRequest, lines: Lines | None = None, url: str | None = None
    ) -> AnyRequest:
        copy = request.copy()
        for name, value in lines or ():
            copy.headers[name] = value
        if url is not None:
            self.move(copy, url)
        return copy

    def url_at(self, url: str, scheme: str, host: str, port: int) -> str:
        number = None if port == DEFAULT_PORTS[scheme] else port
        host = f"[{host}]" if ":" in host else host
        return parse_url(url)._replace(scheme=scheme, auth=None, host=host, port=number).url

    def host_of(self, url: str) -> str:
        return "" if url.startswith("/") else parse_url(url).netloc or ""

    def bound(self, outgoing: Outgoing) -> None:
        """Nothing: ``transmit`` reads the limits of what it sends."""

    # Each attempt.

    async def renew(self, call: Call) -> None:
        """Nothing: a body was written before its response came."""

    async def transmit(self, call: Call, request: AnyRequest) -> AnyResponse:
        response = call.live = self.sent(viewed(call), call, request)
        return response

    async def received(self, call: Call, response: AnyResponse) -> AnyResponse:
        status, lines = self.head_of(response)
        rest, raw = call.rest, self.raw_of(response)
        if rest is not None and rest.fits(status, lines):
            return response
        has_length = getattr(raw, "length_remaining", 0) is not None or raw.chunked
        if rest is not None or (call.history and not has_length):
            from .live import is_cut_off

            if is_cut_off(raw):
                self.close(response)
                raise ProtocolError("Connection broken: nothing followed the head of the response")
        if rest is not None:
            if call.request.streams or (status >= 400 and status != 416):
                return response
            rest.begin_anew(call)
            if status != 200:  # no whole body either; a 304 may be about our own If-Range
                await discard(self, call, response)
                raise ProtocolError("Connection broken: the rest of the body is another one's")
        return self.read(call, response)

    def sent(self, view: Urllib3Request, limits: Limited, request: AnyRequest) -> AnyResponse:
        """Send a request once, its body from the beginning, in the pools below by the deadline."""
        guard, left = limits.guard, self.left(limits.deadline_at)
        before, source = HERE.ends_at, request.body if guard is None else guard.source
        timeout, each = view.timeout, limits.policy.attempt_timeout
        if left is not None or each is not None:
            total, connect, read = phases_of(timeout)
            timeout = Timeout(least(total, left), least(connect, each), least(read, each))
        try:
            if guard is not None:
                guard.begin_attempt()
                request.body = guard.outgoing
            if left is not None:
                HERE.ends_at = SYSTEM_CLOCK.true_monotonic() + left
            return self.send_as(view, limits, request, timeout)
        finally:  # callers read, and resend, the request of the response
            HERE.ends_at, request.body = before, source

    async def close_unused(self, response: AnyResponse | Exception | None) -> None:
        self.close(response)

    def close(self, response: AnyResponse | Exception | None) -> None:
        if response is None or isinstance(response, Exception):
            return
        raw = self.raw_of(response)
        if isinstance(raw, HTTPResponse):
            if raw.connection is None and not raw.closed:
                # With release_conn=True the pool has the connection back already. The rest of this
                # response is still to come, and would be read as the next one's.
                with suppress(Exception):
                    socket_of(raw).shutdown(SHUT_RDWR)
            raw.close()
            raw.release_conn()  # a closed one too, since a pool with block=True counts them
        response.close()

    # Bodies.

    def left(self, deadline_at: float) -> float | None:
        """Seconds until a deadline, None if there is none."""
        return None if deadline_at == inf else max(deadline_at - self.clock.monotonic(), LEAST)

    def in_time(
        self, response: AnyResponse, ends_at: float, late: Callable[[], Exception] | None = None
    ) -> AnyResponse:
        """End the reading of a body by an instant; ``late`` is as of ``Live``."""
        raw, left = self.raw_of(response), self.left(ends_at)
        if left is None or self.has_ended(response) or has_arrived(raw):
            return response
        from .bodies import around

        replaced = around(raw, lambda source: source)
        replaced.bound(SYSTEM_CLOCK.true_monotonic() + left, late)
        return self.with_raw(response, replaced)

    def read(self, call: Call, response: AnyResponse) -> AnyResponse:
        """Read the body, if that is part of the attempt."""
        status, lines = self.head_of(response)
        if call.request.streams or (status >= 400 and status in call.policy.statuses):
            return response
        settings = self.settings
        if settings.watches_bodies and not settings.inspectors and self.is_long(response):
            from ...core.headers.ranges import download_of

            if download_of(call.request.method, status, lines) is not None:
                return response  # which is read like one that was handed over (``run``)
        response = self.in_time(response, call.deadline_at)
        self.load(call.request.original, response)
        return response

    def run(self, call: Call) -> AnyResponse:
        """Run a call; read the body, where its caller does not and no attempt has."""
        response: Any = drive_call(call, self)
        try:
            while not call.request.streams:
                try:
                    self.load(call.request.original, response)
                    break
                except Instead as ended:
                    call, response = ended.call, ended.outcome
                if isinstance(response, Exception):
                    raise response
            return response  # type: ignore[no-any-return]
        except BaseException:
            self.close(response)
            response = None  # it may be the error, which holds this frame
            raise

    def reopen(
        self, outgoing: Outgoing | None, response: AnyResponse, begin: Callable[[], Call],
        view: Urllib3Request | None = None,
    ) -> AnyResponse:  # fmt: skip
        if outgoing is None:
            return response
        view, ends_at = view or viewed(begin()), outgoing.deadline_at
        if view.streams:  # its time limits have held until now
            raw, own = self.raw_of(response), least(phases_of(view.timeout)[2], None)
            with suppress(AttributeError, OSError):  # it may have ended
                socket_of(getattr(raw, "live", raw)).settimeout(own)
            ends_at = outgoing.reads_until

        def late() -> Exception:
            from ...engine.refusals import body_is_late

            return body_is_late(self, begin())

        return self.in_time(response, ends_at, late)

    def live(self, request: object, response: AnyResponse, ends_at: float = inf) -> Live:
        from .live import Live  # loaded with the first body that is read by us

        raw = self.raw_of(response)
        bound = getattr(raw, "bound", None)
        if bound is not None:
            bound(ends_at)
        return Live(raw, ends_at)

    def has_ended(self, response: AnyResponse) -> bool:
        raw = self.raw_of(response)
        return not isinstance(raw, HTTPResponse) or raw.closed

    def is_open(self, response: AnyResponse) -> bool:
        raw = self.raw_of(response)
        return not self.has_ended(response) and not getattr(raw, "continues", False)

    def is_quick(self, call: Call, response: AnyResponse) -> bool:
        if self.has_ended(response) or self.is_long(response):
            return False
        # Not after the pool has its connection back: the next request may be under way there.
        raw = getattr(self.raw_of(response), "live", self.raw_of(response))
        return raw.connection is not None or socket_of(raw) is None

    def is_long(self, response: AnyResponse) -> bool:
        return (getattr(self.raw_of(response), "length_remaining", None) or 0) > DRAIN_BYTES

    def is_resumable(self, request: object, response: AnyResponse) -> bool:
        raw = self.raw_of(response)
        has_validator = "etag" in raw.headers or "last-modified" in raw.headers
        return has_validator and raw.status in (200, 206) and not raw.chunked

    def put_back(
        self, response: AnyResponse, live: Live | None, pieces: list[bytes],
        ending: Ending | Exception,
    ) -> AnyResponse:  # fmt: skip
        from .bodies import put_back

        return self.with_raw(response, put_back(self.raw_of(response), pieces, ending))

    def pieces_of(self, response: AnyResponse) -> list[bytes]:
        source = getattr(getattr(self.raw_of(response), "file", None), "source", None)
        return list(getattr(source, "pieces", ()))  # a body that was read in time has none

    def with_body(self, response: AnyResponse, pieces: list[bytes] | None) -> AnyResponse:
        return self.put_back(response, None, pieces or [], WHOLE)

    def shown(self, response: AnyResponse, request: object, source: Source) -> AnyResponse:
        if self.has_ended(response):
            return response
        from .bodies import Replaced

        return self.copy_of(response, Replaced(self.raw_of(response), source))

    def surround(
        self, request: object, response: AnyResponse, make: Callable[[Source], Source]
    ) -> AnyResponse:
        from .bodies import around

        return self.with_raw(response, around(self.raw_of(response), make))

    def source_of_rest(self, call: Call, response: AnyResponse) -> Source:
        from .bodies import taken

        return taken(self.raw_of(response))

    # After each attempt.

    def head_of(self, response: AnyResponse) -> tuple[int, Sequence[Line]]:
        headers = getattr(self.raw_of(response), "headers", response.headers)
        return self.status_of(response), list(headers.items())

    def story_of(self, response: AnyResponse) -> object:
        """What a forbear below has attached, to the response or to the urllib3 one in it."""
        story = getattr(response, RECORD, None)
        return story or getattr(self.raw_of(response), RECORD, None)

    def attach(self, response: AnyResponse, story: Story) -> None:
        setattr(response, RECORD, story)

    def add_headers(self, response: AnyResponse, lines: Mapping[str, str]) -> None:
        response.headers.update(lines)

    def keep_cookies(self, call: Call, response: AnyResponse) -> None:
        """Nothing: urllib3 has no jar."""

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        return classify(error)

    async def close_idle(self, call: Call) -> bool:
        return close_idle()

    # The end.

    def final_error(self, call: Call, error: Exception) -> Exception:
        return error

    def note_hop(self, call: Call, response: AnyResponse) -> None:
        setattr(response, SENDS, True)
        if call.guard is not None and (
            self.is_redirect(response) or self.status_of(response) in CHALLENGES
        ):
            from .guard import keep_for_redirect

            keep_for_redirect(response, call.guard)


# What a decision sees of a request.


class Urllib3Request(Request):
    """A request of requests or urllib3: what a decision reads of it, and what is sent for it.

    Attributes:
        original: The request as the caller made it.
        streams: The caller reads the body of the response.
        timeout: The caller's own, in any form that the library takes.
        arguments: Of ``RetryAdapter.send``: verify, cert and proxies.
    """

    __slots__ = ("arguments", "streams", "timeout")

    streams: bool
    timeout: object
    arguments: Sequence[Any]

    def header_lines(self) -> list[tuple[str, str]]:
        return [(as_text(name), as_text(value)) for name, value in self.headers.items()]

    def path_and_query(self) -> str:
        return path_of(self.target or "")


def viewed(call: Call) -> Urllib3Request:
    """The view of a call's request."""
    view = call.request
    assert isinstance(view, Urllib3Request)
    return view


def path_of(url: str) -> str:
    """Path and query of a URL, or of what a pool gets in its place."""
    return url.partition("#")[0] if url.startswith("/") else parse_url(url).request_uri


def origin_at(url: str | None, pool: Any = None) -> str:
    """``scheme://host:port``, never userinfo, path or query; empty if unknown.

    A forward proxy's pool gets absolute URLs, and is not the origin.
    """
    with suppress(ValueError):  # the library raises its own error for it
        parts = urlsplit(url or "")
        if parts.scheme and parts.hostname:
            return known_origin(parts.scheme, parts.hostname, parts.port)
    return "" if pool is None else known_origin(pool.scheme, pool.host, pool.port)
