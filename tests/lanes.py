"""Clients of the httpx family behind one way of calling: a library in one colour is a lane."""

from __future__ import annotations

import importlib
import ssl

import anyio

from forbear.testing import FakeClock

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Lane:
    """One library in one colour.

    Attributes:
        library: httpx or httpx2.
        ours: forbear.httpx or forbear.httpx2.
        backend: asyncio or trio; None: synchronous.
    """

    def __init__(self, name, backend):
        self.library = importlib.import_module(name)
        self.ours = importlib.import_module(f"forbear.{name}")
        self.backend = backend
        self.prefix = "" if backend is None else "Async"
        self.id = f"{name}-{backend or 'sync'}"

    def inner(self, **settings):
        """The library's own transport."""
        kind = getattr(self.library, f"{self.prefix}HTTPTransport")
        return kind(**{"verify": NO_TLS, **settings})

    def transport(self, inner=None, **options):
        kind = getattr(self.ours, f"{self.prefix}RetryTransport")
        options = {"clock": FakeClock(), "random": lambda: 0.5, **options}
        return kind(inner or self.inner(), **options)

    def calls(self, *requests, transport=None, inner=None, client=None, bare=False, **options):
        """Send requests one after the other by one client; return their responses or exceptions.

        A request is (method, url) or (method, url, keywords); a function among the keywords makes
        its value. ``inner`` are keywords of the library's transport, or a transport, ``client``
        those of its client. ``bare`` leaves forbear out.
        """
        if isinstance(inner, (dict, type(None))):
            inner = self.inner(**(inner or {}))
        transport = transport or (inner if bare else self.transport(inner, **options))
        settings = {"transport": transport, "trust_env": False, "timeout": 5, **(client or {})}
        asked = [(method, url, dict(*rest)) for method, url, *rest in requests]
        if self.backend is not None:
            return anyio.run(self._acalls, settings, asked, backend=self.backend)
        outcomes = []
        with self.library.Client(**settings) as built:
            for method, url, keywords in asked:
                try:
                    outcomes.append(built.request(method, url, **made(keywords)))
                except Exception as error:
                    outcomes.append(error)
        return outcomes

    async def _acalls(self, settings, asked):
        outcomes = []
        async with self.library.AsyncClient(**settings) as built:
            for method, url, keywords in asked:
                try:
                    outcomes.append(await built.request(method, url, **made(keywords)))
                except Exception as error:
                    outcomes.append(error)
        return outcomes

    def __repr__(self):
        return f"<{self.id}>"


def made(keywords):
    return {name: value() if callable(value) else value for name, value in keywords.items()}
