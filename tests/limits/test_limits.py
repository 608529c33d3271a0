"""Limits: in which order budget, breaker, cooldown and origins are asked, and what comes back.

Each test drives a ``Call`` by hand as the loop does: begin, admit, send, observe, plan, leave.
"""

import pytest

import forbear
from forbear import (
    CircuitBreaker,
    FailureKind,
    Fixed,
    Origins,
    Reason,
    RetryBudget,
    RetryGate,
    RetryPolicy,
)
from forbear.addons.breaker import Admission
from forbear.core.call import PLUGIN_ERROR, Call
from forbear.core.decide import plan_retry
from forbear.core.outcome import SendAgain
from forbear.core.request import Request
from forbear.engine import settings
from forbear.limits.gate import observed
from forbear.strategies import Failure, Phase, RetryRefused

from ..failures import REFUSED, RESET, answer

A, B, C = "http://a:80", "http://b:80", "http://c:80"
CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"
NOW = 1_000.0


@pytest.fixture
def gate():
    return RetryGate()


def a_budget(**fields):
    return RetryBudget(**{"ratio": 0, "floor_per_second": 0, "burst": 20, **fields})


def limits_of(**parts):
    return settings.limits_of(**{"random": lambda: 0.0, **parts})


def a_call(limits, origin=A, now=NOW, *, headers=(), **fields):
    fields = {"backoff": Fixed(0.0), "hint_spread": 0.0, "max_attempts": 99, **fields}
    policy = RetryPolicy(**fields)
    request = Request("GET", origin, [*dict(headers).items()])
    return Call(policy, request, limits, now, policy.max_attempts)


def begun(limits, origin=A, now=NOW, **options):
    """A call, and how long its first attempt has to wait."""
    call = a_call(limits, origin, now, **options)
    return call, limits.begin(call, 0.0, now)


def sent(call, failure, now=NOW):
    call.sending(now)
    call.limits.observe(call, failure, now)
    return call


def told(limits, failure, origin=A, now=NOW, **options):
    """A call whose first attempt went the short way and ended like this."""
    call = a_call(limits, origin, now, **options)
    call.is_under_way = True
    limits.begin(call, 0.0, now)
    return sent(call, failure, now)


def planned(call, failure, now=NOW):
    verdict = plan_retry(call, failure, now)
    call.note(failure, now, *verdict)
    return verdict


def held(limits, origin=A, now=NOW, **options):
    """Seconds for which the first attempt of another call is held."""
    call, delay = begun(limits, origin, now, **options)
    limits.leave(call, now)
    return delay


def refusal(ask, *arguments, **options):
    with pytest.raises(RetryRefused) as caught:
        ask(*arguments, **options)
    return caught.value.reason, caught.value.send, caught.value.retry_after


def a_held_call(limits, until=10.0, ready_in=0.0, **fields):
    gate = limits.gate
    if gate.is_healthy(A):
        gate.bad(A, NOW, sent_at=NOW, weight=3.0)
    call = a_call(limits, **fields)
    call.hold = gate.hold(A, NOW, ready_at=NOW + ready_in, until=NOW + until)
    return call


def opened(**fields):
    """A breaker that is open for A, for 10 s from NOW."""
    breaker = CircuitBreaker(1, **{"failure_rate": None, "open_for": 10.0, **fields})
    breaker.record(A, failed=True, sent_at=NOW, now=NOW)
    return breaker


def test_the_rest_of_a_body_costs_a_fifth_of_a_scheduled_retry():
    """What other retries cost is test_decide's."""
    went_on = Failure(FailureKind.RESET, Phase.ANSWERED, error="ReadError", progress=True)
    budget = a_budget()
    call = told(limits_of(budget=budget), went_on)
    assert isinstance(planned(call, went_on), SendAgain)
    assert budget.tokens(A, NOW) == 19.95


def test_a_scope_that_fails_means_the_origin():
    def fail(request):
        raise ZeroDivisionError

    budget = a_budget(scope=fail)
    call = told(limits_of(budget=budget), RESET)
    planned(call, RESET)
    assert budget.tokens(A, NOW) == 19
    assert isinstance(call.notes[PLUGIN_ERROR], ZeroDivisionError)


NO_WORD = {"unprocessed", "pool", "certificate", "decoding", "permanent", "unknown"}


@pytest.mark.parametrize("kind", sorted({kind.value for kind in FailureKind} - {"status"}))
def test_which_errors_are_trouble(kind):
    """Failed connections and timeouts; not what is wrong on this side, nor a healthy goodbye."""
    breaker = CircuitBreaker(1, failure_rate=None)
    told(limits_of(breaker=breaker), Failure(FailureKind(kind), Phase.SENT, error="Some"))
    assert (breaker.state(A, NOW) == OPEN) == (kind not in NO_WORD)


@pytest.mark.parametrize(("failure", "counts"), [
    (None, False),
    (answer(404), False),
    (answer(408), False),
    (answer(409), False),
    (answer(500), True),
    (answer(501), True),
    (answer(503, 5.0), True),
    (answer(529), True),
    (answer(200), True),  # flagged by retry_if
    (answer(429), None),
    (answer(429, 5.0), None),
    (answer(403, 5.0, "x-ratelimit-reset"), None),
], ids=repr)  # fmt: skip
def test_which_answers_are_trouble(failure, counts):
    """True opens a breaker of one failure; False ends a row of failures; None does neither."""
    breaker, single = CircuitBreaker(2, failure_rate=None), CircuitBreaker(1, failure_rate=None)
    limits = limits_of(breaker=breaker)
    for outcome in (RESET, failure, RESET):
        sent(a_call(limits), outcome)
    assert breaker.state(A, NOW) == (CLOSED if counts is False else OPEN)
    sent(a_call(limits_of(breaker=single)), failure)
    assert single.state(A, NOW) is (OPEN if counts else CLOSED)


def test_an_open_circuit_refuses_a_call_before_it_deposits():
    budget = a_budget(ratio=1)
    assert budget.spend(A, 10, NOW)
    refused = refusal(begun, limits_of(budget=budget, breaker=opened()), now=NOW + 4)
    assert refused == (Reason.CIRCUIT_OPEN, False, 6.0)
    assert budget.tokens(A, NOW) == 10


def test_a_retry_whose_wait_outlasts_the_circuit_is_the_probe():
    """The permit is taken when it is sent, asked twice or not, and not when it is planned."""
    breaker = CircuitBreaker(1, failure_rate=None, open_for=10.0)
    limits = limits_of(breaker=breaker)
    call = told(limits, RESET, backoff=Fixed(10.0))
    assert planned(call, RESET) == (10.0, "backoff")
    assert breaker.refused_for(A, NOW + 10) == 0
    assert (limits.admit(call, NOW + 10), limits.admit(call, NOW + 10)) == (0.0, 0.0)
    assert breaker.refused_for(A, NOW + 10) > 0
    limits.leave(call, NOW + 10)
    limits.leave(call, NOW + 10)
    assert breaker.refused_for(A, NOW + 10) == 0


@pytest.mark.parametrize("failure", [
    answer(429), answer(429, 3.0), Failure(FailureKind.POOL, Phase.UNSENT)], ids=repr)  # fmt: skip
def test_a_probe_that_says_nothing_gives_its_permit_back(failure):
    breaker = opened()
    call, _ = begun(limits_of(breaker=breaker), now=NOW + 10)
    sent(call, failure, NOW + 10)
    assert breaker.state(A, NOW + 10) == HALF_OPEN
    assert breaker.refused_for(A, NOW + 10) == 0


def test_a_503_with_a_time_holds_everybody():
    limits = limits_of(cooldown="all")
    told(limits, answer(503, 5.0), headers={"Authorization": "Bearer one"})
    assert held(limits, headers={"Authorization": "Bearer two"}) == 5.0
    assert held(limits, now=NOW + 2) == 3.0
    assert held(limits, B) == 0.0
    assert held(limits, now=NOW + 5) == 0.0
    assert limits.quiet


@pytest.mark.parametrize(("failure", "header"), [
    (answer(429, 5.0), "Authorization"),
    (answer(403, 5.0, "x-ratelimit-reset"), "X-API-Key"),
    (answer(429, 5.0), b"X-API-Key"),
], ids=["429", "an exhausted quota", "headers in bytes"])  # fmt: skip
def test_a_429_holds_only_who_has_the_same_credential(failure, header):
    """One tenant does not punish another, nor those who have no name."""
    limits = limits_of(cooldown="all")
    told(limits, failure, headers={header: "one"})
    assert held(limits, headers={header.lower(): "one"}) == 5.0
    assert held(limits, headers={header: "two"}) == 0.0
    assert held(limits) == 0.0
    assert held(limits, B, headers={header: "one"}) == 0.0


def test_who_asked_for_nothing_gets_nothing():
    """No time, or no throttling; and a policy that ignores times is not held."""
    limits = limits_of(cooldown="all")
    for failure in (RESET, answer(429), answer(503), answer(500, 5.0), answer(503, 0.0)):
        told(limits, failure)
        assert limits.quiet
    told(limits, answer(503, 5.0))
    assert held(limits, hints="ignore") == 0.0
    off = limits_of()
    told(off, answer(503, 5.0))
    assert held(off) == 0.0


def test_retries_only():
    """A first attempt goes through; a retry of another call waits as long as the origin asked."""
    limits = limits_of(cooldown="retries")
    told(limits, answer(503, 5.0))
    assert limits.quiet  # first attempts need not ask
    call, delay = begun(limits)
    assert (delay, limits.admit(call, NOW)) == (0.0, 0.0)
    assert planned(sent(call, RESET, NOW + 1), RESET, NOW + 1) == (4.0, "cooldown")


def test_a_retry_that_would_wait_too_long_is_refused_before_it_is_paid():
    budget = RetryBudget()
    limits = limits_of(budget=budget, cooldown="retries")
    told(limits, answer(503, 30.0))
    call = told(limits, RESET, max_retry_after=10.0)
    assert plan_retry(call, RESET, NOW) == (Reason.RETRY_AFTER_TOO_LONG, 30.0)
    call.deadline_at = NOW + 29.0
    verdict = plan_retry(call, RESET, NOW + 25)
    assert verdict == (Reason.DEADLINE, 5.0)
    assert budget.quiet


def test_the_random_share_is_cut_to_the_deadline_and_the_servers_time_is_not():
    limits = limits_of(cooldown="retries", random=lambda: 0.9)
    told(limits, answer(503, 4.0))
    call = told(limits, RESET, hint_spread=0.5)
    call.deadline_at = NOW + 4.201  # a millisecond is left for the attempt
    assert planned(call, RESET) == (pytest.approx(4.2), "cooldown")


def test_a_held_call_looks_again_when_its_time_has_come_but_not_for_ever():
    """Held for 5 s, then for 4 s more; another 4 would be more than the 10 that the policy waits."""
    limits = limits_of(cooldown="all")
    told(limits, answer(503, 5.0))
    call, delay = begun(limits, max_retry_after=10.0)
    told(limits, answer(503, 4.0), now=NOW + 5)
    assert (delay, limits.admit(call, NOW + 5)) == (5.0, 4.0)
    told(limits, answer(503, 4.0), now=NOW + 9)
    assert refusal(limits.admit, call, NOW + 9)[:2] == (Reason.RETRY_AFTER_TOO_LONG, False)
    assert limits.admit(call, NOW + 13) == 0.0


def test_nobody_is_held_for_a_circuit_that_is_open():
    limits = limits_of(cooldown="all", breaker=CircuitBreaker(1, failure_rate=None, open_for=30.0))
    told(limits, answer(503, 5.0))
    assert refusal(begun, limits) == (Reason.CIRCUIT_OPEN, False, 24.0)  # -20 %


def test_no_permit_is_held_while_waiting():
    """Open for 1 s, held for 5: the permit is taken when the probe is sent."""
    breaker = CircuitBreaker(1, failure_rate=None, open_for=1.0)
    limits = limits_of(cooldown="all", breaker=breaker)
    told(limits, answer(429, 5.0))
    told(limits, RESET)
    call, delay = begun(limits, now=NOW + 2)
    assert delay == 3.0
    assert breaker.refused_for(A, NOW + 4) == 0.0
    assert limits.admit(call, NOW + 5) == 0.0
    assert breaker.refused_for(A, NOW + 5) > 0.0


def test_a_fleet_that_was_told_the_same_second_does_not_return_in_step():
    """hint_spread, as for hints: 0.1 of 5 s, by each caller's own random number."""
    draws = iter([0.0, 0.5, 1.0])
    limits = limits_of(cooldown="all", random=lambda: next(draws))
    told(limits, answer(503, 5.0))
    delays = [held(limits, hint_spread=0.1) for _ in range(3)]
    assert delays == [5.0, 5.25, 5.5]


@pytest.mark.parametrize(("failure", "delay", "source", "cost"), [
    pytest.param(REFUSED, 0.0, "failover", 0.0, id="nothing was sent: at once, for nothing"),
    pytest.param(RESET, 2.0, "backoff", 1.0, id="it may have been sent: the backoff, paid"),
    pytest.param(answer(503, 30.0), 2.0, "backoff", 1.0, id="the time is the other origin's"),
])  # fmt: skip
def test_a_retry_goes_to_the_next_origin(failure, delay, source, cost):
    budget = a_budget()
    limits = limits_of(budget=budget, origins=Origins([A, B]))
    call = told(limits, failure, backoff=Fixed(2.0))
    assert planned(call, failure) == (delay, source)
    assert (call.origin, 20 - budget.tokens(A, NOW)) == (B, cost)
    rests = failure.hint.delay is not None
    assert begun(limits)[0].origin == (B if rests else A), "it asked to be left alone"


def test_when_every_origin_was_tried_the_backoff_is_waited_and_paid():
    budget = a_budget()
    call = told(limits_of(budget=budget, origins=Origins([A, B])), REFUSED, backoff=Fixed(2.0))
    assert planned(call, REFUSED) == (0.0, "failover")
    assert planned(sent(call, REFUSED), REFUSED) == (2.0, "backoff")
    assert (call.origin, budget.tokens(A, NOW)) == (A, 19)


def test_an_origin_whose_circuit_is_open_is_passed_over():
    """At first, after a failure, and if it opens during the wait."""
    breaker = opened()
    limits = limits_of(breaker=breaker, origins=Origins([A, B, C]))
    call, delay = begun(limits)
    call.random = lambda: 0.5  # no jitter of the time open
    assert (call.origin, delay) == (B, 0.0)
    planned(sent(call, RESET), RESET)
    assert call.origin == C
    breaker.record(C, failed=True, sent_at=NOW, now=NOW + 3)  # as A and B: the soonest is A
    with pytest.raises(RetryRefused):
        limits.admit(call, NOW + 3)
    assert (call.origin, limits.admit(call, NOW + 10)) == (A, 0.0)


def test_if_all_circuits_are_open_a_call_is_refused_for_the_shortest_time():
    breaker = opened(open_for=40.0)
    breaker.record(B, failed=True, sent_at=NOW - 9, now=NOW - 9)
    refused = refusal(begun, limits_of(breaker=breaker, origins=Origins([A, B])))
    assert refused == (Reason.CIRCUIT_OPEN, False, 31.0)


@pytest.mark.parametrize("seconds", [30.0, 120.0])
def test_a_retry_goes_on_to_an_origin_that_nobody_is_to_leave_alone(seconds):
    """It was to go to B after 1 s; then another call was told by B to come back later."""
    limits = limits_of(cooldown="retries", origins=Origins([A, B]))
    call = told(limits, RESET, backoff=Fixed(1.0))
    assert planned(call, RESET) == (1.0, "backoff")
    assert call.origin == B
    told(limits, answer(503, seconds), B)
    assert limits.admit(call, NOW + 1) == 0
    assert call.origin == A


def test_when_all_are_left_alone_a_call_is_held_for_the_one_that_comes_back_first():
    limits = limits_of(cooldown="all", origins=Origins([A, B]))
    told(limits, answer(503, 30.0), A)
    told(limits, answer(503, 20.0), B)
    call, delay = begun(limits)
    assert (call.origin, delay, limits.admit(call, NOW + 20)) == (B, 20.0, 0.0)
    told(limits, answer(503, 90.0), B)
    told(limits, answer(503, 80.0), A)
    assert refusal(begun, limits) == (Reason.RETRY_AFTER_TOO_LONG, False, 80.0)


def test_quiet_asks_every_part():
    budget, breaker = a_budget(ratio=1), CircuitBreaker(2, failure_rate=None)
    origins = Origins([B, C])
    limits = limits_of(budget=budget, breaker=breaker, cooldown="all", origins=origins)
    assert limits.quiet
    for trouble, cure in [
        (lambda: budget.spend(A, 1.0, NOW), lambda: budget.deposit(A, NOW)),
        (lambda: told(limits, RESET), lambda: sent(a_call(limits), None)),
        (lambda: told(limits, answer(429, 5.0)), lambda: held(limits, now=NOW + 5)),
        (lambda: origins.rest(B, 5.0, NOW, longest_wait=9), lambda: held(limits, B, NOW + 5)),
    ]:
        trouble()
        assert not limits.quiet
        cure()
        assert limits.quiet


class Taken:
    """A half-open breaker whose only permit another call takes each time, just before ours."""

    quiet = False
    mode = "enforce"
    is_taken = True

    def refused_for(self, origin, now):
        return 0.0

    def state(self, origin, now):
        return HALF_OPEN

    def admit(self, origin, now):
        return Admission(0, 1.0, None) if self.is_taken else Admission(1, 0.0, None)

    def release(self, origin, permit):
        self.is_taken = False


def test_a_retry_that_fails_while_others_are_answered_is_the_calls_own_failure(gate):
    """Of 3.9 tokens two first attempts cost 2; two retries would leave an unhealthy origin."""
    limits = limits_of(gate=gate)
    calls = [told(limits, answer(503)) for _ in range(2)]
    for call in calls:
        planned(call, answer(503))
    sent(a_call(limits), None, NOW + 1)
    for call in calls:
        sent(call, answer(503), NOW + 2)
    assert gate.is_healthy(A)
    for call in calls:  # nobody was answered since
        planned(call, answer(503), NOW + 2)
        sent(call, answer(503), NOW + 3)
    assert not gate.is_healthy(A)


def test_a_users_scope_has_a_health_of_its_own_and_a_failover_counts_for_the_server_alone():
    gate = RetryGate(scope=lambda request: {"x": "blue"}[request.header("x-service")])
    limits = limits_of(gate=gate, origins=Origins([A, B]))
    for _ in range(3):
        call = told(limits, answer(503), headers={"X-Service": "x"}, backoff=Fixed(0.0))
        planned(call, answer(503))
        sent(call, RESET if gate.is_healthy(B) else None)
    assert [gate.is_healthy(key) for key in ("blue", A, B)] == [False, True, True]
    assert begun(limits, headers={"X-Service": "x"})[1] == 0
    assert gate._origins["blue"].rate == 1, "it is a new call of that scope"
    for _ in range(3):
        call = told(limits, answer(503))  # the function raises: its origin
        assert isinstance(call.notes[PLUGIN_ERROR], KeyError)
    assert not gate.is_healthy(A)


def test_time_in_which_a_circuit_is_open_is_a_held_calls_patience_too(gate):
    limits = limits_of(gate=gate, breaker=opened())
    call, now, asks = a_held_call(limits, until=3.25), NOW, []
    while wait := limits.admit(call, now):
        asks.append(wait)
        now += wait
    assert (wait, asks) == (None, [0.5] * 6 + [0.25])


def test_a_half_open_circuit_lets_a_held_call_be_its_probe(gate):
    """After a second, and not when the gate would send one: four seconds after a timeout."""
    gate.bad(A, NOW, sent_at=NOW, weight=3.0, is_timeout=True)
    limits = limits_of(gate=gate, breaker=opened(open_for=1.0))
    call = a_held_call(limits)
    assert limits.admit(call, NOW + 0.75) == 0.25
    assert limits.admit(call, NOW + 1.0) == 0.0


def test_a_held_call_that_finds_no_slot_is_refused_for_that(gate):
    bulkhead = forbear.ConcurrencyLimit(1, adaptive=False, max_waiting=0)
    limits = limits_of(gate=gate, concurrency=bulkhead)
    assert limits.admit(a_call(limits), NOW) == 0
    call = a_held_call(limits)
    assert limits.admit(call, NOW + 0.5) == pytest.approx(0.1), "no probe is due before NOW + 1"
    assert refusal(limits.admit, call, NOW + 2)[0] is Reason.CONCURRENCY_LIMIT


@pytest.mark.parametrize(("at", "asks_in"), [(0.0, 0.5), (9.75, 0.25), (10.5, None)])
def test_a_held_call_whose_probe_another_has_taken_is_held_again(gate, at, asks_in):
    """Until its patience is over after 10 s, and no longer."""
    limits = limits_of(gate=gate, breaker=Taken())
    call = a_held_call(limits)
    call.hold.ask_at = NOW + at  # it was not frozen
    if asks_in is None:  # it was let go in time, but the machine slept
        gate.turn(call.hold, NOW, lambda: 0.0, probe_is_due=True)
    else:  # it has asked meanwhile: a process that was frozen would get its time back
        for half_second in range(int(2 * at)):
            limits.admit(call, NOW + half_second / 2)
    assert limits.admit(call, NOW + at) == asks_in
    assert gate.held() == (asks_in is not None)
    limits.leave(call, NOW + at)
    assert gate.held() == 0


def test_a_probe_that_was_put_back_twice_uses_its_patience_once(gate):
    """A policy that waits for longer than by default: a probe uses up no attempt, when it is sent."""
    breaker = Taken()
    limits = limits_of(gate=gate, breaker=breaker)
    call = a_held_call(limits, 60.0, ready_in=2.0, patience=60.0, max_attempts=5)

    def used():
        patience_used = observed(gate, call).patience_used
        return call.most_attempts, call.off_schedule, patience_used

    assert [limits.admit(call, NOW + at) for at in (2.0, 4.0)] == [0.5, 0.5]
    assert used() == (5, 0, 0.0)
    breaker.is_taken = False
    assert limits.admit(call, NOW + 8) == 0.0
    assert used() == (6, 1, 2.0)


def test_repr_shows_the_parts():
    breaker = CircuitBreaker(5, failure_rate=None)
    limits = limits_of(gate=RetryGate(), budget=RetryBudget(), breaker=breaker, cooldown="all")
    parts = "<Cooldown all, 0 held> <CircuitBreaker closed> <RetryGate healthy> <RetryBudget 7/7>"
    assert repr(limits) == parts
    assert repr(limits_of()) == "no limits"
