"""Errors of the httpx family: what each exception of httpx, httpx2, httpcore and httpcore2 means.

Classified by class and cause, never by the text, with one exception that the rules ask for: a
proxy's status, or its refusal of a login, is only in its message. Names are enough, since both
families use the same ones and no class is shared; ``roots`` says which modules a transport belongs
to. Rules S7-S10 of tests/corpus/retry_safety.json; what is raised where was read in httpcore 1.0.9
and httpcore2 2.16.2.
"""

from __future__ import annotations

import re
from traceback import walk_tb

from ...core.outcome import Failure, FailureKind, Phase
from ...engine.errors import is_socket_error, socket_failure_kind
from ...errors import ForbearError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

K, UNSENT, SENT, ANSWERED = FailureKind, Phase.UNSENT, Phase.SENT, Phase.ANSWERED

# Class name -> what it means. Looked up along the MRO, so a base stands for subclasses not named.
MEANING: dict[str, tuple[FailureKind, Phase]] = {
    "ConnectError": (K.REFUSED, UNSENT),
    "ConnectTimeout": (K.CONNECT_TIMEOUT, UNSENT),
    "ProxyError": (K.PROXY, UNSENT),
    "PoolTimeout": (K.POOL, UNSENT),
    "ConnectionNotAvailable": (K.UNPROCESSED, UNSENT),  # httpcore's own signal; its pool catches it
    "ReadTimeout": (K.READ_TIMEOUT, SENT),
    "WriteTimeout": (K.WRITE_TIMEOUT, SENT),
    "RemoteProtocolError": (K.PROTOCOL, SENT),
    # Bare bases: something of the transport, anything may have been sent.
    "TimeoutException": (K.TIMEOUT, SENT),
    "NetworkError": (K.RESET, SENT),
    "ProtocolError": (K.PROTOCOL, SENT),
    "HTTPError": (K.PROTOCOL, SENT),
    # Never.
    "DecodingError": (K.DECODING, ANSWERED),
    "UnsupportedProtocol": (K.PERMANENT, UNSENT),
    "LocalProtocolError": (K.PERMANENT, SENT),
    "InvalidURL": (K.PERMANENT, UNSENT),
    "CookieConflict": (K.PERMANENT, UNSENT),
    "TooManyRedirects": (K.PERMANENT, ANSWERED),
    "HTTPStatusError": (K.PERMANENT, ANSWERED),
    "StreamError": (K.PERMANENT, SENT),
    "SSEError": (K.PERMANENT, ANSWERED),
}
BY_CLASS = frozenset({K.UNKNOWN, K.PERMANENT})  # whatever their cause
CORES = ("httpcore", "httpcore2")
# Below httpcore, which does not map their errors everywhere: in a body, for example. Those of h11
# are named as the library's; its local one is a body that does not fit its Content-Length.
BELOW = {"h2": "RemoteProtocolError", "socksio": "ProxyError"}
REFUSED_STREAM = 7  # RFC 9113 section 7
FULL = "TooManyStreamsError"  # of h2: the connection has as many streams as are allowed
# A proxy refused CONNECT with 4xx, or a SOCKS proxy the credentials: a retry cannot change that.
PROXY_REFUSAL = re.compile(
    r"4[0-9]{2}( |\Z)|Invalid username/password|Requested [A-Z /]+ from proxy"
)
MOST_CAUSES = 16


def classify(error: BaseException, roots: tuple[str, ...]) -> Failure:
    """Say what an exception means to a transport of the family whose modules are ``roots``."""
    cls: type = type(error)
    kind, phase = meaning_of_class(cls, roots)
    if cls.__name__ == "LocalProtocolError" and is_fault_of_peer(error):
        kind = K.PROTOCOL
    if kind not in BY_CLASS:
        kind, phase = by_cause(error, kind, phase)
    return Failure(kind, phase, error=cls.__name__)


def meaning_of_class(cls: type, roots: tuple[str, ...]) -> tuple[FailureKind, Phase]:
    """Say what a class of exceptions means, whatever its cause."""
    if issubclass(cls, (ForbearError, UnicodeError)):
        return K.PERMANENT, UNSENT  # our own refusals; a host name that IDNA refuses
    for base in cls.__mro__:
        if root(base) in (*roots, "h11") and base.__name__ in MEANING:
            return MEANING[base.__name__]
    return MEANING[BELOW[root(cls)]] if root(cls) in BELOW else (K.UNKNOWN, SENT)


def by_cause(error: BaseException, kind: FailureKind, phase: Phase) -> tuple[FailureKind, Phase]:
    """Correct the meaning of an error's class by what its causes show."""
    causes = chain(error)
    kinds = set(map(socket_failure_kind, map(type, causes)))
    if K.CERTIFICATE in kinds:
        return K.CERTIFICATE, UNSENT
    if kind is K.PROXY and PROXY_REFUSAL.match(str(error)):
        return K.PERMANENT, UNSENT
    if phase is UNSENT and kind is not K.POOL:
        if not is_trusted(error):
            return kind, SENT
        if kind is K.REFUSED:
            kind = next((one for one in (K.DNS, K.TLS) if one in kinds), kind)
    elif kind is K.PROTOCOL:
        if any(is_unprocessed(cause) for cause in (error, *causes)):
            return K.UNPROCESSED, UNSENT
        if is_disconnect(error):
            return K.RESET, SENT
    return kind, phase


def root(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def chain(error: BaseException) -> list[BaseException]:
    """The causes below an error, nearest first; bounded, since a cause may be set to anything.

    Never ``__context__``: a caller that sends this request while it handles an error of its own
    would have that error taken for the network's.
    """
    causes: list[BaseException] = []
    while len(causes) < MOST_CAUSES:
        cause = error.__cause__
        if cause is None and error.args and isinstance(error.args[0], BaseException):
            cause = error.args[0]  # httpcore keeps what it mapped there too
        if cause is None:
            break
        causes.append(cause)
        error = cause
    return causes


def is_trusted(error: BaseException) -> bool:
    """Does the cause confirm that nothing was sent?

    The class alone does not: a foreign inner transport such as httpx-aiohttp reports a request that
    the server had read and dropped as ConnectTimeout, and a retry would execute it twice.
    """
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        # Raised without ``from``, so by a foreign transport: the family always writes it.
        cause = error.__context__
    if cause is None or root(type(error)) in CORES:
        return True
    return root(type(cause)) in CORES or is_socket_error(type(cause))


def is_unprocessed(error: BaseException) -> bool:
    """HTTP/2: the peer says that it did not process this request, or h2 did not send it.

    REFUSED_STREAM: RFC 9113 section 8.7; GOAWAY with last stream 0: section 6.8. ENHANCE_YOUR_CALM
    and CANCEL prove nothing.
    """
    if type(error).__name__ == FULL:  # and not: the peer has opened more than it may
        return raised_in(error).endswith(".send_headers")
    event: Any = error.args[0] if error.args else None
    name = type(event).__name__
    if name == "StreamReset":
        return (event.remote_reset, event.error_code) == (True, REFUSED_STREAM)
    return name == "ConnectionTerminated" and getattr(event, "last_stream_id", None) == 0


def is_fault_of_peer(error: BaseException) -> bool:
    """HTTP/2: httpcore calls what h2 raises local, also where the peer has broken the protocol.

    Local is only a header that h2 refuses to send. It checks those in a module of their own.
    """
    found = next((one for one in chain(error) if root(type(one)) == "h2"), None)
    is_of_header = found is not None and raised_in(found).startswith("h2.utilities.")
    return found is not None and not (is_of_header and type(found).__name__ == "ProtocolError")


def raised_in(error: BaseException) -> str:
    """The module and the function that raised an error; empty: nothing shows it."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return f"{frames[-1].f_globals['__name__']}.{frames[-1].f_code.co_name}" if frames else ""


def own_error(error: Exception, module: ModuleType) -> Exception:
    """Make the library's own error of one from below that it has not mapped; else return it."""
    package = root(type(error))
    if package not in (*BELOW, "h11", *CORES):
        return error
    name = BELOW.get(package, type(error).__name__)
    made: Exception = getattr(module, name, module.RemoteProtocolError)(str(error))
    made.__cause__ = error
    return made


def is_disconnect(error: BaseException) -> bool:
    """The peer closed without a response: httpcore raises that itself, while bad HTTP has h11's
    error as cause.
    """
    core = error if root(type(error)) in CORES else error.__cause__
    if core is None or root(type(core)) not in CORES or core.__cause__ is not None:
        return False
    # A text, not an event of h2 such as ENHANCE_YOUR_CALM or CANCEL.
    return bool(core.args) and isinstance(core.args[0], str)
