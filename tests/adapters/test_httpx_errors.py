"""The meaning of each exception of httpx and httpx2: kind and phase, by class and cause (S7-S10).

The cases of the corpus are in tests/core/test_decide.py; each class by itself, without a cause, in
test_private_attributes.py.
"""

from __future__ import annotations

import builtins
import ssl
from typing import Any

import httpx
import httpx2
import pytest

import forbear.httpx
import forbear.httpx2
from forbear import FailureKind, Phase

from ..httpx_errors import chained, class_named, exception_of

FAMILIES = {"httpx": (httpx, forbear.httpx), "httpx2": (httpx2, forbear.httpx2)}
families = pytest.mark.parametrize("family", FAMILIES)


def mapped(name: str, *causes: Any) -> list[Any]:
    """As httpx makes it of httpcore's error of the same name."""
    return [f"httpx.{name}", f"httpcore.{name}", *causes]


class AioHttpError(OSError):
    """As aiohttp's ClientOSError: an OSError, but not of the socket layer."""

    __module__ = "aiohttp.client_exceptions"


def certificate_error() -> BaseException:
    return ssl.SSLCertVerificationError(1, "certificate verify failed")


KINDS: list[Any] = [
    pytest.param(mapped("ConnectError", OSError(113, "No route")), "refused", "unsent", id="no route"),
    pytest.param(["httpx.ConnectError", OSError(111, "refused")], "refused", "unsent", id="from an OSError"),
    pytest.param(mapped("ConnectError", "socket.gaierror"), "dns", "unsent", id="dns"),
    pytest.param(mapped("ConnectError", "ssl.SSLError"), "tls", "unsent", id="handshake"),
    pytest.param(mapped("ConnectError", "ssl.SSLZeroReturnError"), "tls", "unsent", id="handshake cut"),
    pytest.param(mapped("ConnectTimeout", TimeoutError()), "connect-timeout", "unsent", id="connect timeout"),
    # A foreign inner transport proves nothing with its own classes.
    pytest.param(["httpx.ConnectError", AioHttpError("dropped")], "refused", "sent", id="foreign connect error"),
    pytest.param(["httpx.ConnectTimeout", RuntimeError()], "connect-timeout", "sent", id="foreign connect timeout"),
    pytest.param(["httpx.ProxyError", AioHttpError("502 Bad Gateway")], "proxy", "sent", id="foreign proxy error"),
    # A certificate: never, whatever class wraps it.
    pytest.param(mapped("ConnectError", certificate_error()), "certificate", "unsent", id="certificate"),
    pytest.param(mapped("ReadError", certificate_error()), "certificate", "unsent", id="certificate while reading"),
    pytest.param(mapped("ProxyError", certificate_error()), "certificate", "unsent", id="a proxy's certificate"),
    # Maybe sent.
    pytest.param(mapped("ReadTimeout", TimeoutError()), "read-timeout", "sent", id="read timeout"),
    # Local.
    pytest.param([UnicodeError("label too long")], "permanent", "unsent", id="idna"),
    pytest.param([ValueError("theirs")], "unknown", "sent", id="a class nobody knows"),
    pytest.param([OSError("theirs")], "unknown", "sent", id="a bare OSError"),
    pytest.param([TimeoutError()], "unknown", "sent", id="a bare TimeoutError"),
    pytest.param([MemoryError()], "unknown", "sent", id="MemoryError"),
]  # fmt: skip


@families
@pytest.mark.parametrize(("links", "kind", "phase"), KINDS)
def test_classify(links: list[Any], kind: str, phase: str, family: str) -> None:
    """Class and cause say what it was and how far it got; the text says nothing."""
    failure = FAMILIES[family][1].classify(chained(family, *links))
    assert (failure.kind, failure.phase) == (kind, phase)


@families
def test_the_other_familys_exceptions_are_not_ones_own(family: str) -> None:
    """No class is shared: another library's error proves nothing about this one's request."""
    other = "httpx" if family == "httpx2" else "httpx2"
    failure = FAMILIES[family][1].classify(FAMILIES[other][0].ConnectError(""))
    assert failure.kind is FailureKind.UNKNOWN


REFUSALS = ["407 Proxy Authentication Required", "403 Forbidden", "400"]
OTHERS = ["502 Bad Gateway", "503", "301 Moved", "4", "", "4xx", "40٣", "4070 is no status", "Connection to 407.example refused"]  # fmt: skip


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
UNPROCESSED = [reset(7), goaway(0, 0), goaway(11, 0)]
PROCESSED = [reset(7, by_peer=False), *map(reset, (8, 11, 2, 13)), goaway(0, 1), goaway(0, None)]


@families
@pytest.mark.parametrize(
    ("event", "kind"),
    [*((each, "unprocessed") for each in UNPROCESSED), *((each, "protocol") for each in PROCESSED)],
    ids=str,
)
def test_what_http2_says_about_a_stream(event: dict[str, Any], kind: str, family: str) -> None:
    """REFUSED_STREAM by the peer and GOAWAY(0) prove that nothing was processed, nothing else."""
    outcome = {"exception": "httpx.RemoteProtocolError", "wraps": ["httpcore.RemoteProtocolError"]}
    failure = FAMILIES[family][1].classify(exception_of({**outcome, "h2": event}, family))
    # Not a reset either: ENHANCE_YOUR_CALM is no momentary cause that asks for an immediate retry.
    assert (failure.kind, failure.phase) == (kind, "unsent" if kind == "unprocessed" else "sent")


@families
@pytest.mark.parametrize("handled", ["certificate", "goaway", "dns"])
def test_an_error_that_the_caller_is_handling_is_not_the_cause(family: str, handled: str) -> None:
    """A fallback request inside ``except`` is judged by its own failure, not by the one being
    handled.

    Python links the error being handled to every new one as ``__context__``.
    """
    module, adapter = FAMILIES[family]
    earlier: dict[str, list[Any]] = {
        "certificate": ["httpx.ConnectError", "httpcore.ConnectError", certificate_error()],
        "goaway": [
            exception_of(
                {
                    "exception": "httpx.RemoteProtocolError",
                    "wraps": ["httpcore.RemoteProtocolError"],
                    "h2": {"event": "ConnectionTerminated", "error_code": 0, "last_stream_id": 0},
                },
                family,
            )
        ],
        "dns": ["httpx.ConnectError", "httpcore.ConnectError", "socket.gaierror"],
    }
    core_name = "RemoteProtocolError" if handled == "goaway" else "ConnectError"

    def raise_as_the_library_does() -> None:
        try:
            raise class_named(f"httpcore.{core_name}", family)("Server disconnected")
        except Exception as core:
            raise getattr(module, core_name)("Server disconnected") from core

    try:
        raise chained(family, *earlier[handled])
    except module.TransportError:
        with pytest.raises(module.TransportError) as caught:
            raise_as_the_library_does()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__context__ is not None  # so there is something to be misled by
    failure = adapter.classify(caught.value)
    expected = ("reset", "sent") if handled == "goaway" else ("refused", "unsent")
    assert (failure.kind, failure.phase) == expected


@families
def test_a_foreign_transport_that_forgets_from_proves_nothing(family: str) -> None:
    """Without ``from`` an httpx.ConnectTimeout of a foreign transport may follow a read request."""
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
    """Total: a classifier that raises would lose the caller's own error."""
    for cls in vars(builtins).values():
        if isinstance(cls, type) and issubclass(cls, BaseException):
            is_group = issubclass(cls, BaseExceptionGroup)
            error = cls.__new__(cls, "", [ValueError()]) if is_group else cls.__new__(cls)
            kind = forbear.httpx.classify(error).kind
            assert kind in (FailureKind.UNKNOWN, FailureKind.PERMANENT)
