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
            options["request"] = {"headers": planned["headers"], "content": planned["body"]}
            target = planned["method"], server.url + path
            response = await adapter.once(
                None, *target, policy=NOW, budget=None, **options, **quick
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


async def sent(adapter, quick, *steps, headers=(), **options):
    inner = adapter.watched([*steps, 200])
    options = {"policy": NOW, "request": {"headers": headers or None}, **options}
    response = await adapter.once(inner, "POST", URL, **options, **quick)
    assert response.status_code == 200
    return inner.requests


async def test_keys_are_generated_for_post_and_patch_only(adapter, quick):
    inner = adapter.watched([200])
    async with adapter.client(inner, idempotency=IdempotencyKeys(), **quick) as client:
        for method in ("POST", "PATCH", "GET", "PUT", "DELETE", "LOCK"):
            await adapter.call(client, method, URL)
    found = [adapter.header(request, "idempotency-key") for request in inner.requests]
    assert [len(keys) for keys in found] == [1, 1, 0, 0, 0, 0]
    assert all(UUID4.fullmatch(key) for keys in found for key in keys)


AMAZON = "[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}"
REPEATABLE = {"header": "Repeatability-Request-ID", "profile": "repeatability"}
STYLES = [
    # OASIS Repeatable Requests 1.0: id and first sending are the same on all attempts.
    (REPEATABLE, "Repeatability-Request-ID", UUID4.pattern),
    ({"style": "sf-string"}, "Idempotency-Key", f'"{UUID4.pattern}"'),
    ({"profile": "amazon-pay"}, "Idempotency-Key", AMAZON),
    ({"header": "X-Order-Token"}, "X-Order-Token", UUID4.pattern),
]


async def test_a_generated_key_is_the_same_on_all_attempts(adapter, quick):
    blanks = ["", '""', *["  "] * ("blank-headers" in adapter.words)]  # requests refuses blanks
    empty = [({}, "Idempotency-Key", UUID4.pattern, {"Idempotency-Key": one}) for one in blanks]
    began = "Thu, 01 Jan 2026 00:00:00 GMT"  # where the clock of these tests begins
    for options, name, pattern, *given in (*STYLES, *empty):
        keys = IdempotencyKeys(**options)
        busy = (503, {"Retry-After": "30"})
        named = {"headers": given[0] if given else (), "idempotency": keys}
        first, second = await sent(adapter, quick, busy, **named)
        (key,) = adapter.header(first, name)
        assert re.fullmatch(pattern, key)
        assert adapter.header(second, name) == [key]
        for request in (first, second):
            first_sent = adapter.header(request, "repeatability-first-sent")
            assert first_sent == [began] * (options is REPEATABLE)


FIRST_SENT = ("Repeatability-First-Sent", "Thu, 01 Jan 2026 00:00:00 GMT")
GIVEN = [
    *([("Idempotency-Key", "order-17")], [("idempotency-key", '"order-17"')]),
    *([("X-Idempotency-Key", "order-17")], [("PayPal-Request-Id", "order-17")]),
    [("Repeatability-Request-ID", "r-1"), FIRST_SENT],
]


@pytest.mark.parametrize("options", [{"idempotency": IdempotencyKeys()}, {}])
async def test_a_key_of_the_callers_is_used_untouched(adapter, quick, options):
    for given in GIVEN:
        requests = await sent(adapter, quick, 503, 503, headers=given, **options)
        assert len(requests) == 3
        for request in requests:
            for name, value in given:
                assert adapter.header(request, name) == [value]
            keys = [name for name in adapter.header_names(request) if "idempotency" in name]
            assert len(keys) == sum("idempotency" in name.lower() for name, _ in given)


async def test_a_further_header_can_be_recognised(adapter, quick):
    keys = IdempotencyKeys(generate=False, recognise=("X-Order-Key",))
    headers = {"X-Order-Key": "17"}
    first, _ = await sent(adapter, quick, 503, headers=headers, idempotency=keys)
    assert adapter.header(first, "idempotency-key") == []
    inner, keys = adapter.watched([503]), IdempotencyKeys(generate=False)
    await adapter.once(inner, "POST", request={"headers": headers}, idempotency=keys, **quick)
    assert len(inner.requests) == 1


async def test_generated_keys_are_limited_to_origins(adapter, quick):
    inner, keys = adapter.watched([200]), IdempotencyKeys(origins={"https://pay.example.com"})
    async with adapter.client(inner, idempotency=keys, **quick) as client:
        for origin in ("https://pay.example.com", "http://pay.example.com"):
            await adapter.call(client, "POST", origin + "/")
        await adapter.call(client, "POST", "https://pay.example.com:444/")
    found = [len(adapter.header(request, "idempotency-key")) for request in inner.requests]
    assert found == [1, 0, 0]


@pytest.mark.parametrize(("took", "answer"), [(0.0, (503, {"Retry-After": "40"})), (31.0, 503)])
async def test_a_key_is_not_used_after_its_lifetime(adapter, quick, took, answer):
    clock, keys = quick["clock"], IdempotencyKeys(lifetime=30)

    def first(request):
        clock.advance(took)
        return answer

    response = await adapter.once([first, 200], "POST", URL, idempotency=keys, **quick)
    assert (response.status_code, record_of(response).reason) == (503, Reason.KEY_EXPIRED)
    assert clock.sleeps == []


@pytest.mark.adapters("httpx-family")
async def test_a_generated_key_is_not_left_on_the_callers_request(adapter, quick):
    options = {"policy": NOW, "idempotency": IdempotencyKeys()}
    async with adapter.client([503, 200], **options, **quick) as client:
        request = client.build_request("POST", URL, content=b"A")
        before = list(request.headers.raw)
        response = await adapter.send_on(client, request)
    assert response.status_code == 200
    assert list(request.headers.raw) == before
    assert response.request is request
