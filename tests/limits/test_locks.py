"""Locks of shared state: what another thread held at a fork does not stay locked in the child."""

import gc
import os
import weakref

import pytest

from forbear import CircuitBreaker, Hedge, Origins, RetryBudget
from forbear.addons.cooldown import Cooldown
from forbear.limits import renew
from forbear.redis import RedisBudget
from forbear.strategies import TokenBucket

from ..processes import python

MAKERS = [
    RetryBudget, TokenBucket, CircuitBreaker, Hedge,
    lambda: Cooldown("all"),
    lambda: Origins(["http://a", "http://b"]),
    lambda: RedisBudget("redis://localhost", name="orders"),
]  # fmt: skip
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def test_every_lock_is_made_anew():
    """What runs in a forked child."""
    for make in MAKERS:
        held, free = make(), make()
        lock = held._lock
        with lock:
            renew()
            assert held._lock is not lock
            for shared in (held, free):
                assert shared._lock.acquire(blocking=False)
                shared._lock.release()


def test_what_nobody_holds_is_freed():
    """Forks renew the locks of all shared things, which must not keep them alive."""
    for make in MAKERS:
        gone = weakref.ref(make())
        gc.collect()
        assert gone() is None


FORK_WITH_THE_LOCK_HELD = """
import os, signal
from forbear import RetryBudget

budget = RetryBudget(burst=5)
budget.spend("a", 1.0, 0.0)
budget._lock.acquire()  # as another thread may have; in the child nobody could let go of it
child = os.fork()
if child == 0:
    signal.alarm(60)
    assert budget.spend("a", 1.0, 0.0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
budget._lock.release()
assert budget.tokens("a", 0.0) == 4  # what the child spends is the child's
"""


@needs_fork
def test_a_fork_while_another_thread_holds_the_lock_does_not_hang_the_child():
    """gunicorn and multiprocessing fork whenever they like."""
    python(FORK_WITH_THE_LOCK_HELD)


FORK_WHILE_A_THREAD_IMPORTS = """
import os, signal, sys, threading, time
import httpx
from forbear import Fixed, RetryPolicy
from forbear.httpx import RetryTransport

policy = RetryPolicy(max_attempts=2, backoff=Fixed(0))
transport = RetryTransport(httpx.MockTransport(lambda _: httpx.Response(503)), policy=policy)
importing = threading.Event()

class Slow:
    def find_spec(self, name, *_):
        if name.startswith("forbear.") and threading.current_thread() is thread:
            importing.set()
            time.sleep(0.3)

def call():
    transport.handle_request(httpx.Request("GET", "http://a/"))

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=call)
thread.start()
importing.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    call()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
@needs_fork
def test_a_fork_while_another_thread_makes_its_first_retry_does_not_hang_the_child():
    """What a retry needs is loaded with the first: the child would wait for that import's lock."""
    python(FORK_WHILE_A_THREAD_IMPORTS, "-W", "ignore")


FORK_WHILE_CALLS_WAIT = """
import logging, os, signal, sys, threading
import httpx
from forbear import CircuitBreaker, Fixed, RetryBudget, RetryGate, RetryPolicy
from forbear.httpx import RetryTransport

logging.getLogger("forbear").setLevel(logging.CRITICAL)

busy = httpx.MockTransport(lambda _: httpx.Response(503))
policy = RetryPolicy(max_attempts=3, backoff=Fixed(0.001), patience=0.02)
lavish = RetryBudget(ratio=1, burst=1000, floor_per_second=1e6)
never = CircuitBreaker(10**9, failure_rate=None)
parts = {"budget": lavish, "breaker": never, "cooldown": "all"}
# One whose calls wait before each retry, and one whose calls are held.
transports = [RetryTransport(busy, policy=policy, gate=gate, **parts) for gate in (None, RetryGate())]
gate = transports[1].port.settings.limits.gate

def call(transport):
    return transport.handle_request(httpx.Request("GET", "http://a/")).status_code

def calls_of_the_child():
    signal.alarm(300)  # a lock that nobody will let go of
    waiting = [transport.port.settings.sleeper.waiting() for transport in transports]
    assert (waiting, gate.held()) == ([0, 0], 0)
    assert [call(transport) for transport in transports for _ in range(2)] == [503] * 4

def work(number):
    while not over.is_set():
        call(transports[number % 2])

sys.setswitchinterval(1e-6)
over = threading.Event()
threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for thread in threads:
    thread.start()
ended = []
for number in range(25):  # as a prefork server and multiprocessing do
    child = os.fork()
    if child == 0:
        calls_of_the_child()
        os._exit(0)
    ended.append(os.waitpid(child, 0)[1])
over.set()
for thread in threads:
    thread.join()
assert set(ended) == {0}, ended
"""


@pytest.mark.slow
@needs_fork
def test_a_child_forked_while_calls_wait_makes_calls_of_its_own():
    """It retries as its parent does, and none of the parent's waiting or held calls is its own."""
    python(FORK_WHILE_CALLS_WAIT, "-W", "ignore")  # Python warns of a fork beside threads
