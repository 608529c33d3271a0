"""Clients over an inner transport that answers by a script, whose waits no test waits for."""

from typing import Any

import httpx

from forbear import Fixed, RetryPolicy, record_of

from ..lanes import lane_of

URL = "http://api.example/"
PATIENT = RetryPolicy(max_attempts=4, backoff=Fixed(100.0))


def scripted(*steps: Any, **options: Any) -> httpx.Client:
    return lane_of("httpx-sync").build([*steps], {"policy": PATIENT, **options})


def ascripted(*steps: Any, **options: Any) -> httpx.AsyncClient:
    return lane_of("httpx-asyncio").build([*steps], {"policy": PATIENT, **options})


def attempts(client: httpx.Client) -> int:
    return len(record_of(client.get(URL)).attempts)
