"""The test kit: retries that take no time, a faulting server, a clock, scripted responses.

It loads no HTTP library that a test does not use itself.

FaultServer: HTTP/1.1 on loopback that fails by script, with a ledger of what arrived::

    with FaultServer() as server:
        server.script("/orders", "503;retry-after=1", "reset", answer(json={"id": 7}))
        response = client.get(server.url + "/orders")  # sent three times
        assert response.json() == {"id": 7}
        assert server.executed("/orders") == 2  # also by "reset"

Every request consumes one step of its path; the last step repeats. The same without a
call, for other programs: ``/s/ID/STEP,STEP,…``, for example ``/s/a1/503,reset,200``, where ID (any
text without a slash) keeps the position and names the requests in the ledger:
``server.requests("/s/a1")``. An ID keeps the steps of its first request. Other paths get a 404.

A step is a status or ``name[:arg][;modifier=value]…``. Values are percent-decoded: write a literal
``;`` as %3B, ``%`` as %25 and, in a URL, ``,`` as %2C. An unknown name is a ValueError (in a URL a
400 that says what is wrong), so that a typo does not pass for a fault.

Steps
    ``NNN``              respond with that status, 200 to 599
    ``reset``            read the whole request, execute it, then RST: not one byte of a response
    ``close``            the same with a FIN
    ``reset-before``     RST the next connection at its first byte, unread and not in the ledger,
                         whatever its path; on an open connection, and in a URL, as ``reset-head``
    ``reset-head``       RST once the head is read; the body stays unread
    ``hang``             read the request and never respond
    ``garbage``          respond with a status line that is not HTTP, then FIN
    ``cut:N``            respond 200 and FIN after N bytes of its body
    ``reset-body:N``     respond 200 and RST after N bytes of its body (fewer reach a peer
                         that leaves more than its kernel's buffer unread)
    ``stale``            FIN without a response if the connection was used before, as a server whose
                         keep-alive ran out; on a fresh connection respond 200 and stay at this step
    ``early:NNN:BYTES``  respond with that status once BYTES of the upload are read, then close
    ``drip``             read the request, then send the bytes of a head one by one, forever

Modifiers of steps that respond (``NNN``, ``cut``, ``reset-body``, ``stale``, ``early``)
    ``retry-after=V`` Retry-After: V          ``header=Name:Value`` add a header; repeatable
    ``body=N`` bytes of content               ``chunked=1`` chunked instead of a Content-Length
    ``head-delay=MS`` pause inside the head   ``drip=MS`` pause between 16 pieces of the body
    ``close=1`` Connection: close             ``delay=MS`` wait before responding
    ``etag=V`` ETag: "V", and Range with If-Range is honoured: 206, or 416 beyond the content;
               ``cut`` and ``reset-body`` then count the bytes of the part
    ``from=N`` content as from its Nth byte, for parts that a script makes itself
    ``executes=0``, ``executes=1`` override whether the request is executed
    ``linger=0`` only ``early``: close at once, which resets what is still being uploaded
The steps that do not respond take ``delay=`` and ``executes=`` (``reset-head`` only ``delay=``,
``reset-before`` neither), ``drip`` also ``interval=MS`` between bytes (50).

Execution is the side effect, and it happens as soon as the body is read, before any delay. A status
of 2xx executes (so do ``cut``, ``reset-body`` and ``stale`` when it responds), ``reset`` and
``close`` execute; nothing else does.

A request with an Idempotency-Key is executed once per path and key. Once it was executed, a retry
gets the whole response with ``Idempotent-Replayed: true`` (200 where the step had none, as in
``reset``), 409 while the first is still in its delay, 422 with another body; these three consume no
step. A request that was not executed leaves its key unused.

``answer(step, json=…, text=…, body=…, headers=…)`` returns a step that responds with the test's own
body: ``answer("cut:5", body=b"a part of this")``.

With ``tls=`` the same faults happen under TLS; FIN is then sent without a close_notify, and
``reset-before`` during the handshake.
"""

from __future__ import annotations

from .clock import FakeClock, RecordedEvents, assert_schedule, disabled, fast, record
from .scripted import ScriptedAdapter, ScriptedTransport
from .server import Arrival, FaultServer
from .steps import Step, answer

__all__ = [
    "Arrival",
    "FakeClock",
    "FaultServer",
    "RecordedEvents",
    "ScriptedAdapter",
    "ScriptedTransport",
    "Step",
    "answer",
    "assert_schedule",
    "disabled",
    "fast",
    "record",
]
