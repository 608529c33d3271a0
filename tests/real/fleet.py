"""A fleet in a total outage: processes that call and retry under one RedisBudget.

Prints, as JSON, the calls made, the requests sent, the budgets that lost Redis, and the seconds.

    python tests/real/fleet.py URL BACKEND PROCESSES CALLS RATIO BURST FLOOR

BACKEND is sync, asyncio or trio. Started as a program of its own, so that it can fork before it has
any thread.
"""

import json
import logging
import os
import sys
import time

import anyio
import httpx

from forbear import Fixed, RetryBudget, RetryPolicy
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.redis import RedisBudget

logging.disable(logging.CRITICAL)  # a line for each call would be most of the work

# So many processes on a few processors wait for their turn; that is not what is measured here.
PATIENCE = 5.0
AT_ONCE = RetryPolicy(backoff=Fixed(0))
REQUEST = httpx.Request("GET", "http://api.example.com/")


class Outage(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers 503, always, and counts."""

    sent = 0

    def handle_request(self, request):
        self.sent += 1
        return httpx.Response(503)

    async def handle_async_request(self, request):
        self.sent += 1
        return httpx.Response(503)


def work(backend, budget, calls):
    outage = Outage()
    if backend == "sync":
        transport = RetryTransport(outage, policy=AT_ONCE, budget=budget, gate=None)
        for _ in range(calls):
            assert transport.handle_request(REQUEST).status_code == 503
        return outage.sent
    transport = AsyncRetryTransport(outage, policy=AT_ONCE, budget=budget, gate=None)

    async def one_after_the_other():
        for _ in range(calls // 4):
            assert (await transport.handle_async_request(REQUEST)).status_code == 503

    async def main():
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one_after_the_other)

    anyio.run(main, backend=backend)
    return outage.sent


def main(url, backend, processes, calls, ratio, burst, floor):
    began = time.time()
    budget = RedisBudget(
        url,
        name="fleet",
        ratio=float(ratio),
        burst=float(burst),
        floor_per_second=float(floor),
        fallback=RetryBudget(burst=1),
        connect_timeout=PATIENCE,
        command_timeout=PATIENCE,
    )
    results = []
    for _ in range(int(processes)):
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                sent = work(backend, budget, int(calls))
                os.write(writing, json.dumps([sent, budget.is_lost]).encode())
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writing)
        results.append(reading)
    told = [json.loads(os.read(reading, 1000)) for reading in results]
    print(
        json.dumps(
            {
                "calls": int(calls) * len(told),
                "sent": sum(sent for sent, _ in told),
                "lost": sum(lost for _, lost in told),
                "seconds": time.time() - began,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
