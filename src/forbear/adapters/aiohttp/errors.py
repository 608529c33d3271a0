"""Errors of aiohttp: what each of its exceptions means.

Classified by class and cause, never by the text. What is raised where was read in aiohttp 3.12.14
to 3.14.5. Rules S7-S10 of tests/corpus/retry_safety.json.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError

from ...core.outcome import Failure, FailureKind, Phase
from ...errors import ForbearError

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

K, UNSENT, SENT, ANSWERED = FailureKind, Phase.UNSENT, Phase.SENT, Phase.ANSWERED

# Looked up along the MRO, so a base stands for subclasses that are not named.
MEANING: dict[type, tuple[FailureKind, Phase]] = {
    # Of the connector: there was no connection to send anything on.
    aiohttp.ClientConnectorCertificateError: (K.CERTIFICATE, UNSENT),
    aiohttp.ServerFingerprintMismatch: (K.CERTIFICATE, UNSENT),
    aiohttp.ClientSSLError: (K.TLS, UNSENT),
    aiohttp.ClientConnectorDNSError: (K.DNS, UNSENT),
    aiohttp.ClientProxyConnectionError: (K.PROXY, UNSENT),
    aiohttp.ClientConnectorError: (K.REFUSED, UNSENT),
    aiohttp.ConnectionTimeoutError: (K.CONNECT_TIMEOUT, UNSENT),
    # On a connection: anything may have been read.
    aiohttp.SocketTimeoutError: (K.READ_TIMEOUT, SENT),
    aiohttp.ServerTimeoutError: (K.TIMEOUT, SENT),
    aiohttp.ClientConnectionError: (K.RESET, SENT),
    aiohttp.ClientPayloadError: (K.PROTOCOL, ANSWERED),
    TimeoutError: (K.TIMEOUT, SENT),  # ClientTimeout.total
    OSError: (K.RESET, SENT),
    # What came is not HTTP. Those about a response that is HTTP are of this class, without a cause.
    aiohttp.ClientResponseError: (K.PROTOCOL, SENT),
    # Never.
    aiohttp.InvalidURL: (K.PERMANENT, UNSENT),
    aiohttp.NonHttpUrlClientError: (K.PERMANENT, UNSENT),
    aiohttp.RedirectClientError: (K.PERMANENT, ANSWERED),
    ForbearError: (K.PERMANENT, UNSENT),  # our own refusals
    UnicodeError: (K.PERMANENT, UNSENT),  # a host name that IDNA refuses
    aiohttp.ClientError: (K.PROTOCOL, SENT),
}
# After these a session of aiohttp may retry once by itself.
REPEATED = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


def classify(error: BaseException) -> Failure:
    """Say what an exception means: its kind, and how far the request got. Never raises."""
    known = (MEANING[base] for base in type(error).__mro__ if base in MEANING)
    kind, phase = next(known, (K.UNKNOWN, SENT))
    if isinstance(error, aiohttp.ClientHttpProxyError):  # the response to CONNECT
        kind, phase = (K.PERMANENT if 400 <= error.status < 500 else K.PROXY), UNSENT
    elif isinstance(error, aiohttp.ClientResponseError) and error.__cause__ is None:
        kind, phase = K.PERMANENT, ANSWERED
    elif isinstance(error.__cause__, ContentEncodingError):
        kind = K.DECODING
    return Failure(kind, phase, error=type(error).__name__)


def is_lost(error: BaseException) -> bool:
    """Was the connection lost while the body was written?

    aiohttp 3.14 then tries to read the response from no protocol, if the body was written at once.
    """
    return isinstance(error, AttributeError) and error.obj is None and error.name == "read"


def is_full(request: aiohttp.ClientRequest) -> bool:
    """Did the request wait for a connection of the session's own pool?"""
    connector, key = request.session.connector, request.connection_key
    with suppress(AttributeError):
        return connector._available_connections(key) <= 0  # type: ignore[union-attr]
    return False


def idle_since(request: aiohttp.ClientRequest, instant: float) -> list[ResponseHandler]:
    """The connections to where a request went that have been idle since before an instant.

    The instant is on the system's monotonic clock.
    """
    connector, key = request.session.connector, request.connection_key
    with suppress(AttributeError, TypeError, ValueError):
        waiting = connector._conns.get(key, ())  # type: ignore[union-attr]
        return [one for one, since in waiting if since < instant and one.is_connected()]
    return []
