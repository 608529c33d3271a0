"""Troubles: the named worlds, one row each.

500 independent calls a second for as long as it says, to a backend with a fifth of capacity to
spare, for which a rejection is 0.3 of the work of a success (refusing a connection: 0.1). Where the
trouble does not depend on load ("exo", random failures, quotas) the capacity has no limit. How many
processes make these calls is the caller's choice: ``replace(scenario, client_rate=5.0)``.

Partial failures are 50 calls a second to a server with room for all, of which a share fails for
reasons that have nothing to do with load. Thread pools and scripts are closed loops: a call that is
held keeps its worker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .scenario import END, REFUSED, Scenario

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Rows: TypeAlias = tuple[tuple[str, str, float, float, dict[str, Any]], ...]

NEAR_ITS_LIMIT: dict[str, Any] = {
    "arrivals": "poisson", "client_rate": 50.0, "capacity": 600.0, "rejection_cost": 0.3,
    "timeout": 1.0,
}  # fmt: skip
NO_LIMIT: dict[str, Any] = NEAR_ITS_LIMIT | {"capacity": None}
REFUSING: dict[str, Any] = {"rejection": REFUSED, "rejection_cost": 0.1}
SLOW: dict[str, Any] = {"trouble": "slow"}
QUEUE: dict[str, Any] = {"trouble": "slow", "queue": 2.0}
ALWAYS: dict[str, Any] = {"trouble_at": 0.0}

# Name, what it is, seconds of trouble, seconds in all, what is different.
BUSY: Rows = (
    ("blip-503", "200 ms of 503", 0.2, 22, {}),
    ("blip-refused", "200 ms of refused connections", 0.2, 22, {"trouble": "refuse"}),
    ("reload", "all of 200 ms fail at one instant", 0.2, 22, {"trouble": "hang"}),
    ("down-2s", "2 s of 503", 2, 30, {}),
    ("down-2s-refused", "2 s of refused connections", 2, 30, {"trouble": "refuse"}),
    ("down-20s", "20 s of 503", 20, 60, {}),
    ("down-20s-refused", "20 s of refused connections", 20, 60, {"trouble": "refuse"}),
    ("blackhole-2s", "2 s without a response", 2, 30, {"trouble": "silent"}),
    ("blackhole-20s", "20 s without a response", 20, 60, {"trouble": "silent"}),
    ("slow-2s", "2 s of responses after 2 s", 2, 30, SLOW | {"speed": 1.0, "slowdown": 400.0}),
    ("half-2s", "half speed for 2 s", 2, 32, SLOW),
    ("half-5s", "half speed for 5 s", 5, 35, SLOW),
    ("half-20s", "half speed for 20 s", 20, 50, SLOW),
    ("half-60s", "half speed for a minute", 60, 90, SLOW),
    ("three-quarters-20s", "a tenth too slow for 20 s", 20, 50, SLOW | {"speed": 0.75}),
    ("half-2s-refused", "half speed, and what is too much is refused", 2, 32, SLOW | REFUSING),
    ("half-20s-refused", "the same for 20 s", 20, 50, SLOW | REFUSING),
    ("half-20s-502", "half speed behind a proxy that says 502", 20, 50, SLOW | {"rejection": 502}),
    ("half-2s-queue", "half speed, 2 s of queue, clients that leave after 1 s", 2, 32, QUEUE),
    ("half-5s-queue", "the same for 5 s", 5, 35, QUEUE),
    ("half-20s-queue", "the same for 20 s", 20, 40, QUEUE),
    ("workers-20s", "half speed, 20 workers that work on for clients that left", 20, 45,
     SLOW | REFUSING | {"queue": 1.5, "service_time": 0.033, "slowdown": 2.0}),
    ("thrash-20s", "half speed, and the fuller the slower", 20, 50, SLOW | {"thrash": 1.0}),
    ("cold-2s", "2 s down, then cold caches for 20 s", 2, 55, {"cold_for": 20.0}),
    ("one-of-ten-dead", "one of ten backends refuses", 60, 90, {"trouble": "refuse", "share": 0.1}),
    ("one-of-ten-502", "a proxy says 502 for it", 60, 90, {"status": 502, "share": 0.1}),
    ("one-of-ten-sticky", "a process stays with its backend", 60, 90,
     {"trouble": "refuse", "share": 0.1, "sticky": True}),
    ("rolling-refused", "ten backends are restarted in turn", 10, 50,
     {"trouble": "refuse", "share": 0.1}),
    ("rolling-502", "the same behind a proxy that says 502", 10, 50, {"status": 502, "share": 0.1}),
    ("rolling-503", "the same behind a proxy that says 503", 10, 50, {"share": 0.1}),
    ("stale-pool", "eight idle connections of each process are dead", 30, 32,
     {"trouble": "reset", "first": 8}),
    ("down-10s-hinted", "10 s of 503 with Retry-After: 5", 10, 40, {"retry_after": 5.0}),
    ("half-20s-hinted", "half speed, rejections say Retry-After: 2", 20, 50,
     SLOW | {"rejection_hint": 2.0}),
)  # fmt: skip
LOAD_INDEPENDENT: Rows = (
    ("exo-3-of-10-dead", "three of ten refuse, whatever the load", 60, 90,
     {"trouble": "refuse", "share": 0.3}),
    ("exo-3-of-10-503", "three of ten say 503", 60, 90, {"share": 0.3}),
    ("random-reset-0.1%", "one of 1,000 is reset", 30, 30,
     ALWAYS | {"trouble": "reset", "share": 0.001}),
    ("random-reset-1%", "one of 100 is reset", 30, 30,
     ALWAYS | {"trouble": "reset", "share": 0.01}),
    ("random-503-1%", "one of 100 is a 503", 30, 30, ALWAYS | {"share": 0.01}),
    ("random-502-5%", "one of 20 is a 502", 30, 30, ALWAYS | {"share": 0.05, "status": 502}),
    ("quota-hinted", "4,900 in 10 s, then 429 with the time of the next", 30, 38,
     ALWAYS | {"share": 0.0, "quota": 4_900}),
    ("quota-20s", "8,000 in 20 s, then 429 with the time of the next", 40, 60,
     ALWAYS | {"share": 0.0, "quota": 8_000, "quota_window": 20.0}),
    ("quota-unhinted", "4,900 in 10 s, then 429", 30, 38,
     ALWAYS | {"share": 0.0, "quota": 4_900, "quota_hint": False}),
    ("exo-down-2s", "2 s of 503, any load is served after them", 2, 40, {}),
    ("exo-down-5s", "5 s of 503, any load is served after them", 5, 50, {}),
)  # fmt: skip

# One process, often all its calls at once. Name, what it is, seconds of trouble, what is different.
ALONE = (
    ("gather-20", "20 calls at once over 300 ms of 503", 0.3, {"fleet": 20}),
    ("gather-100", "100 calls at once over 300 ms of 503", 0.3, {"fleet": 100}),
    ("gather-1000", "1,000 calls at once over 300 ms of 503", 0.3, {"fleet": 1_000}),
    ("gather-100-hang", "100 that hang for 300 ms", 0.3, {"fleet": 100, "trouble": "hang"}),
    ("gather-8-3s", "8 calls at once, 3 s of 503", 3.0, {"fleet": 8}),
    ("gather-8-5s", "8 calls at once, 5 s of 503", 5.0, {"fleet": 8}),
    ("gather-20-5s", "20 calls at once, 5 s of 503", 5.0, {"fleet": 20}),
    ("gather-100-5s", "100 calls at once, 5 s of 503", 5.0, {"fleet": 100}),
    ("gather-8-refused", "8 at once, 3 s refused", 3.0, {"fleet": 8, "trouble": "refuse"}),
    ("script", "a call a second through 3 s of 503", 3.0, {"rate": 1.0, "trouble_at": 20.3}),
    ("script-4", "four calls a second through 3 s of 503", 3.0, {"rate": 4.0, "trouble_at": 20.3}),
    ("loop-20", "20 workers of 50 ms calls through 3 s of 503", 3.0,
     {"workers": 20, "service_time": 0.05, "trouble_at": 20.0}),
    ("gather-in-traffic", "100 at once in addition to 2 a second, 300 ms of 503", 0.3,
     {"fleet": 100, "rate": 2.0, "fleet_at": 20.0, "trouble_at": 20.0}),
    ("single-503", "one call, one 503", 1.0, {"fleet": 1, "first": 1}),
    ("single-reset", "one call, one reset", 1.0, {"fleet": 1, "first": 1, "trouble": "reset"}),
)  # fmt: skip


def varied(common: dict[str, Any], **different: Any) -> Scenario:
    return Scenario(**{**common, **different})


def worlds(rows: Rows, common: dict[str, Any]) -> dict[str, tuple[Scenario, str]]:
    """Make the scenarios of a table."""
    found = {}
    for name, about, trouble_for, duration, different in rows:
        own: dict[str, Any] = {"trouble_for": trouble_for, "duration": duration}
        found[name] = Scenario(**{**common, **own, **different}), about
    return found


TROUBLES = worlds(BUSY, NEAR_ITS_LIMIT) | worlds(LOAD_INDEPENDENT, NO_LIMIT)
AT_ONCE: dict[str, Any] = {"rate": 0.0, "duration": 60.0, "trouble_at": 0.0, "fleet_at": 0.0}
LONE = {
    name: (Scenario(**{**AT_ONCE, "trouble_for": trouble_for, **different}), about)
    for name, about, trouble_for, different in ALONE
}

PARTLY: dict[str, Any] = {
    "rate": 50.0, "duration": 200.0, "arrivals": "poisson", "client_rate": 50.0, "timeout": 1.0,
    "trouble_at": 0.0, "trouble_for": 0.0,
}  # fmt: skip


def replicas(bad: int, of: int, **different: Any) -> Scenario:
    return Scenario(**{**PARTLY, "replicas": of, "bad_replicas": bad, **different})


PARTIAL = (
    {
        f"flaky-{share}": (Scenario(**PARTLY, flaky=share), f"{share:.0%} of the attempts: 503")
        for share in (0.1, 0.2, 0.3, 0.5)
    }
    | {
        "flaky-0.3-reset": (
            Scenario(**PARTLY, flaky=0.3, partial_failure="reset"), "30% of the attempts are reset",
        ),
        "one-of-two": (replicas(1, 2), "one of two replicas answers 503"),
        "one-of-two-by-turns": (
            replicas(1, 2, balancing="round-robin"), "the same, each process by turns",
        ),
    }
    | {
        f"one-of-three-{failure}": (
            replicas(1, 3, partial_failure=failure), f"one of three replicas: {failure}"
        )
        for failure in (503, 500, 502, REFUSED)
    }
    | {
        "one-of-three-by-turns": (
            replicas(1, 3, balancing="round-robin"),
            "one of three answers 503, each process by turns",
        ),
        "one-of-three-sticky": (
            replicas(1, 3, balancing="sticky", rate=150.0, duration=100.0),
            "one of three answers 503, and a process stays with its replica",
        ),
        "one-of-ten-replicas": (replicas(1, 10), "one of ten replicas answers 503"),
        "one-of-three-hangs": (
            replicas(1, 3, partial_failure="hang"), "one of three never answers",
        ),
        "one-of-five-hangs": (replicas(1, 5, partial_failure="hang"), "one of five never answers"),
        "one-of-ten-hangs": (replicas(1, 10, partial_failure="hang"), "one of ten never answers"),
    }
    | {
        f"broken-route-{share:.0%}": (
            Scenario(**PARTLY, broken_share=share, flaky=0.005),
            f"a route with {share:.0%} of the calls answers 500; 0.5% of others: 503",
        )
        for share in (0.05, 0.2)
    }
    | {
        f"half-5s-flaky-{share}": (
            replace(TROUBLES["half-5s"][0], flaky=share),
            f"half-5s, and {share:.0%} fail by themselves",
        )
        for share in (0.1, 0.2)
    }
)  # fmt: skip
POOL: dict[str, Any] = AT_ONCE | {"timeout": 1.0, "duration": 200.0}
POOLS = {
    f"pool-{workers}-{name}": (
        varied(POOL, workers=workers, **different), f"{workers} workers, {about}",
    )
    for workers in (8, 32)
    for name, about, different in (
        ("down", "a call in 160 ms each, a server that is down for 60 of 200 s",
         {"pause": 0.16, "service_time": 0.02, "trouble_at": 50.0, "trouble_for": 60.0}),
        ("flaky", "50 ms a call, 30% of the attempts: 503",
         {"duration": 60.0, "service_time": 0.05, "trouble_for": 0.0, "flaky": 0.3}),
    )
}  # fmt: skip
SCRIPT: dict[str, Any] = AT_ONCE | {"workers": 1, "duration": 2_000.0}
GONE: dict[str, Any] = PARTLY | {"duration": 60.0, "trouble": "refuse", "trouble_at": 20.0}
SCRIPTS = {
    "script-dead-10": (
        Scenario(**SCRIPT, trouble_for=2_000.0, worker_calls=10),
        "ten calls one after the other to a server that always answers 503",
    ),
    "script-dead-200s": (
        varied(SCRIPT, duration=200.0, trouble_for=200.0, pause=0.001),
        "calls one after the other for 200 s, the same server",
    ),
    "script-flaky-0.3": (
        Scenario(**SCRIPT, trouble_for=0.0, pause=0.1, worker_calls=600, flaky=0.3),
        "600 calls one after the other, 30% of the attempts: 503",
    ),
    "gone-3s": (
        varied(GONE, trouble_for=3.0),
        "50 calls a second, 3 s of refused connections",
    ),
    "gone-8s": (
        varied(GONE, trouble_for=8.0),
        "50 calls a second, 8 s of refused connections",
    ),
}
SMALL_SCRIPT: dict[str, Any] = SCRIPT | {
    "service_time": 0.02, "timeout": 5.0, "trouble_for": 0.0,
}  # fmt: skip
LIMITED: dict[str, Any] = {
    "worker_calls": 100, "quota": 1, "quota_window": 0.5, "quota_hint": False,
}  # fmt: skip
THREADS: dict[str, Any] = PARTLY | {
    "client_rate": None, "duration": 60.0, "service_time": 0.02, "timeout": 5.0,
}  # fmt: skip
EIGHT, MANY = THREADS | {"threads": 8, "rate": 10.0}, THREADS | {"threads": 32, "rate": 50.0}
REFUSED_ONCE: dict[str, Any] = {"trouble": "refuse", "trouble_at": 20.0}
KILLED: dict[str, Any] = {"trouble": "refuse", "trouble_for": 0.3, "trouble_every": 2.0}
# Where small services live: a script, a pool of threads, two replicas.
SMALL = {
    "script-429": (
        varied(SMALL_SCRIPT | LIMITED), "100 calls one after the other, one in 0.5 s, then 429",
    ),
    "script-503": (varied(SMALL_SCRIPT | LIMITED, quota_status=503), "the same, then 503"),
    "script-one-of-two": (
        varied(SMALL_SCRIPT, worker_calls=20, replicas=2, bad_replicas=1),
        "20 calls one after the other, one of two replicas: 503",
    ),
    "script-one-of-two-by-turns": (
        varied(
            SMALL_SCRIPT, worker_calls=20, replicas=2, bad_replicas=1, balancing="round-robin"
        ),
        "the same by turns",
    ),
    "script-one-of-three": (
        varied(SMALL_SCRIPT, worker_calls=20, replicas=3, bad_replicas=1),
        "20 calls one after the other, one of three replicas: 503",
    ),
    "threads-8-gone-1s": (
        varied(EIGHT | REFUSED_ONCE, trouble_for=1.0),
        "10 calls a second before 8 threads, 1 s of refused connections",
    ),
    "threads-8-gone-3s": (varied(EIGHT | REFUSED_ONCE, trouble_for=3.0), "the same for 3 s"),
    "threads-32-gone-3s": (
        varied(MANY | REFUSED_ONCE, trouble_for=3.0),
        "50 calls a second before 32 threads, 3 s of refused connections",
    ),
    "threads-8-one-of-two": (
        varied(EIGHT, replicas=2, bad_replicas=1), "before 8 threads, one of two replicas: 503",
    ),
    "threads-32-one-of-two": (
        varied(MANY, replicas=2, bad_replicas=1), "before 32 threads, the same",
    ),
    "threads-8-429": (
        varied(EIGHT, quota=6, quota_window=1.0, quota_hint=False),
        "10 calls a second before 8 threads, 6 in a second, then 429",
    ),
    "killed": (
        varied(THREADS | KILLED, rate=50.0, trouble_at=1.7),
        "50 calls a second, refused for 0.3 s in every 2 s",
    ),
    "killed-threads-8": (varied(EIGHT | KILLED, trouble_at=1.7), "10 a second before 8 threads"),
    "frozen": (
        varied(AT_ONCE, fleet=20, trouble_for=5.0, frozen_at=4.0, frozen_for=15.0),
        "20 calls at once, 5 s of 503, and a process that does not run for 15 s",
    ),
}  # fmt: skip
SCENARIOS = {
    "blip": (
        Scenario(),
        "the textbook experiment: 200 ms of 503 under 500 calls a second, no limit",
    ),
    "quota-reset": (
        Scenario(
            duration=30.0, client_rate=5.0, capacity=1_000.0, rejection_cost=0.1,
            trouble_for=10.0, status=429, retry_after=END,
        ),
        "a quota is used up for 10 s; every client is given the same absolute second",
    ),
    **TROUBLES,
    **LONE,
    **PARTIAL,
    **POOLS,
    **SCRIPTS,
    **SMALL,
}  # fmt: skip
