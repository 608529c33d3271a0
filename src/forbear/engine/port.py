"""Port: what the engine needs of an HTTP library.

Protocols, generic over the library's request and response. An adapter has one port per transport.
What may do I/O is awaited; the methods of a synchronous port never suspend. A port keeps nothing of
a call: that is in ``Call``, and in the outgoing request that an adapter hangs on it. Whatever does
not depend on the library is a function of the engine, which takes the port: calls.py begins and
ends calls, driver.py sends, drains, keeps and hands over, errors.py judges outcomes, prepare.py
makes what is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ..core.call import Call, Story
    from ..core.headers.fields import Line
    from ..core.outcome import Failure
    from ..core.policy import RetryPolicy
    from ..core.request import Request
    from ..errors import CircuitOpenError, DeadlineExceeded
    from .clock import Clock
    from .outgoing import Hop, Outgoing
    from .settings import Settings

    Backstop = Callable[[float], AbstractContextManager[object, bool]]

# How the reading of a body ended, if no exception broke it; None: it was not read.
Ending = Literal["whole", "late"]
PrefetchResult = Ending | Exception | None
Resp = TypeVar("Resp")
Given = TypeVar("Given")
Given_contra = TypeVar("Given_contra", contravariant=True)
Req = TypeVar("Req", bound="Sendable")
Url = TypeVar("Url")


class Source(Protocol):
    """The bytes of a body that are still to come; nothing else reads it."""

    async def read(self) -> bytes:
        """Return the next bytes, none at the end."""
        ...

    async def close(self) -> None:
        """Read no more. Idempotent."""


class Live(Source, Protocol):
    """The source of a library: the only reader of what is still to come of a response, raw.

    Attributes:
        ends_at: Each read ends by this instant of the system's clock, or infinity.
        can_wait: A body that pauses stays intact.
    """

    ends_at: float

    @property
    def can_wait(self) -> bool: ...

    async def has_more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact.

        A read that is begun and given up would lose bytes, or the connection.
        """
        ...


class Sendable(Protocol):
    """A request of a library whose requests are copied."""

    @property
    def headers(self) -> Mapping[str, str | bytes]: ...

    @property
    def url(self) -> Any: ...


class Copying(Protocol[Given_contra, Req, Url]):
    """A port whose library takes a copy of a request, with another body, headers or URL.

    A *source* is what the fast path has of a request: the request, and with aiohttp what sends it.

    Attributes:
        body_name: The attribute of a request that holds its body.
    """

    settings: Settings
    body_name: str

    def view_of(self, source: Given_contra) -> Request:
        """The facts of a request that decisions need."""
        ...

    def guard_of(self, request: Req, body: Any, hop: Hop | None) -> Any:
        """A guard for a body that is not plain bytes."""
        ...

    def copied(
        self, request: Req, lines: Sequence[tuple[str, str]] | None = None, url: Url | None = None
    ) -> Req:
        """A copy, with header lines or a URL of its own."""
        ...

    def url_at(self, url: Url, scheme: str, host: str, port: int) -> Url:
        """The URL at another origin."""
        ...

    def host_of(self, url: Url) -> str:
        """As in a Host header."""
        ...

    def bound(self, outgoing: Outgoing) -> None:
        """Let what is sent know its limits."""
        ...


class Classifier(Protocol):
    """A port, as far as it knows the errors of its library."""

    settings: Settings

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        """Say what an exception of the library means."""
        ...


class CommonPort(Classifier, Protocol):
    """A port, as far as it makes the errors of its library. Nothing here does input or output.

    Attributes:
        circuit_open_error: The library's own CircuitOpenError.
        deadline_exceeded: The library's own DeadlineExceeded.
        stream_error: Makes the library's error for a body that ends too early, of a message.
        stream_timeout: Makes that for a read that takes too long.
    """

    stream_error: Callable[[str], Exception]
    stream_timeout: Callable[[str], Exception]
    circuit_open_error: type[CircuitOpenError]
    deadline_exceeded: type[DeadlineExceeded]

    def final_error(self, call: Call, error: Exception) -> Exception:
        """Return the error that a caller gets in place of this one, mostly the same.

        Of a body that was put back, another one is raised at once.
        """
        ...

    def closed_error(self) -> Exception:
        """Make the error of a call whose transport was closed while it waited."""
        ...


class Port(CommonPort, Copying[Any, Req, Any], Protocol[Req, Resp]):
    """A transport, as the loop and the driver see it. A synchronous one never suspends.

    Attributes:
        backstop: Cuts what outlives the deadline (tasks.py); None: the port is a synchronous one.
        decodes: The library undoes content codings while it reads a body.
        repeats: A document without a validator is continued, if the same bytes come again.
    """

    decodes: bool
    repeats: bool
    status_of: Callable[[Resp], int]

    clock: Clock
    backstop: Backstop | None

    # An attempt.

    async def renew(self, call: Call) -> None:
        """Wait until the last attempt uses the body no more; raise if none can follow."""

    async def transmit(self, call: Call, request: Req) -> Resp:
        """Send, once; the response is ``call.live`` before anything can interrupt.

        A body that is no plain bytes is ``call.guard``'s; the request's own may be spent.
        """
        ...

    def consumed(self, call: Call, error: Exception) -> Exception:
        """Make the library's error for a body that cannot be sent again."""
        ...

    async def received(self, call: Call, response: Resp) -> Resp:
        """Read a small body, or the one that the client itself would read; note how that ended.

        Where the client reads (``Request.streams`` is False), a response to ``call.rest`` that does
        not fit begins anew (``call.rest.begin_anew(call)``), and is an error but for a 200.
        """
        ...

    async def close_idle(self, call: Call) -> bool:
        """Close idle connections to where an attempt broke, if it had one that was used before.

        Asked only after an attempt has failed. True: a reset was that of a stale connection. False:
        the attempt had a new one, or nobody knows.
        """
        ...

    async def close_unused(self, response: Resp | Exception | None) -> None:
        """Close a response that the caller does not get; of an error do nothing.

        None: the attempt was cancelled. What the library has lost by that is freed.
        """
        ...

    # The head of a response.

    def head_of(self, response: Resp) -> tuple[int, Sequence[Line]]:
        """Status and header lines, also after ``close_unused``."""
        ...

    def story_of(self, response: Resp) -> object:
        """What an inner forbear has attached."""
        ...

    def attach(self, response: Resp, story: Story) -> None:
        """Let ``record_of`` find the story."""

    def add_headers(self, response: Resp, lines: Mapping[str, str]) -> None: ...
    def keep_cookies(self, call: Call, response: Resp) -> None:
        """Store a failed response's cookies (RFC 6265 section 3), and let a retry carry them."""

    # Its body.

    def has_ended(self, response: Resp) -> bool:
        """Holds it no connection, because nothing of its body is to come?"""
        ...

    def is_open(self, response: Resp) -> bool:
        """Is its body to come from the library, and resumed by nobody yet?"""
        ...

    def is_quick(self, call: Call, response: Resp) -> bool:
        """May the rest of a failed response be worth reading?"""
        ...

    def is_long(self, response: Resp) -> bool:
        """Is its body longer than what is drained, or kept of a held call?"""
        ...

    def is_resumable(self, request: Req, response: Resp) -> bool:
        """May a body of which a part was handed over be resumable? That is decided if it breaks."""
        ...

    def live(self, request: Req, response: Resp, ends_at: float = ...) -> Live:
        """The only reader of what is still to come, what was put back included."""
        ...

    def put_back(
        self, response: Resp, live: Live, pieces: list[bytes], ending: Ending | Exception
    ) -> Resp:
        """Let the caller read what was read, and then what the reading has ended with."""
        ...

    def pieces_of(self, response: Resp) -> list[bytes]:
        """What was read and put back."""
        ...

    def with_body(self, response: Resp, pieces: list[bytes] | None) -> Resp:
        """The response with this body, which holds no connection; None: with its head alone."""
        ...

    def shown(self, response: Resp, request: Req, source: Source) -> Resp:
        """A copy whose body comes from this source; the response itself, if the copy needs none."""
        ...

    def surround(self, request: Req, response: Resp, make: Callable[[Source], Source]) -> Resp:
        """Let the caller read the body through a source around its own."""
        ...

    # The end.

    def note_hop(self, call: Call, response: Resp) -> None:
        """Let the next hop of a redirect know what this one has used."""

    def status_error(self, call: Call, response: Resp, body: list[bytes] | None) -> Exception:
        """Make the library's own error for the response that the call ends with, its body read."""
        ...

    def reopen(self, outgoing: Outgoing | None, response: Resp, begin: Callable[[], Call]) -> Resp:
        """Let the caller read with its own timeouts again, bounded by ``forbear.deadline`` only.

        ``begin`` returns the call, which the fast path makes only for a body that is late.
        """
        ...

    # A body that is resumed.

    def source_of_rest(self, call: Call, response: Resp) -> Source:
        """What a response that continues it gives; nobody else holds that one.

        So its finalizer must not close what is returned.
        """
        ...


class Prefetching(Port[Req, Resp], Protocol[Req, Resp]):
    """A port whose library's fast path leaves to first.py what it does not return at once."""

    async def prefetched(
        self, request: Req, response: Resp, policy: RetryPolicy, outgoing: Outgoing | None
    ) -> PrefetchResult:
        """Read a small body of known length, if its response is likely to be accepted.

        So a broken one is a failure like any other. Returns how that ended; None: it was not read.
        """
        ...
