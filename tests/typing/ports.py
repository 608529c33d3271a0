"""The ports, from the loop into each adapter: type-checked only, never run."""

import aiohttp
import httpx
import requests
import urllib3

from forbear.adapters.aiohttp.port import AiohttpPort
from forbear.adapters.httpx.port import HttpxPort
from forbear.adapters.httpx.tasks import AsyncHttpxPort
from forbear.adapters.urllib3.pool import PoolPort, PoolRequest
from forbear.adapters.urllib3.requests import RequestsPort
from forbear.core.call import Call
from forbear.engine.driver import next_request, send
from forbear.engine.loop import run
from forbear.engine.port import Port


async def every_library(
    call: Call,
    sync: HttpxPort,
    tasks: AsyncHttpxPort,
    session: AiohttpPort,
    adapter: RequestsPort,
    pools: PoolPort,
) -> None:
    one: Port[httpx.Request, httpx.Response] = sync
    two: Port[httpx.Request, httpx.Response] = tasks
    three: Port[aiohttp.ClientRequest, aiohttp.ClientResponse] = session
    four: Port[requests.PreparedRequest, requests.Response] = adapter
    five: Port[PoolRequest, urllib3.HTTPResponse] = pools

    request: httpx.Request = next_request(one, call)
    response: httpx.Response = await send(two, call)
    response = await two.transmit(call, request)
    from_session: aiohttp.ClientResponse = await run(call, three)
    from_adapter: requests.Response = await run(call, four)
    from_pool: urllib3.HTTPResponse = await run(call, five)
    await one.transmit(call, from_adapter.request)  # type: ignore[arg-type]  # pyright: ignore
    print(response, from_session, from_adapter, from_pool)
