"""Current: what holds for every call made inside a block, and for every call of a test's process.

One ContextVar keeps the deadline, overridden fields, listeners and the incoming request. Tasks,
``asyncio.to_thread`` and anyio's threads inherit it. The workers of a plain
``ThreadPoolExecutor`` inherit it on a free-threaded Python from 3.14 on, but not on others, so
enter the block inside the function that you submit.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .context import CallContext

CURRENT: ContextVar[CallContext | None] = ContextVar("forbear", default=None)
# What tests set for every call of the process; see forbear.testing.clock.
everywhere: CallContext | None = None


def in_force(context: CallContext | None) -> CallContext | None:
    """Return the innermost scope of a context whose block still counts.

    Tasks that outlive a block keep what held when they were started. A thread may live much longer
    and serve other requests: a worker of a pool that was started inside a block, where threads
    inherit contexts, would keep a deadline that is long over. So a block that has ended no longer
    counts in other threads than the one that entered it.
    """
    while context is not None and context.is_left and context.thread != threading.get_ident():
        context = context.outer
    return context


def with_everywhere(context: CallContext | None) -> CallContext | None:
    """Join what a test sets for the whole process to the scope in force of a context."""
    tests, context = everywhere, in_force(context)
    if tests is None or context is None:
        return context or tests
    return context.joined(tests)
