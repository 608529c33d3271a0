"""Messages: a call that is written wrong is answered with the code to write."""

import re

import httpx
import httpx2
import httpx_retries
import pytest
import requests

import forbear
from forbear import RetryPolicy

FAMILY = [(httpx, forbear.httpx), (httpx2, forbear.httpx2)]
family = pytest.mark.parametrize(("library", "ours"), FAMILY, ids=["httpx", "httpx2"])
THREE = RetryPolicy(max_attempts=3)


def everywhere():
    for library, ours in FAMILY:
        yield ours.RetryTransport
        yield ours.AsyncRetryTransport
        yield lambda library=library, ours=ours, **options: ours.wrap(library.Client(), **options)
    yield forbear.requests.RetryAdapter
    yield lambda **options: forbear.requests.mount(requests.Session(), **options)
    yield forbear.urllib3.RetryPoolManager
    yield lambda **options: forbear.urllib3.RetryProxyManager(proxy_url="http://p", **options)
    yield forbear.urllib3.Retry


def refusal(take, *arguments, **options):
    with pytest.raises(TypeError) as caught:
        take(*arguments, **options)
    return str(caught.value)


def test_a_field_of_the_policy_given_as_an_option_is_told_to_be_in_a_policy():
    for take in everywhere():
        told = refusal(take, max_attempts=3, statuses={503})
        assert told.endswith("write policy=RetryPolicy(max_attempts=3, statuses={503})")
        told = refusal(take, status_forcelist=[503], total=2)
        assert "write policy=RetryPolicy(max_attempts=3, statuses=[503]) (" in told
        assert "write policy=RetryPolicy(max_attempts=3)" in refusal(take, max_attemps=3)
        assert "policy=RetryPolicy(max_attempts=…)" in refusal(take, policy=RetryPolicy)


@family
def test_a_policy_in_place_of_the_inner_transport_is_told_to_be_the_policy(library, ours):
    for cls in (ours.RetryTransport, ours.AsyncRetryTransport):
        told = refusal(cls, THREE)
        assert told.endswith(f": write {cls.__name__}(policy=RetryPolicy(max_attempts=3))")


NEAR = [  # what a newcomer types, and the names that are right
    ("forbear.wrap", "forbear.httpx.wrap", "forbear.requests.mount"),
    ("forbear.mount", "forbear.requests.mount", "forbear.aiohttp.wrap"),
    ("forbear.RetryTransport", "forbear.httpx.wrap", "forbear.urllib3.RetryPoolManager"),
    ("forbear.Retry", "forbear.RetryPolicy"),
    ("forbear.httpx.mount", "forbear.httpx.wrap"),
    ("forbear.httpx2.RetryMiddleware", "forbear.httpx2.wrap"),
    ("forbear.httpx.Retry", "forbear.RetryPolicy"),
    ("forbear.requests.wrap", "forbear.requests.mount"),
    ("forbear.aiohttp.mount", "forbear.aiohttp.wrap"),
    ("forbear.urllib3.mount", "forbear.urllib3.RetryPoolManager"),
    *((f"forbear.{name}", f"forbear.strategies.{name}") for name in forbear.strategies.__all__),
]


@pytest.mark.parametrize(("typed", "right"), [(one[0], one[1:]) for one in NEAR], ids=str)
def test_a_near_name_of_a_module_is_told_the_right_one(typed, right):
    module, _, name = typed.rpartition(".")
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute") as missing:
        eval(typed)
    with pytest.raises(ImportError, match=f"cannot import name '{name}' from '{module}'") as caught:
        exec(f"from {module} import {name}")
    for told in (str(missing.value), str(caught.value)):
        assert all(code in told for code in right), told
        named = re.findall(r"\bforbear(?:\.\w+)*", told.partition(": ")[2])
        assert named
        assert [eval(one) for one in named]  # each of them is there
    assert not hasattr(eval(module), name)
    with pytest.raises(AttributeError, match=r"has no attribute 'zzz'$"):
        eval(f"{module}.zzz")


def test_override_takes_fields_by_name():
    assert refusal(forbear.override, False).endswith("override(max_attempts=1) to send once")
    assert "write override(max_attempts=1)" in refusal(forbear.override, THREE)


@pytest.mark.adapters("httpx-family")
async def test_a_retry_of_httpx_retries_on_a_request_is_answered_once(adapter, quick):
    says = r'write extensions=\{"forbear": RetryPolicy\.from_httpx_retries\(Retry\(…\)\)\}'
    url, theirs = "http://a.example/", {"retry": httpx_retries.Retry(total=0)}
    async with adapter.client([503, 200] * 2, **quick) as client:
        with pytest.warns(UserWarning, match=says) as caught:
            [await adapter.call(client, "GET", url, extensions=theirs) for _ in range(2)]
    assert len(caught) == 1
    await adapter.once([503, 200], url=url, request={"extensions": {"retry": "mine"}}, **quick)


@family
def test_a_synchronous_client_with_an_asynchronous_transport_names_the_right_one(library, ours):
    says = re.escape(f"write {library.__name__}.Client(transport={ours.__name__}.RetryTransport())")
    for use in (lambda client: client.get("http://a.example/"), lambda client: client.__enter__()):
        with pytest.raises(AttributeError, match=says):
            use(library.Client(transport=ours.AsyncRetryTransport()))
