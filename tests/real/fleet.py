"""A fleet in a total outage: processes that call and retry under one RedisBudget.

Prints, as JSON, the calls made, the requests sent, the budgets that lost Redis, and the seconds.

    python tests/real/fleet.py URL PROCESSES CALLS RATIO BURST FLOOR

A program of its own, so that it can fork before it has any thread.
"""

import json
import logging
import os
import sys
import time

import httpx

from forbear import Fixed, RetryBudget, RetryPolicy
from forbear.httpx import RetryTransport
from forbear.redis import RedisBudget

logging.disable(logging.CRITICAL)  # a line for each call would be most of the work
REQUEST = httpx.Request("GET", "http://api.example.com/")


def work(budget, calls):
    sent = 0

    def outage(request):
        nonlocal sent
        sent += 1
        return httpx.Response(503)

    policy = RetryPolicy(backoff=Fixed(0))
    transport = RetryTransport(httpx.MockTransport(outage), policy=policy, budget=budget, gate=None)
    for _ in range(calls):
        assert transport.handle_request(REQUEST).status_code == 503
    return sent


def main(url, processes, calls, ratio, burst, floor):
    began, readings = time.time(), []
    numbers = {"ratio": float(ratio), "burst": float(burst), "floor_per_second": float(floor)}
    # So many processes on a few processors wait for their turn; that is not what is measured here.
    patient = {"connect_timeout": 5.0, "command_timeout": 5.0, "fallback": RetryBudget(burst=1)}
    budget = RedisBudget(url, name="fleet", **numbers, **patient)
    for _ in range(int(processes)):
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                sent = work(budget, int(calls))
                os.write(writing, json.dumps([sent, budget.is_lost]).encode())
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writing)
        readings.append(reading)
    sent, lost = zip(*(json.loads(os.read(one, 1000)) for one in readings), strict=True)
    found = {"calls": int(calls) * len(sent), "sent": sum(sent), "lost": sum(lost)}
    print(json.dumps({**found, "seconds": time.time() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
