"""Messages: a call that is written wrong is answered with the code to write."""

import re

import anyio
import httpx
import httpx2
import pytest
import requests
import urllib3

import forbear
from forbear import (
    AwsStandard,
    CircuitBreaker,
    IdempotencyKeys,
    Origins,
    RetryBudget,
    RetryGate,
    RetryPolicy,
)
from forbear.testing import FakeClock

FAMILY = [(httpx, forbear.httpx), (httpx2, forbear.httpx2)]
family = pytest.mark.parametrize(("library", "ours"), FAMILY, ids=["httpx", "httpx2"])
THREE = RetryPolicy(max_attempts=3)


def everywhere():
    """Whatever takes options, as a function of them."""
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
        assert "write policy=RetryPolicy(statuses=[503], max_attempts=3) (" in told
        assert "write policy=RetryPolicy(max_attempts=3)" in refusal(take, max_attemps=3)
        assert "policy=RetryPolicy()" in refusal(take, policy=RetryPolicy)


@family
def test_a_policy_in_place_of_the_inner_transport_is_told_to_be_the_policy(library, ours):
    for cls in (ours.RetryTransport, ours.AsyncRetryTransport):
        told = refusal(cls, THREE)
        assert told.endswith(f": write {cls.__name__}(policy=RetryPolicy(max_attempts=3))")


def test_a_retry_in_place_of_the_policy_is_told_how_to_be_one():
    retry = urllib3.Retry(3)
    for take in (forbear.requests.RetryAdapter, forbear.urllib3.RetryPoolManager):
        assert refusal(take, retry).endswith(": write policy=RetryPolicy.from_urllib3(Retry(…))")
    told = refusal(forbear.requests.RetryAdapter, max_retries=retry)
    assert told.endswith("write policy=RetryPolicy.from_urllib3(Retry(…))")


OBJECTS = {
    "gate": (RetryGate, "RetryGate()"),
    "budget": (RetryBudget, "RetryBudget()"),
    "breaker": (CircuitBreaker, "CircuitBreaker()"),
    "origins": (Origins, "Origins(…)"),
    "strategy": (AwsStandard, "AwsStandard()"),
    "idempotency": (IdempotencyKeys, "IdempotencyKeys()"),
    "clock": (FakeClock, "FakeClock()"),
}


@pytest.mark.parametrize("option", OBJECTS)
def test_a_class_in_place_of_an_object_is_told_to_be_called(option):
    cls, code = OBJECTS[option]
    told = refusal(forbear.httpx.RetryTransport, **{option: cls})
    assert told == f"{option} was given the class {cls.__name__}: write {option}={code}"


@pytest.mark.parametrize("option", sorted(OBJECTS.keys() - {"clock"}))
def test_true_and_false_are_told_what_stands_for_on_and_off(option):
    on = refusal(forbear.httpx.RetryTransport, **{option: True})
    shown = {
        "origins": 'Origins(["https://a", "https://b"])',
        # Without origins it would give keys to servers that ignore them.
        "idempotency": 'IdempotencyKeys(origins=["https://api.example.com"])',
    }
    code = shown.get(option, OBJECTS[option][1])
    assert on.endswith(f": write {option}={code}")
    off = refusal(forbear.httpx.RetryTransport, **{option: False})
    assert off.endswith(f": write {option}=None")


def test_idempotency_of_another_kind_is_told_what_to_write():
    told = refusal(forbear.requests.RetryAdapter, idempotency="uuid4")
    assert told == "idempotency must be IdempotencyKeys(), or None, got 'uuid4'"


# --- transports of the other colour -----------------------------------------------------------


@family
def test_a_synchronous_client_with_an_asynchronous_transport_names_the_right_one(library, ours):
    says = re.escape(f"write {library.__name__}.Client(transport={ours.__name__}.RetryTransport())")
    client = library.Client(transport=ours.AsyncRetryTransport())
    with pytest.raises(AttributeError, match=says):
        client.get("http://a.example/")
    client = library.Client(transport=ours.AsyncRetryTransport())
    with pytest.raises(AttributeError, match=says), client:
        pass


@family
def test_an_asynchronous_client_with_a_synchronous_transport_names_the_right_one(library, ours):
    right = f"{library.__name__}.AsyncClient(transport={ours.__name__}.AsyncRetryTransport())"

    async def call():
        await library.AsyncClient(transport=ours.RetryTransport()).get("http://a.example/")

    async def enter():
        async with library.AsyncClient(transport=ours.RetryTransport()):
            pass

    for used in (call, enter):
        with pytest.raises(AttributeError, match=re.escape(f"write {right}")):
            anyio.run(used)


@family
def test_whoever_asks_for_the_colour_of_a_transport_sees_it(library, ours):
    """Instrumentation looks at methods and bases."""
    one, other = ours.RetryTransport(), ours.AsyncRetryTransport()
    assert (hasattr(one, "handle_request"), hasattr(one, "handle_async_request")) == (True, False)
    assert (hasattr(other, "handle_request"), hasattr(other, "handle_async_request")) == (
        False,
        True,
    )
    assert not isinstance(one, library.AsyncBaseTransport)
    assert not isinstance(other, library.BaseTransport)
    with pytest.raises(AttributeError, match=r"object has no attribute 'colour'$"):
        _ = one.colour


# --- clients that belong elsewhere ------------------------------------------------------------

CLIENTS = [
    (httpx.Client, r"use forbear\.httpx\.wrap\(client\)$"),
    (httpx2.AsyncClient, r"use forbear\.httpx2\.wrap\(client\)$"),
    (requests.Session, r"use forbear\.requests\.mount\(session\)$"),
    (urllib3.PoolManager, r"use forbear\.urllib3\.RetryPoolManager\(policy\)"),
    (lambda: THREE, r"write \w+\((client|session), RetryPolicy\(max_attempts=3\)\)$"),
]


@pytest.mark.parametrize(("make", "says"), CLIENTS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_client_of_another_library_and_a_policy_first_are_told_where_to_go(make, says):
    """Also if the policy is where the client should be."""
    given = make()
    for take, library in (
        (forbear.httpx.wrap, "httpx"),
        (forbear.httpx2.wrap, "httpx2"),
        (forbear.requests.mount, "requests"),
    ):
        if type(given).__module__.partition(".")[0] != library:
            with pytest.raises(TypeError, match=says):
                take(given, THREE)


def test_mount_says_what_becomes_of_the_retry_of_an_adapter():
    session = requests.Session()
    retries = urllib3.Retry(3, status_forcelist=[503])
    session.mount("https://", requests.adapters.HTTPAdapter(max_retries=retries))
    says = r"HTTPAdapter\(max_retries=3\).*RetryPolicy\.from_urllib3\("
    with pytest.warns(UserWarning, match=says):
        forbear.requests.mount(session)


def test_a_warning_names_the_callers_line():
    """Not one of forbear's own, which nobody can change."""
    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(max_retries=3))
    inner = httpx.HTTPTransport(retries=2)
    for make in (
        lambda: forbear.requests.mount(session),
        lambda: forbear.httpx.RetryTransport(httpx.HTTPTransport(retries=2)),
        lambda: forbear.httpx.wrap(httpx.Client(transport=inner)),
    ):
        with pytest.warns(UserWarning, match="attempts would multiply") as caught:
            make()
        assert caught[0].filename == __file__
