"""CircuitBreaker: what opens and closes it, and what it keeps."""

import pytest

from forbear import CircuitBreaker

A, B = "http://a:80", "http://b:80"
CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"
NOW = 1_000.0
FADE, LONGEST_HINT, MOST_ORIGINS = 600, 3_600, 1_024  # seconds; of them


def a_breaker(consecutive=2, **fields):
    return CircuitBreaker(consecutive, **{"failure_rate": None, "open_for": 10.0, **fields})


def fail(breaker, now=NOW, times=1, origin=A, **fields):
    edge = None
    for _ in range(times):
        edge = breaker.record(origin, failed=True, **{"sent_at": now, "now": now, **fields})
    return edge


def succeed(breaker, now=NOW, origin=A, **fields):
    return breaker.record(origin, failed=False, **{"sent_at": now, "now": now, **fields})


def opened(breaker, now=NOW, origin=A):
    while breaker.state(origin, now) != OPEN:
        fail(breaker, now, origin=origin)
    return breaker


def test_a_whole_round():
    """closed → open after two failures → half-open after 10 s → closed by a probe."""
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


@pytest.mark.parametrize(("draw", "open_for"), [(0.0, 8.0), (0.5, 10.0), (1.0, 12.0)])
def test_the_time_open_is_random_so_that_a_fleet_does_not_probe_in_step(draw, open_for):
    edge = a_breaker(1).record(A, failed=True, sent_at=NOW, now=NOW, draw=draw)
    assert edge is not None
    assert edge.open_for == pytest.approx(open_for)


def test_it_is_open_for_twice_as_long_after_a_probe_failed():
    """10, then 20; and 10 again after it was closed."""
    breaker = opened(a_breaker())
    now, waits = NOW, []
    for _ in range(3):
        waits.append(breaker.refused_for(A, now))
        now += waits[-1]
        fail(breaker, now, permit=breaker.admit(A, now).permit)
    assert waits == [10, 20, 20]
    now += breaker.refused_for(A, now)
    succeed(breaker, now, permit=breaker.admit(A, now).permit)
    assert breaker.state(A, now) == CLOSED
    assert opened(breaker, now).refused_for(A, now) == 10


def test_a_hint_before_a_success_is_forgotten():
    breaker = a_breaker()
    fail(breaker, hint=500.0)
    succeed(breaker)
    assert opened(breaker).refused_for(A, NOW) == 10


def test_a_server_that_asks_for_a_pause_gets_it_also_while_its_circuit_is_open():
    breaker = opened(a_breaker())
    assert fail(breaker, NOW + 1, hint=30.0) is None  # of an attempt that was under way
    assert breaker.refused_for(A, NOW + 1) == 30


def test_no_server_can_switch_itself_off_for_ever():
    breaker = a_breaker(1)
    fail(breaker, hint=2_147_483_648.0)
    assert breaker.refused_for(A, NOW) == LONGEST_HINT


def test_what_was_sent_before_the_last_transition_counts_no_more():
    """Slow timeouts of the outage arrive after the circuit has closed: they must not open it."""
    breaker = opened(a_breaker())
    succeed(breaker, NOW + 10, permit=breaker.admit(A, NOW + 10).permit)
    assert fail(breaker, NOW + 11, times=5, sent_at=NOW + 9) is None
    assert breaker.quiet
    fail(breaker, NOW + 11)
    succeed(breaker, NOW + 11, sent_at=NOW + 9)
    assert fail(breaker, NOW + 11) is not None


def test_a_forgotten_probe_gives_way():
    """Its holder is gone: after a minute another is let through, and what the first says is void."""
    breaker = opened(a_breaker())
    lost = breaker.admit(A, NOW + 10).permit
    assert breaker.admit(A, NOW + 14).refused_for == 1
    assert breaker.refused_for(A, NOW + 69.75) == 0.25
    found = breaker.admit(A, NOW + 70).permit
    assert found
    assert fail(breaker, NOW + 71, permit=lost) is None
    assert succeed(breaker, NOW + 71, permit=found) is not None


def a_rate(**fields):
    return a_breaker(None, **{"failure_rate": 0.5, "window": 10.0, "minimum_calls": 4, **fields})


def test_the_window_slides():
    """Three failures in a second; ten seconds later they are out, and one more is 1 of 1."""
    breaker = a_rate()
    fail(breaker, times=3)
    assert fail(breaker, NOW + 10.0) is None  # below the minimum
    assert fail(a_rate(minimum_calls=1, failure_rate=1.0)) is not None


def test_calls_that_have_left_the_window_are_in_its_rate_no_more():
    """1 of 3, then 2 of 5; ten seconds after the first 1 of 2, 2 of 3, 3 of 4: with those that
    have left it would be 4 of 7.
    """
    breaker = a_rate(failure_rate=0.6)
    for now, works in ((NOW, 2), (NOW + 5, 1)):
        assert fail(breaker, now) is None
        for _ in range(works):
            succeed(breaker, now)
    assert fail(breaker, NOW + 10) is None
    assert fail(breaker, NOW + 10) == (A, CLOSED, OPEN, 0, 0.75, 10.0)


def test_the_window_closes_when_its_last_failure_has_left():
    breaker = a_rate()
    fail(breaker, NOW)
    for second in range(9):
        succeed(breaker, NOW + second)
        assert not breaker.quiet
    succeed(breaker, NOW + 10)
    assert breaker.quiet


def test_observing_refuses_nothing_and_tells_everything():
    breaker = opened(a_breaker(mode="observe"))
    assert breaker.state(A, NOW) == OPEN
    assert breaker.admit(A, NOW) == (0, 0.0, None)
    assert breaker.refused_for(A, NOW) == 0
    permit, _, edge = breaker.admit(A, NOW + 10)
    assert edge == (A, OPEN, HALF_OPEN, 0, None, None)
    assert breaker.admit(A, NOW + 10) == (0, 0.0, None)
    assert fail(breaker, NOW + 10) is None  # it would not have been sent
    assert succeed(breaker, NOW + 10, permit=permit) == (A, HALF_OPEN, CLOSED, 0, None, None)


def test_an_origin_that_nobody_calls_any_more_does_not_slow_the_others_down():
    breaker = a_breaker()
    fail(breaker)
    breaker.admit(B, NOW + FADE - 1)
    assert not breaker.quiet
    breaker.admit(B, NOW + FADE)
    assert breaker.quiet
    assert fail(breaker, NOW + FADE) is None  # the count began anew


def test_an_open_circuit_fades_when_nobody_has_wanted_to_send_a_probe():
    """It is open for 30 s; whoever asks after that begins the time anew."""
    breaker = opened(CircuitBreaker(1, open_for=30))
    assert breaker.state(A, NOW + 29) == OPEN
    breaker.admit(B, NOW + 30 + FADE - 1)
    assert breaker.state(A, NOW + 30 + FADE - 1) == HALF_OPEN
    assert breaker.admit(A, NOW + 30 + FADE - 1).permit
    breaker.admit(B, NOW + 30 + 2 * FADE - 2)
    assert breaker.state(A, NOW + 30 + 2 * FADE - 2) == HALF_OPEN
    breaker.admit(B, NOW + 30 + 2 * FADE - 1)
    assert breaker.quiet
    assert breaker.state(A, NOW + 30 + 2 * FADE - 1) == CLOSED


def test_it_names_the_circuits_that_are_not_closed():
    breaker = a_breaker()
    fail(breaker)
    opened(breaker)
    opened(breaker, origin=B)
    permit = breaker.admit(A, NOW + 10).permit
    succeed(breaker, NOW + 10, permit=permit)
    assert breaker.states(NOW + 10) == {B: HALF_OPEN}
    breaker.admit(A, NOW + 10 + FADE)  # B is forgotten
    assert breaker.states(NOW + 10 + FADE) == {}
    opened(breaker, NOW + 10 + FADE)
    for number in range(MOST_ORIGINS):
        fail(breaker, NOW + 10 + FADE, origin=f"http://{number}:80")
    assert breaker.states(NOW + 10 + FADE) == {}  # A was the oldest


def test_the_origins_kept_are_bounded():
    """The oldest go first, and are closed again."""
    breaker = opened(a_breaker(), origin=B)
    opened(breaker)
    for number in range(MOST_ORIGINS - 1):
        fail(breaker, origin=f"http://{number}:80")
    assert breaker.state(A, NOW) == OPEN
    assert breaker.state(B, NOW) == CLOSED
    assert len(breaker._circuits) == MOST_ORIGINS


def test_a_child_does_not_hold_the_permits_of_its_parent():
    """test_locks.py forks; this is what runs in the child."""
    breaker = opened(a_breaker())
    assert breaker.admit(A, NOW + 10).permit
    breaker.after_fork()
    assert breaker.admit(A, NOW + 10).permit
