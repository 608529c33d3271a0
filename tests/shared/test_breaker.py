"""CircuitBreaker: the table of its states, what opens and closes it, and what threads, forks and
copies do to it.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from forbear import (
    CircuitBreaker,
    Failure,
    FailureKind,
    Fixed,
    Hint,
    Phase,
    Reason,
    RetryBudget,
    RetryPolicy,
    RetryRefused,
    StandardStrategy,
)
from forbear.core.request import Request
from forbear.shared import circuit
from forbear.shared.breaker import FADE, MOST_ORIGINS
from forbear.shared.circuit import LONGEST_HINT, TRANSITIONS, CircuitState, Transition

A, B = "http://a:80", "http://b:80"
CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
NOW = 1_000.0
RESET = Failure(FailureKind.RESET, Phase.SENT, error="ReadError")


def answer(status: int, delay: float | None = None, source: str = "retry-after") -> Failure:
    hint = Hint(delay, None, source if delay is not None else None)
    return Failure(FailureKind.STATUS, Phase.ANSWERED, status=status, hint=hint)


def a_breaker(consecutive: int | None = 2, **fields: Any) -> CircuitBreaker:
    return CircuitBreaker(consecutive, **{"open_for": 10.0, **fields})


def fail(
    breaker: CircuitBreaker, now: float = NOW, times: int = 1, origin: str = A, **fields: Any
) -> Transition | None:
    edge = None
    for _ in range(times):
        edge = breaker.record(origin, failed=True, **{"sent_at": now, "now": now, **fields})
    return edge


def succeed(
    breaker: CircuitBreaker, now: float = NOW, origin: str = A, **fields: Any
) -> Transition | None:
    return breaker.record(origin, failed=False, **{"sent_at": now, "now": now, **fields})


def opened(breaker: CircuitBreaker, now: float = NOW, origin: str = A) -> CircuitBreaker:
    while breaker.state(origin, now) is not OPEN:
        fail(breaker, now, origin=origin)
    return breaker


# --- the table --------------------------------------------------------------------------------


def test_the_table_in_words_is_the_table_that_runs() -> None:
    """Read off the docstring, row by row."""
    text = circuit.__doc__ or ""
    states = {"closed": CLOSED, "open": OPEN, "half-open": HALF_OPEN}
    rows = re.findall(
        r"^    (closed|open|half-open)\s+([A-Z_]+)\s+(closed|open|half-open)\s", text, re.M
    )
    assert {
        (states[before], circuit.Cause[cause]): states[after] for before, cause, after in rows
    } == TRANSITIONS


def test_a_whole_round() -> None:
    """closed → open after two failures → half-open after 10 s → closed by a probe; each edge told
    once.
    """
    breaker = a_breaker()
    assert fail(breaker) is None
    assert fail(breaker) == (A, CLOSED, OPEN, 2, None, 10.0)
    assert breaker.admit(A, NOW + 9.5) == (0, 0.5, None)
    permit, refused_for, edge = breaker.admit(A, NOW + 10)
    assert (permit > 0, refused_for) == (True, 0.0)
    assert edge == (A, OPEN, HALF_OPEN, 0, None, None)
    assert breaker.admit(A, NOW + 10)[1:] == (1.0, None)
    assert succeed(breaker, NOW + 10.1, permit=permit) == (A, HALF_OPEN, CLOSED, 0, None, None)
    assert breaker.quiet
    assert breaker.admit(A, NOW + 10.2) == (0, 0.0, None)


def test_defaults() -> None:
    breaker = CircuitBreaker()
    assert (breaker.consecutive_failures, breaker.failure_rate) == (5, None)
    assert (breaker.open_for, breaker.max_open_for, breaker.probes, breaker.successes_to_close) == (
        30,
        300,
        1,
        1,
    )
    assert fail(breaker, times=4) is None
    assert fail(breaker) == (A, CLOSED, OPEN, 5, None, 30.0)


def test_each_origin_has_a_circuit_of_its_own() -> None:
    breaker = opened(a_breaker())
    assert breaker.admit(A, NOW).refused_for == 10
    assert breaker.admit(B, NOW).refused_for == 0
    assert (breaker.state(A, NOW), breaker.state(B, NOW)) == (OPEN, CLOSED)


def test_a_success_in_between_starts_the_count_again() -> None:
    breaker = a_breaker(3)
    fail(breaker, times=2)
    succeed(breaker)
    assert breaker.quiet
    assert fail(breaker, times=2) is None
    assert fail(breaker) is not None


# --- while open -------------------------------------------------------------------------------


def test_it_is_open_for_longer_each_time_a_probe_fails_up_to_the_cap() -> None:
    """10, 20, 40, then the cap of 50; and 10 again after it was closed."""
    breaker = opened(a_breaker(max_open_for=50.0))
    now, waits = NOW, []
    for _ in range(5):
        waits.append(breaker.refused_for(A, now))
        now += waits[-1]
        fail(breaker, now, permit=breaker.admit(A, now).permit)
    assert waits == [10, 20, 40, 50, 50]
    now += breaker.refused_for(A, now)
    succeed(breaker, now, permit=breaker.admit(A, now).permit)
    assert breaker.state(A, now) is CLOSED
    assert opened(breaker, now).refused_for(A, now) == 10


def test_it_is_open_for_at_least_as_long_as_the_server_asked() -> None:
    """25 s by the first of two failures, 10 by the breaker."""
    breaker = a_breaker()
    fail(breaker, hint=25.0)
    assert fail(breaker, NOW + 1) == (A, CLOSED, OPEN, 2, None, 24.0)
    assert breaker.refused_for(A, NOW + 5) == 20


def test_a_hint_that_comes_while_it_is_open_lengthens_it() -> None:
    breaker = opened(a_breaker())
    assert fail(breaker, NOW + 5, hint=60.0) is None
    assert breaker.refused_for(A, NOW + 5) == 60
    fail(breaker, NOW + 6, hint=1.0)  # and never shortens it
    assert breaker.refused_for(A, NOW + 5) == 60


def test_a_hint_before_a_success_is_forgotten() -> None:
    breaker = a_breaker()
    fail(breaker, hint=500.0)
    succeed(breaker)
    assert opened(breaker).refused_for(A, NOW) == 10


def test_no_server_can_switch_itself_off_for_ever() -> None:
    breaker = a_breaker(1)
    fail(breaker, hint=2_147_483_648.0)
    assert breaker.refused_for(A, NOW) == LONGEST_HINT


def test_what_was_sent_before_the_last_transition_counts_no_more() -> None:
    """Slow timeouts of the outage arrive after the circuit has closed: they must not open it
    again.
    """
    breaker = opened(a_breaker())
    succeed(breaker, NOW + 10, permit=breaker.admit(A, NOW + 10).permit)
    assert fail(breaker, NOW + 11, times=5, sent_at=NOW + 9) is None
    assert breaker.quiet
    fail(breaker, NOW + 11)
    succeed(breaker, NOW + 11, sent_at=NOW + 9)
    assert fail(breaker, NOW + 11) is not None


# --- half-open --------------------------------------------------------------------------------


def test_at_most_so_many_probes_at_once() -> None:
    breaker = opened(a_breaker(probes=3))
    admissions = [breaker.admit(A, NOW + 10) for _ in range(6)]
    assert [bool(permit) for permit, _, _ in admissions] == [True] * 3 + [False] * 3
    assert [refused_for for _, refused_for, _ in admissions] == [0, 0, 0, 1, 1, 1]
    breaker.release(A, admissions[0].permit)
    assert breaker.admit(A, NOW + 10).permit


def test_so_many_probes_must_succeed() -> None:
    breaker = opened(a_breaker(successes_to_close=3))
    for left in (2, 1, 0):
        permit = breaker.admit(A, NOW + 10).permit
        assert (succeed(breaker, NOW + 10, permit=permit) is not None) == (left == 0)


def test_one_probe_that_fails_opens_it_whatever_others_did() -> None:
    breaker = opened(a_breaker(probes=3, successes_to_close=3))
    first, second, third = [breaker.admit(A, NOW + 10).permit for _ in range(3)]
    succeed(breaker, NOW + 10, permit=first)
    assert fail(breaker, NOW + 11, permit=second) == (A, HALF_OPEN, OPEN, 0, None, 20.0)
    assert succeed(breaker, NOW + 11, permit=third) is None
    assert breaker.refused_for(A, NOW + 11) == 20


def test_a_permit_of_an_earlier_generation_holds_and_says_nothing() -> None:
    breaker = opened(a_breaker(probes=2))
    old, failing = [breaker.admit(A, NOW + 10).permit for _ in range(2)]
    fail(breaker, NOW + 10, permit=failing)
    new = [breaker.admit(A, NOW + 30).permit for _ in range(2)]
    assert all(new)
    assert succeed(breaker, NOW + 30, permit=old) is None
    assert fail(breaker, NOW + 30, permit=old) is None
    breaker.release(A, old)
    assert breaker.admit(A, NOW + 30).refused_for > 0
    assert breaker.state(A, NOW + 30) is HALF_OPEN


def test_a_forgotten_probe_gives_way() -> None:
    """Its holder is gone: after probe_timeout another one is let through, and what the first says
    is void.
    """
    breaker = opened(a_breaker(probe_timeout=5.0))
    lost = breaker.admit(A, NOW + 10).permit
    assert breaker.admit(A, NOW + 14).refused_for == 1
    assert breaker.refused_for(A, NOW + 14.75) == 0.25
    found = breaker.admit(A, NOW + 15).permit
    assert found
    assert fail(breaker, NOW + 16, permit=lost) is None
    assert succeed(breaker, NOW + 16, permit=found) is not None


def test_a_permit_comes_back_once() -> None:
    breaker = opened(a_breaker())
    permit = breaker.admit(A, NOW + 10).permit
    breaker.release(A, permit)
    second = breaker.admit(A, NOW + 10).permit
    breaker.release(A, permit)
    assert breaker.admit(A, NOW + 10).refused_for > 0
    breaker.release(A, second)
    breaker.release(B, second)
    assert breaker.admit(A, NOW + 10).permit


@pytest.mark.parametrize("probes", [1, 4])
def test_sixty_four_threads_half_open(probes: int) -> None:
    """Never more than ``probes`` in flight, whatever becomes of them."""
    breaker = opened(a_breaker(probes=probes, successes_to_close=10_000, probe_timeout=1e9))
    in_flight, most, sent, lock = 0, 0, 0, threading.Lock()
    start = threading.Barrier(64)

    def call(number: int) -> None:
        nonlocal in_flight, most, sent
        start.wait()
        for _ in range(200):
            permit = breaker.admit(A, NOW + 10).permit
            if permit:
                with lock:
                    in_flight += 1
                    sent += 1
                    most = max(most, in_flight)
                with lock:
                    in_flight -= 1
                if number % 2:
                    breaker.release(A, permit)
                else:
                    succeed(breaker, NOW + 10, permit=permit)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < most <= probes
    assert sent >= probes
    assert breaker.admit(A, NOW + 10).permit  # none is lost


# --- the rate ---------------------------------------------------------------------------------


def a_rate(**fields: Any) -> CircuitBreaker:
    return a_breaker(None, **{"failure_rate": 0.5, "window": 10.0, "minimum_calls": 4, **fields})


def test_half_of_the_calls_in_the_window() -> None:
    """1 of 1, 1 of 2, 1 of 3, 2 of 4 = 0.5: the fourth call opens it, and not before."""
    breaker = a_rate()
    fail(breaker)
    succeed(breaker)
    succeed(breaker)
    assert fail(breaker) == (A, CLOSED, OPEN, 0, 0.5, 10.0)


def test_below_the_minimum_of_calls_the_rate_says_nothing() -> None:
    breaker = a_rate(minimum_calls=10)
    assert fail(breaker, times=9) is None
    assert fail(breaker) == (A, CLOSED, OPEN, 0, 1.0, 10.0)


def test_the_window_opens_with_a_failure() -> None:
    """A success before it is not counted: 3 of 4, not 3 of 7."""
    breaker = a_rate(failure_rate=0.75)
    for _ in range(3):
        succeed(breaker)
    assert breaker.quiet
    fail(breaker)
    assert not breaker.quiet
    succeed(breaker)
    fail(breaker)
    assert fail(breaker) == (A, CLOSED, OPEN, 0, 0.75, 10.0)


def test_the_window_slides() -> None:
    """Three failures in a second; ten seconds later they are out, and one more is 1 of 1."""
    breaker = a_rate(minimum_calls=1, failure_rate=1.0)
    succeed_first = a_rate(minimum_calls=4, failure_rate=0.5)
    fail(succeed_first, times=3)
    assert fail(succeed_first, NOW + 10.0) is None  # 1 of 1, below the minimum
    assert fail(breaker) is not None


def test_the_window_closes_when_its_last_failure_has_left() -> None:
    breaker = a_rate()
    fail(breaker, NOW)
    for second in range(9):
        succeed(breaker, NOW + second)
        assert not breaker.quiet
    succeed(breaker, NOW + 10)
    assert breaker.quiet


def test_both_rules_at_once() -> None:
    breaker = a_breaker(3, failure_rate=0.5, minimum_calls=100)
    assert fail(breaker, times=2) is None
    assert fail(breaker) == (A, CLOSED, OPEN, 3, None, 10.0)


def test_a_late_thread_counts_in_the_newest_slice() -> None:
    """It read the clock before it got the lock."""
    breaker = a_rate()
    fail(breaker, NOW + 5)
    fail(breaker, NOW + 4)
    fail(breaker, NOW + 5)
    assert fail(breaker, NOW + 5) is not None


# --- observe ----------------------------------------------------------------------------------


def test_observing_refuses_nothing_and_tells_everything() -> None:
    breaker = opened(a_breaker(mode="observe"))
    assert breaker.state(A, NOW) is OPEN
    assert breaker.admit(A, NOW) == (0, 0.0, None)
    assert breaker.refused_for(A, NOW) == 0
    permit, _, edge = breaker.admit(A, NOW + 10)
    assert edge == (A, OPEN, HALF_OPEN, 0, None, None)
    assert breaker.admit(A, NOW + 10) == (0, 0.0, None)
    assert fail(breaker, NOW + 10) is None  # it would not have been sent
    assert succeed(breaker, NOW + 10, permit=permit) == (A, HALF_OPEN, CLOSED, 0, None, None)


# --- what is kept -----------------------------------------------------------------------------


def test_quiet_while_every_origin_is_well() -> None:
    breaker = a_breaker()
    assert breaker.quiet
    fail(breaker)
    fail(breaker, origin=B)
    assert not breaker.quiet
    succeed(breaker)
    assert not breaker.quiet
    succeed(breaker, origin=B)
    assert breaker.quiet


class Watcher:
    def __init__(self) -> None:
        self.told = 0

    def adjust(self) -> None:
        self.told += 1


def test_who_watches_is_told_of_the_edges_of_quiet_only() -> None:
    breaker, watcher = a_breaker(), Watcher()
    breaker.watch(watcher)
    breaker.watch(Watcher())  # gone at once: it is held weakly
    succeed(breaker)
    assert watcher.told == 0
    fail(breaker)
    fail(breaker, origin=B)
    assert watcher.told == 1
    succeed(breaker)
    succeed(breaker, origin=B)
    assert watcher.told == 2


def test_an_origin_that_nobody_calls_any_more_does_not_keep_the_others_from_the_short_way() -> None:
    breaker = a_breaker()
    fail(breaker)
    breaker.admit(B, NOW + FADE - 1)
    assert not breaker.quiet
    breaker.admit(B, NOW + FADE)
    assert breaker.quiet
    assert fail(breaker, NOW + FADE) is None  # the count began anew


def test_an_open_circuit_fades_when_nobody_has_wanted_to_send_a_probe() -> None:
    """It is open for 30 s; whoever asks after that begins the time anew."""
    breaker = opened(CircuitBreaker(1))
    assert breaker.state(A, NOW + 29) is OPEN
    breaker.admit(B, NOW + 30 + FADE - 1)
    assert breaker.state(A, NOW + 30 + FADE - 1) is HALF_OPEN
    assert breaker.admit(A, NOW + 30 + FADE - 1).permit
    breaker.admit(B, NOW + 30 + 2 * FADE - 2)
    assert breaker.state(A, NOW + 30 + 2 * FADE - 2) is HALF_OPEN
    breaker.admit(B, NOW + 30 + 2 * FADE - 1)
    assert breaker.quiet
    assert breaker.state(A, NOW + 30 + 2 * FADE - 1) is CLOSED


def test_who_asks_for_a_faded_circuit_itself_finds_it() -> None:
    breaker = opened(CircuitBreaker(1))
    assert breaker.admit(A, NOW + 30 + FADE).permit
    assert not breaker.quiet


def test_the_origins_kept_are_bounded() -> None:
    """The least recently used go first, and are closed again."""
    breaker = opened(a_breaker())
    opened(breaker, origin=B)
    for number in range(MOST_ORIGINS - 2):
        fail(breaker, origin=f"http://{number}:80")
    breaker.admit(A, NOW)
    fail(breaker, origin="http://one-more:80")
    assert breaker.state(A, NOW) is OPEN
    assert breaker.state(B, NOW) is CLOSED
    assert len(breaker._circuits) == MOST_ORIGINS


def test_a_copy_starts_closed() -> None:
    fields: dict[str, Any] = {
        "failure_rate": 0.25, "window": 7.0, "minimum_calls": 9, "open_for": 3.0, "max_open_for": 8.0, "probes": 2,
        "successes_to_close": 4, "probe_timeout": 5.0, "mode": "observe",
    }  # fmt: skip
    breaker = opened(CircuitBreaker(3, **fields))
    for twin in (pickle.loads(pickle.dumps(breaker)), copy.deepcopy(breaker)):
        assert {name: getattr(twin, name) for name in fields} == fields
        assert twin.consecutive_failures == 3
        assert twin.quiet


FORK_WITH_THE_LOCKS_HELD = """
import os, threading
from forbear import CircuitBreaker, RetryPolicy, StandardStrategy

breaker = CircuitBreaker(1, open_for=10)
strategy = StandardStrategy(RetryPolicy(), breaker=breaker, cooldown="all")
cooldown = strategy._cooldown
cooldown.begin("a", b"", 5.0, 0.0)
breaker.record("a", failed=True, sent_at=0, now=0)
permit = breaker.admit("a", 10).permit
held, done = threading.Event(), threading.Event()

def hold():
    with breaker._lock, cooldown._lock, strategy._lock:
        held.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    # Nobody is left who could let go of the locks, and the probe is in flight in the parent.
    mine = breaker.admit("a", 10).permit
    assert mine
    assert cooldown.left("a", b"", 0.0) == 5.0
    breaker.record("a", failed=False, sent_at=10, now=10, permit=mine)
    assert cooldown.left("a", b"", 5.0) == 0.0
    assert strategy.gauge.quiet
    os._exit(0)
for _ in range(200):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    done.wait(0.05)
else:
    os.kill(child, 9)
    os.waitpid(child, 0)
    status = "the child hung on a lock"
done.set()
thread.join()
assert status == 0, status
assert breaker.admit("a", 10).refused_for == 1  # what the child found out is the child's
assert breaker.record("a", failed=False, sent_at=10, now=10, permit=permit)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_while_other_threads_hold_the_locks_does_not_hang_the_child() -> None:
    """Nor does it hold the parent's permits, nor change what the parent knows."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_WITH_THE_LOCKS_HELD],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_repr_shows_state() -> None:
    breaker = CircuitBreaker(1, open_for=10)
    assert repr(breaker) == "<CircuitBreaker closed>"
    fail(breaker)
    fail(breaker, origin=B)
    breaker.admit(B, NOW + 10)
    assert repr(breaker) == "<CircuitBreaker 1 open, 1 half-open>"
    assert repr(CircuitBreaker(mode="observe")) == "<CircuitBreaker closed, observing>"


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"consecutive_failures": 0}, ValueError, "consecutive_failures must be at least 1, got 0"),
        ({"consecutive_failures": 2.5}, TypeError, "consecutive_failures must be a whole number"),
        ({"consecutive_failures": None}, ValueError, "give consecutive_failures= or failure_rate="),
        ({"failure_rate": 0}, ValueError, "failure_rate must be above 0 and at most 1, got 0"),
        ({"failure_rate": 50}, ValueError, "failure_rate must be above 0 and at most 1, got 50"),
        ({"failure_rate": "half"}, TypeError, "failure_rate must be a number"),
        ({"window": 0}, ValueError, "window must be more than 0"),
        ({"minimum_calls": 0}, ValueError, "minimum_calls"),
        ({"open_for": float("nan")}, ValueError, "open_for"),
        ({"open_for": -1}, ValueError, "open_for"),
        (
            {"max_open_for": 5.0},
            ValueError,
            r"max_open_for must be at least open_for \(30 s\), got 5.0",
        ),
        ({"probes": True}, TypeError, "probes must be a whole number, got True"),
        ({"successes_to_close": 0}, ValueError, "successes_to_close"),
        ({"probe_timeout": 0}, ValueError, "probe_timeout"),
        ({"mode": "shadow"}, ValueError, "mode must be one of 'enforce', 'observe', got 'shadow'"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_numbers_that_make_no_sense(
    fields: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        CircuitBreaker(**fields)


# --- behind StandardStrategy ------------------------------------------------------------------


class Told(list[Transition]):
    def __call__(self, edge: Transition) -> None:
        self.append(edge)


def a_strategy(
    breaker: CircuitBreaker, budget: RetryBudget | None = None, **fields: Any
) -> StandardStrategy:
    policy = RetryPolicy(
        **{"backoff": Fixed(1.0), "hint_spread": 0.0, "max_attempts": 99, **fields}
    )
    return StandardStrategy(policy, budget=budget, breaker=breaker, random=lambda: 0.5)


def observe(
    strategy: StandardStrategy, failure: Failure | None, now: float = NOW, token: Any = None
) -> Any:
    """One attempt of a call, as Call tells of it."""
    return strategy.observe(
        token, failure, now, facts=Request("GET", A), scope=lambda: A, attempts=1, sent_at=now
    )


KINDS = {
    True: {"dns", "refused", "connect-timeout", "tls", "proxy", "read-timeout", "write-timeout", "timeout", "reset",
           "protocol"},
    None: {"unprocessed", "pool", "certificate", "decoding", "permanent", "unknown"},
}  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.STATUS])
def test_what_counts_of_errors(kind: FailureKind) -> None:
    """Failed connections and timeouts; not what is wrong on this side, and no goodbye of a healthy
    server.
    """
    breaker = a_breaker(1)
    observe(a_strategy(breaker), Failure(kind, Phase.SENT, error="SomeError"))
    assert (breaker.state(A, NOW) is OPEN) == (kind.value in KINDS[True])
    assert kind.value in KINDS[True] | KINDS[None]


@pytest.mark.parametrize(
    ("failure", "counts"),
    [
        (None, False),
        (answer(404), False),
        (answer(409), False),
        (answer(408), False),
        (answer(500), True),
        (answer(501), True),
        (answer(503), True),
        (answer(503, 5.0), True),
        (answer(529), True),
        (answer(200), True),  # flagged by retry_if
        (answer(429), None),
        (answer(429, 5.0), None),
        (answer(403, 5.0, "x-ratelimit-reset"), None),
    ],
    ids=lambda value: repr(value),
)
def test_what_counts_of_answers(failure: Failure | None, counts: bool | None) -> None:
    """True opens a breaker of one failure; False ends a row of failures; None does neither."""
    breaker = a_breaker(2)
    strategy = a_strategy(breaker)
    observe(strategy, RESET)
    observe(strategy, failure)
    observe(strategy, RESET)
    assert breaker.state(A, NOW) is (CLOSED if counts is False else OPEN)
    single = a_breaker(1)
    observe(a_strategy(single), failure)
    assert single.state(A, NOW) is (OPEN if counts else CLOSED)


def test_an_open_circuit_refuses_a_call_before_it_deposits() -> None:
    budget = RetryBudget(ratio=1, floor_per_second=0, burst=20)
    assert budget.spend(A, 10, NOW)
    strategy = a_strategy(opened(a_breaker()), budget)
    with pytest.raises(RetryRefused) as caught:
        strategy.acquire_initial_token(A, NOW + 4)
    assert (caught.value.reason, caught.value.send, caught.value.retry_after) == (
        Reason.CIRCUIT_OPEN,
        False,
        6.0,
    )
    assert budget.tokens(A, NOW) == 10


def test_it_refuses_a_retry_after_the_deadline_and_before_the_budget() -> None:
    """Step 9 of ten: 1 s of backoff, 10 s open."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    strategy = a_strategy(a_breaker(1), budget)
    assert budget.spend(A, 1.0, NOW)
    token = strategy.acquire_initial_token(A, NOW)
    token.attempts = 1
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, RESET, NOW, latest=0.5)
    assert caught.value.reason is Reason.DEADLINE
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, RESET, NOW, latest=1e9)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.CIRCUIT_OPEN, 10.0)


def test_a_retry_whose_wait_outlasts_the_circuit_is_granted() -> None:
    strategy = a_strategy(a_breaker(1), backoff=Fixed(10.0))
    token = strategy.acquire_initial_token(A, NOW)
    token.attempts = 1
    assert strategy.refresh_token(token, RESET, NOW, latest=1e9).delay == 10
    assert strategy.admit(token, NOW + 10) == 0.0
    assert strategy.breaker is not None
    assert strategy.breaker.refused_for(A, NOW + 10) > 0  # it holds the probe's permit


def test_a_permit_is_taken_when_sending_and_not_when_planning() -> None:
    strategy = a_strategy(opened(a_breaker()))
    breaker = strategy.breaker
    assert breaker is not None
    token = strategy.begin(Request("GET", A), A, NOW + 10)
    assert breaker.refused_for(A, NOW + 10) == 1  # a first attempt is sent at once
    assert strategy.admit(token, NOW + 10) == 0.0  # asked twice, taken once
    strategy.release(token, NOW + 10)
    strategy.release(token, NOW + 10)
    assert breaker.refused_for(A, NOW + 10) == 0


@pytest.mark.parametrize(
    "failure", [answer(429), answer(429, 3.0), Failure(FailureKind.POOL, Phase.UNSENT)]
)
def test_a_probe_that_says_nothing_gives_its_permit_back(failure: Failure) -> None:
    strategy = a_strategy(opened(a_breaker()))
    token = strategy.begin(Request("GET", A), A, NOW + 10)
    token.attempts = 1
    observe(strategy, failure, NOW + 10, token)
    assert strategy.breaker is not None
    assert strategy.breaker.state(A, NOW + 10) is HALF_OPEN
    assert strategy.breaker.refused_for(A, NOW + 10) == 0


@pytest.mark.parametrize(("mode", "left"), [("enforce", 20), ("observe", 19)])
def test_a_retry_that_is_a_probe_costs_nothing_if_it_fails(mode: Any, left: float) -> None:
    """Bought for one token, sent as a probe, failed: the token is back. Observing changes
    nothing.
    """
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    strategy = a_strategy(a_breaker(1, mode=mode), budget, backoff=Fixed(10.0))
    token = strategy.acquire_initial_token(A, NOW)
    token.attempts = 1
    token = observe(strategy, RESET, NOW, token)
    strategy.refresh_token(token, RESET, NOW, latest=1e9)
    assert budget.tokens(A, NOW) == 19
    assert strategy.admit(token, NOW + 10) == 0.0
    token.attempts = 2
    observe(strategy, RESET, NOW + 10, token)
    strategy.release(token, NOW + 10)
    strategy.release(token, NOW + 10)
    assert budget.tokens(A, NOW) == left


def test_the_four_methods_alone_drive_it_too() -> None:
    """A caller that only acquires, refreshes and ends tokens: failures and successes reach the
    breaker.
    """
    strategy = a_strategy(a_breaker(2), backoff=Fixed(0.0))
    strategy.on_transition = told = Told()
    token = strategy.acquire_initial_token(A, NOW)
    token.attempts = 1
    strategy.refresh_token(token, RESET, NOW, latest=1e9)
    token.attempts = 2
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, RESET, NOW, latest=1e9)
    assert caught.value.reason is Reason.CIRCUIT_OPEN
    strategy.release(token, NOW)
    probe = strategy.acquire_initial_token(A, NOW + 10)
    with pytest.raises(RetryRefused):
        strategy.acquire_initial_token(A, NOW + 10)
    probe.attempts = 1
    strategy.record_success(probe, NOW + 10)
    assert [(edge.from_state, edge.to_state) for edge in told] == [
        (CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, CLOSED),
    ]  # fmt: skip
    assert strategy.quiet


def test_the_gauge_says_what_quiet_says() -> None:
    """A first attempt reads one plain attribute; it must never be quiet while something is not."""
    budget = RetryBudget(ratio=0, floor_per_second=1.0)
    breaker = a_breaker(2)
    strategy, other = a_strategy(breaker, budget), a_strategy(breaker)
    assert strategy.gauge is budget
    observe(strategy, RESET)
    assert (strategy.gauge.quiet, strategy.quiet, other.gauge.quiet, other.quiet) == (False,) * 4
    observe(other, None)
    assert (strategy.gauge.quiet, strategy.quiet, other.gauge.quiet, other.quiet) == (True,) * 4
    assert budget.spend(A, 1.0, NOW)
    assert (strategy.gauge.quiet, strategy.quiet, other.gauge.quiet, other.quiet) == (
        False,
        False,
        True,
        True,
    )


def test_other_rules_on_the_same_breaker() -> None:
    """``override`` and per-request settings; a call that is off shares the budget only."""
    strategy = a_strategy(opened(a_breaker()), RetryBudget())
    with pytest.raises(RetryRefused):
        strategy.with_policy(RetryPolicy(max_attempts=2)).acquire_initial_token(A, NOW)
    off = strategy.unguarded(RetryPolicy(max_attempts=1))
    assert off.acquire_initial_token(A, NOW).delay == 0
    assert off.budget is strategy.budget
    assert (off.breaker, off.cooldown) == (None, "off")


def test_transports_that_are_gone_are_not_kept_by_a_shared_breaker() -> None:
    breaker = a_breaker()
    for _ in range(50):
        a_strategy(breaker)
    gc.collect()
    kept = a_strategy(breaker)
    assert len(breaker._watchers) == 1
    assert kept.breaker is breaker


def test_the_gauge_is_right_whatever_threads_do() -> None:
    """Eight threads make two origins ill and well again; in the end the gauge agrees with the
    breaker.
    """
    breaker = a_breaker(10_000)
    strategies = [a_strategy(breaker) for _ in range(4)]

    def trouble(origin: str) -> None:
        for _ in range(300):
            fail(breaker, origin=origin)
            succeed(breaker, origin=origin)

    threads = [threading.Thread(target=trouble, args=(origin,)) for origin in (A, B) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert breaker.quiet
    assert all(strategy.gauge.quiet for strategy in strategies)


def test_repr_of_the_strategy() -> None:
    strategy = StandardStrategy(
        RetryPolicy(), budget=RetryBudget(), breaker=CircuitBreaker(), cooldown="all"
    )
    assert (
        repr(strategy)
        == "<StandardStrategy max_attempts=4 <RetryBudget 7/7> <CircuitBreaker closed> <Cooldown all, 0 held>>"
    )


# --- in a strategy ----------------------------------------------------------------------------


def test_a_success_that_was_sent_before_the_circuit_opened_ends_no_row_of_failures() -> None:
    """It went straight through and came back late: it says how the origin was, not how it is."""
    breaker = CircuitBreaker(2)
    strategy = StandardStrategy(RetryPolicy(), breaker=breaker)
    fail(breaker, NOW)
    late = strategy.acquire_initial_token(A, NOW)
    fail(breaker, NOW + 1)
    permit = breaker.admit(A, NOW + 31).permit
    breaker.record(A, failed=False, sent_at=NOW + 31, now=NOW + 32, permit=permit)
    fail(breaker, NOW + 33)
    strategy.record_success(late, NOW + 34)
    edge = fail(breaker, NOW + 35)
    assert edge is not None
    assert edge.to_state is OPEN


def test_a_budget_that_fails_takes_no_permit_along_and_hides_no_failure() -> None:
    class Broken:
        quiet = False
        hinted_cost = 0.0

        def deposit(self, scope: str, now: float) -> None:
            raise RuntimeError

        def spend(self, scope: str, cost: float, now: float) -> bool:
            return True

        def refund(self, scope: str, cost: float) -> None: ...

    breaker = CircuitBreaker(1)
    strategy = StandardStrategy(RetryPolicy(), breaker=breaker, budget=Broken())
    facts = Request("GET", A)
    with pytest.raises(RuntimeError):
        strategy.observe(None, RESET, NOW, facts=facts, scope=lambda: A, attempts=1, sent_at=NOW)
    assert breaker.state(A, NOW) is OPEN
    with pytest.raises(RuntimeError):
        strategy.begin(facts, A, NOW + 30)
    assert breaker.admit(A, NOW + 30).permit
