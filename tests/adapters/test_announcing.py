"""announce_attempts tells the server which attempt it is; stop_outer_retries tells an SDK above not
to begin anew.
"""

import httpx
import pytest
import requests

import forbear
from forbear import Fixed, IdempotencyKeys, Reason, RetryPolicy, record_of
from forbear.httpx import RetryTransport
from forbear.requests import RetryAdapter, mount
from forbear.testing import ScriptedAdapter

pytestmark = pytest.mark.anyio

URL = "http://api.example.com/thing"
NOW = RetryPolicy(backoff=Fixed(0), hint_spread=0.0)
STOPS = ("x-should-retry", "stripe-should-retry")


def said(server, name="retry-attempt"):
    """Of each request that arrived: the values of a header."""
    return [
        [value for found, value in arrival.headers if found.lower() == name]
        for arrival in server.requests("/thing")
    ]


async def test_retries_say_which_attempt_they_are(adapter, server, quick):
    """Attempts are numbered from 1 and the first one says nothing; each says its number once."""
    server.script("/thing", 503, 503, "close", 200)
    async with adapter.client(policy=NOW, announce_attempts=True, **quick) as client:
        response = await adapter.call(client, "GET", server.url + "/thing", headers={"X-Own": "1"})
        assert response.status_code == 200
        assert said(server) == [[], ["2"], ["3"], ["4"]]
        assert said(server, "x-own") == [["1"]] * 4
        # The next call begins anew, and the request of the caller was never touched.
        await adapter.call(client, "GET", server.url + "/thing")
    assert said(server)[4:] == [[]]


async def test_nothing_is_said_unless_asked(adapter, server, quick):
    server.script("/thing", 503, 503, 200)
    async with adapter.client(policy=NOW, **quick) as client:
        await adapter.call(client, "GET", server.url + "/thing")
    assert said(server) == [[], [], []]


async def test_the_callers_own_header_is_left_alone(adapter, server, quick):
    """Also where forbear puts other headers on the request, and in another case."""
    server.script("/thing", 503, 503, 200)
    options = {"announce_attempts": True, "idempotency": IdempotencyKeys(), **quick}
    async with adapter.client(policy=NOW, **options) as client:
        await adapter.call(
            client, "POST", server.url + "/thing", content=b"x", headers={"RETRY-attempt": "mine"}
        )
    assert said(server) == [["mine"]] * 3
    assert len({arrival.key for arrival in server.requests()}) == 1


async def test_a_hook_sees_what_is_said(adapter, server, quick):
    """before_attempt signs what goes out, on a fresh copy each time."""
    seen = []

    def hook(request, attempt):
        seen.append((attempt, request.headers["retry-attempt"], "x-signed" in request.headers))
        request.headers["x-signed"] = str(attempt)

    server.script("/thing", 503, 503, 200)
    async with adapter.client(
        policy=NOW, announce_attempts=True, before_attempt=hook, **quick
    ) as client:
        await adapter.call(client, "GET", server.url + "/thing")
    assert seen == [(2, "2", False), (3, "3", False)]
    assert said(server) == [[], ["2"], ["3"]]
    assert said(server, "x-signed") == [[], ["2"], ["3"]]


async def test_a_body_goes_with_what_is_said(adapter, server, quick):
    server.script("/thing", 503, 503, 200)
    async with adapter.client(policy=NOW, announce_attempts=True, **quick) as client:
        await adapter.call(client, "PUT", server.url + "/thing", content=b"whole" * 1000)
    assert said(server) == [[], ["2"], ["3"]]
    assert {arrival.body_bytes for arrival in server.requests()} == {5000}
    assert len({arrival.sha256 for arrival in server.requests()}) == 1


async def test_a_total_timeout_goes_with_what_is_said(adapter, server, quick):
    """The copies keep the clamped timeouts: a call that is no longer waited for stops all the
    same.
    """
    server.script("/thing", 503, 503, 200)
    policy = NOW.replace(total_timeout=5.0)
    async with adapter.client(policy=policy, announce_attempts=True, **quick) as client:
        await adapter.call(client, "GET", server.url + "/thing")
    assert said(server) == [[], ["2"], ["3"]]
    assert said(server, "x-envoy-expected-rq-timeout-ms") == [[]] * 3


@pytest.mark.adapters("httpx-family")
async def test_a_request_that_is_off_is_touched_by_nothing(adapter, quick):
    extensions = {"forbear": False}
    options = {"announce_attempts": True, "stop_outer_retries": True, **quick}
    async with adapter.client([503], policy=NOW, **options) as client:
        response = await adapter.call(client, "GET", URL, extensions=extensions)
    assert "x-should-retry" not in response.headers
    assert "retry-attempt" not in response.request.headers


# stop_outer_retries


@pytest.mark.parametrize(
    ("method", "headers", "answer", "reason"),
    [
        pytest.param("GET", {}, 503, Reason.ATTEMPTS_EXHAUSTED, id="exhausted"),
        pytest.param("POST", {}, 503, Reason.METHOD_NOT_REPLAYABLE, id="no key"),
        pytest.param("POST", {"Idempotency-Key": "k"}, 503, Reason.ATTEMPTS_EXHAUSTED, id="key"),
        pytest.param(
            "GET", {}, (429, {"Retry-After": "3600"}), Reason.RETRY_AFTER_TOO_LONG, id="too long"
        ),
        pytest.param(
            "GET", {}, (503, {"x-should-retry": "true"}), Reason.ATTEMPTS_EXHAUSTED, id="yes, but"
        ),
        pytest.param(
            "GET", {}, (503, {"x-should-retry": "false"}), Reason.SERVER_SAID_NO, id="server's no"
        ),
    ],
)
async def test_what_is_given_up_on_says_so(adapter, quick, method, headers, answer, reason):
    """With a key or not: the last answer carries the two words that SDKs obey, nothing else is
    changed.
    """
    status, own = answer if isinstance(answer, tuple) else (answer, {})
    script = [(status, {**own, "X-Own": "kept"})]
    async with adapter.client(script, policy=NOW, stop_outer_retries=True, **quick) as client:
        response = await adapter.call(client, method, URL, headers=headers)
    assert response.status_code == status
    assert [response.headers[name] for name in STOPS] == ["false", "false"]
    assert response.headers["X-Own"] == "kept"
    assert record_of(getattr(response, "_response", response)).reason is reason


async def test_what_is_accepted_says_nothing(adapter, quick):
    """A success after retries, a 404, a redirect: none of them was given up on."""
    options = {"policy": NOW, "stop_outer_retries": True, **quick}
    for script in ([503, 200], [404], [304]):
        async with adapter.client(script, **options) as client:
            response = await adapter.call(client, "GET", URL)
            assert not [name for name in STOPS if name in response.headers]


async def test_nothing_is_marked_unless_asked(adapter, quick):
    async with adapter.client([503], policy=NOW, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert not [name for name in STOPS if name in response.headers]


@pytest.mark.adapters("status-errors")
async def test_the_status_error_carries_it_too(adapter, quick):
    """on_exhausted="raise": on the response of the library's own error, which is where an SDK
    looks.
    """
    options = {"policy": NOW.replace(on_exhausted="raise"), "stop_outer_retries": True, **quick}
    async with adapter.client([503], **options) as client:
        with pytest.raises(adapter.status_error) as caught:
            await adapter.call(client, "GET", URL)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(record_of(caught.value).attempts) == 4


@pytest.mark.parametrize("option", ["announce_attempts", "stop_outer_retries"])
@pytest.mark.parametrize("value", [1, "yes", None])
async def test_a_switch_is_true_or_false(adapter, option, value):
    with pytest.raises(TypeError, match=f"{option} must be True or False, got {value!r}"):
        async with adapter.client([200], **{option: value}):
            pass


def test_mount_and_pickles_keep_the_switches():
    import pickle

    import requests

    session = mount(requests.Session(), NOW, announce_attempts=True, stop_outer_retries=True)
    adapter = pickle.loads(
        pickle.dumps(RetryAdapter(NOW, announce_attempts=True, stop_outer_retries=True))
    )
    for found in (session.get_adapter(URL), adapter):
        assert (found._announce_attempts, found._stop_outer_retries) == (True, True)


@pytest.mark.adapters("httpx-family", "sync")
async def test_wrap_takes_the_switches(adapter, quick):
    options = {"announce_attempts": True, "stop_outer_retries": True, **quick}
    client = adapter.forbear.wrap(adapter.library.Client(), NOW, **options)
    assert (client._transport._announce_attempts, client._transport._stop_outer_retries) == (
        True,
        True,
    )
    client.close()


def test_a_stack_of_two_obeys_the_mark_below():
    """The forbear above takes the mark for the server's word and adds no attempt."""
    import requests

    inner = ScriptedAdapter([503])
    below = RetryAdapter(NOW.replace(max_attempts=2), inner=inner, stop_outer_retries=True)
    session = requests.Session()
    session.mount("http://", RetryAdapter(NOW, inner=below))
    response = session.get(URL)
    assert len(inner.requests) == 2
    assert forbear.record_of(response).reason is Reason.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize("auth", ["requests", "httpx"])
def test_what_an_authentication_sends_next_is_no_retry(server, auth):
    """The answer to a retry was a challenge: the request that meets it is a first attempt and says
    nothing.
    """
    server.script(
        "/thing", 503, '401;header=WWW-Authenticate:Digest realm="r", nonce="n", qop="auth"', 200
    )
    if auth == "requests":
        with requests.Session() as session:
            session.trust_env = False
            mount(session, NOW, announce_attempts=True)
            response = session.get(
                server.url + "/thing", auth=requests.auth.HTTPDigestAuth("user", "secret")
            )
    else:
        with httpx.Client(transport=RetryTransport(policy=NOW, announce_attempts=True)) as client:
            response = client.get(server.url + "/thing", auth=httpx.DigestAuth("user", "secret"))
    assert response.status_code == 200
    assert said(server) == [[], ["2"], []]
