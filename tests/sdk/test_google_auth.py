"""google-auth against the faulting server: how many requests arrive, without forbear and with
it.
"""

import google.auth.credentials
import google.auth.transport.requests
import pytest
import requests

import forbear
import forbear.requests
from forbear import IdempotencyKeys, RetryPolicy

from .conftest import attempts_of


@pytest.fixture
def authorized(ungated):
    """A function that makes an authorized session, with forbear mounted or without."""
    made = []

    def make(plugged, credentials=None, **options):
        session = google.auth.transport.requests.AuthorizedSession(credentials or Token())
        if plugged:
            forbear.requests.mount(session, RetryPolicy(), **ungated, **options)
        made.append(session)
        return session

    yield make
    for session in made:
        session.close()


class Token(google.auth.credentials.Credentials):
    """A token that is valid; a refresh makes the next one."""

    def __init__(self):
        super().__init__()
        self.token = "token-0"
        self.refreshed = 0

    def refresh(self, request):
        self.refreshed += 1
        self.token = f"token-{self.refreshed}"


def tokens(server):
    return [dict(arrival.headers)["authorization"] for arrival in server.requests()]


@pytest.mark.parametrize(
    ("plugged", "attempts"),
    [pytest.param(False, 1, id="alone"), pytest.param(True, 5, id="forbear")],
)
def test_attempts(authorized, server, clock, plugged, attempts):
    """503 for ever: the session has no retry of its own; with forbear 5 requests, all authorized,
    and the answer.
    """
    server.script("/bucket", 503)
    response = authorized(plugged).get(f"{server.url}/bucket")
    assert response.status_code == 503
    assert tokens(server) == ["Bearer token-0"] * attempts
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5)
    assert attempts_of(response) == (5 if plugged else None)


def test_an_expired_token_is_refreshed_above_us(authorized, server):
    """401 is google-auth's to answer: it refreshes and asks again, once; the 503 after that is
    ours.
    """
    server.script("/bucket", 401, 503, 200)
    credentials = Token()
    response = authorized(True, credentials).get(f"{server.url}/bucket")
    assert response.status_code == 200
    assert credentials.refreshed == 1
    assert tokens(server) == ["Bearer token-0", "Bearer token-1", "Bearer token-1"]


def test_a_post_with_a_generated_key_is_executed_once(authorized, server):
    """IdempotencyKeys(): executed without an answer, then the server knows the key again. Without
    keys: one request.
    """
    server.script("/bucket", "close")
    with pytest.raises(requests.ConnectionError):
        authorized(True).post(f"{server.url}/bucket", json={})
    assert len(server.requests()) == server.executed() == 1
    response = authorized(True, idempotency=IdempotencyKeys()).post(f"{server.url}/bucket", json={})
    assert response.headers["idempotent-replayed"] == "true"
    assert len(server.requests()) == 1 + 2
    assert server.executed() == 1 + 1


def test_the_sessions_adapter_for_tokens_is_left_alone(authorized):
    """The session that fetches tokens has a retry of its own, 3 times on connection errors, and
    keeps it.
    """
    inner = authorized(True)._auth_request_session.get_adapter("https://oauth2.googleapis.com")
    assert not isinstance(inner, forbear.requests.RetryAdapter)
    assert inner.max_retries.total == 3
