"""twilio against the faulting server: how many requests arrive, without forbear and with it."""

import pytest
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.rest import Client

import forbear.requests
from forbear.testing import record

SID = "AC" + "0" * 32
ACCOUNT = f"/2010-04-01/Accounts/{SID}.json"
MESSAGES = f"/2010-04-01/Accounts/{SID}/Messages.json"


@pytest.fixture
def client(server, ungated):
    """A function that makes a client."""

    def make(plugged):
        http_client = TwilioHttpClient()
        if plugged:
            forbear.requests.mount(http_client.session, **ungated)
        made = Client(SID, "nobody's", http_client=http_client)
        made.api.base_url = server.url
        return made

    return make


@pytest.mark.parametrize(("plugged", "attempts"), [(False, 1), (True, 5)])
def test_attempts(client, server, plugged, attempts):
    """503 for ever: twilio does not retry it, forbear sends 5 times; the exception is twilio's own."""
    server.script(ACCOUNT, 503)
    with record() as events, pytest.raises(TwilioRestException) as caught:
        client(plugged).api.v2010.accounts(SID).fetch()
    assert caught.value.status == 503
    assert len(server.requests()) == attempts
    # TwilioRestException has neither response nor cause, so only a listener can tell.
    assert forbear.record_of(caught.value) is None
    events.assert_retried(attempts - 1)


def test_a_message_is_sent_once(client, server):
    """A POST without a key: whatever the server did, it is asked once."""
    server.script(MESSAGES, "503;executes=1")
    with pytest.raises(TwilioRestException):
        client(True).messages.create(to="+15005550006", from_="+15005550006", body="hello")
    assert len(server.requests()) == server.executed() == 1
