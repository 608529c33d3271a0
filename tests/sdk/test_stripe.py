"""stripe against the faulting server: how many requests arrive, without forbear and with it.

Synchronously over requests, asynchronously over httpx. stripe makes an idempotency key for each
POST and keeps it over its own retries, so forbear may repeat them and sends the same key.
"""

import pytest
import requests
import stripe

import forbear
import forbear.httpx
import forbear.requests
from forbear.testing import record

from .conftest import WAITS, attempts_of, plugged

# stripe hands a POST's text to httpx as data=, not as content=.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

CUSTOMERS = "/v1/customers"


@pytest.fixture
def call(flavour, server, ungated, without_waiting):
    """A function that lists customers, or creates one, and returns what comes back.

    As the README says: stripe's own clients around a session, or a client, that retries.
    """
    without_waiting(stripe._http_client)

    def run(what, *given, is_plugged=True, options=(), **settings):
        if flavour.is_async:
            http_client = stripe.HTTPXClient()
            without_waiting(http_client)
            inner, close = http_client._client_async, http_client.close_async
        else:
            inner = requests.Session()
            http_client, close = stripe.RequestsClient(session=inner), inner.close
        if is_plugged:
            plug = forbear.httpx.wrap if flavour.is_async else forbear.requests.mount
            plug(inner, **ungated, **dict(options))
        addresses = {"base_addresses": {"api": server.url}}
        client = stripe.StripeClient("sk_test", http_client=http_client, **addresses, **settings)
        method = getattr(client.v1.customers, f"{what}_async" if flavour.is_async else what)
        return flavour.outcome(lambda: method(*given), close)

    return run


@plugged(1 + 2, {"max_network_retries": 2}, off={"max_network_retries": 0})
def test_attempts_of_what_may_be_repeated(call, server, clock, is_plugged, settings, attempts):
    """A lost connection: stripe's own exception."""
    server.script(CUSTOMERS, "close")
    error = call("list", is_plugged=is_plugged, **settings)
    assert len(server.requests()) == attempts
    assert type(error) is stripe.APIConnectionError
    assert clock.sleeps == WAITS * (attempts // 5)
    assert attempts_of(error) == (5 if is_plugged else None)


def test_a_payment_is_made_once(call, flavour, server):
    """503, then executed without an answer: the same key again, and the server knows it."""
    server.script(CUSTOMERS, 503, "close")
    with record() as events:
        call("create", {"name": "N"}, max_network_retries=0)
    lost = "RemoteProtocolError" if flavour.is_async else "ConnectionError"
    events.assert_retried(2, reasons=["503", lost])
    assert (server.executed(), len(server.requests())) == (1, 3)
    assert len({(arrival.key, arrival.sha256) for arrival in server.requests()}) == 1


def test_stripes_loop_is_stopped(call, server):
    """stop_outer_retries: Stripe-Should-Retry: false on the answer that was given up on."""
    server.script(CUSTOMERS, 503)
    options = {"stop_outer_retries": True}
    error = call("create", {"name": "N"}, options=options, max_network_retries=2)
    assert type(error) is stripe.APIError
    assert len(server.requests()) == 5
    assert len({arrival.key for arrival in server.requests()}) == 1
