"""A client of aiohttp for a laboratory of faults, behind the call signature of its other clients.

The laboratory is no part of this repository. Its driver calls ``register(clients)`` with the module
that has the others, and then runs its scenarios with the client "forbear-aiohttp".
"""

from __future__ import annotations

import contextlib
import io

import aiohttp
from yarl import URL

import forbear
from forbear.aiohttp import RetryMiddleware


def register(clients):
    """Add the client to those of the laboratory."""

    class ForbearAiohttp(clients.AsyncClient):
        features = frozenset({"async", "file", "file-offset", "deadline", "logs"})
        errors = (aiohttp.ClientError, TimeoutError)
        loggers = ("forbear",)
        http = None

        def __init__(self, policy, pool):
            self.pool = pool
            self.middleware = RetryMiddleware(
                clients.forbear_policy(policy), **clients.forbear_options(policy)
            )

        async def fetch(self, call, body):
            if self.http is None:
                connector = aiohttp.TCPConnector(limit=self.pool or 100)
                self.http = aiohttp.ClientSession(
                    connector=connector, middlewares=(self.middleware,)
                )
            seconds = call.timeout
            timeout = aiohttp.ClientTimeout(None, connect=seconds, sock_read=seconds)
            named = {"headers": list(call.headers), "timeout": timeout, "data": body}
            if call.body.kind == "multipart":
                form = named["data"] = aiohttp.FormData()
                form.add_field("upload", body, filename="upload.bin")
            elif call.body.kind == "bytes" and len(body) > 2**20:
                named["data"] = io.BytesIO(body)  # as aiohttp asks for
            url = URL(call.url, encoded=True)  # its own quoting is a part of the script
            block = contextlib.nullcontext()
            if call.deadline is not None:
                block = forbear.deadline(call.deadline)
            with block:
                async with self.http.request(call.method, url, **named) as response:
                    read = None
                    if call.read == "stream":
                        pieces = [piece async for piece in response.content.iter_chunked(4096)]
                        read = b"".join(pieces)
                    elif call.read == "all":
                        read = await response.read()
                    return response.status, tuple(response.headers.items()), read

        async def close(self):
            if self.http is not None:
                await self.http.close()

    clients.CLIENTS["forbear-aiohttp"] = ForbearAiohttp
