"""The urllib3 family: what the adapters for requests and urllib3 share, duck-typed. Floor: acts.

| file | owns |
| --- | --- |
| errors.py | what each exception of the two libraries means |
| bridge.py | ``Retry``, for libraries that take only one of urllib3 |
| carried.py | what one call carries from Retry to Retry |
| draining.py | letting go of a failed answer within bounds |
| splicing.py | a streamed body that goes on on another connection |
| framing.py | where in a chunked body its reader stands |

forbear/requests.py and forbear/urllib3.py combine that with their library's own classes; requests
raises its own, around those of urllib3.
"""
