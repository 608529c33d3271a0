"""announce_attempts tells a server which attempt it gets; stop_outer_retries ends loops above."""

import pickle

import httpx
import pytest
import requests

import forbear.httpx
import forbear.requests
from forbear import Fixed, Reason, RetryPolicy, record_of

pytestmark = pytest.mark.anyio

URL = "http://api.example.com/thing"
NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0), hint_spread=0.0)
STOPS = ("x-should-retry", "stripe-should-retry")


def said(server, name="retry-attempt"):
    """The values of a header, of each request that arrived."""
    return [
        [value for found, value in arrival.headers if found.lower() == name]
        for arrival in server.requests("/thing")
    ]


# --- announce_attempts ------------------------------------------------------------------------


@pytest.mark.smoke
async def test_retries_say_which_attempt_they_are(adapter, server, quick):
    server.script("/thing", 503, 503, "close", 200)
    async with adapter.client(policy=NOW, announce_attempts=True, **quick) as client:
        response = await adapter.call(client, "GET", server.url + "/thing", headers={"X-Own": "1"})
        assert response.status_code == 200
        assert said(server) == [[], ["2"], ["3"], ["4"]]
        assert said(server, "x-own") == [["1"]] * 4
        # The next call begins anew, and the request of the caller was never touched.
        await adapter.call(client, "GET", server.url + "/thing")
    assert said(server)[4:] == [[]]


@pytest.mark.parametrize("auth", ["requests", "httpx"])
def test_what_an_authentication_sends_next_is_no_retry(server, auth):
    challenge = '401;header=WWW-Authenticate:Digest realm="r", nonce="n", qop="auth"'
    server.script("/thing", 503, challenge, 200)
    url = server.url + "/thing"
    if auth == "requests":
        with requests.Session() as session:
            session.trust_env = False
            forbear.requests.mount(session, NOW, announce_attempts=True)
            response = session.get(url, auth=requests.auth.HTTPDigestAuth("user", "secret"))
    else:
        transport = forbear.httpx.RetryTransport(policy=NOW, announce_attempts=True)
        with httpx.Client(transport=transport) as client:
            response = client.get(url, auth=httpx.DigestAuth("user", "secret"))
    assert response.status_code == 200
    assert said(server) == [[], ["2"], []]


# --- stop_outer_retries -----------------------------------------------------------------------


@pytest.mark.smoke
async def test_an_answer_that_is_given_up_says_so(adapter, quick):
    for method, said, reason in (
        ("GET", {"X-Own": "kept"}, Reason.ATTEMPTS_EXHAUSTED),
        ("POST", {}, Reason.METHOD_NOT_REPLAYABLE),
        ("GET", {"x-should-retry": "true"}, Reason.ATTEMPTS_EXHAUSTED),
        ("GET", {"x-should-retry": "false"}, Reason.SERVER_SAID_NO),
    ):
        options = {"policy": NOW, "stop_outer_retries": True, **quick}
        async with adapter.client([(503, said)], **options) as client:
            response = await adapter.call(client, method, URL)
        assert [response.headers[name] for name in STOPS] == ["false", "false"], said
        assert response.headers.get("X-Own") == said.get("X-Own")
        assert (response.status_code, record_of(response).reason) == (503, reason)


@pytest.mark.adapters("stacks")
async def test_a_stack_of_two_obeys_the_mark_below(adapter, quick):
    inner = adapter.watched([503])
    policy = NOW.replace(max_attempts=2)
    below = adapter.transport(inner, policy=policy, stop_outer_retries=True, **quick)
    async with adapter.client(below, policy=NOW, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert len(inner.requests) == 2
    assert record_of(response).reason is Reason.ATTEMPTS_EXHAUSTED


# --- both -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["wrap", "mount", "pickle"])
def test_wrap_mount_and_pickles_keep_the_switches(server, way):
    options = {"announce_attempts": True, "stop_outer_retries": True}
    policy = NOW.replace(max_attempts=2)
    server.script("/thing", 503, 503)
    client = httpx.Client(trust_env=False) if way == "wrap" else requests.Session()
    with client:
        if way == "wrap":
            forbear.httpx.wrap(client, policy, **options)
        elif way == "mount":
            forbear.requests.mount(client, policy, **options)
        else:
            adapter = forbear.requests.RetryAdapter(policy, **options)
            client.mount("http://", pickle.loads(pickle.dumps(adapter)))
        response = client.get(server.url + "/thing")
    assert said(server) == [[], ["2"]]
    assert response.headers["x-should-retry"] == "false"
