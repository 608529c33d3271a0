"""Adapters: what forbear adds to a call through requests and urllib3 that succeeds.

The socket is stubbed below: `HTTPAdapter.send` for requests, `HTTPConnectionPool._make_request` for
urllib3, so that urllib3's own bookkeeping (its Retry is always on) takes part on both sides.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from _calls import BARE_AGAIN, Effort
from _measure import Lane, Track, best_bare, figure, interleave

GOALS = {"RetryAdapter(inner=…)": 700.0, "RetryPoolManager's pool": 1_000.0}  # ns
BODY = b"x" * 100


def adapters(effort: Effort) -> dict[str, Any]:
    """Nanoseconds of CPU added to a call that is answered 200 at once."""
    found: dict[str, Any] = {}
    for name, lanes_of in (("requests", _requests_lanes), ("urllib3", _urllib3_lanes)):
        if find_spec(name) is None or find_spec("forbear") is None:
            found[name] = {"skipped": "not installed"}
            continue
        bare, *lanes = lanes_of()
        with Track() as track:
            for lane in (bare, *lanes):
                track.warm_up(lane, effort.chunk_seconds, most=1_000_000)
            samples = interleave(
                lambda track=track, bare=bare: track.run(bare, bare.count),
                {
                    lane.name: lambda track=track, lane=lane: (track.run(lane, lane.count),)
                    for lane in lanes
                },
                effort.rounds,
                effort.patience,
            )
        best = best_bare(samples)
        rows = {
            name: figure(turns, best, lambda s: s.parts[0] - s.bare).as_dict()
            for name, turns in samples.items()
        }
        found[name] = {"unit": "ns", "bare": best, "rows": rows}
    return found


def _requests_lanes() -> list[Lane]:
    import requests

    from forbear import RetryPolicy
    from forbear.requests import RetryAdapter

    timed = RetryPolicy(total_timeout=10)
    answer = requests.Response()
    answer.status_code = 200
    answer._content = BODY

    class Stub(requests.adapters.HTTPAdapter):
        def send(self, request, stream=False, timeout=None, verify=True, cert=None, proxies=None):
            return answer

    request = requests.Session().prepare_request(
        requests.Request("GET", "https://api.example.com/orders")
    )
    return [
        Lane("bare", Stub().send, request),
        Lane(BARE_AGAIN, Stub().send, request),
        Lane("RetryAdapter(inner=…)", RetryAdapter(inner=Stub()).send, request),
        Lane("RetryAdapter, total_timeout", RetryAdapter(timed, inner=Stub()).send, request),
    ]


def _urllib3_lanes() -> list[Lane]:
    import urllib3

    from forbear import RetryPolicy
    from forbear.urllib3 import Retry, RetryPoolManager

    def pool_of(manager):
        pool = manager.connection_from_host("api.example.com", 80, "http")

        def make_request(*arguments, response_conn, **named):
            response = urllib3.HTTPResponse(
                BODY, status=200, headers={"Content-Length": "100"}, request_method="GET"
            )
            # As the real one does; without it the connection would not go back into the pool.
            response._connection = response_conn
            response._pool = pool
            return response

        pool._make_request = make_request
        return pool

    def lane(name, manager, **named):
        pool = pool_of(manager)
        return Lane(name, lambda url: pool.urlopen("GET", url, redirect=False, **named), "/orders")

    return [
        lane("bare", urllib3.PoolManager()),
        lane(BARE_AGAIN, urllib3.PoolManager()),
        lane("RetryPoolManager's pool", RetryPoolManager()),
        lane("RetryPoolManager's, total_timeout", RetryPoolManager(RetryPolicy(total_timeout=10))),
        lane("retries=urllib3.Retry(3)", urllib3.PoolManager(), retries=urllib3.Retry(3)),
        lane("retries=forbear.urllib3.Retry()", urllib3.PoolManager(), retries=Retry()),
    ]
