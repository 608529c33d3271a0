"""requests: what is its own. The promises that all libraries share are in the conformance suite."""

import contextlib
import io
import pickle

import pytest
import requests
from cachecontrol import CacheControlAdapter as Other
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.util import Retry

import forbear
from forbear import Fixed, IdempotencyKeys, RetryBudget, RetryGate, RetryPolicy
from forbear.requests import RetryAdapter, mount

from .origin import Answer, Origin

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0))
SOME = {"status_forcelist": [503]}


@pytest.fixture
def session():
    with requests.Session() as made:
        made.trust_env = False
        yield made


def retrying(session, policy=NOW, **options):
    session.mount("http://", RetryAdapter(policy, gate=None, **options))
    return session


@pytest.mark.parametrize(
    "bases",
    [(RetryAdapter, Other), (Other, RetryAdapter), (RetryAdapter, HTTPAdapter), (RetryAdapter,)],
)
def test_a_subclass_whose_own_pools_would_never_be_used_is_told_what_to_write(bases):
    own = {"init_poolmanager": lambda self, *pools, **named: None} if len(bases) == 1 else {}
    with pytest.raises(TypeError, match=r"Mine\.init_poolmanager would not .* inner=ThatAdapter"):
        type("Mine", bases, own)


@pytest.mark.parametrize("retries", [3, Retry(3, **SOME), Retry(None, connect=2), Retry(0, **SOME)])
def test_the_retries_of_an_inner_adapter_are_switched_off(session, server, retries):
    """With one warning."""
    server.script("/thing", 503)
    inner = HTTPAdapter(max_retries=retries)
    with pytest.warns(UserWarning, match="was set to 0") as caught:
        retrying(session, inner=inner)
    assert [warning.filename for warning in caught] == [__file__]
    assert (inner.max_retries.total, inner.max_retries.status_forcelist) == (0, set())
    assert session.get(server.url + "/thing").status_code == 503
    assert len(server.requests()) == 4


def test_mount_wraps_what_is_mounted(session):
    mine = HTTPAdapter()
    session.mount("http://a.example", mine)
    session.mount("http://b.example", mine)
    before = dict(session.adapters)
    assert mount(session, NOW) is session
    wrapped = session.adapters
    assert list(wrapped) == list(before)
    assert wrapped["http://a.example"] is wrapped["http://b.example"]
    for key, each in wrapped.items():
        assert isinstance(each, RetryAdapter)
        assert each.inner is before[key]
    assert len({id(each.port.settings.limits.listed[-1].shared) for each in wrapped.values()}) == 1


def test_a_session_survives_pickling(server, session):
    server.script("/thing", 503, 503, 200)
    shared = {"gate": RetryGate(max_held=3), "budget": RetryBudget()}
    options = {"idempotency": IdempotencyKeys(), "name": "mine", "pool_block": True, **shared}
    adapter = RetryAdapter(NOW.replace(max_attempts=3), **options)
    session.mount("http://", adapter)
    twin = pickle.loads(pickle.dumps(session))
    copied = twin.adapters["http://"]
    ours, theirs = adapter.port.settings.limits, copied.port.settings.limits
    assert type(copied) is RetryAdapter
    assert theirs.listed[-1].shared is not ours.listed[-1].shared
    assert theirs.gate is not ours.gate
    assert (theirs.gate.max_held, copied._pool_block) == (3, True)
    assert twin.post(server.url + "/thing", data=b"x").status_code == 200
    (key,) = {arrival.key for arrival in server.requests()}
    assert key
    twin.close()


HERE = {"Location": "/here"}
UNREADABLE = {
    "gzip": {"lines": {**HERE, "Content-Encoding": "gzip"}},
    "length": {"cut": 3, "lines": HERE},
    "chunks": {"cut": 3, "chunked": True, "lines": HERE},
}


@pytest.mark.parametrize("inside", [False, True], ids=["adapter", "mounted"])
@pytest.mark.parametrize("broken", UNREADABLE.values(), ids=UNREADABLE)
def test_a_redirect_is_followed_whatever_its_body(session, broken, inside):
    mount(session, NOW) if inside else retrying(session)
    with Origin(b"no gzip", [Answer(status=302, **broken), Answer()] * 4) as origin:
        for bounds in (contextlib.nullcontext(), forbear.deadline(30)):
            for method in ("GET", "POST"):
                with bounds:
                    assert session.request(method, origin.url + "/broken").status_code == 200
        paths = [head.split(b" ")[1] for head in origin.requests]
    assert paths == [b"/broken", b"/here"] * 4


def test_a_url_that_has_no_origin_is_the_librarys_own_error():
    request = requests.Request("GET", "http://a.example").prepare()
    request.url = "http://a.example:99999/"
    with pytest.raises((requests.RequestException, ValueError)):
        RetryAdapter().send(request)


@pytest.mark.parametrize("timeout", ["3s", (3, "s"), (1, 2, 3), [1, 2]])
@pytest.mark.parametrize("limit", ["attempt_timeout", "total_timeout"])
def test_a_timeout_that_is_none_is_told_in_the_librarys_words(session, timeout, limit):
    mount(session, RetryPolicy(**{limit: 5.0}))
    with pytest.raises(ValueError, match=r"Timeout value \w+ was .*, but it must be an int, float"):
        session.get("http://127.0.0.1:9/", timeout=timeout)


def test_a_session_takes_the_cookies_of_a_response_whose_body_is_bounded(server, session):
    """Where a body is read within a deadline, the response is one of ours."""
    lines = "header=Set-Cookie:a=1;header=Set-Cookie:b=2"
    server.script("/thing", f"200;body=300000;{lines}")
    with forbear.deadline(60):
        response = retrying(session).get(server.url + "/thing", stream=True)
        assert type(response.raw).__name__ == "Replaced"
    assert dict(response.cookies) == dict(session.cookies) == {"a": "1", "b": "2"}
    assert len(response.content) == 300_000


@pytest.mark.parametrize("raw", [None, io.BytesIO(b"")], ids=["none", "file"])
def test_on_exhausted_raises_where_an_adapter_makes_its_own_responses(session, raw):
    """As those of a mock or of a cache, which have read the body."""

    class Own(BaseAdapter):
        def send(self, request, **given):
            response = requests.Response()
            response.status_code, response.request, response.raw = 503, request, raw
            response._content, response._content_consumed = b"busy", True
            return response

        def close(self):
            pass

    retrying(session, NOW.replace(on_exhausted="raise"), inner=Own())
    with pytest.raises(requests.HTTPError) as caught:
        session.get("http://a.example")
    assert caught.value.response.content == b"busy"
    assert len(forbear.record_of(caught.value).attempts) == 4
    assert str(caught.value) == "503 after 4 attempts"
    with forbear.override(max_attempts=1):
        with pytest.raises(requests.HTTPError, match=r"503 after 1 attempt\b"):
            session.get("http://a.example")
