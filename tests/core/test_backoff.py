"""Backoff: the schedules as Brooker's article and plain arithmetic give them."""

import os

import pytest

from forbear import Exponential

from ..processes import python


@pytest.mark.parametrize(("jitter", "drawn", "expected"), [
    # attempt 3 of base 0.5 × 2: d = 2 s
    ("full", 0.0, 0.0), ("full", 0.25, 0.5), ("full", 1.0, 2.0), ("equal", 0.0, 1.0),
    ("equal", 0.5, 1.5), ("equal", 1.0, 2.0), ("none", 0.7, 2.0), (0.2, 0.0, 1.6),
    (0.2, 0.5, 2.0), (0.2, 1.0, 2.4), (1.0, 0.0, 0.0), (0.0, 0.9, 2.0), (0, 0.9, 2.0),
    (1, 1.0, 4.0),
])  # fmt: skip
def test_jitter(jitter, drawn, expected):
    """Brooker, "Exponential Backoff And Jitter": full = [0, d], equal = d/2 + [0, d/2]."""
    backoff = Exponential(base=0.5, cap=30.0, jitter=jitter)
    assert backoff.delay(3, 0.0, lambda: drawn) == pytest.approx(expected)


def test_a_base_of_zero_means_no_wait_at_any_attempt() -> None:
    """0 × anything is 0, also where factor**n no longer fits a float."""
    for jitter in ["none", "full", "equal", "decorrelated", 0.2]:
        backoff = Exponential(base=0.0, cap=30.0, jitter=jitter)
        assert not any(backoff.delay(n, 0.0, lambda: 0.9) for n in [1, 2, 1_024, 1_026, 10_000])


FORKING = """
import os
from forbear import FailureKind, RetryPolicy
from forbear.strategies import Failure, Phase, StandardStrategy

RESET = Failure(FailureKind.RESET, Phase.SENT)

strategy = StandardStrategy(RetryPolicy(max_attempts=99))

def draws():
    token = strategy.acquire_initial_token("http://a:80", 0.0)
    for token.attempts in range(1, 7):
        yield strategy.refresh_token(token, RESET, 0.0, latest=1e9).delay

list(draws())  # the generator has been used before the fork, as in a preloaded web server
for _ in range(4):
    child = os.fork()
    if child == 0:
        os.write(1, (repr(list(draws())) + "\\n").encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_of_a_fork_draw_different_jitter() -> None:
    """Workers forked from one preloaded parent do not come back in step."""
    lines = python(FORKING).splitlines()
    assert len(lines) == len(set(lines)) == 4
