"""wrap and unwrap: a built client retries, and keeps everything it was built with."""

from importlib import import_module

import httpx
import httpx2
import pytest

import forbear
from forbear import Fixed, IdempotencyKeys, RetryPolicy, record_of
from forbear.testing import FaultServer

from ..lanes import URL

pytestmark = pytest.mark.adapters("httpx-family")

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0))


@pytest.mark.smoke
async def test_a_wrapped_client_is_the_same_client_and_retries(adapter, server, quick):
    server.script("/thing", "503", "reset", 200)
    client = adapter.bare_client(base_url=server.url, headers={"X-Mine": "1"})
    assert adapter.forbear.wrap(client, NOW, **quick) is client
    response = await adapter.call(client, "GET", "/thing")
    await adapter.close(client)
    assert response.status_code == 200
    assert [dict(each.headers)["X-Mine"] for each in server.requests()] == ["1"] * 3


@pytest.mark.smoke
async def test_unwrap_undoes_it(adapter, server, quick):
    server.script("/thing", 503)
    mounts = {"all://other.example.com": adapter.inner(), "all://direct.example.com": None}
    client = adapter.bare_client(mounts=mounts)
    before = client._transport, dict(client._mounts)
    adapter.forbear.wrap(client, NOW, **quick)
    assert adapter.forbear.unwrap(client) is client
    with pytest.raises(ValueError, match=r"wrap\(client\)"):
        adapter.forbear.unwrap(client)
    assert (client._transport, dict(client._mounts)) == before
    await adapter.call(client, "GET", server.url + "/thing")
    assert len(server.requests()) == 1
    adapter.forbear.wrap(client, NOW, **quick)  # and it can be wrapped anew
    await adapter.call(client, "GET", server.url + "/thing")
    await adapter.close(client)
    assert len(server.requests()) == 5


def without_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def test_a_proxy_of_the_environment_is_kept(adapter, server, quick, monkeypatch):
    without_proxies(monkeypatch)
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server.script("/thing", "503", 200)
    server.script("/direct", "503", 200)
    client = adapter.bare_client(trust_env=True)
    assert None in client._mounts.values()
    adapter.forbear.wrap(client, NOW, **quick)
    assert None in client._mounts.values()
    await adapter.call(client, "GET", "http://behind.example.com/thing")
    await adapter.call(client, "GET", server.url + "/direct")
    await adapter.close(client)
    hosts = [dict(each.headers)["Host"] for each in server.requests()]
    assert hosts == ["behind.example.com"] * 2 + [server.url.removeprefix("http://")] * 2


@pytest.mark.parametrize("how", ["wrapped", "transport", "mount"])
async def test_wrapping_twice_is_refused(adapter, quick, how):
    ours = adapter.transport([200])
    settings = {"transport": {"transport": ours}, "mount": {"mounts": {"all://a.example": ours}}}
    client = adapter.bare_client(**settings.get(how, {}))
    if how == "wrapped":
        adapter.forbear.wrap(client, **quick)
    with pytest.raises(ValueError, match=r"unwrap\(client\)"):
        adapter.forbear.wrap(client)
    await adapter.close(client)


async def test_a_certificate_that_is_refused_says_whose_verify_holds(adapter, context_of):
    with FaultServer(tls=context_of()) as server:
        for given, is_told in (({}, True), ({"inner": adapter.inner_class()}, False)):
            client = adapter.bare_client(transport=adapter.transport_class(**given))
            with pytest.raises(adapter.connect_error) as caught:
                await adapter.call(client, "GET", server.url)
            await adapter.close(client)
            notes = "\n".join(caught.value.__notes__)
            assert (f"use forbear.{adapter.name}.wrap(client)" in notes) is is_told
    assert server.requests() == []


@pytest.mark.slow
@pytest.mark.adapters("sync")
@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI"])
async def test_an_sdk_object_is_refused_with_what_it_is(adapter, name):
    sdk = getattr(import_module("openai"), name)(api_key="k")
    for function in (adapter.forbear.wrap, adapter.forbear.unwrap):
        with pytest.raises(TypeError, match=rf"httpx\.Client or AsyncClient, got <openai\.{name} "):
            function(sdk)


async def test_what_is_no_inner_transport_is_refused_at_construction(adapter):
    other, name = (httpx2, "httpx2") if adapter.name == "httpx" else (httpx, "httpx")
    prefix, right = ("", "RetryTransport") if adapter.is_async else ("Async", "AsyncRetryTransport")
    theirs = getattr(other, adapter.inner_class.__name__)(verify=False)
    of_other_flavour = getattr(adapter.library, f"{prefix}HTTPTransport")(verify=False)
    client = adapter.bare_client()
    for inner, says in (
        (theirs, rf"forbear\.{name}\."),
        (of_other_flavour, rf"use forbear\.{adapter.name}\.{right}$"),
        (client, r"wrap\(client\)"),
    ):
        with pytest.raises(TypeError, match=says):
            adapter.transport(inner)
    await adapter.close(client)


async def test_the_librarys_own_retries_are_switched_off_with_one_warning(adapter):
    says = rf"{adapter.inner_class.__name__}\(retries=3\).*retries=0"
    inner = adapter.inner(retries=3)
    with pytest.warns(UserWarning, match=says) as caught:
        adapter.transport(inner)
    (warning,) = caught
    assert warning.filename.endswith("lanes/httpx.py")  # where the transport was made
    assert inner._pool._retries == 0

    inner = adapter.inner(retries=3)
    client = adapter.bare_client(transport=inner, mounts={"all://a.example.com": inner})
    with pytest.warns(UserWarning, match="retries=3") as caught:
        adapter.forbear.wrap(client)
    assert (len(caught), inner._pool._retries) == (1, 0)
    adapter.forbear.unwrap(client)
    assert inner._pool._retries == 3
    await adapter.close(client)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "all_proxy"])
async def test_a_proxy_that_would_be_lost_is_warned_of(adapter, monkeypatch, name):
    without_proxies(monkeypatch)
    monkeypatch.setenv(name, "http://secret:word@proxy.example.com")
    with pytest.warns(UserWarning, match=rf"{name}.*forbear\.{adapter.name}\.wrap") as caught:
        transport = adapter.transport_class()
    await adapter.close(transport)
    assert len(caught) == 1
    assert "secret" not in str(caught[0].message)


@pytest.mark.smoke
async def test_order_of_precedence(adapter, quick):
    policy = NOW.replace(max_attempts=2)
    async with adapter.client([503], policy=policy, budget=None, **quick) as client:

        async def attempts(setting=None):
            extensions = {} if setting is None else {"forbear": setting}
            record = record_of(await adapter.call(client, "GET", URL, extensions=extensions))
            return None if record is None else len(record.attempts)

        assert await attempts() == 2
        with forbear.override(max_attempts=3):
            assert await attempts() == 3
            assert await attempts({"max_attempts": 5}) == 5
            assert await attempts({"hint_spread": 0.0}) == 3
            with forbear.override(statuses=set()):
                assert await attempts() == 1
            with forbear.override(max_attempts=6):
                assert await attempts() == 6
            assert await attempts(False) is None  # off: no story is kept
            assert await attempts() == 3
        assert await attempts() == 2


@pytest.mark.smoke
async def test_off_forwards_the_request_as_it_is(adapter, quick):
    inner = adapter.watched([503, "connect_error"])
    options = {"idempotency": IdempotencyKeys(), "contact": "ops@example.com"}
    transport = adapter.transport(inner, **options, **quick)
    request = adapter.library.Request("POST", URL, content=b"x", extensions={"forbear": False})
    response = await adapter.send(transport, request)
    assert inner.requests[0] is request
    assert response.extensions.get("forbear") is None
    with pytest.raises(adapter.connect_error) as caught:
        await adapter.send(transport, request)
    assert getattr(caught.value, "__notes__", []) == []


async def test_a_client_shows_whether_all_its_requests_are_retried(adapter, quick):
    is_wrapped = adapter.forbear.is_wrapped
    mounts = {"all://a.example.com": adapter.inner(), "all://direct.example.com": None}
    client = adapter.bare_client(mounts=mounts)
    assert not is_wrapped(client)
    assert is_wrapped(adapter.forbear.wrap(client, **quick))
    assert not is_wrapped(adapter.forbear.unwrap(client))
    await adapter.close(client)
    for settings, expected in (({}, True), ({"proxy": "http://proxy.example.com"}, False)):
        client = adapter.bare_client(transport=adapter.transport([200]), **settings)
        assert is_wrapped(client) is expected
        await adapter.close(client)
