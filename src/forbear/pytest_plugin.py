"""Fixtures for tests of code that retries; pytest finds them by itself.

What a fixture needs is loaded when a test asks for it, and no HTTP client ever is.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .testing import FakeClock, FaultServer
    from .testing.everywhere import RecordedEvents

__all__ = ["forbear_clock", "forbear_events", "forbear_fast", "forbear_server"]


@pytest.fixture
def forbear_clock() -> Iterator[FakeClock]:
    """The time of all transports in this test: waits return at once, and are in `.sleeps`.

    A forbear.testing.FakeClock. Transports need not be given it, nor be built in the test; those
    with a clock of their own keep that. Random numbers of the jitter are 0.5, so that
    `forbear_clock.sleeps == [0.75]` can be written of one retry. Each wait of a call is one entry,
    the time for which it was held included. `forbear_clock.advance(30)` lets time pass, for example
    until a breaker lets a probe through.
    """
    from .engine.clock import SYSTEM_CLOCK
    from .testing.clock import FakeClock
    from .testing.everywhere import Everywhere

    # From now on, since a breaker of the whole session is used before and after the test too.
    clock = FakeClock(monotonic=SYSTEM_CLOCK.monotonic())
    with Everywhere(clock=clock, random=lambda: 0.5):
        yield clock


@pytest.fixture
def forbear_events() -> Iterator[RecordedEvents]:
    """The events of all transports in this test, from every thread and task, in order.

    `.names`, `.named("gave_up")`, `.assert_retried(2, reasons=["503", "ReadTimeout"])`,
    `.assert_no_events("gave_up")`; or iterate. A call that succeeds at once has none.
    """
    from .testing.everywhere import Everywhere, record

    events = record()
    with Everywhere(listener=events):
        yield events


@pytest.fixture
def forbear_fast() -> Iterator[None]:
    """Waits between attempts take no time; what is retried and recorded is as in production.

    For every test: `usefixtures = forbear_fast` in pytest.ini, tox.ini or setup.cfg, and
    `usefixtures = ["forbear_fast"]` in pyproject.toml. In a test with `forbear_clock` too, that
    clock holds.
    """
    from .testing.everywhere import fast

    with fast():
        yield


@pytest.fixture
def forbear_server() -> Iterator[FaultServer]:
    """A real server on 127.0.0.1 that fails by script, with a ledger of what arrived.

    A forbear.testing.FaultServer: `forbear_server.script("/orders", "503;retry-after=1", "reset",
    200)`, then send to `forbear_server.url + "/orders"` and ask `.requests("/orders")` and
    `.executed("/orders")`.
    """
    from .testing.server import FaultServer

    with FaultServer() as server:
        yield server
