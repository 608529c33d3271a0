"""Pacing: what is read of quotas, and how calls are spread over what is left; numbers alone."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Pacing, RetryPolicy
from forbear.addons.pacing import Turn
from forbear.core.call import IN_QUEUE, PREPARED_FOR, STORY, Call
from forbear.core.headers.quota import Quota, read_quotas
from forbear.core.request import Request
from forbear.engine.settings import limits_of

NOW = 1_000.0
UTC = 1_767_225_600.0  # 2026-01-01 00:00:00
A = "http://a:80"
ASKS_AGAIN = 0.1  # seconds, and a millisecond for each call that waits
ROUNDING = 1.001  # seconds that a time of whole ones may have lost
LEAST_TIME, TIMES = 0.05, 2.0  # seconds an attempt has, or times the slowest of the recent ones


@pytest.mark.parametrize(("lines", "found"), [
    ({"RateLimit": '"default";r=50;t=30', "RateLimit-Policy": '"default";q=100;w=60'},
        [Quota("default", 50, 30, 100, 60)]),
    ({"RateLimit": '"a";r=5;t=3, "b";r=50;t=30', "RateLimit-Policy": '"b";q=100'}, [Quota("a", 5, 3,
        None, None), Quota("b", 50, 30, 100, None)]),
    ({"RateLimit": "limit=100, remaining=9, reset=8"}, [Quota("ratelimit", 9, 8, 100, None)]),
    # GitHub, OpenAI, Anthropic
    ({"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "56", "X-RateLimit-Reset": "1767225660"},
        [Quota("x-ratelimit-reset", 56, 60, 60, None)]),
    ({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59"}
        | {"x-ratelimit-reset-requests": "1s", "x-ratelimit-limit-tokens": "150000"}
        | {"x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0.5s"},
        [Quota("x-ratelimit-reset-requests", 59, 1, 60, None),
        Quota("x-ratelimit-reset-tokens", 149984, 360.5, 150000, None, is_exact=True)]),
    ({"anthropic-ratelimit-tokens-limit": "80000", "anthropic-ratelimit-tokens-remaining": "79000"}
        | {"anthropic-ratelimit-tokens-reset": "2026-01-01T00:01:00Z"},
        [Quota("anthropic-ratelimit-tokens-reset", 79000, 60, 80000, None)]),
    ({"RateLimit-Limit": "60, 60;w=1", "RateLimit-Remaining": "9, 5", "RateLimit-Reset": "8, 7"},
        [Quota("ratelimit-reset", 5, 8, 60, None)]),
    ({"RateLimit": "limit=100, remaining=9, reset=8, limit=60, remaining=5, reset=7"},
        [Quota("ratelimit", 5, 8, 60, None)]),
    ({"RateLimit": '"a";r=5;t=3', "Age": "10"}, []),  # from a cache
    ({"RateLimit": '"a";r=-5;t=3'}, []),
    ({"RateLimit": '"a";r=5'}, []),
    ({"RateLimit": '"a";r=5;t=0'}, [Quota("a", 5, 0, None, None)]),
    ({"RateLimit": '"a";r=5;t=999999999'}, []),
    ({"RateLimit": "nonsense(("}, []),
    ({"X-RateLimit-Remaining": "5"}, []),
    ({"X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "30"}, []),
    ({"X-RateLimit-Remaining": "9" * 400, "X-RateLimit-Reset": "30"}, []),
    ({"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "1767225199"}, []),  # is over
    ({}, []),
])  # fmt: skip
def test_what_servers_show(lines, found):
    assert read_quotas(list(lines.items()), lambda: UTC) == tuple(found)
    raw = [(name.encode(), value.encode()) for name, value in lines.items()]
    assert read_quotas(raw, lambda: UTC) == tuple(found)


@pytest.fixture
def pacing():
    return Pacing()


def shown(pacing, left, seconds, now=NOW, limit=100):
    pacing.learn(A, [Quota("requests", left, seconds, limit, 10)], now, now)


def ask(pacing, count, now=NOW, longest=60.0):
    return [pacing.turn(Turn(now), A, longest, now) for _ in range(count)]


def test_what_is_under_way_has_used_its_share_already():
    pacing = Pacing(reserve=0.0)
    shown(pacing, 5, 10)
    waits = ask(pacing, 8)
    assert waits == [0.0] * 5 + [pytest.approx(ASKS_AGAIN + n / 1_000) for n in (1, 2, 3)]


def test_of_a_window_that_is_not_named_the_longest_rest_is_taken():
    """So nobody is sent after two seconds because of one that was seen near its end."""
    pacing, now = Pacing(reserve=1.0), NOW + 3
    pacing.learn(A, [Quota("q", 5, 1, 100, None)], NOW, NOW)
    pacing.learn(A, [Quota("q", 2, 10, 100, None)], now, now)
    turns = [Turn(now) for _ in range(20)]
    waiting = [turn for turn in turns if pacing.turn(turn, A, 60.0, now)]
    assert all(pacing.turn(turn, A, 60.0, now + 2.5) for turn in waiting[5:])


def sent_at(pacing, calls, until):
    """When each of some calls is sent that all ask at once; their responses show nothing new."""
    found, due = [], [(NOW, Turn(NOW)) for _ in range(calls)]
    while due := sorted((one for one in due if one[0] <= until), key=lambda one: one[0]):
        now, turn = due.pop(0)
        if wait := pacing.turn(turn, A, 60.0, now):
            due.append((now + wait, turn))
        else:
            found.append(now - NOW)
    return found


def test_the_reserve_is_spread_over_the_rest_of_the_window():
    """Ten are left, and fifteen want to go: one after the other, all of them in the window."""
    pacing = Pacing(reserve=0.1)
    shown(pacing, 10, 10)
    times = sent_at(pacing, 15, NOW + 9.5)
    assert len(times) == 10
    gaps = [after - before for before, after in pairwise(times)]
    assert min(gaps) > 0.5
    assert times[-1] > 6


def test_those_who_wait_go_at_once_if_all_of_them_fit():
    pacing = Pacing(reserve=0.1)
    shown(pacing, 10, 10)
    assert sent_at(pacing, 8, NOW + 10)[-1] < 5 * ASKS_AGAIN


def test_what_grows_again_holds_nobody(pacing):
    shown(pacing, 0, 10)
    assert all(wait > 0 for wait in ask(pacing, 5))
    shown(pacing, 90, 10, NOW + 1)
    assert ask(pacing, 5, NOW + 1) == [0.0] * 5


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_time_in_milliseconds_is_exact_and_one_in_seconds_was_rounded_down(pacing, is_exact):
    pacing.learn(A, [Quota("q", 0, 10, 100, 10, is_exact=is_exact)], NOW, NOW)
    assert (ask(pacing, 1, NOW + 10.5)[0] > 0) is not is_exact


@pytest.mark.parametrize(("seconds", "is_another"), [(11, False), (13, True)])
def test_a_window_that_ends_much_later_is_another_one(pacing, seconds, is_another):
    """A difference of two seconds is rounding."""
    shown(pacing, 0, 10)
    shown(pacing, 0, seconds)
    assert (ask(pacing, 1, NOW + 10 + ROUNDING)[0] > 0) is is_another


def test_the_last_second_of_a_window_counts_too_and_begins_none(pacing):
    """Rounded down it is 0 s, which as a new window would hold everybody for ever."""
    shown(pacing, 0, 0)
    assert ask(pacing, 1) == [0.0]
    shown(pacing, 50, 1)
    shown(pacing, 0, 0, NOW + 0.9)
    assert ask(pacing, 1, NOW + 0.9)[0] > 0
    assert ask(pacing, 1, NOW + ROUNDING + 1) == [0.0]


def test_who_comes_now_leaves_room_for_those_who_wait(pacing):
    """They sleep while the window is filled again, and would find it used up."""
    shown(pacing, 0, 10)
    waiting = [Turn(NOW) for _ in range(20)]
    assert all(pacing.turn(turn, A, 60.0, NOW) for turn in waiting)
    shown(pacing, 25, 10, NOW + 10)
    assert ask(pacing, 5, NOW + 10)[-1] > 0
    assert [pacing.turn(turn, A, 60.0, NOW + 10) for turn in waiting[:10]] == [0.0] * 10


def test_the_tightest_quota_counts(pacing):
    quotas = [Quota("requests", 90, 10, 100, None), Quota("tokens", 0, 10, 1000, None)]
    pacing.learn(A, quotas, NOW, NOW)
    assert ask(pacing, 1)[0] > 0


@pytest.mark.parametrize(("reserve", "least", "most"), [
    pytest.param(0.0, 8, 11, id="of 1,000 that are left ten may go"),
    pytest.param(0.2, 4, 7, id="four of them are the reserve"),
])  # fmt: skip
def test_a_call_costs_what_the_quota_loses(reserve, least, most):
    """A hundred tokens each."""
    pacing, now = Pacing(reserve=reserve), NOW
    for left in range(3_000, 900, -100):
        pacing.learn(A, [Quota("tokens", left, 30, 3_000, None)], now, now + 0.01)
        now += 0.02
    waits = ask(pacing, 20, now)
    assert least <= waits.count(0.0) <= most


def test_a_call_that_is_under_way_may_have_cost_its_share_already():
    """Five are answered and five are not: a thousand for ten. Of 20 that fit, 15 are left."""
    pacing = Pacing(reserve=0.0)
    shown(pacing, 3_000, 30)
    ask(pacing, 5)
    for _ in range(4):
        shown(pacing, 2_000, 30)
    assert ask(pacing, 20).count(0.0) == 15


def test_a_response_that_a_later_one_has_overtaken_is_one_that_cost():
    """What it shows is old, but it is one of the twelve that have cost 2,200; 800 are left."""
    pacing = Pacing(reserve=0.0)
    for left in (3_000, 1_000, *range(2_800, 1_000, -200)):
        pacing.learn(A, [Quota("tokens", left, 30, 3_000, None)], NOW - 1, NOW)
    pacing.learn(A, [Quota("tokens", 800, 30, 3_000, None)], NOW + 1, NOW + 1)
    assert ask(pacing, 20, NOW + 1).count(0.0) == 4


@pytest.mark.parametrize("lefts", [
    pytest.param([5, 5, 5, 5, 5, 5], id="never less than one"),
    pytest.param([30, 20, 5], id="one until five responses have shown more"),
])  # fmt: skip
def test_a_call_costs_one(lefts):
    pacing = Pacing(reserve=0.0)
    for left in lefts:
        shown(pacing, left, 30)
    assert ask(pacing, 8).count(0.0) == 5


def test_a_call_that_is_over_leaves_its_share_to_the_next():
    pacing = Pacing(reserve=0.0, scope="origin")
    limits = limits_of(pacing=pacing)
    shown(pacing, 1, 10)
    first, second, hurried = (Call(RetryPolicy(), Request("GET", A), limits, NOW, 5) for _ in "abc")
    hurried.key_until = NOW + 9
    assert limits.admit(first, NOW) == 0
    assert limits.admit(second, NOW) > 0
    assert limits.admit(hurried, NOW) == 0, "the window ends after its key"
    limits.leave(hurried, NOW)
    first.sending(NOW)
    limits.observe(first, None, NOW)
    assert limits.admit(second, NOW + 0.1) == 0
    assert limits.admit(first, NOW + 0.1) > 0
    limits.leave(first, NOW + 0.2)
    assert pacing.waiting() == 0


def test_a_window_longer_than_a_call_may_wait_holds_nobody(pacing):
    """It would wait in vain: the server says what becomes of it."""
    shown(pacing, 0, 3_000)
    assert ask(pacing, 3, longest=60.0) == [0.0] * 3


def test_a_call_that_waits_until_its_deadline_is_sent_in_time():
    """Its response has to come too, and takes as long as the slowest one recently did."""
    pacing = Pacing(reserve=1.0)
    slow = (0.3, 1, TIMES * 0.3)
    for seconds, responses, margin in ((0.0, 1, LEAST_TIME), slow, (0.0, 50, LEAST_TIME)):
        for _ in range(responses):
            pacing.learn(A, [Quota("requests", 5, 60, 100, 60)], NOW - seconds, NOW)
        turns, now = [Turn(NOW) for _ in range(20)], NOW
        waiting = [turn for turn in turns if pacing.turn(turn, A, 60.0, NOW, NOW + 3.0)]
        while wait := pacing.turn(waiting[0], A, 60.0, now, NOW + 3.0):
            now += wait
        assert now - NOW == pytest.approx(3.0 - margin)
        for turn in turns:
            pacing.end(turn)


@given(
    seen=st.lists(
        st.tuples(
            st.floats(0, 1e14), st.floats(0.001, 10), st.none() | st.floats(0, 1e14),
            st.none() | st.floats(0, 10), st.floats(0, 3),
        ),
        min_size=1, max_size=8,
    ),
    calls=st.integers(1, 12),
    reserve=st.floats(0, 1),
)  # fmt: skip
def test_whatever_a_server_says_nobody_waits_longer_than_a_window(seen, calls, reserve):
    pacing, now = Pacing(reserve=reserve), NOW
    for left, seconds, limit, window, pause in seen:
        pacing.learn(A, [Quota("q", left, seconds, limit, window)], now, now)
        now += pause
        turns = [Turn(now) for _ in range(calls)]
        for turn in turns:
            at = now
            for _ in range(2_000):
                wait = pacing.turn(turn, A, 60.0, at)
                assert wait >= 0
                if wait == 0:
                    break
                at += max(wait, 1e-6)
            assert at - now <= 10 + ROUNDING + 1e-6
            pacing.end(turn)


def test_what_a_call_waits_is_in_its_story_and_who_ignores_hints_waits_for_nothing():
    pacing = Pacing(scope="origin")
    limits = limits_of(pacing=pacing)
    pacing.learn(A, [Quota("requests", 0, 2, 100, 2)], NOW, NOW)
    call = Call(RetryPolicy(), Request("GET", A), limits, NOW, 5)
    assert limits.admit(call, NOW) == pytest.approx(ASKS_AGAIN + 0.001)
    assert IN_QUEUE in call.notes
    assert limits.admit(call, NOW + 2 + ROUNDING) == 0
    assert call.notes[STORY] == {"paced": pytest.approx(2 + ROUNDING)}
    careless = Call(RetryPolicy(hints="ignore"), Request("GET", A), limits, NOW, 5)
    assert limits.admit(careless, NOW) == 0
    hooked = Call(RetryPolicy(), Request("GET", A), limits, NOW, 5)
    hooked.notes[PREPARED_FOR] = ""  # what its hook sends comes first
    assert limits.admit(hooked, NOW) == 0


def test_the_scopes_used_last_are_kept_and_a_forked_child_begins_anew(pacing):
    for number in (*range(1_024), 0, 1_024):
        quota = Quota("requests", 0, 10, 100, 10)
        pacing.learn(f"http://{number}:80", [quota], NOW, NOW)
    waits = [pacing.turn(Turn(NOW), f"http://{number}:80", 60.0, NOW) for number in (0, 1, 1_024)]
    assert [wait > 0 for wait in waits] == [True, False, True]
    pacing.after_fork()
    assert pacing.turn(Turn(NOW), "http://0:80", 60.0, NOW) == 0
