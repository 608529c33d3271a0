"""Telemetry: the table of events, log sentences, metrics and spans.

``on_event`` takes callables that get the events of ``forbear.events``, such as the listeners of
forbear.telemetry.prometheus and .otel. A listener may also have

- ``wants_calls = True``: it gets a ``CallEnded`` for every call, also for one that succeeds at
  once; such a call then costs about 2 µs more;
- ``call_succeeded(client, method, origin, status, elapsed)``, in addition to ``wants_calls``:
  called for a call that succeeds at once in place of the event, which is then not built;
- ``needs_ends = True``: it gets a ``CallEnded`` for every call that may have emitted an event,
  which costs other calls nothing. Such a listener gets no events where the end of a call is not
  known, in forbear.urllib3's ``Retry``;
- ``watch(gauges)``: called with the ``EventLog`` of each transport that the listener is given to:
  its ``client``, ``limits``, ``clock`` and ``waiting()`` are gauges. It must keep a weak reference
  only.

The metrics are in ``forbear.telemetry.metrics``. Attempts are what went over the wire: first
attempts and retries. A request for the rest of a body counts as a retry for ``body`` and as an
attempt of the kind ``resume``; how that ended is in ``forbear.resumes``.

events.py, facts.py and event_log.py are loaded with the first listener, or the first
line that is logged; ends.py by a listener that wants the ends of calls, metrics.py by one that
counts.
"""
