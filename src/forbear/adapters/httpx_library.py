"""Library: the classes of httpx or httpx2, and ours made of them. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .httpx_errors import classify
from .httpx_request import AsyncBodyGuard, BodyGuard
from .httpx_resume import AsyncResuming, Resuming
from .httpx_streams import AsyncBounded, AsyncPrefetched, Bounded, Prefetched

if TYPE_CHECKING:
    from ..core.outcome import Failure

__all__ = ["Library"]


class Library:
    """One library of the family: its classes, and ours made of them."""

    def __init__(self, module: Any, circuit_open_error: type, deadline_exceeded: type) -> None:
        # Sees through an alias of one library for the other.
        self.name: str = module.HTTPError.__module__.partition(".")[0]
        self.module = module
        self.roots = (self.name, self.name.replace("httpx", "httpcore"))
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded
        self.byte_stream: Any = module.ByteStream
        # The libraries insist on streams of their own base classes.
        sync, asynchronous = module.SyncByteStream, module.AsyncByteStream
        self.guard: Any = type("GuardedBody", (BodyGuard, sync), {})
        self.async_guard: Any = type("AsyncGuardedBody", (AsyncBodyGuard, asynchronous), {})
        self.bounded: Any = type("BoundedStream", (Bounded, sync), {})
        self.async_bounded: Any = type("AsyncBoundedStream", (AsyncBounded, asynchronous), {})
        self.prefetched: Any = type("PrefetchedStream", (Prefetched, sync), {})
        self.async_prefetched: Any = type(
            "AsyncPrefetchedStream", (AsyncPrefetched, asynchronous), {}
        )
        self.resuming: Any = type("ResumingStream", (Resuming, sync), {})
        self.async_resuming: Any = type("AsyncResumingStream", (AsyncResuming, asynchronous), {})
        # Streams that are left as they are: read, or looked after by a forbear below.
        self.ready = frozenset(
            (
                self.byte_stream, self.prefetched, self.async_prefetched, self.resuming,
                self.async_resuming,
            )
        )  # fmt: skip

    def classify(self, error: BaseException) -> Failure:
        return classify(error, self.roots)
