"""Smoke runs of all clients while an add-on is taken out: python tests/taken_out.py breaker

Its import is blocked, and its line of the table is gone, as if its file were deleted.
"""

import importlib.abc
import socket
import sys

from prometheus_client import CollectorRegistry


class Blocker(importlib.abc.MetaPathFinder):
    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise ModuleNotFoundError(f"{name} is taken out", name=name)


def smoke(forbear, lane, server, refused):
    """A 200, a 503 that is retried, a refused connection, a Retry-After, a POST and a deadline.

    All are counted.
    """
    policy = forbear.RetryPolicy(backoff=forbear.Fixed(1.0), max_attempts=3, hint_spread=0.0)
    clock, registry = forbear.testing.FakeClock(), CollectorRegistry()
    listeners = [forbear.telemetry.prometheus.Metrics(registry)]

    def outcome(method, name, *steps):
        """What a call comes to, the number of its attempts, and how long it has waited."""
        url, before = refused, len(clock.sleeps)
        if steps:
            url = server.url + f"/{lane.id}/{name}"
            server.script(f"/{lane.id}/{name}", *steps)
        options = {"policy": policy, "clock": clock, "on_event": listeners}
        options["gate"] = forbear.RetryGate()
        (ended,) = lane.calls((method, url), **options)
        attempts = len(forbear.record_of(ended).attempts)
        assert attempts == len(server.requests(f"/{lane.id}/{name}")) or url == refused
        return getattr(ended, "status_code", type(ended)), attempts, clock.sleeps[before:]

    assert outcome("GET", "200", 200) == (200, 1, [])
    assert outcome("GET", "503", 503, 200) == (200, 2, [1.0])
    assert outcome("GET", "429", "429;header=Retry-After-Ms:2500", 200) == (200, 2, [2.5])
    assert outcome("POST", "post", 503, 200) == (503, 1, [])
    error, attempts, _ = outcome("GET", "refused")
    assert issubclass(error, lane.connect_error)
    assert attempts == 3
    with forbear.deadline(4.0, clock=clock):
        assert outcome("GET", "late", "503;retry-after=5", 200) == (503, 1, [])
    counted = [sample for family in registry.collect() for sample in family.samples]
    assert sum(one.value for one in counted if one.name == "forbear_requests_total") == 6


def main(option):
    """Import forbear as if an add-on had been deleted, and run the smoke tests."""
    from forbear.engine import settings

    module = f"forbear.{settings.ADDONS.pop(option)}"
    del settings.DEFAULTS[option]
    assert module not in sys.modules
    sys.meta_path.insert(0, Blocker(module))
    import forbear
    import forbear.telemetry.prometheus
    from lanes import LANES

    with forbear.testing.FaultServer() as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for lane in LANES:
            smoke(forbear, lane, server, f"http://127.0.0.1:{closed.getsockname()[1]}/")


if __name__ == "__main__":
    main(sys.argv[1])
