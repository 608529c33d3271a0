"""Port: what the engine needs of an HTTP library.

Protocols, generic over the library's response. An adapter has one port per transport. What may do
I/O is awaited; the methods of a synchronous port never suspend. A port keeps nothing of a call:
that is in ``Call``, and in the outgoing request that an adapter hangs on it. Whatever does not
depend on the library is a function of the engine, which takes the port: calls.py begins and ends
calls, errors.py judges outcomes, outgoing.py makes what is sent, inspection.py shows responses to
``retry_if``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.call import Call, Prefetched
    from ..core.outcome import Failure, FailureKind
    from ..core.request import Request
    from ..errors import CircuitOpenError, DeadlineExceeded
    from .alarms import Backstop
    from .outgoing import Outgoing
    from .settings import Settings

Response = TypeVar("Response")
Seen_contra = TypeVar("Seen_contra", contravariant=True)
Source = TypeVar("Source")
Source_contra = TypeVar("Source_contra", contravariant=True)
Sent = TypeVar("Sent", bound="Sendable")
Url = TypeVar("Url")


class Classifier(Protocol):
    """A port, as far as it knows the errors of its library."""

    settings: Settings

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        """Say what an exception of the library means."""
        ...

    def is_cut_by_deadline(self, call: Call, failure: Failure) -> bool:
        """Did the deadline end the attempt, through a timeout of the library?"""
        ...

    def is_reused(self, call: Call, error: Exception) -> bool:
        """Did the attempt break on a connection that had carried a request before?

        Asked only after an attempt has failed. False where the library does not show it.
        """
        ...

    def note_error(self, call: Call, error: Exception) -> None:
        """Note an error that ends a call, where the library would act on it."""
        ...


class StreamPort(Protocol):
    """A port, as far as it makes the errors of a stream of events."""

    def stream_error(self, message: str) -> Exception:
        """Make the library's error for a body that ends too early."""
        ...

    def stream_timeout(self, message: str) -> Exception:
        """Make the library's error for a read that takes too long."""
        ...


class Library(Protocol[Seen_contra]):
    """A port, as far as both kinds know their library; nothing here does input or output."""

    @property
    def circuit_open_error(self) -> type[CircuitOpenError]:
        """The library's own CircuitOpenError."""
        ...

    @property
    def deadline_exceeded(self) -> type[DeadlineExceeded]:
        """The library's own DeadlineExceeded."""
        ...

    def classify_response(self, call: Call, response: Seen_contra) -> Failure | None:
        """Return why a response is not good; None: it is."""
        ...

    def final_error(self, call: Call, error: Exception) -> Exception:
        """Return the error that a caller gets in place of this one, mostly the same."""
        ...

    def closed_error(self) -> Exception:
        """Make the error of a call whose transport was closed while it waited."""
        ...


class CommonPort(Classifier, Library[Seen_contra], Protocol[Seen_contra]):
    """The part that both kinds of port have."""


class Port(Classifier, Library[Response], Protocol[Response]):
    """A transport, as the loop sees it. The methods of a synchronous one never suspend."""

    async def sleep(self, seconds: float, call: Call) -> bool:
        """Wait; False: the transport was closed meanwhile."""
        ...

    async def run_hook(self, call: Call) -> None:
        """Call ``before_attempt`` with the request that ``send`` is to send."""
        ...

    async def send(self, call: Call) -> Response:
        """Send the next attempt, count it, and read a small body; raises the library's errors."""
        ...

    async def inspect(self, call: Call, response: Response) -> Response | Exception:
        """Call ``retry_if``, read a vendor's hint; return the response, or what replaces it.

        An error, if the deadline ended it.
        """
        ...

    async def close_idle(self, call: Call, error: Exception) -> None:
        """Close idle connections to where an attempt broke on a reused one."""
        ...

    async def discard(self, call: Call, response: Response) -> object:
        """Read what is left of a failed response if that is little and quick, then close it."""
        ...

    async def keep(self, call: Call, response: Response) -> bool:
        """Read the response of a held call into ``kept``; False: it is too long for that."""
        ...

    async def hand_over(self, call: Call, response: Response) -> Response:
        """Return what the caller gets."""
        ...

    async def close_unused(self, response: Response | Exception | None) -> None:
        """Close a response that the caller does not get; of anything else do nothing."""
        ...


class ResumingPort(Port[Response], Protocol[Response]):
    """A port, as far as the rest of a body is requested through it."""

    def kind_of(self, error: Exception) -> FailureKind:
        """The kind of what broke a body."""
        ...

    def request_rest(self, call: Call, lines: Sequence[tuple[str, str]]) -> None:
        """Let the call send its request with these lines, in place of those of the same names."""

    def free_to_caller(self, call: Call, response: Response) -> Response:
        """Let the caller read with its own timeouts, bounded by ``forbear.deadline`` only."""
        ...


class Inspection(Protocol):
    """The body under a copy of a response; what is awaited, an asynchronous one has."""

    response: Any
    answer: Any  # what ``retry_if`` returned
    error: Exception | None  # what it raised
    is_wanted: bool  # it inspected a body that could only have been awaited
    patience: float  # seconds for which the body is read at most
    prefetch_result: Prefetched | Exception | None

    def shown(self) -> Any: ...
    async def read(self) -> object: ...
    async def decoded(self) -> bytes: ...


class Hooked(CommonPort[Seen_contra], Protocol[Seen_contra]):
    """A port that calls a function of the user's.

    Attributes:
        backstop: It cuts what outlives the deadline; None: the port is a synchronous one.
    """

    @property
    def backstop(self) -> Backstop | None: ...


class Inspecting(Hooked[Seen_contra], Protocol[Seen_contra]):
    """A port whose library can show a copy of a response to ``retry_if``."""

    def inspection_of(
        self, request: Any, response: Seen_contra, deadline_at: float, prefetched: Prefetched | None
    ) -> Inspection:
        """The inspection of a response, whose body was prefetched with this result."""
        ...

    def status_of(self, response: Seen_contra) -> int: ...

    async def close_unused(self, response: Seen_contra) -> None: ...


class AsyncPort(Port[Response], Inspecting[Response], Protocol[Response]):
    """The port of an asynchronous transport."""

    @property
    def backstop(self) -> Backstop: ...


class Sendable(Protocol):
    """A request of a library whose requests are copied."""

    @property
    def headers(self) -> Mapping[str, str | bytes]: ...

    @property
    def url(self) -> Any: ...


class Copying(Protocol[Source_contra, Sent, Url]):
    """A port whose library takes a copy of a request, with another body, headers or URL.

    A *source* is what the fast path has of a request: the request, and with aiohttp what sends it.

    Attributes:
        body_name: The attribute of a request that holds its body.
    """

    settings: Settings
    body_name: str

    def view_of(self, source: Source_contra) -> Request:
        """The facts of a request that decisions need."""
        ...

    def guard_of(self, request: Sent, body: Any, hop: Any) -> Any:
        """A guard for a body that is not plain bytes."""
        ...

    def copied(
        self, request: Sent, lines: Sequence[tuple[str, str]] | None = None, url: Url | None = None
    ) -> Sent:
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
