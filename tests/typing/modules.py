"""``import forbear`` alone makes its modules known to type checkers. Only type-checked, never run."""

from __future__ import annotations

from typing import assert_type

import httpx
import requests

import forbear

assert_type(forbear.httpx.wrap(httpx.Client()), httpx.Client)
assert_type(forbear.requests.mount(requests.Session()), requests.Session)
assert_type(forbear.testing.FakeClock().sleeps, list[float])
assert_type(forbear.idempotency.generate(), str)
print(forbear.httpx.rap)  # type: ignore[attr-defined]
