"""Exceptions that a signal handler raises come out of the call, wherever the signal came."""

import functools
import signal

import pytest

from forbear import Fixed, RetryPolicy

from ..lanes import URL

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no signals")

NOW = RetryPolicy(backoff=Fixed(0), max_attempts=3)


class SoftTimeLimit(Exception):
    """As Celery's, it derives from Exception."""


class Handler:
    def __init__(self, error):
        self.error = error

    def __call__(self, *given):
        raise self.error


KINDS = {
    "function": lambda error: lambda number, frame: Handler(error)(),
    "partial": lambda error: functools.partial(Handler.__call__, Handler(error)),
    "object": Handler,
    "method": lambda error: Handler(error).__call__,
}


@pytest.fixture
def alarm():
    """Let an alarm raise this, after some seconds."""

    def begin(seconds, error, kind="function"):
        signal.signal(signal.SIGALRM, KINDS[kind](error))
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.getsignal(signal.SIGALRM)
    yield begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.smoke("sync")
@pytest.mark.parametrize("error", [SoftTimeLimit, TimeoutError])
async def test_an_alarm_while_an_answer_is_drained_ends_the_call(adapter, server, alarm, error):
    server.script("/thing", "503;body=160;drip=100", 200)
    retried = [lambda event: alarm(0.05, error("time is up"))]  # then it is drained
    async with adapter.client(policy=NOW, on_event=retried) as client:
        with pytest.raises(error):
            await adapter.call(client, "GET", server.url + "/thing")
        assert len(server.requests("/thing")) == 1
        assert (await adapter.call(client, "GET", server.url + "/thing")).status_code == 200
        assert adapter.is_idle(client)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_alarm_while_a_listener_is_told_ends_the_call(adapter, quick, alarm, kind):
    def listen(event):
        signal.raise_signal(signal.SIGALRM)

    options = {"policy": NOW, "on_event": [listen], **quick}
    async with adapter.client([503, 200], **options) as client:
        alarm(60, SoftTimeLimit(), kind)
        with pytest.raises(SoftTimeLimit):
            await adapter.call(client, "GET", URL)


async def test_a_call_made_while_an_alarm_is_handled_is_not_ended_by_it(adapter, quick, alarm):
    def listen(event):
        raise KeyError("a mistake")

    options = {"policy": NOW, "on_event": [listen], **quick}
    async with adapter.client([503, 200], **options) as client:
        alarm(60, SoftTimeLimit())
        try:
            signal.raise_signal(signal.SIGALRM)
        except SoftTimeLimit:
            response = await adapter.call(client, "GET", URL)
    assert response.status_code == 200


@pytest.mark.smoke
@pytest.mark.parametrize("place", ["on_event", "retry_if"])
async def test_an_interruption_in_the_users_code_leaves_no_connection_open(adapter, server, place):
    server.script("/thing", "503;body=100000", 200)

    def interrupted(argument):
        raise KeyboardInterrupt

    hook = {place: [interrupted] if place == "on_event" else interrupted}
    async with adapter.client(policy=NOW, **hook, **adapter.pool_of(1)) as client:
        with pytest.raises(KeyboardInterrupt):
            await adapter.open(client, "GET", server.url + "/thing")
        assert adapter.is_idle(client)
