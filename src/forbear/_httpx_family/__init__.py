"""The httpx family: what the transports for httpx and httpx2 share, duck-typed. Floor: acts.

| file | owns |
| --- | --- |
| transports.py | options, and the door that a first attempt which succeeds goes through |
| exchange.py | one call that did not: sending, judging, discarding, handing over |
| bodies.py | which request bodies can be produced again; a guard around those that cannot |
| prefetching.py | small response bodies, read inside the loop |
| resuming.py | large ones, gone on with after they broke |
| timeouts.py | a deadline as the library's own timeouts |
| pools.py | slots that a pool has lost |
| redirects.py | what the hops of a redirected call share |
| errors.py | what each exception means |
| wrapping.py | ``wrap`` and ``unwrap``; which inner transports are taken |

forbear/httpx.py and forbear/httpx2.py combine all that with their library's own classes, of which
none is shared. Private attributes relied on, each guarded by
tests/adapters/test_private_attributes.py: ``_transport`` and ``_mounts`` of clients, ``_pool`` of
HTTPTransport, of it ``_retries``, ``_optional_thread_lock``, ``_requests`` and ``_connections``, of
these ``_connection`` and ``_connect_failed``, ``_list`` of Headers, ``_httpcore_stream`` of
(Async)ResponseStream, ``_stream`` of that, ``_connection`` of that, of this ``_h11_state`` and
``_network_stream``, ``_stream`` of (Async)IteratorByteStream, ``fields`` of MultipartStream and
``file`` of its FileField.
"""
