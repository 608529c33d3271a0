"""Inner transports of the httpx family that are not the library's own, as users write them."""

import gc
from contextlib import contextmanager

__all__ = ["Foreign", "collecting_by_hand", "reading", "stream_of"]


@contextmanager
def collecting_by_hand():
    """The collector looks at nothing that was there before, and only when it is told to."""
    gc.collect()
    gc.disable()
    gc.freeze()  # to look at all of it would take half a second
    try:
        yield
    finally:
        gc.enable()


class Foreign:
    """Of both flavours; ``answer(request)`` makes each response. Keeps how many it was asked for."""

    def __init__(self, answer):
        self._answer = answer
        self.sent = 0

    def handle_request(self, request):
        self.sent += 1
        return self._answer(request)

    async def handle_async_request(self, request):
        return self.handle_request(request)

    def close(self):
        pass

    async def aclose(self):
        pass


def reading(adapter, seen):
    """An inner transport that reads each response before it passes it on, as one that logs does.

    ``seen`` gets what is done afterwards with its connection, which is another request's by then.
    """

    class Gone:
        def __getattr__(self, name):
            seen.append(name)
            raise AttributeError(name)

    class Reading(adapter.inner_class):
        if adapter.is_async:

            async def handle_async_request(self, request):
                response = await super().handle_async_request(request)
                await response.aread()
                response.extensions["network_stream"] = Gone()
                return response
        else:

            def handle_request(self, request):
                response = super().handle_request(request)
                response.read()
                response.extensions["network_stream"] = Gone()
                return response

    return Reading()


def stream_of(library, chunks, error=None, pause=lambda: None):
    """A body of these chunks, perhaps an error after them, and ``pause()`` after each."""

    class Stream(library.SyncByteStream, library.AsyncByteStream):
        closed = 0

        def __iter__(self):
            for chunk in chunks:
                yield chunk
                pause()
            if error is not None:
                raise error

        async def __aiter__(self):
            for chunk in self.__iter__():
                yield chunk

        def close(self):
            self.closed += 1

        async def aclose(self):
            self.closed += 1

    return Stream()
