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
def sdk(flavour, server, ungated, without_waiting):
    without_waiting(stripe._http_client)
    return Sdk(flavour, server.url, ungated, without_waiting)


class Sdk:
    """stripe in one flavour."""

    def __init__(self, flavour, url, quick, without_waiting):
        self.flavour, self.url, self.quick = flavour, url, quick
        self.without_waiting = without_waiting

    def http_client(self, is_plugged, **options):
        """As the README says: stripe's own clients around a session, or a client, that retries."""
        if self.flavour.is_async:
            http_client = stripe.HTTPXClient()
            if is_plugged:
                forbear.httpx.wrap(http_client._client_async, **self.quick, **options)
            self.without_waiting(http_client)
            self.close = http_client.close_async
            return http_client
        session = requests.Session()
        if is_plugged:
            forbear.requests.mount(session, **self.quick, **options)
        self.close = session.close
        return stripe.RequestsClient(session=session)

    def client(self, is_plugged, options=None, **more):
        http_client = self.http_client(is_plugged, **(options or {}))
        addresses = {"base_addresses": {"api": self.url}}
        return stripe.StripeClient("sk_test_nobody", http_client=http_client, **addresses, **more)

    def list(self, client):
        customers = client.v1.customers
        found = customers.list_async if self.flavour.is_async else customers.list
        return self.flavour.outcome(found, self.close)

    def create(self, client, **options):
        customers = client.v1.customers
        create = customers.create_async if self.flavour.is_async else customers.create
        return self.flavour.outcome(lambda: create({"name": "N"}, options or None), self.close)


@plugged(1 + 2, {"max_network_retries": 2}, off={"max_network_retries": 0})
def test_attempts_of_what_may_be_repeated(sdk, server, clock, is_plugged, settings, attempts):
    """A lost connection: stripe's own exception."""
    server.script(CUSTOMERS, "close")
    error = sdk.list(sdk.client(is_plugged, **settings))
    assert len(server.requests()) == attempts
    assert type(error) is stripe.APIConnectionError
    assert clock.sleeps == WAITS * (attempts // 5)
    assert attempts_of(error) == (5 if is_plugged else None)


def test_a_payment_is_made_once(sdk, server):
    """503, then executed without an answer: the same key again, and the server knows it."""
    server.script(CUSTOMERS, 503, "close")
    with record() as events:
        sdk.create(sdk.client(True, max_network_retries=0))
    lost = "RemoteProtocolError" if sdk.flavour.is_async else "ConnectionError"
    events.assert_retried(2, reasons=["503", lost])
    assert (server.executed(), len(server.requests())) == (1, 3)
    assert len({(arrival.key, arrival.sha256) for arrival in server.requests()}) == 1


def test_stripes_loop_is_stopped(sdk, server):
    """stop_outer_retries: Stripe-Should-Retry: false on the answer that was given up on."""
    server.script(CUSTOMERS, 503)
    error = sdk.create(sdk.client(True, {"stop_outer_retries": True}, max_network_retries=2))
    assert type(error) is stripe.APIError
    assert len(server.requests()) == 5
    assert len({arrival.key for arrival in server.requests()}) == 1
