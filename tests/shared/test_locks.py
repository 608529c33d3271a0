"""Locks of shared state: what another thread held at a fork does not stay locked in the child."""

from __future__ import annotations

from typing import Any

import pytest

from forbear import RetryBudget, TokenBucket
from forbear.shared.locks import _renew


@pytest.mark.parametrize("make", [RetryBudget, TokenBucket])
def test_every_lock_is_made_anew(make: Any) -> None:
    """What runs in a forked child; test_budget.py forks in earnest."""
    held, free = make(), make()
    lock = held._lock
    with lock:
        _renew()
        assert held._lock is not lock
        for shared in (held, free):
            assert shared._lock.acquire(blocking=False)
            shared._lock.release()
