"""One budget for a fleet, on a real Redis: what it allows, costs, and survives."""

import gc
import itertools
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path

import httpx
import pytest

import forbear
import forbear.httpx
import forbear.urllib3
from forbear import Fixed, RetryBudget, RetryPolicy
from forbear.redis import RedisBudget
from forbear.testing import FakeClock, ScriptedTransport

from ..processes import python
from ..sockets import Listening
from ..threads import in_threads
from .conftest import free_port, package

redis = package("redis")
pytestmark = pytest.mark.real

A, B = "http://a.example:80", "http://b.example:80"
KEY = f"forbear:orders:{A}"
SECRET = "gehe1m"
AT_ONCE = RetryPolicy(backoff=Fixed(0), max_attempts=2)
TIMEOUTS = 0.1  # seconds: the two together


def budget_on(server, **options):
    return inline(server.url, **{"floor_per_second": 0, "random": lambda: 0.5, **options})


def inline(target, **options):
    """One whose round trips are made at once, by whoever asks for them."""
    return at_once(RedisBudget(target, **{"name": "orders", "command_timeout": 2.0, **options}))


def at_once(budget):
    budget.renew_soon = budget.renew
    return budget


def take(budget, scope=A, *, now=0.0, cost=1.0):
    """One retry that Redis pays for: what it does not repay is not sent, and so given back."""
    taken = budget.spend(scope, cost, now)
    if owed(budget, scope):
        budget.refund(scope, cost)
        return False
    return taken


def take_all(budget, scope=A, *, now=0.0):
    taken = 0
    while take(budget, scope, now=now):
        taken += 1
    return taken


def owed(budget, scope=A):
    lease = budget._leases.get(scope)
    return 0 if lease is None else lease.owed


def idle(budget):
    """Wait until the thread in the background has ended, which has nothing more to do then."""
    until(lambda: budget._thread is None or not budget._thread.is_alive())


def stored(server, scope=A, name="orders"):
    found = server.ask(f"HGETALL forbear:{name}:{scope}")
    return {field: float(value) for field, value in found.items()}


def quickest(bound, run, times):
    """Run until one run took no longer than the bound, for up to a minute: the machine may be busy."""
    gives_up_at = time.monotonic() + 60
    while not times or min(times) >= bound:
        assert time.monotonic() < gives_up_at, times
        run()


def let_pass(server, seconds):
    """As if so much time had passed for Redis: each instant it has noted is longer ago."""
    earlier = round(seconds * 1000)
    for field, value in server.ask(f"HGETALL {KEY}").items():
        if field in ("at", "full_at"):
            server.ask(f"HSET {KEY} {field} {int(value) - earlier}")
        elif field != "tokens":
            server.ask(f"HDEL {KEY} {field}")
            server.ask(f"HSET {KEY} {int(field) - earlier} {value}")


def test_a_lease_is_one_token_and_a_tenth_of_what_is_there(redis_server):
    """100 tokens: 1 + 10, then of 89: 1 + 8. The first one of each repays a retry made already."""
    one, two = budget_on(redis_server), budget_on(redis_server)
    assert take(one)
    assert one.tokens(A, 0.0) == 10
    assert stored(redis_server)["tokens"] == 89
    assert take(two)
    assert two.tokens(A, 0.0) == 8
    noted = stored(redis_server)
    assert noted["tokens"] == 80
    assert sum(value for field, value in noted.items() if field.isdigit()) == 10 + 8


def test_a_fleet_never_gets_more_than_the_bucket_holds(redis_server):
    """burst 30 without deposits and floor: 30 retries in all, however many ask."""
    fleet = [budget_on(redis_server, ratio=0, burst=30) for _ in range(7)]
    assert sum(take_all(budget) for budget in fleet) == 30
    assert not any(take(budget, now=60.0) for budget in fleet)


def test_each_origin_and_each_name_has_its_own_bucket(redis_server):
    apart = budget_on(redis_server, burst=5)
    assert (take_all(apart, A), take_all(apart, B)) == (5, 5)
    assert take_all(budget_on(redis_server, burst=5, name="other")) == 5
    together = budget_on(redis_server, burst=5, name="together", scope="transport")
    assert call([503, 200], budget=together, policy=AT_ONCE).status_code == 200
    assert "tokens" in stored(redis_server, "", "together")


def test_calls_deposit_for_the_whole_fleet(redis_server):
    """ratio 0.1: 40 calls of one process are 4 retries, of whichever process."""
    one, two = budget_on(redis_server, burst=20), budget_on(redis_server, burst=20)
    assert take_all(one) == 20
    for _ in range(40):
        one.deposit(A, 0.001)
    assert not take(two)  # not reported yet
    let_pass(redis_server, 2)
    assert take(one, now=2.0)  # reports 4, takes 1
    assert take_all(two, now=2.0) == 3
    assert take_all(one, now=4.0) == 0


def test_calls_made_while_the_bucket_was_full_deposit_nothing(redis_server):
    """500 calls in 100 s, the last 10 s not full: a tenth counts, 50, which are 5 tokens."""
    one, two = budget_on(redis_server, burst=50), budget_on(redis_server, burst=50)
    assert take(one)  # so that it knows since when it counts
    redis_server.ask("FLUSHALL")
    assert take_all(two, now=0.0) == 50
    let_pass(redis_server, 10)
    for _ in range(500):
        one.deposit(A, 1.0)
    one._leases[A].tokens = 0.0
    # It had borrowed 1 + 5 and spent all: five of them had returned, as far as this Redis knows.
    assert take_all(one, now=100.0) + 5 == pytest.approx(5, abs=1)


def test_time_adds_the_floor_by_the_clock_of_redis(redis_server):
    """2 tokens a second: after 5 s of its time 10, whatever the processes' clocks say."""
    slow, fast = (budget_on(redis_server, ratio=0, floor_per_second=2) for _ in range(2))
    assert take_all(slow, now=1e-3) == pytest.approx(100, abs=4)
    assert not take(fast, now=1e9)
    let_pass(redis_server, 5)
    assert take_all(slow, now=3.0) == pytest.approx(10, abs=4)
    assert not take(fast, now=1e9 + 3)


def test_what_a_dead_process_had_borrowed_returns(redis_server):
    """Lent 1 + 10, one spent. The other ten are nobody's until the lease is over."""
    dead, alive = (budget_on(redis_server, ratio=0) for _ in range(2))
    assert take(dead)
    del dead
    gc.collect()
    assert take_all(alive) == 89
    let_pass(redis_server, 5)
    assert not take(alive, now=2.0)
    let_pass(redis_server, 6.1)
    assert take_all(alive, now=4.0) == 10


def test_what_a_silent_process_had_spent_is_owed(redis_server):
    """It spends 1 + 4 of 1 + 10 and comes back after its lease: four were lent twice, and are owed."""
    silent, other = (budget_on(redis_server, ratio=0) for _ in range(2))
    for _ in range(5):
        assert take(silent)
    let_pass(redis_server, 11.1)
    assert take_all(other) == 99  # the slack: four more than there should be
    assert not take(silent, now=20.0)
    assert stored(redis_server)["tokens"] == -4


def test_a_process_gets_no_more_in_advance_than_its_fallback_holds(redis_server):
    """burst 5 of the fallback: 10 + 5 each, however long the outage lasts. Then calls repay it."""
    fleet = [budget_on(redis_server, ratio=0.1, burst=10) for _ in range(3)]
    spent = sum(budget.spend(A, 1.0, float(now)) for now in range(60) for budget in fleet)
    assert spent == 10 + 3 * 5
    let_pass(redis_server, 60)
    for now in range(60, 90):
        for _ in range(10):
            fleet[0].deposit(A, float(now))
    assert owed(fleet[0]) == 0
    assert stored(redis_server)["tokens"] > 0
    assert fleet[0].spend(A, 1.0, 90.0)


def test_what_is_left_of_a_lease_returns_with_the_next_one(redis_server):
    """The process's clock ends the lease before Redis does: nothing is lost or counted twice."""
    budget = budget_on(redis_server, ratio=0)
    assert take(budget)
    assert budget.tokens(A, 0.0) == 10
    assert take(budget, now=50.0)  # 89 + 10 again, of which 1 + 9
    assert stored(redis_server)["tokens"] == 89
    assert take_all(budget, now=50.0) == 98


def test_a_bucket_that_would_be_full_again_is_forgotten(redis_server):
    """Redis forgets what means nothing: (100 - 89) tokens at 0.5 a second are 22 s."""
    budget = budget_on(redis_server, floor_per_second=0.5)
    assert take(budget)
    assert 21_000 < redis_server.ask(f"PTTL {KEY}") <= 22_000
    assert take(budget_on(redis_server, name="day"))
    day = redis_server.ask(f"PTTL forbear:day:{A}")
    assert day == pytest.approx(86_400_000, abs=60_000)


def call(steps, **options):
    transport = forbear.httpx.RetryTransport(ScriptedTransport(steps), gate=None, **options)
    with httpx.Client(transport=transport) as client:
        return client.get("http://a.example/")


def test_a_retry_is_one_round_trip_and_a_success_none(redis_server):
    """The first retry is repaid, the second one is not: then a refusal is remembered."""
    budget = RedisBudget(redis_server.url, name="orders", burst=1, floor_per_second=0)
    for _ in range(3):
        assert call([200], budget=budget).status_code == 200
    assert redis_server.evaluations() == 0
    found = []
    for _ in range(3):
        record = forbear.record_of(call([503, 200], budget=budget, policy=AT_ONCE))
        idle(budget)
        found.append((record.retries, record.reason, redis_server.evaluations()))
    assert found == [(1, None, 1), (1, None, 2), (0, "budget-exhausted", 2)]


def test_no_call_waits_for_a_round_trip():
    """It ends while Redis has not answered yet: retried, as long as the fallback has tokens."""
    client = Blocked(9)
    budget = RedisBudget(client, name="orders", fallback=RetryBudget(burst=2))
    options = {"budget": budget, "policy": AT_ONCE}
    found = [forbear.record_of(call([503, 200], **options)) for _ in range(3)]
    reasons = [(record.retries, record.reason) for record in found]
    assert reasons == [(1, None), (1, None), (0, "budget-exhausted")]
    client.go_on.set()
    idle(budget)
    assert forbear.record_of(call([503, 200], **options)).retries == 1
    assert budget.tokens(A, 0.0) == 9 - 3
    assert client.asked == 1


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.mark.release
@forks
def test_a_fleet_in_a_total_outage_retries_no_more_than_allowed(redis_server):
    """Retries ≤ ratio × calls + floor × seconds + burst, and one in advance for each process."""
    ratio, burst, floor, processes = 0.1, 60, 2, 50
    program, named = Path(__file__).with_name("fleet.py"), (processes, 1_500, ratio, burst, floor)
    command = [sys.executable, program, redis_server.url, *map(str, named)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    told = json.loads(done.stdout)
    assert (told["calls"], told["lost"]) == (processes * 1_500, 0)
    retries = told["sent"] - told["calls"]
    allowed = ratio * told["calls"] + floor * told["seconds"] + burst
    # And the bucket is used; how much of the deposits comes in time depends on the machine.
    assert burst <= retries <= allowed + processes


def test_threads_share_round_trips_of_which_there_is_one_at_a_time():
    """64 threads fail at once for two origins, while Redis does not answer: nobody waits."""
    client = Blocked(40)
    budget = RedisBudget(client, name="orders", fallback=RetryBudget(burst=20))
    taken = in_threads(64, lambda n: budget.spend((A, B)[n % 2], 1.0, 0.0))
    assert sum(taken) == 2 * 20
    client.go_on.set()
    idle(budget)
    for scope in (A, B):
        budget.deposit(scope, 0.0)  # one of them still owes
        idle(budget)
    assert (client.asked, client.most_at_once) == (2, 1)
    assert (budget.tokens(A, 0.0), budget.tokens(B, 0.0)) == (20, 20)


def test_nothing_keeps_a_budget_that_nobody_uses(redis_server):
    """No thread before the first retry, and none after it."""
    budget = RedisBudget(redis_server.url, name="orders")
    budget.deposit(A, 0.0)
    assert budget._thread is None
    assert budget.spend(A, 1.0, 0.0)
    idle(budget)
    assert repr(budget) == "<RedisBudget 'orders' 10 tokens borrowed>"
    seen = weakref.ref(budget)
    del budget
    gc.collect()
    assert seen() is None


@pytest.mark.slow
def test_a_round_trip_that_never_ends_does_not_keep_the_interpreter():
    program = """
import time
from forbear.redis import RedisBudget
class Hanging:
    def eval(self, *arguments):
        print("asked", flush=True)
        time.sleep(1000)
budget = RedisBudget(Hanging(), name="orders")
assert budget.spend("http://a:80", 1.0, 0.0)
time.sleep(0.2)
"""
    assert python(program) == "asked"


def edges(caplog, count):
    """What the log says of Redis, once it has said so much: level, event, class of the error."""
    until(lambda: len(lines_of(caplog)) >= count)
    return lines_of(caplog)


def lines_of(caplog):
    told = [line for line in caplog.records if line.name == "forbear.redis"]
    told = [(line.levelname, vars(line)) for line in told]
    return [(level, of["forbear.event"], of.get("forbear.error_type")) for level, of in told]


LOST, BACK = "shared_budget_lost", "shared_budget_back"


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """A round trip that is still under way would be logged in the next test.

    ``at_once`` makes a ring of a budget and its connection, whose socket may be finalised first.
    """
    gc.freeze()  # so only what the test made is looked at
    yield
    until(lambda: all(thread.name != "forbear-lease" for thread in threading.enumerate()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def heard(caplog):
    caplog.set_level(logging.INFO, "forbear.redis")
    return caplog


def until(condition):
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def come_back(budget):
    """Let retries look for Redis in the background, further apart than pauses, until it is found."""
    later = itertools.count(2_000.0, 20.0)

    def look():
        budget.spend(A, 1.0, next(later))
        return not budget.is_lost

    until(look)


@pytest.mark.slow
def test_pitfall_70_redis_that_stands_still_delays_nobody(make_redis, heard):
    """SIGSTOP: connections are open, nothing answers. No call waits, and none is lost."""
    server, times = make_redis(), []

    def run():
        clock = FakeClock()
        fallback = RetryBudget(ratio=0, floor_per_second=0, burst=3, scope="transport")
        budget = RedisBudget(server.url, name="orders", fallback=fallback, command_timeout=0.5)
        heard.clear()
        server.send(signal.SIGSTOP)
        began = time.monotonic()
        try:
            for n in range(4):
                response = call([503, 200], budget=budget, policy=AT_ONCE, clock=clock)
                assert response.status_code == (200 if n < 3 else 503)
            times.append(time.monotonic() - began)
            assert edges(heard, 1) == [("ERROR", LOST, "TimeoutError")]
            assert budget.is_lost
        finally:
            server.send(signal.SIGCONT)
        come_back(budget)
        assert edges(heard, 2)[1:] == [("INFO", BACK, None)]
        idle(budget)  # nothing of it is logged in the next run

    quickest(TIMEOUTS / 2, run, times)


LOSSES = {  # how it is lost, and how it comes back: with as many tokens, or with a full bucket
    "killed": (lambda server: server.kill(), lambda server: server.start(), 5),
    "out of memory": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", 0),
    "read-only": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", 0),
}


@pytest.mark.parametrize(("lose", "find", "tokens"), LOSSES.values(), ids=LOSSES)
def test_redis_that_is_lost_and_comes_back(make_redis, heard, lose, find, tokens):
    """One line for each edge."""
    server = make_redis("--maxmemory-policy", "noeviction")
    budget = budget_on(server, burst=5)
    assert take_all(budget) == 5
    lose(server) if callable(lose) else server.ask(lose)
    assert take_all(budget, now=5.0) == 5  # the fallback's burst
    ((level, event, error),) = edges(heard, 1)
    assert (level, event) == ("ERROR", LOST)
    assert error in ("ConnectionError", "OutOfMemoryError", "ReadOnlyError", "ResponseError")
    assert "stands in" in repr(budget)
    find(server) if callable(find) else server.ask(find)
    come_back(budget)
    assert edges(heard, 2)[1:] == [("INFO", BACK, None)]
    assert take_all(budget, now=2_000.0) == tokens


def test_a_key_that_is_not_the_budgets_is_a_loss(redis_server, heard):
    budget = budget_on(redis_server, ratio=0, burst=7)
    redis_server.ask(f"SET {KEY} x")
    assert take_all(budget, A) == 5  # the fallback's burst
    assert edges(heard, 1) == [("ERROR", LOST, "ResponseError")]
    redis_server.ask(f"DEL {KEY}")
    come_back(budget)
    assert take_all(budget, A, now=2_000.0) > 0


def test_a_round_trip_that_never_ends_is_told(heard):
    """A client without timeouts, and nobody who answers: told once, by a later retry."""
    client = Blocked()
    budget = RedisBudget(client, name="orders")
    assert budget.spend(A, 1.0, 0.0)
    assert lines_of(heard) == []
    assert budget.spend(A, 0.01, 20.0)
    assert budget.is_lost
    assert lines_of(heard) == [("ERROR", LOST, "TimeoutError")]
    for now in range(40, 400, 20):  # and it is not looked for beside the one on its way
        assert budget.spend(A, 0.1, float(now))
    assert client.asked == 1
    client.go_on.set()
    assert edges(heard, 2)[1:] == [("INFO", BACK, None)]


def test_the_rights_that_the_docs_name_suffice(make_redis, heard):
    """And without one of them Redis is lost, so none is too many."""
    server = make_redis()
    named = "+eval +time +hgetall +hset +hdel +hincrby +pexpire"
    assert f"{named}\n    ~forbear:*" in RedisBudget.__doc__

    def lost_with(rights, name):
        server.ask(f"ACL SETUSER {name} on >pw ~forbear:* {' '.join(rights)}")
        url = f"redis://{name}:pw@127.0.0.1:{server.port}"
        budget = inline(url, name=name, random=lambda: 0.5)
        assert take(budget)
        # A lease that is over, and one that returns: every command of the script is used.
        server.ask(f"HSET forbear:{name}:{A} 1000 3")
        assert take(budget, now=50.0)
        return budget.is_lost

    rights = named.split()
    assert not lost_with(rights, "all")
    assert lines_of(heard) == []
    for n, right in enumerate(rights):
        assert lost_with([one for one in rights if one != right], f"u{n}"), right


def test_over_tls(make_redis, tmp_path, heard):
    authority, port = package("trustme").CA(), free_port()
    cert = authority.issue_cert("localhost")
    options = ["--tls-auth-clients", "no", "--tls-port", str(port)]
    pems = {"cert": cert.cert_chain_pems[0], "key": cert.private_key_pem}
    for name, pem in {**pems, "ca-cert": authority.cert_pem}.items():
        pem.write_to_path(tmp_path / name)
        options += [f"--tls-{name}-file", str(tmp_path / name)]
    server = make_redis(*options, "--unixsocket", f"{tmp_path}/redis.sock")
    url = f"rediss://localhost:{port}?ssl_ca_certs={tmp_path}/ca-cert"
    for way in (url, f"unix://{tmp_path}/redis.sock?db=2"):  # and over a socket of this host
        budget = RedisBudget(way, name="orders", burst=10, command_timeout=2.0)
        assert budget.spend(A, 1.0, 0.0)
        idle(budget)
        assert not budget.is_lost
    assert stored(server)["tokens"] == 8  # 1 + 1 of ten
    assert lines_of(heard) == []


def test_a_wrong_password_is_told_without_it(make_redis, heard):
    """And the right one is used, with the number of the database."""
    server = make_redis("--requirepass", "right")
    url = f"@127.0.0.1:{server.port}/3"
    budget = inline(f"redis://app:{SECRET}{url}")
    assert take(budget)  # of the fallback
    ((_, _, error),) = edges(heard, 1)
    assert error in ("AuthenticationError", "ResponseError")
    assert repr(budget).startswith("<RedisBudget 'orders' ")
    shown = repr(budget) + heard.text + "".join(str(vars(line)) for line in heard.records)
    assert SECRET not in shown
    assert str(server.port) not in shown
    budget = inline(f"redis://:right{url}")
    assert take(budget)
    assert not budget.is_lost
    with redis.Redis(port=server.port, password="right", db=3) as client:
        assert client.exists(KEY)


class Rubbish(Listening):
    """A TCP server with one answer; ``None``: it closes, ``b""``: it never answers."""

    def __init__(self, answer, pause=0.0):
        self._answer, self._pause = answer, pause
        super().__init__()
        self.url = self.url.replace("http:", "redis:")

    def serve(self, sock, number):
        while sock.recv(65_536) and self._answer is not None:
            step = 1 if self._pause else max(1, len(self._answer))
            for at in range(0, len(self._answer), step):
                sock.sendall(self._answer[at : at + step])
                time.sleep(self._pause)


RUBBISH = {
    "http": (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", 0),
    "endless-list": (b"*100000000\r\n", 0),
    "drip": (b"+" + b"x" * 200, 0.02),
    "silence": (b"", 0),
    "closed": (None, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "pause"), RUBBISH.values(), ids=RUBBISH)
def test_a_server_that_is_no_redis_is_given_up(heard, answer, pause):
    """Whatever it says: no call waits for it, and the fallback stands in."""
    times = []
    with Rubbish(answer, pause) as server:

        def retry():
            heard.clear()
            budget = RedisBudget(server.url, name="orders", burst=100)
            began = time.monotonic()
            assert budget.spend(A, 1.0, 0.0)
            times.append(time.monotonic() - began)
            assert edges(heard, 1)[0][:2] == ("ERROR", LOST)
            until(lambda: budget.spend(A, 0.001, 0.0) and budget.is_lost)

        quickest(TIMEOUTS / 2, retry, times)


class Blocked:
    """A client that lends so many tokens, and does not answer until ``go_on`` is set."""

    def __init__(self, tokens=1):
        self.tokens, self.go_on = tokens, threading.Event()
        self.asked = self.at_once = self.most_at_once = 0

    def eval(self, *arguments):
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.go_on.wait(30)
        self.at_once -= 1
        return [self.tokens, 1_700_000_000_000]


@pytest.mark.release
def test_on_a_cluster(make_redis):
    """Three nodes: each origin's key is on whichever has its slot, and the script runs there."""
    # They talk at port + 10000.
    nodes = [make_redis("--cluster-enabled", "yes", highest=55_000) for _ in range(3)]
    for n, node in enumerate(nodes):
        slots = map(str, range(n * 5462, min((n + 1) * 5462, 16384)))
        node.ask(f"CLUSTER ADDSLOTS {' '.join(slots)}")
        node.ask(f"CLUSTER MEET 127.0.0.1 {nodes[0].port}")
    until(lambda: all("cluster_state:ok" in str(node.ask("CLUSTER INFO")) for node in nodes))
    with redis.RedisCluster(host="127.0.0.1", port=nodes[0].port, socket_timeout=2) as cluster:
        budget = inline(cluster, burst=5, floor_per_second=0)
        # All on two of three nodes: once in 60,000 times.
        origins = [f"http://{n}.example:80" for n in range(30)]
        assert [take_all(budget, origin) for origin in origins] == [5] * 30
        assert not budget.is_lost
        kept = [node.ask("DBSIZE") for node in nodes]
        assert sum(kept) == 30
        assert min(kept) > 0


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_opens_its_own_connection_and_borrows_for_itself(redis_server):
    """Forked after the parent has borrowed, at the worst moment: with every lock taken."""
    budget = RedisBudget(redis_server.url, name="orders", ratio=0, burst=50, floor_per_second=0)
    assert budget.spend(A, 1.0, 0.0)  # 1 + 5
    idle(budget)
    pool = budget._client.connection_pool
    with budget._lock, pool._lock, pool._fork_lock:
        child = os.fork()
        if child == 0:
            try:
                assert budget.tokens(A, 0.0) == 0
                assert budget.spend(A, 1.0, 0.0)
                idle(budget)
                assert not budget.is_lost
                assert budget.tokens(A, 0.0) == 4  # 1 + 4 of 44
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert budget.tokens(A, 0.0) == 5
    assert stored(redis_server)["tokens"] == 39


def test_a_copy_for_another_process_has_the_same_settings(redis_server):
    """multiprocessing pickles what it spawns with."""
    options = {"ratio": 0.3, "burst": 7, "scope": "transport", "floor_per_second": 0.5}
    budget = RedisBudget(redis_server.url, name="n", command_timeout=2.0, **options)
    twin = at_once(pickle.loads(pickle.dumps(budget)))
    assert {name: getattr(twin, name) for name in options} == options
    assert take_all(twin) == 7


WRONG = [
    ("http://cache", {}, ValueError, "is no URL of a Redis: write redis://"),
    (f"redis://app:{SECRET}/5@cache", {}, ValueError, "percent-encode"),
    (None, {}, TypeError, "a URL or a synchronous client of redis-py, .* got a NoneType"),
    ("redis://cache", {"name": ""}, TypeError, "name must be a text such as 'orders', got ''"),
    ("redis://cache", {"ratio": "0.1"}, TypeError, "ratio must be a number"),
    ("redis://cache", {"burst": 0.5}, ValueError, "burst must be at least 1, got 0.5"),
    ("redis://cache", {"hinted_cost": 2}, ValueError, "hinted_cost must be at most 1, got 2"),
    ("redis://cache", {"scope": "host"}, ValueError, "scope must be one of 'origin', 'transport'"),
    ("redis://cache", {"connect_timeout": 0}, ValueError, "connect_timeout must be more than 0"),
    ("redis://cache", {"command_timeout": None}, TypeError, "command_timeout must be a number"),
    ("redis://cache", {"fallback": 0.5}, TypeError, "fallback must be a RetryBudget, got 0.5"),
    (
        redis.asyncio.Redis(),
        {},
        TypeError,
        "a synchronous client of redis-py, redis.Redis and not redis.asyncio",
    ),
]


@pytest.mark.parametrize(("target", "options", "error", "message"), WRONG)
def test_what_cannot_be_is_refused_at_once(target, options, error, message):
    with pytest.raises(error, match=message) as caught:
        RedisBudget(target, **{"name": "orders", **options})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
