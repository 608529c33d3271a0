"""Idempotency keys on the wire: rules K0 to K7, the cases of kind "lifecycle" included."""

import json
import re
from pathlib import Path

import pytest

from forbear import Fixed, IdempotencyKeys, Reason, RetryPolicy, record_of

CORPUS = json.loads((Path(__file__).parents[1] / "corpus" / "idempotency_keys.json").read_text())
LIFECYCLES = [case for case in CORPUS["cases"] if case["kind"] == "lifecycle"]
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
NOW = RetryPolicy(backoff=Fixed(0))
URL = "http://api.example.com/orders"


@pytest.mark.smoke
async def test_lifecycle_of_keys(adapter, server, quick):
    for case in LIFECYCLES:
        found, expected = [], case["expect"]
        for number, planned in enumerate(case["inputs"]["calls"]):
            path = f"/{case['id']}/{number}"
            server.script(path, *["503"] * (planned["attempts"] - 1), 200)
            options = {"idempotency": IdempotencyKeys()} if planned["generate"] else {}
            request = {"headers": planned["headers"], "content": planned["body"]}
            async with adapter.client(policy=NOW, budget=None, **options, **quick) as client:
                response = await adapter.call(
                    client, planned["method"], server.url + path, **request
                )
            assert response.status_code == 200
            arrivals = server.requests(path)
            assert len(arrivals) == planned["attempts"]
            for arrival in arrivals:
                assert sum(name.lower() == "idempotency-key" for name, _ in arrival.headers) <= 1
            found.append([arrival.key for arrival in arrivals])
        distinct = [{key for key in keys if key is not None} for keys in found]
        assert [len(keys) for keys in distinct] == expected["keys_per_call"], case["id"]
        assert len(set().union(*distinct)) == expected["distinct_keys"], case["id"]
        assert found == expected.get("wire", found), case["id"]


async def test_keys_are_generated_for_post_and_patch_only(adapter, quick):
    inner = adapter.watched([200])
    async with adapter.client(inner, idempotency=IdempotencyKeys(), **quick) as client:
        for method in ("POST", "PATCH", "GET", "PUT", "DELETE", "LOCK"):
            await adapter.call(client, method, URL)
    found = [adapter.header(request, "idempotency-key") for request in inner.requests]
    assert [len(keys) for keys in found] == [1, 1, 0, 0, 0, 0]
    assert all(UUID4.fullmatch(key) for keys in found for key in keys)


async def test_an_empty_key_is_replaced(adapter, quick):
    # requests refuses blanks.
    for given in ["", '""', *["  "] * ("blank-headers" in adapter.words)]:
        inner, keys = adapter.watched([503, 200]), IdempotencyKeys()
        async with adapter.client(inner, policy=NOW, idempotency=keys, **quick) as client:
            response = await adapter.call(client, "POST", URL, headers={"Idempotency-Key": given})
        assert response.status_code == 200
        first, second = (adapter.header(request, "idempotency-key") for request in inner.requests)
        assert first == second
        assert len(first) == 1
        assert UUID4.fullmatch(first[0])


FIRST_SENT = ("Repeatability-First-Sent", "Thu, 01 Jan 2026 00:00:00 GMT")
GIVEN = [
    *([("Idempotency-Key", "order-17")], [("idempotency-key", '"order-17"')]),
    *([("X-Idempotency-Key", "order-17")], [("PayPal-Request-Id", "order-17")]),
    [("Repeatability-Request-ID", "r-1"), FIRST_SENT],
]


@pytest.mark.parametrize(
    "options", [{"idempotency": IdempotencyKeys()}, {}], ids=["generating", "not"]
)
async def test_a_key_of_the_callers_is_used_untouched(adapter, quick, options):
    for given in GIVEN:
        inner = adapter.watched([503, 503, 200])
        async with adapter.client(inner, policy=NOW, **options, **quick) as client:
            response = await adapter.call(client, "POST", URL, headers=given)
        assert response.status_code == 200
        assert len(inner.requests) == 3
        for request in inner.requests:
            for name, value in given:
                assert adapter.header(request, name) == [value]
            keys = [name for name in adapter.header_names(request) if "idempotency" in name]
            assert len(keys) == sum("idempotency" in name.lower() for name, _ in given)


AMAZON = "[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}"


async def test_style_profile_and_header_of_generated_keys(adapter, quick):
    for options, name, pattern in (
        ({"style": "sf-string"}, "Idempotency-Key", f'"{UUID4.pattern}"'),
        ({"profile": "amazon-pay"}, "Idempotency-Key", AMAZON),
        ({"header": "X-Order-Token"}, "X-Order-Token", UUID4.pattern),
    ):
        inner, keys = adapter.watched([503, 200]), IdempotencyKeys(**options)
        response = await adapter.once(inner, "POST", URL, policy=NOW, idempotency=keys, **quick)
        assert response.status_code == 200
        first, second = (adapter.header(request, name) for request in inner.requests)
        assert first == second
        assert len(first) == 1
        assert re.fullmatch(pattern, first[0])


async def test_repeatable_requests_have_both_their_headers(adapter, quick):
    """OASIS Repeatable Requests 1.0: id and first sending are the same on all attempts."""
    inner = adapter.watched([(503, {"Retry-After": "30"}), 200])
    keys = IdempotencyKeys(header="Repeatability-Request-ID", profile="repeatability")
    response = await adapter.once(inner, "POST", URL, idempotency=keys, **quick)
    assert response.status_code == 200
    ids = [adapter.header(request, "repeatability-request-id") for request in inner.requests]
    assert ids[0] == ids[1]
    assert UUID4.fullmatch(ids[0][0])
    sent_at = [adapter.header(request, "repeatability-first-sent") for request in inner.requests]
    assert (
        sent_at == [["Thu, 01 Jan 2026 00:00:00 GMT"]] * 2
    )  # where the clock of these tests begins


async def test_a_further_header_can_be_recognised(adapter, quick):
    for names, sends in ((("X-Order-Key",), 2), ((), 1)):
        inner = adapter.watched([503, 200])
        keys = IdempotencyKeys(generate=False, recognise=names)
        async with adapter.client(inner, policy=NOW, idempotency=keys, **quick) as client:
            await adapter.call(client, "POST", URL, headers={"X-Order-Key": "17"})
        assert len(inner.requests) == sends
        assert adapter.header(inner.requests[0], "idempotency-key") == []


async def test_generated_keys_are_limited_to_origins(adapter, quick):
    inner = adapter.watched([200])
    keys = IdempotencyKeys(origins={"https://pay.example.com"})
    async with adapter.client(inner, idempotency=keys, **quick) as client:
        for there in ("https://pay.example.com", "http://pay.example.com", "https://pay.example.com:444"):  # fmt: skip
            await adapter.call(client, "POST", there + "/")
    found = [len(adapter.header(request, "idempotency-key")) for request in inner.requests]
    assert found == [1, 0, 0]


@pytest.mark.parametrize(
    ("took", "answer"), [(0.0, (503, {"Retry-After": "40"})), (31.0, 503)], ids=["wait", "attempt"]
)
async def test_a_key_is_not_used_after_its_lifetime(adapter, quick, took, answer):
    clock, keys = quick["clock"], IdempotencyKeys(lifetime=30)

    def first(request):
        clock.advance(took)
        return answer

    response = await adapter.once([first, 200], "POST", URL, idempotency=keys, **quick)
    assert response.status_code == 503
    assert record_of(response).reason is Reason.KEY_EXPIRED
    assert clock.sleeps == []


@pytest.mark.adapters("httpx-family")
async def test_a_generated_key_is_not_left_on_the_callers_request(adapter, quick):
    async with adapter.client(
        [503, 200], policy=NOW, idempotency=IdempotencyKeys(), **quick
    ) as client:
        request = client.build_request("POST", URL, content=b"A")
        before = list(request.headers.raw)
        response = await adapter.send_on(client, request)
    assert response.status_code == 200
    assert list(request.headers.raw) == before
    assert response.request is request
