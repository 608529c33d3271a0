"""Fixtures of the tests over every client; the clients are in ../lanes."""

import ssl
import time

import pytest

from forbear import RetryBudget


def pytest_configure(config):
    # httpcore under trio, by itself, when a peer resets while a body goes out: the library's to
    # close.
    config.addinivalue_line(
        "filterwarnings", "ignore:Async generator 'httpx2?._content:ResourceWarning"
    )


def pytest_collectstart(collector):
    if isinstance(collector, pytest.Module):
        collector.add_marker("anyio")  # every ``async def`` here is a test in an event loop


@pytest.fixture
def anyio_backend(adapter):
    return "trio" if adapter.flavour == "trio" else "asyncio"


@pytest.fixture(scope="session")
def authority():
    """Issues certificates, and is trusted by nobody who was not told to."""
    import trustme  # needs cryptography, which has no wheel for every interpreter

    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture(scope="session")
def context_of(authority):
    from trustme import KeyType

    def make(name="127.0.0.1", by=authority):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        by.issue_cert(name, key_type=KeyType.ECDSA).configure_cert(context)
        return context

    return make


@pytest.fixture
def budget():
    """20 tokens that only a refund brings back, so that the cost of a call can be read off."""
    return RetryBudget(ratio=0, floor_per_second=0, burst=20)


@pytest.fixture
def logged(caplog):
    def messages():
        entries = [entry for entry in caplog.records if entry.name == "forbear"]
        return [entry.getMessage() for entry in entries if entry.levelname == "ERROR"]

    return messages


@pytest.fixture(scope="session")
def ca(authority, tmp_path_factory):
    """The file of the authority's certificate."""
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


@pytest.fixture
def quickest():
    """Seconds of the quickest of the runs until one is within a bound, for up to a minute.

    So a bound does not depend on a busy machine, which is quick now and then. A run that fails
    within the bound has failed; beyond it, the machine may be the reason.
    """

    async def measure(run, *, bound):
        seconds, gives_up_at = float("inf"), time.monotonic() + 60
        while seconds > bound and time.monotonic() < gives_up_at:
            began = time.monotonic()
            try:
                await run()
            except (AssertionError, pytest.fail.Exception):
                now = time.monotonic()
                if now - began <= bound or now >= gives_up_at:
                    raise
            else:
                seconds = min(seconds, time.monotonic() - began)
        return seconds

    return measure


@pytest.fixture
def elapsed():
    """Seconds since the test asked last."""
    at = time.monotonic()

    def since():
        nonlocal at
        before, at = at, time.monotonic()
        return at - before

    return since
