"""The meaning of each exception of httpx and httpx2 by class and cause (S7-S10). The corpus is
tests/core/test_decide.py's; each class without a cause test_private_attributes.py's.
"""

import builtins
import ssl
from typing import Any

import httpx
import httpx2
import pytest

import forbear.httpx
import forbear.httpx2
from forbear import FailureKind
from forbear.strategies import Phase

from ..httpx_errors import chained, class_named, exception_of

FAMILIES = {"httpx": (httpx, forbear.httpx), "httpx2": (httpx2, forbear.httpx2)}
families = pytest.mark.parametrize("family", FAMILIES)


def mapped(name: str, *causes: Any) -> list[Any]:
    """As httpx makes it of httpcore's error of the same name."""
    return [f"httpx.{name}", f"httpcore.{name}", *causes]


class AioHttpError(OSError):
    """As aiohttp's ClientOSError: an OSError, but not of the socket layer."""

    __module__ = "aiohttp.client_exceptions"


NO_CERTIFICATE = ssl.SSLCertVerificationError(1, "certificate verify failed")
# As PyPy names them.
PYPY_GAIERROR = type("gaierror", (OSError,), {"__module__": "_socket"})
OF_CFFI = {"__module__": "_cffi_ssl._stdssl.error"}
PYPY_CERTIFICATE_ERROR = type("SSLCertVerificationError", (ssl.SSLError,), OF_CFFI)
KINDS: list[Any] = [
    (mapped("ConnectError", OSError(113, "No route")), "refused", "unsent"),
    (["httpx.ConnectError", OSError(111, "refused")], "refused", "unsent"),
    (mapped("ConnectError", "socket.gaierror"), "dns", "unsent"),
    (mapped("ConnectError", "ssl.SSLError"), "tls", "unsent"),
    (mapped("ConnectError", "ssl.SSLZeroReturnError"), "tls", "unsent"),
    (mapped("ConnectTimeout", TimeoutError()), "connect-timeout", "unsent"),
    # A foreign inner transport proves nothing with its own classes.
    (["httpx.ConnectError", AioHttpError("dropped")], "refused", "sent"),
    (["httpx.ConnectTimeout", RuntimeError()], "connect-timeout", "sent"),
    (["httpx.ProxyError", AioHttpError("502 Bad Gateway")], "proxy", "sent"),
    # A certificate: never, whatever class wraps it.
    (mapped("ConnectError", NO_CERTIFICATE), "certificate", "unsent"),
    (mapped("ReadError", NO_CERTIFICATE), "certificate", "unsent"),
    (mapped("ProxyError", NO_CERTIFICATE), "certificate", "unsent"),
    (mapped("ConnectError", PYPY_CERTIFICATE_ERROR(1, "failed")), "certificate", "unsent"),
    (mapped("ConnectError", PYPY_GAIERROR(-2, "not known")), "dns", "unsent"),
    (["httpx.ConnectError", PYPY_GAIERROR(-2, "not known")], "dns", "unsent"),
    # Maybe sent.
    (mapped("ReadTimeout", TimeoutError()), "read-timeout", "sent"),
    # Of h2, which httpcore calls local; and from below httpcore, as it is.
    (mapped("LocalProtocolError", "h2.exceptions.FlowControlError"), "protocol", "sent"),
    (["h2.exceptions.ProtocolError"], "protocol", "sent"),
    (["h11.RemoteProtocolError"], "protocol", "sent"),
    (["socksio.exceptions.ProtocolError"], "proxy", "unsent"),
    # Local.
    (mapped("LocalProtocolError", "h11.LocalProtocolError"), "permanent", "sent"),
    (["h11.LocalProtocolError"], "permanent", "sent"),
    ([UnicodeError("label too long")], "permanent", "unsent"),
    ([ValueError("theirs")], "unknown", "sent"),
    ([OSError("theirs")], "unknown", "sent"),
    ([TimeoutError()], "unknown", "sent"),
    ([MemoryError()], "unknown", "sent"),
]


@families
def test_classify(family: str) -> None:
    for links, kind, phase in KINDS:
        failure = FAMILIES[family][1].classify(chained(family, *links))
        assert (failure.kind, failure.phase) == (kind, phase), links


def test_the_other_familys_exceptions_are_not_ones_own() -> None:
    for library, ours in ((httpx, forbear.httpx2), (httpx2, forbear.httpx)):
        assert ours.classify(library.ConnectError("")).kind is FailureKind.UNKNOWN


REFUSALS = ["407 Proxy Authentication Required", "403 Forbidden", "400"]
OTHERS = ["502 Bad Gateway", "503", "301 Moved", "4", "", "4xx", "40٣", "4070 is no status"]
OTHERS += ["Connection to 407.example refused"]


@families
@pytest.mark.parametrize(("texts", "kind"), [(REFUSALS, "permanent"), (OTHERS, "proxy")])
def test_a_proxy_that_refused_will_refuse_again(texts: list[str], kind: str, family: str) -> None:
    """S9: CONNECT answered with 4xx is final; with anything else the origin saw nothing either."""
    for text in texts:
        error = class_named("httpx.ProxyError", family)(text)
        error.__cause__ = class_named("httpcore.ProxyError", family)(text)
        failure = FAMILIES[family][1].classify(error)
        assert (failure.kind, failure.phase) == (kind, "unsent")


def reset(code: int, *, by_peer: bool = True) -> dict[str, Any]:
    return {"event": "StreamReset", "stream_id": 1, "error_code": code, "remote_reset": by_peer}


def goaway(code: int, last: int | None) -> dict[str, Any]:
    return {"event": "ConnectionTerminated", "error_code": code, "last_stream_id": last}


# RFC 9113 section 7: REFUSED_STREAM 7, CANCEL 8, ENHANCE_YOUR_CALM 11, INTERNAL_ERROR 2,
# HTTP_1_1_REQUIRED 13. Section 6.8: streams above the last identifier were not processed.
REMOTE = {"exception": "httpx.RemoteProtocolError", "wraps": ["httpcore.RemoteProtocolError"]}
GOAWAY_0 = {**REMOTE, "h2": goaway(0, 0)}
UNPROCESSED = [reset(7), goaway(0, 0), goaway(11, 0)]
PROCESSED = [reset(7, by_peer=False), *map(reset, (8, 11, 2, 13)), goaway(0, 1), goaway(0, None)]


@families
def test_what_http2_says_about_a_stream(family: str) -> None:
    for event in (*UNPROCESSED, *PROCESSED):
        failure = FAMILIES[family][1].classify(exception_of({**GOAWAY_0, "h2": event}, family))
        # Not a reset either: ENHANCE_YOUR_CALM is no momentary cause that asks for a retry at once.
        expected = ("unprocessed", "unsent") if event in UNPROCESSED else ("protocol", "sent")
        assert (failure.kind, failure.phase) == expected, event


@families
@pytest.mark.parametrize("handled", ["certificate", "goaway", "dns"])
def test_an_error_that_the_caller_is_handling_is_not_the_cause(family: str, handled: str) -> None:
    module, adapter = FAMILIES[family]
    earlier: dict[str, list[Any]] = {
        "certificate": mapped("ConnectError", NO_CERTIFICATE),
        "goaway": [exception_of(GOAWAY_0, family)],
        "dns": mapped("ConnectError", "socket.gaierror"),
    }
    name = "RemoteProtocolError" if handled == "goaway" else "ConnectError"
    try:
        raise chained(family, *earlier[handled])
    except module.TransportError:
        with pytest.raises(module.TransportError) as caught:
            try:
                raise class_named(f"httpcore.{name}", family)("Server disconnected")
            except Exception as core:
                raise getattr(module, name)("Server disconnected") from core
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__context__ is not None  # so there is something to be misled by
    failure = adapter.classify(caught.value)
    expected = ("reset", "sent") if handled == "goaway" else ("refused", "unsent")
    assert (failure.kind, failure.phase) == expected


@families
def test_a_foreign_transport_that_forgets_from_proves_nothing(family: str) -> None:
    module, adapter = FAMILIES[family]
    with pytest.raises(module.ConnectTimeout) as caught:
        try:
            raise AioHttpError("server dropped the request")
        except OSError:
            raise module.ConnectTimeout("…")  # noqa: B904
    assert adapter.classify(caught.value).phase is Phase.SENT


@families
def test_a_circle_of_causes_ends(family: str) -> None:
    module, adapter = FAMILIES[family]
    one, two = module.ReadError("one"), module.ReadError("two")
    one.__cause__, two.__cause__ = two, one
    assert adapter.classify(one).kind is FailureKind.RESET


def test_classify_takes_anything() -> None:
    for cls in vars(builtins).values():
        if isinstance(cls, type) and issubclass(cls, BaseException):
            is_group = issubclass(cls, BaseExceptionGroup)
            error = cls.__new__(cls, "", [ValueError()]) if is_group else cls.__new__(cls)
            kind = forbear.httpx.classify(error).kind
            assert kind in (FailureKind.UNKNOWN, FailureKind.PERMANENT)
