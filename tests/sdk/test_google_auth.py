"""google-auth against the faulting server: how many requests arrive, without forbear and with it."""

import contextlib

import google.auth.credentials
import google.auth.transport.requests
import pytest
import requests

import forbear.requests
from forbear import IdempotencyKeys

from .conftest import attempts_of


class Token(google.auth.credentials.Credentials):
    """A token that is valid; a refresh makes the next one."""

    def __init__(self):
        super().__init__()
        self.token = "token-0"
        self.refreshed = 0

    def refresh(self, request):
        self.refreshed += 1
        self.token = f"token-{self.refreshed}"


@pytest.fixture
def authorized(ungated):
    """A function that makes an authorized session, with forbear mounted or without."""
    with contextlib.ExitStack() as stack:

        def make(plugged, **options):
            session = google.auth.transport.requests.AuthorizedSession(Token())
            stack.callback(session.close)
            return forbear.requests.mount(session, **ungated, **options) if plugged else session

        yield make


def tokens(server):
    return [dict(arrival.headers)["authorization"] for arrival in server.requests()]


@pytest.mark.parametrize(("plugged", "attempts"), [(False, 1), (True, 5)])
def test_attempts(authorized, server, plugged, attempts):
    """503 for ever: the session has no retry of its own; with forbear 5 requests, all authorized."""
    server.script("/bucket", 503)
    response = authorized(plugged).get(f"{server.url}/bucket")
    assert response.status_code == 503
    assert tokens(server) == ["Bearer token-0"] * attempts
    assert attempts_of(response) == (5 if plugged else None)


def test_an_expired_token_is_refreshed_above_us(authorized, server):
    """401 is google-auth's to answer: it refreshes and asks again, once; the 503 after that is ours."""
    server.script("/bucket", 401, 503, 200)
    assert authorized(True).get(f"{server.url}/bucket").status_code == 200
    assert tokens(server) == ["Bearer token-0", "Bearer token-1", "Bearer token-1"]


def test_a_post_is_executed_once(authorized, server):
    """Executed without an answer: one request; with IdempotencyKeys() the server knows the key again."""
    server.script("/bucket", "close")
    with pytest.raises(requests.ConnectionError):
        authorized(True).post(f"{server.url}/bucket", json={})
    assert len(server.requests()) == server.executed() == 1
    response = authorized(True, idempotency=IdempotencyKeys()).post(f"{server.url}/bucket", json={})
    assert response.headers["idempotent-replayed"] == "true"
    assert (len(server.requests()), server.executed()) == (1 + 2, 1 + 1)


def test_the_sessions_adapter_for_tokens_is_left_alone(authorized):
    """The session that fetches tokens keeps its own retry, 3 times on connection errors."""
    inner = authorized(True)._auth_request_session.get_adapter("https://oauth2.googleapis.com")
    assert not isinstance(inner, forbear.requests.RetryAdapter)
    assert inner.max_retries.total == 3
