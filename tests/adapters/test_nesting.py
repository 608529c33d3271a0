"""An SDK above that retries too is logged once, with the switch that turns its retries off."""

import logging

import pytest

from forbear import Fixed, RetryPolicy
from forbear.engine.outer import outer_loop

NOW = RetryPolicy(backoff=Fixed(0), max_attempts=2)


@pytest.mark.parametrize(
    ("name", "value", "noticed"),
    [
        ("x-stainless-retry-count", "0", False),
        (b"x-stainless-retry-count", b"2", True),
        ("amz-sdk-request", "attempt=2; max=3", True),
        ("amz-sdk-request", "ttl=20260101T000000Z; attempt=3; max=3", True),
        ("x-stainless-retry-count", "often", False),
        ("x-envoy-attempt-count", "2", False),  # above this process: the middleware's to look at
        ("retry-attempt", "2", False),
    ],
)
def test_the_headers_that_tell(name, value, noticed):
    """A first attempt of theirs says nothing."""
    assert (outer_loop([(name, value)]) is not None) is noticed


@pytest.mark.anyio
async def test_logged_once_per_client(adapter, quick, caplog):
    """However many calls give up; another client tells of it again."""
    for number, (name, value, switch) in enumerate(
        (
            ("x-stainless-retry-count", "1", "max_retries=0"),
            ("amz-sdk-request", "attempt=2; max=3", "total_max_attempts"),
        ),
        start=1,
    ):
        async with adapter.client([503], policy=NOW, name=switch, **quick) as client:
            for _ in range(3):
                headers = {name: value}
                await adapter.call(client, "GET", "http://api.example.com/", headers=headers)
        logged = [
            entry
            for entry in caplog.records
            if getattr(entry, "forbear.event", "") == "nested_retry"
        ]
        assert len(logged) == number
        assert switch in logged[-1].getMessage()
        assert logged[-1].levelno == logging.WARNING


@pytest.mark.anyio
async def test_what_multiplies_nothing_is_not_told(adapter, quick, caplog):
    """max_attempts=1: the SDK's loop is the only one; nor were attempts wasted that saved it."""
    headers = {"x-stainless-retry-count": "1"}
    for attempts, steps in ((1, [503]), (2, [503, 200])):
        policy = NOW.replace(max_attempts=attempts)
        async with adapter.client(steps, policy=policy, **quick) as client:
            response = await adapter.call(client, "GET", "http://api.example.com/", headers=headers)
        assert response.status_code == steps[-1]
    assert "SDK" not in caplog.text
