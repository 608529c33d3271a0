"""An exception at any line of the gate, slots, loop and driver leaves nothing taken, and the client usable."""

import asyncio
import sys

import pytest

from forbear.testing import FaultServer

from .injection import CLIENTS, SCENARIOS, inject, new_numbers, visits_of, watched

# An interrupted call may leave a coroutine that was never awaited, or its socket, to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:coroutine:RuntimeWarning", "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)  # fmt: skip
ERRORS = dict.fromkeys(("httpx-asyncio", "aiohttp-asyncio"), asyncio.CancelledError)
COMMON = ("success", "retry", "held", "half-open", "resumed", "a slot", "queued")


@pytest.fixture
def server():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # else the call and the server's thread wait 5 ms for each other
    with FaultServer() as server, watched():
        yield server
    sys.setswitchinterval(before)


def faults(client, name, server, tried):
    error, found = ERRORS.get(client, KeyboardInterrupt), []
    for number in tried:
        injection, lost = inject(client, name, server, number, error())
        found += [f"line {number}, {injection.where}: {fault}" for fault in lost]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", COMMON)
def test_all_is_back_after_an_interruption_at_some_lines(client, name, server):
    visits = len(visits_of(client, name, server))
    assert faults(client, name, server, range(1, visits + 1, max(7, visits // 12))) == []


@pytest.mark.release
@pytest.mark.parametrize("client", CLIENTS)
def test_all_is_back_after_an_interruption_at_each_line(client, server):
    """Each line in one way of a call; those of the loop in all ways."""
    seen, found = set(), []
    for name in SCENARIOS:
        found += faults(client, name, server, new_numbers(client, name, server, seen))
    assert found == []
