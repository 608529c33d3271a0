"""What other retry libraries were seen to get wrong, a test for each sentence.

The numbers are those of the survey of peers; 1 to 14 were seen in transports for httpx, 15 to 19
below it, 20 to 31 in urllib3 and requests, 64 to 75 elsewhere.
"""

import re
import time
from pathlib import Path

import pytest

import forbear
from forbear import Fixed, RetryPolicy
from forbear.testing import FakeClock

from .lanes import lane_of

REQUIRED = {str(number) for number in (*range(1, 32), *range(64, 76))} | {"19a"}
# What was seen; the tests that would fail if it were so here. Those of urllib3_retry are of
# forbear.urllib3.Retry, the others of every client.
SHOWN_BY = {
    # The loser of a hedge keeps its connection, or its cookies; or it counts in the breaker.
    "75": "adapters/test_hedging.py test_the_first_good_answer_is_the_calls",
    # A second request of an iterator arrives empty; or the answer is lost to StreamConsumed.
    "1 2 20": "adapters/test_bodies.py test_a_consumed_body_is_not_sent_again"
    " test_a_body_that_can_be_produced_again_arrives_whole_on_every_attempt",
    # A Retry-After above the maximum is shortened.
    "3": "adapters/test_conformance_time.py test_a_retry_after_that_is_too_long_is_returned_at_once",
    # A total timeout ends no attempt, or only the first one.
    "4": "adapters/test_conformance_time.py test_a_silent_server_costs_no_more_than_total_timeout"
    " test_total_timeout_covers_all_attempts_and_waits",
    # A validator that raises loses the answer and its connection.
    "6": "adapters/test_hooks.py test_functions_that_raise_are_logged_once_and_lose_nothing",
    # The async transport sleeps by asyncio, also under trio.
    "7": "adapters/test_conformance_time.py test_no_request_comes_before_the_server_asked_for_it",
    # A falsy setting of a request is an AttributeError, or taken for none.
    "8": "test_context.py test_what_a_request_may_say test_a_request_that_says_nonsense_is_not_sent",
    # An empty set means the default.
    "9": "core/test_policy.py test_an_empty_set_means_none_not_the_default",
    # Two stacked transports multiply.
    "10": "adapters/test_hooks.py test_stacked_transports_retry_once_not_squared",
    # Each attempt has a connection of its own.
    "11": "adapters/test_conformance_exits.py test_four_attempts_use_one_connection",
    # A response cut in mid-body is handed over, or a POST repeated for it.
    "12 30": "adapters/test_conformance_safety.py test_a_truncated_answer_is_a_failure",
    # A generated key follows to another origin, and each hop has an allowance of its own.
    "14": "adapters/test_redirects.py test_a_generated_key_stays_with_its_origin"
    " test_retries_are_shared_over_hops",
    # An early no during an upload is taken for a broken connection.
    "17": "adapters/test_bodies.py test_an_early_no_is_the_answer"
    " test_an_early_hint_is_obeyed_and_the_body_sent_whole",
    # Connect retries of the transport below multiply.
    "18": "adapters/test_wrap.py test_the_librarys_own_retries_are_switched_off_with_one_warning",
    # A Retry-After that is none loses the answer; a huge one is a ValueError; or it is shortened.
    "21 22 26": "adapters/test_urllib3_retry.py test_21_22_26_whatever_retry_after_says",
    # An error of a proxy or of TLS repeats a POST.
    "23": "adapters/test_proxies.py test_a_forwarding_proxy_that_resets_had_read_the_request",
    # Draining a failed answer that drips holds the call.
    "24": "adapters/test_conformance_exits.py test_a_large_or_slow_failed_body_is_not_read",
    # The first retry does not wait.
    "25": "adapters/test_conformance_time.py"
    " test_the_wait_is_the_servers_where_it_names_one_and_else_the_policys",
    # The last error does not tell the history.
    "27": "adapters/test_exceptions.py test_a_refused_connection",
    # Whether to raise or to return is not one rule.
    "28": "adapters/test_exceptions.py test_on_exhausted_raise"
    " test_the_last_response_is_returned_as_it_came",
    # A falsy response (requests, from 400 on) is taken for none.
    "29": "adapters/test_retry_if.py test_true_fails_false_ends_and_none_leaves_it",
    # A pool of one that blocks deadlocks.
    "31": "adapters/test_conformance_exits.py test_a_pool_of_one_never_deadlocks",
    # A conflict is repeated without a key.
    "65": "core/test_decide.py test_409_waits_for_the_first_request_only_with_a_key",
    # A token of a cancelled retry is lost; a wait that the deadline would end takes one.
    "66": "adapters/test_cancellation.py test_cancelled_while_sleeping",
    # Retry-After twice raises, or shortens the wait.
    "71": "core/test_hints.py test_the_longest_of_several_retry_afters",
    # A fork shares a lock that nobody lets go of.
    "74": "limits/test_locks.py"
    " test_a_fork_while_another_thread_holds_the_lock_does_not_hang_the_child",
}

pytestmark = [pytest.mark.smoke, pytest.mark.lanes("httpx-sync", "httpx-asyncio")]

SYNC = lane_of("httpx-sync")


def noting(adapter, note):
    """The function as this flavour's client calls it."""

    async def anote(*arguments):
        note(*arguments)

    return anote if adapter.is_async else note


def test_pitfall_05_what_a_validator_rejects_to_the_last_is_raised_if_asked(adapter, server):
    """A status that the library takes for no error; never told as accepted."""
    server.script("/", 200)
    policy = RetryPolicy(max_attempts=3, on_exhausted="raise")
    (error,) = adapter.calls(("GET", server.url), policy=policy, retry_if=lambda response: True)
    assert isinstance(error, adapter.library.HTTPStatusError)
    assert "is a failure to its caller" in str(error)
    assert forbear.record_of(error).reason == "attempts-exhausted"
    assert len(server.requests()) == 3


def test_pitfall_13_cookies_and_hooks_are_those_of_the_last_answer(adapter, server):
    """A failed attempt's Set-Cookie is not kept; the client's hooks see one response."""
    server.script("/", "503;header=Set-Cookie:failed=1", 503, "200;header=Set-Cookie:good=1", 200)
    seen, hook = [], noting(adapter, lambda response: seen.append(response.status_code))
    hooks = {"event_hooks": {"response": [hook]}}
    adapter.calls(("GET", server.url), ("GET", server.url), settings=hooks)
    assert seen == [200, 200]
    sent = [value for name, value in server.requests()[-1].headers if name.lower() == "cookie"]
    assert sent == ["good=1"]


def test_pitfall_19_a_shortened_timeout_does_not_leak_into_the_next_hop(adapter, server):
    """Clamped timeouts stay on our copy; the response's request keeps the client's own."""
    server.script("/", "302;header=Location:/b")
    server.script("/b", 200)
    (response,) = adapter.calls(
        ("GET", server.url),
        settings={"follow_redirects": True, "timeout": 50},
        policy=RetryPolicy(total_timeout=5, attempt_timeout=2),
    )
    own = {"connect": 50, "read": 50, "write": 50, "pool": 50}
    for request in (response.request, response.history[0].request):
        assert type(request.extensions["timeout"]) is dict
        assert request.extensions["timeout"] == own


def test_pitfall_19a_mounted_in_the_other_familys_client_nothing_is_sent(adapter, server):
    """The client does not look at what it is given; it fails before the first attempt."""
    server.script("/", 503)
    twin = lane_of(f"httpx2-{adapter.flavour}")
    for mine, other in ((adapter, twin), (twin, adapter)):
        mounts = {"mounts": {"http://": mine.transport()}}
        (error,) = other.calls(("GET", server.url), settings=mounts)
        assert isinstance(error, Exception)
        assert server.requests() == []


@pytest.mark.parametrize("step", [-3600, 3600])
def test_pitfall_69_a_step_of_the_wall_clock_during_a_wait_changes_nothing(step, server):
    """Waits and deadlines are monotonic: the same waits, the same end."""
    clock = FakeClock()
    server.script("/", 503, "429;retry-after=2", 200)
    (response,) = SYNC.calls(
        ("GET", server.url),
        clock=clock,
        policy=RetryPolicy(backoff=Fixed(1), total_timeout=60),
        on_event=[lambda event: clock.step_utc(step)],
    )
    assert response.status_code == 200
    assert clock.sleeps == [1, pytest.approx(2.25)]


def test_pitfall_72_a_trace_gets_every_event_of_each_attempt(adapter, server):
    """A retried call's events are those of two requests of the bare library."""
    server.script("/", "503;close=1", "200;close=1", "503;close=1", "200;close=1")

    def traced(*requests, bare=False):
        events, settings = [], {"transport": adapter.inner()} if bare else {}

        extensions = {"trace": noting(adapter, lambda name, info: events.append(name))}
        calls = [(*request, {"extensions": extensions}) for request in requests]
        adapter.calls(*calls, settings=settings)
        return events

    expected = traced(("GET", server.url), ("GET", server.url), bare=True)
    assert traced(("GET", server.url)) == expected
    assert len(expected) > 20


def test_pitfall_73_the_response_is_that_of_the_last_attempt(server):
    """Its history, version and network stream; the failed ones are closed already."""
    server.script("/", "503;close=1", "503;close=1", "200;body=500000")
    transport = SYNC.transport(clock=FakeClock())
    with SYNC.library.Client(transport=transport, trust_env=False) as client:
        with client.stream("GET", server.url) as response:
            assert (response.status_code, response.history) == (200, [])
            assert response.http_version == "HTTP/1.1"
            assert server.requests()[-1].connection == 3
            until = time.monotonic() + 30
            while server.open_connections > 1 and time.monotonic() < until:
                time.sleep(0.005)
            assert server.open_connections == 1
            stream = response.extensions["network_stream"]
            assert stream.get_extra_info("server_addr")[1] == int(server.url.rpartition(":")[2])
            assert len(response.read()) == 500_000
        assert client.get(server.url).status_code == 200
    assert server.requests()[-1].connection == 3  # closing the response gave its connection back
    assert forbear.record_of(response).attempts[-1].elapsed <= response.elapsed.total_seconds()


def test_every_pitfall_has_its_test():
    """Tests named test_pitfall_NN_… anywhere below tests/, those that stand for it, and no other."""
    root = Path(__file__).parent
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("test_*.py")}
    sources = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    named = re.compile(r"^(?:async )?def test_pitfall_0?(\d+a?)_", re.MULTILINE)
    tested = {number for source in sources.values() for number in named.findall(source)}
    for path, *tests in map(str.split, SHOWN_BY.values()):
        for test in tests:
            assert f"def {test}(" in sources[path], test
    assert sorted([*tested, *" ".join(SHOWN_BY).split()]) == sorted(REQUIRED)
