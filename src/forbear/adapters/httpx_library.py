"""Library: the classes of httpx or httpx2, and ours made of them. Floor: acts."""

from __future__ import annotations

from typing import Any

from .httpx_bounded import AsyncBounded, Bounded, Hurried
from .httpx_looking import AsyncPeek, AsyncShown, Peek, Shown
from .httpx_request import AsyncBodyGuard, AsyncTimeouts, BodyGuard, Timeouts
from .httpx_resume import AsyncResuming, Resuming
from .httpx_streams import AsyncPrefetched, Prefetched

__all__ = ["Library", "Streams"]


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
        base = module.SyncByteStream
        self.sync = Streams(base, BodyGuard, Bounded, Prefetched, Resuming, Peek, Timeouts)
        self.hurried: Any = type("HurriedStream", (Hurried, base), {})
        base = module.AsyncByteStream
        self.asynchronous = Streams(
            base,
            AsyncBodyGuard,
            AsyncBounded,
            AsyncPrefetched,
            AsyncResuming,
            AsyncPeek,
            AsyncTimeouts,
        )
        self.sync.shown = type("Response", (Shown, module.Response), {})
        self.asynchronous.shown = type("Response", (AsyncShown, module.Response), {})
        # Streams that are left as they are: read, or looked after by a forbear below.
        both = self.sync, self.asynchronous
        looked_after = {kind for one in both for kind in (one.prefetched, one.resuming)}
        self.ready = frozenset({self.byte_stream, *looked_after})


class Streams:
    """Our streams of one colour; the libraries insist on streams of their own base class."""

    shown: Any  # the response that ``retry_if`` is shown

    def __init__(
        self,
        base: type,
        guard: type,
        bounded: type,
        prefetched: type,
        resuming: type,
        peek: type,
        timeouts: Any,
    ) -> None:
        self.timeouts = timeouts
        self.guard: Any = type("GuardedBody", (guard, base), {})
        self.bounded: Any = type("BoundedStream", (bounded, base), {})
        self.prefetched: Any = type("PrefetchedStream", (prefetched, base), {})
        self.resuming: Any = type("ResumingStream", (resuming, base), {})
        self.peek: Any = type("PeekStream", (peek, base), {})
