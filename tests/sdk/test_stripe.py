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
from forbear.engine.outer import COUNTERS
from forbear.testing import record

from .conftest import attempts_of

# stripe hands a POST's text to httpx as data=, not as content=.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

CUSTOMERS = "/v1/customers"
NOTHING = "200;header=Content-Type:application/json;body=1"  # its content is the JSON document 0


@pytest.fixture
def sdk(flavour, server, ungated, without_waiting):
    without_waiting(stripe._http_client)
    return Sdk(flavour, server.url, ungated, without_waiting)


class Sdk:
    """stripe in one flavour."""

    def __init__(self, flavour, url, quick, without_waiting):
        self.flavour = flavour
        self.url = url
        self.quick = quick
        self.without_waiting = without_waiting

    def http_client(self, plugged, **options):
        """As the README says: stripe's own clients around a session, or a client, that retries."""
        if self.flavour.is_async:
            http_client = stripe.HTTPXClient()
            if plugged:
                forbear.httpx.wrap(http_client._client_async, **self.quick, **options)
            self.without_waiting(http_client)
            self.close = http_client.close_async
            return http_client
        session = requests.Session()
        if plugged:
            forbear.requests.mount(session, **self.quick, **options)
        self.close = session.close
        return stripe.RequestsClient(session=session)

    def client(self, plugged, options=None, **more):
        return stripe.StripeClient(
            "sk_test_nobody",
            http_client=self.http_client(plugged, **(options or {})),
            base_addresses={"api": self.url},
            **more,
        )

    def list(self, client):
        customers = client.v1.customers
        return self.flavour.outcome(
            customers.list_async if self.flavour.is_async else customers.list, self.close
        )

    def create(self, client, **options):
        customers = client.v1.customers
        create = customers.create_async if self.flavour.is_async else customers.create
        return self.flavour.outcome(lambda: create({"name": "N"}, options or None), self.close)


# StripeClient retries as often as max_network_retries says, and not unless it is given; forbear
# sends 5 times by default.
PLUGGED = [
    pytest.param(False, {"max_network_retries": 2}, 1 + 2, id="alone"),
    pytest.param(False, {}, 1, id="neither"),
    pytest.param(True, {"max_network_retries": 2}, (1 + 2) * 5, id="both"),
    pytest.param(True, {"max_network_retries": 0}, 5, id="off"),
]


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
@pytest.mark.parametrize(
    ("fault", "kind"), [(503, stripe.APIError), ("close", stripe.APIConnectionError)]
)
def test_attempts_of_what_may_be_repeated(
    sdk, server, clock, plugged, settings, attempts, fault, kind
):
    """A list while the server stays broken: attempts multiply unless max_network_retries=0;
    stripe's own exception.
    """
    server.script(CUSTOMERS, fault)
    error = sdk.list(sdk.client(plugged, **settings))
    assert len(server.requests()) == attempts
    assert type(error) is kind
    # Of each 5 attempts 4 follow a wait of forbear: the middle of 0 to 0.05, 0.5 to 1, 1 to 2 and 2
    # to 4 s.
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5)
    # stripe makes its exception of a status without the response; of an error from the error.
    assert attempts_of(error) == (5 if plugged and fault == "close" else None)


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
@pytest.mark.parametrize("fault", [503, 409])
def test_attempts_of_a_payment(sdk, server, plugged, settings, attempts, fault):
    """A POST: stripe's own key makes it safe to repeat, and is the same on every request of every
    loop.
    """
    server.script(CUSTOMERS, fault)
    error = sdk.create(sdk.client(plugged, **settings))
    assert type(error) is stripe.APIError
    keys = [arrival.key for arrival in server.requests()]
    assert len(keys) == attempts
    assert None not in keys
    assert len(set(keys)) == 1


def test_a_payment_is_made_once(sdk, server):
    """503, then executed without an answer: the same key again, and the server tells what it did
    the first time.
    """
    server.script(CUSTOMERS, 503, "close")
    with record() as events:
        sdk.create(sdk.client(True, max_network_retries=0))
    events.assert_retried(
        2, reasons=["503", "RemoteProtocolError" if sdk.flavour.is_async else "ConnectionError"]
    )
    assert server.executed() == 1
    assert len(server.requests()) == 3
    assert len({arrival.key for arrival in server.requests()}) == 1
    assert len({arrival.sha256 for arrival in server.requests()}) == 1


def test_keys_of_forbear_do_not_replace_stripes(sdk, server):
    """With IdempotencyKeys() as well stripe's own key stays the only one."""
    server.script(CUSTOMERS, 503)
    client = sdk.client(True, {"idempotency": forbear.IdempotencyKeys()}, max_network_retries=0)
    sdk.create(client, idempotency_key="order-1")
    for arrival in server.requests():
        assert [value for name, value in arrival.headers if name.lower() == "idempotency-key"] == [
            "order-1"
        ]
    assert len(server.requests()) == 5


def test_stripe_alone_does_not_retry_a_throttled_answer(sdk, server):
    """429: one request, whatever max_network_retries says."""
    server.script(CUSTOMERS, "429;retry-after=7", NOTHING)
    sdk.create(sdk.client(False, max_network_retries=2))
    assert len(server.requests()) == 1


@pytest.mark.parametrize("retries", [2, 0], ids=["both", "off"])
def test_the_servers_no_ends_both_loops(sdk, server, retries):
    """Stripe-Should-Retry: false: one request."""
    server.script(CUSTOMERS, "503;header=Stripe-Should-Retry:false")
    assert type(sdk.create(sdk.client(True, max_network_retries=retries))) is stripe.APIError
    assert len(server.requests()) == 1


@pytest.mark.parametrize(
    ("options", "attempts"),
    [({}, (1 + 2) * 5), ({"stop_outer_retries": True}, 5)],
    ids=["both", "stopped"],
)
def test_stripes_loop_is_stopped(sdk, server, caplog, options, attempts):
    """stop_outer_retries: Stripe-Should-Retry: false on the answer that was given up on.

    stripe counts its retries in no header, so there is nothing to notice it by, and no warning.
    """
    server.script(CUSTOMERS, 503)
    error = sdk.create(sdk.client(True, options, max_network_retries=2))
    assert type(error) is stripe.APIError
    assert len(server.requests()) == attempts
    assert len({arrival.key for arrival in server.requests()}) == 1
    assert not {name.lower() for arrival in server.requests() for name, _ in arrival.headers} & set(
        COUNTERS
    )
    assert "retries too" not in caplog.text


@pytest.mark.parametrize(
    ("plugged", "retries", "attempts"),
    [
        pytest.param(False, None, 1 + 2, id="alone"),
        pytest.param(True, None, (1 + 2) * 5, id="both"),
        pytest.param(True, 0, 5, id="off"),
    ],
)
def test_attempts_without_a_client_object(sdk, server, monkeypatch, plugged, retries, attempts):
    """stripe.Customer.list() retries twice unless stripe.max_network_retries = 0."""
    server.script(CUSTOMERS, 503)
    for name, value in (
        ("api_key", "sk_test_nobody"),
        ("api_base", server.url),
        ("default_http_client", sdk.http_client(plugged)),
        *([] if retries is None else [("max_network_retries", retries)]),
    ):
        monkeypatch.setattr(stripe, name, value)
    call = stripe.Customer.list_async if sdk.flavour.is_async else stripe.Customer.list
    assert type(sdk.flavour.outcome(call, sdk.close)) is stripe.APIError
    assert len(server.requests()) == attempts
