"""Telemetry: what is told of calls, and to whom. Floor: acts.

| event | level | told when |
| --- | --- | --- |
| attempt_failed | DEBUG | an attempt failed, whatever follows |
| retry_scheduled | INFO | it will be sent again |
| succeeded_after_retry | INFO | an answer was accepted that was not the first one |
| gave_up | WARNING | there is no further attempt although something failed |
| gave_up | DEBUG | the first attempt was refused: nothing was sent |
| circuit_transition | WARNING to open, else INFO | a circuit breaker changed its state, told once by the client \
whose call caused it |
| nested_retry | WARNING, once per client | a request that was given up is itself a retry of an SDK |
| hook_failed | ERROR, once per hook | a listener, ``retry_if``, ``before_attempt`` or a strategy raised |

The logger is ``forbear``; each record carries the event's fields as ``forbear.<field>`` attributes.
``on_event`` callables get the events of core/events.py.
"""
