"""twilio against the faulting server: how many requests arrive, without forbear and with it."""

import pytest
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.rest import Client

import forbear
import forbear.requests
from forbear import RetryPolicy
from forbear.testing import record

SID = "AC" + "0" * 32
ACCOUNT = f"/2010-04-01/Accounts/{SID}.json"
MESSAGES = f"/2010-04-01/Accounts/{SID}/Messages.json"


@pytest.fixture
def call(server, ungated):
    """A function that asks for the account, or sends a message, and returns what comes back."""

    def ask(plugged, *, send=False, **settings):
        http_client = TwilioHttpClient(**settings)
        if plugged:
            forbear.requests.mount(http_client.session, RetryPolicy(), **ungated)
        client = Client(SID, "nobody's", http_client=http_client)
        client.api.base_url = server.url
        try:
            if send:
                return client.messages.create(to="+15005550006", from_="+15005550006", body="hello")
            return client.api.v2010.accounts(SID).fetch()
        except Exception as error:
            return error
        finally:
            http_client.session.close()

    return ask


@pytest.mark.parametrize(
    ("plugged", "settings", "attempts"),
    [
        pytest.param(False, {}, 1, id="alone"),
        # A number as requests takes it: for connections that could not be made, never for a status.
        pytest.param(False, {"max_retries": 3}, 1, id="alone-max_retries"),
        pytest.param(True, {}, 5, id="forbear"),
    ],
)
def test_attempts(call, server, clock, plugged, settings, attempts):
    """503 for ever: twilio does not retry it, forbear sends 5 times; the exception is twilio's
    own.
    """
    server.script(ACCOUNT, 503)
    with record() as events:
        error = call(plugged, **settings)
    assert type(error) is TwilioRestException
    assert error.status == 503
    assert len(server.requests()) == attempts
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5)
    # TwilioRestException has neither response nor cause, so only a listener can tell.
    assert forbear.record_of(error) is None
    events.assert_retried(attempts - 1)


def test_a_message_is_sent_once(call, server):
    """A POST without a key: whatever the server did, it is asked once."""
    server.script(MESSAGES, "503;executes=1")
    assert type(call(True, send=True)) is TwilioRestException
    assert len(server.requests()) == server.executed() == 1
