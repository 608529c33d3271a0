"""Events: all records that are emitted to listeners (``on_event=``).

Events cannot be changed and hold no secrets: method, origin, status, class names, durations.
``name`` is the stable name for logs. ``client`` is the transport's ``name=``. ``request_id`` is the
number of the call in this process, the same in all events of the call. Durations are seconds.
"""

from .addons.breaker import CircuitTransition
from .addons.budget import BudgetExhausted
from .addons.hedge import Hedged
from .addons.resume import Resumption
from .telemetry.ends import CallEnded, CallOutcome
from .telemetry.events import (
    AttemptDelayed,
    AttemptFailed,
    FailedOver,
    GaveUp,
    Released,
    RetryAfterIgnored,
    RetryScheduled,
    SucceededAfterRetry,
)

__all__ = [
    "AttemptDelayed",
    "AttemptFailed",
    "BudgetExhausted",
    "CallEnded",
    "CallOutcome",
    "CircuitTransition",
    "Event",
    "FailedOver",
    "GaveUp",
    "Hedged",
    "Released",
    "Resumption",
    "RetryAfterIgnored",
    "RetryScheduled",
    "SucceededAfterRetry",
]

Event = (
    AttemptFailed | RetryScheduled | Released | AttemptDelayed | Hedged | FailedOver | GaveUp
    | SucceededAfterRetry | CircuitTransition | BudgetExhausted | RetryAfterIgnored | Resumption
)  # fmt: skip
