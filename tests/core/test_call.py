"""Call: its history, the kinds of its attempts, and the story that it tells."""

from forbear import FailureKind, Fixed, Reason, RetryPolicy
from forbear.core.call import Call, Rest
from forbear.core.outcome import GiveUp
from forbear.core.request import Request
from forbear.limits.limits import Limits
from forbear.records import record_from
from forbear.strategies import Failure, Phase
from forbear.telemetry.facts import kind_of

from ..failures import REFUSED, answer

HERE, THERE = "http://here.example:80", "http://there.example:80"
RESET = Failure(FailureKind.RESET, Phase.ANSWERED, error="ReadError")


def a_call(now: float = 0.0) -> Call:
    call = Call(RetryPolicy(backoff=Fixed(1.0)), Request("GET", HERE), Limits(), now, 4)
    call.sending(now)
    return call


def test_the_story_of_a_call() -> None:
    """Attempts, waits, reasons and times, in the order they happened."""
    call = a_call(100.0)
    call.note(REFUSED, 100.5, 1.0, "backoff")
    call.sending(101.5)
    call.note(answer(429), 101.75, 2.0, "retry-after")
    call.sending(103.75)
    call.end(answer(503), GiveUp(Reason.DEADLINE, 4.0), 104.0)
    story = call.story(104.0)
    record = record_from(story)
    assert (record.method, record.origin, record.elapsed) == ("GET", HERE, 4.0)
    assert (record.reason, record.refused_delay) == (Reason.DEADLINE, 4.0)
    assert [
        (each.number, each.status, each.error, each.phase, each.elapsed, each.delay, each.delay_source)
        for each in record.attempts
    ] == [
        (1, None, "ConnectError", Phase.UNSENT, 0.5, 1.0, "backoff"),
        (2, 429, None, Phase.ANSWERED, 0.25, 2.0, "retry-after"),
        (3, 503, None, Phase.ANSWERED, 0.25, None, None),
    ]  # fmt: skip
    assert (record.retries, record.waits) == (2, (1.0, 2.0))
    assert record.reasons == ("ConnectError", "429", "503")
    assert call.waited() == 3.0
    call.add_wait(2.0)
    assert call.waited() == 5.0


def test_kinds_of_attempts() -> None:
    """First, retry, to another origin; and after a body broke all is resuming."""
    call = a_call()
    assert kind_of(call, 0) == "first"
    call.note(answer(503), 0.0, 0.0, "backoff")
    assert kind_of(call, 1) == "retry"
    call.origin = THERE
    call.sending(1.0)
    assert kind_of(call, 1) == "failover"
    call.end(None, None, 1.0)
    assert call.history[1].origin == THERE
    call.history.pop()  # of the response that was accepted
    call.note(RESET, 2.0, 0.0, "backoff")
    call.notes[Rest] = Rest("resume", 1, True, False, False, bool, bool)
    assert [kind_of(call, place) for place in range(3)] == [None, None, "resume"]


def test_a_story_is_final_if_more_must_not_be_added() -> None:
    """A loop above ours repeats nothing that was retried, or refused for a reason of its own."""
    exhausted = GiveUp(Reason.ATTEMPTS_EXHAUSTED)  # max_attempts=1 is no loop
    refused = GiveUp(Reason.SERVER_SAID_NO)
    for verdict, is_final in ((None, False), (exhausted, False), (refused, True)):
        call = a_call()
        call.end(answer(503), verdict, 0.0)
        assert call.story(0.0).is_final is is_final
    call = a_call()
    call.note(answer(503), 0.0, 0.0, "backoff")
    call.sending(0.0)
    call.end(None, None, 0.0)
    assert call.story(0.0).is_final
