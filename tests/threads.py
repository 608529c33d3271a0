"""Threads that do the same thing at the same moment."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


def in_threads(count, work):
    """Run ``work(n)`` in so many threads at once; return what each returned, or raise what the
    first one raised.
    """
    start = threading.Barrier(count)

    def run(n):
        start.wait(30)
        return work(n)

    with ThreadPoolExecutor(count) as pool:
        return [done.result() for done in [pool.submit(run, n) for n in range(count)]]


@contextmanager
def hasty():
    """Let threads give way to each other as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
