"""Errors of the urllib3 family: what each exception of requests and urllib3 means.

Classified by class and by the error inside, never by the text, with one exception that the rules
ask for: a proxy's status is only in its message. Names are enough, so neither library is imported.
Rules S7-S10 of tests/corpus/retry_safety.json; what is raised where was read in requests 2.31.0 and
2.34.2, urllib3 2.0.7 and 2.8.0.

Where the error inside stands: requests' ``args[0]``, ``MaxRetryError.reason``,
``ProxyError.original_error``, the last of ``ProtocolError.args``, ``SSLError.args[0]``,
``socket_err`` of PySocks' errors; else ``__cause__``.
"""

from __future__ import annotations

from ...core.outcome import RETRYABLE_KINDS, Failure, FailureKind, Phase
from ...engine.errors import is_socket_error, socket_failure_kind
from ...errors import ForbearError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Meaning = tuple[FailureKind, Phase]

K, UNSENT, SENT, ANSWERED = FailureKind, Phase.UNSENT, Phase.SENT, Phase.ANSWERED


def by_name(table: dict[Meaning, str]) -> dict[str, Meaning]:
    return {name: meaning for meaning, names in table.items() for name in names.split()}


# Class name -> what it means by itself. Looked up along the MRO, so a base stands for subclasses
# not named. Bare bases: something of the pool, anything may have been sent.
OF_URLLIB3: dict[Meaning, str] = {
    (K.REFUSED, UNSENT): "NewConnectionError",
    (K.DNS, UNSENT): "NameResolutionError",
    (K.CONNECT_TIMEOUT, UNSENT): "ConnectTimeoutError",
    (K.POOL, UNSENT): "EmptyPoolError",
    # Also a TLS handshake or CONNECT that stalled: CONNECTING tells.
    (K.READ_TIMEOUT, SENT): "ReadTimeoutError",
    # A TLS 1.3 server refuses a client's certificate after it read the request.
    (K.TLS, SENT): "SSLError",
    (K.PROXY, SENT): "ProxyError",  # also raised after a forward proxy had read the request
    (K.PROTOCOL, SENT): "ProtocolError MaxRetryError RequestError PoolError HTTPError",
    (K.PROTOCOL, ANSWERED): "InvalidHeader IncompleteRead InvalidChunkLength",
    (K.TIMEOUT, SENT): "TimeoutError",
    # Never. ResponseError: an inner retry loop gave up.
    (K.DECODING, ANSWERED): "DecodeError",
    (K.PERMANENT, ANSWERED): "ResponseError ResponseNotChunked BodyNotHttplibCompatible",
    (K.PERMANENT, UNSENT): "FullPoolError ClosedPoolError HostChangedError LocationValueError"
    " LocationParseError URLSchemeUnknown ProxySchemeUnknown ProxySchemeUnsupported"
    " TimeoutStateError",
    (K.PERMANENT, SENT): "UnrewindableBodyError",
    (K.UNKNOWN, SENT): "HeaderParsingError",  # urllib3 logs it and continues
}
OF_REQUESTS: dict[Meaning, str] = {
    (K.CONNECT_TIMEOUT, UNSENT): "ConnectTimeout",
    (K.READ_TIMEOUT, SENT): "ReadTimeout",
    (K.RESET, SENT): "ConnectionError",
    (K.TLS, SENT): "SSLError",
    (K.PROXY, SENT): "ProxyError",
    (K.PROTOCOL, ANSWERED): "ChunkedEncodingError",
    (K.TIMEOUT, SENT): "Timeout",
    (K.PROTOCOL, SENT): "RequestException",
    # Never. RetryError: an inner retry loop gave up.
    (K.DECODING, ANSWERED): "ContentDecodingError",
    (K.PERMANENT, ANSWERED): "RetryError HTTPError TooManyRedirects StreamConsumedError"
    " JSONDecodeError",
    (K.PERMANENT, UNSENT): "InvalidJSONError InvalidURL InvalidProxyURL MissingSchema InvalidSchema"
    " URLRequired",
    (K.PERMANENT, SENT): "InvalidHeader UnrewindableBodyError",
}
URLLIB3, REQUESTS = by_name(OF_URLLIB3), by_name(OF_REQUESTS)
LIBRARIES = {
    "urllib3.exceptions": URLLIB3,
    "requests.exceptions": REQUESTS,
    "h2.exceptions": {"H2Error": (K.PROTOCOL, SENT)},
}
# Classes that only pass on what the error inside them means.
WRAPPERS = ("MaxRetryError", "ConnectionError", "ChunkedEncodingError")
# http.client: a proxy refused CONNECT with another status than 200.
TUNNEL_REFUSED = "Tunnel connection failed: "
CONNECTING = "_forbear_connecting"  # attribute of errors raised before a request was written
# What is broken, or late, is a connection that never came up.
KINDS_OF_CONNECTING = {K.RESET: K.REFUSED, K.READ_TIMEOUT: K.CONNECT_TIMEOUT}
DEEPEST, MOST = 8, 16  # levels and errors inspected; a cause may be set to anything


def classify(error: BaseException) -> Failure:
    """Say what an exception raised by a requests adapter or a urllib3 pool means.

    The phase is what the classes prove. A caller that had the head of the response when this was
    raised knows more: ``Phase.ANSWERED`` instead of ``SENT``.
    """
    kind, phase = meaning(error)
    if kind is not K.PERMANENT:
        if any(map(is_certificate_error, tree(error))):
            kind, phase = K.CERTIFICATE, UNSENT
        elif phase is SENT and kind in RETRYABLE_KINDS and is_of_connecting(error):
            kind, phase = KINDS_OF_CONNECTING.get(kind, kind), UNSENT
    return Failure(kind, phase, error=type(error).__name__)


def is_of_connecting(error: BaseException, depth: int = 0) -> bool:
    """Is an error so marked, or the one that it was made of? No other cause of it counts."""
    if hasattr(error, CONNECTING):
        return True
    inner = next(below(error), None)
    return inner is not None and depth < DEEPEST and is_of_connecting(inner, depth + 1)


def meaning(error: BaseException, depth: int = 0) -> Meaning:
    # Our own refusals; a host name that IDNA refuses.
    if isinstance(error, (ForbearError, UnicodeError)):
        return K.PERMANENT, UNSENT
    found = named(error)
    if found is None or depth > DEEPEST:
        return K.UNKNOWN, SENT
    name, own = found
    if name == "ProxyError":
        return proxy_meaning(error, depth)
    inner = next(below(error), None)
    if inner is None:
        return own
    if name == "ProtocolError":
        return socket_meaning(inner) or own
    if name in WRAPPERS:
        passed_on = meaning(inner, depth + 1)
        kind, phase = socket_meaning(inner) or own if passed_on[0] is K.UNKNOWN else passed_on
        # Without a MaxRetryError: while the body was read.
        has_timed_out = name == "ConnectionError" and type(inner).__name__ == "ReadTimeoutError"
        return kind, ANSWERED if has_timed_out or name == "ChunkedEncodingError" else phase
    kind, phase = own
    if phase is UNSENT and kind in RETRYABLE_KINDS:
        if not all(from_sockets(each) or proves_unsent(each, depth) for each in below(error)):
            return kind, SENT
        if kind is K.REFUSED and socket_failure_kind(type(inner)) is K.DNS:
            return K.DNS, UNSENT
    return kind, phase


def proxy_meaning(error: BaseException, depth: int) -> Meaning:
    """Nothing was sent if the proxy was not reached or refused the tunnel; a ProxyError alone
    proves nothing.
    """
    for each in tree(error):
        text = each.args[0] if each.args else None
        if isinstance(text, str) and text.startswith(TUNNEL_REFUSED):
            # A retry cannot change a status of 4xx.
            is_permanent = text.removeprefix(TUNNEL_REFUSED).startswith("4")
            return K.PERMANENT if is_permanent else K.PROXY, UNSENT
    inner = next(below(error), None)
    return K.PROXY, UNSENT if inner is not None and proves_unsent(inner, depth) else SENT


def proves_unsent(error: BaseException, depth: int) -> bool:
    kind, phase = meaning(error, depth + 1)
    return phase is UNSENT and kind in RETRYABLE_KINDS


def named(error: BaseException) -> tuple[str, Meaning] | None:
    for cls in type(error).__mro__:
        found = LIBRARIES.get(cls.__module__, {}).get(cls.__name__)
        if found is not None:
            return cls.__name__, found
    return None


def below(error: BaseException) -> Iterator[BaseException]:
    """The errors directly inside one, the library's own link first.

    Never ``__context__``, except of PySocks: a caller that sends this request while it handles an
    error of its own would have that error taken for the network's.
    """
    context = error.__context__  # urllib3 raises NewConnectionError of it without ``from``
    links = (
        getattr(error, "reason", None),
        getattr(error, "original_error", None),
        getattr(error, "socket_err", None),
        context if type(context).__module__ == "socks" else None,
        *error.args,
        error.__cause__,
    )
    return (link for link in links if isinstance(link, BaseException))


def tree(error: BaseException) -> list[BaseException]:
    """An error and all inside it, nearest first."""
    found = [error]
    for each in found:
        for inner in below(each):
            if len(found) < MOST and not any(inner is known for known in found):
                found.append(inner)
    return found


def socket_meaning(error: BaseException) -> Meaning | None:
    """Classify an error of the socket or of http.client once a connection was requested."""
    import http.client

    if isinstance(error, http.client.IncompleteRead):  # only a body has a length to fall short of
        return K.PROTOCOL, ANSWERED
    if isinstance(error, http.client.InvalidURL):  # found before the first byte
        return K.PERMANENT, UNSENT
    if isinstance(error, OSError):
        if isinstance(error, TimeoutError):  # of writing; reading has a class of its own
            return K.WRITE_TIMEOUT, SENT
        if isinstance(error, ConnectionRefusedError):
            return K.REFUSED, SENT
        return socket_failure_kind(type(error)) or K.RESET, SENT
    return (K.PROTOCOL, SENT) if isinstance(error, http.client.HTTPException) else None


def from_sockets(error: BaseException) -> bool:
    """Did the socket layer raise this, or PySocks, which is under urllib3's SOCKS proxies?"""
    cls = type(error)
    return is_socket_error(cls) or (isinstance(error, OSError) and cls.__module__ == "socks")


def is_certificate_error(error: BaseException) -> bool:
    cls = type(error)
    if socket_failure_kind(cls) is K.CERTIFICATE:
        return True
    if cls.__name__ == "SSLError" and cls.__module__ == "urllib3.exceptions":
        # Around no error of ssl: urllib3's own check, of assert_fingerprint for instance.
        return bool(error.args) and next(below(error), None) is None
    # Its check of the host name, with assert_hostname= or pyOpenSSL.
    return cls.__name__ == "CertificateError" and cls.__module__.endswith("ssl_match_hostname")
