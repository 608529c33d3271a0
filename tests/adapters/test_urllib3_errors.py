"""Errors of requests and urllib3: what each proves. The corpus, every class, and chains of them,
built as the libraries build them (requests 2.31 and 2.34, urllib3 2.0 and 2.8).
"""

import asyncio
import http.client
import inspect
import json
import socket
import ssl
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests.exceptions as rq
import urllib3
import urllib3.exceptions as u3
from urllib3.util.ssl_match_hostname import CertificateError

from forbear import CircuitOpenError, FailureKind, Reason, RetryPolicy
from forbear.adapters.urllib3.errors import REQUESTS, URLLIB3, classify
from forbear.core.call import Call
from forbear.core.decide import decide
from forbear.core.outcome import RETRYABLE_KINDS, GiveUp, SendAgain
from forbear.core.request import Request
from forbear.limits.limits import Limits
from forbear.strategies import Phase

K, UNSENT, SENT, ANSWERED = FailureKind, Phase.UNSENT, Phase.SENT, Phase.ANSWERED
HOST = "origin.example"
POOL = urllib3.HTTPConnectionPool(HOST)
CONNECTION = urllib3.connection.HTTPConnection(HOST)


def meaning(error):
    failure = classify(error)
    assert failure.error == type(error).__name__
    return failure.kind, failure.phase


def os_error(cls, *arguments):
    return lambda inner, text: cls(*arguments)


RESOLUTION = socket.gaierror(-2, "Name or service not known")
U3 = {
    "MaxRetryError": lambda inner, text: u3.MaxRetryError(POOL, "/", inner),
    "ProxyError": lambda inner, text: u3.ProxyError(text or "Unable to connect to proxy", inner),
    "NewConnectionError": lambda inner, text: u3.NewConnectionError(CONNECTION, text),
    "NameResolutionError": lambda inner, text: u3.NameResolutionError(
        HOST, CONNECTION, inner or RESOLUTION),
    "ConnectTimeoutError": lambda inner, text: u3.ConnectTimeoutError(CONNECTION, text),
    "ReadTimeoutError": lambda inner, text: u3.ReadTimeoutError(POOL, "/", text),
    "HostChangedError": lambda inner, text: u3.HostChangedError(POOL, "http://other.example/"),
    "ProtocolError": lambda inner, text: u3.ProtocolError(*filter(None, (text or "x", inner))),
    **{name: lambda inner, text, name=name: getattr(u3, name)(POOL, text)
       for name in ("EmptyPoolError", "FullPoolError", "ClosedPoolError")},
}  # fmt: skip
# As PyPy names them.
PYPY = (
    type("gaierror", (OSError,), {"__module__": "_socket"}),
    type("SSLCertVerificationError", (ssl.SSLError,), {"__module__": "_cffi_ssl._stdssl.error"}),
)
BUILDERS = {
    **{f"urllib3.exceptions.{name}": build for name, build in U3.items()},
    "http.client.IncompleteRead": os_error(http.client.IncompleteRead, b"abc", 7),
    "builtins.ConnectionRefusedError": os_error(ConnectionRefusedError, 111, "refused"),
    "builtins.ConnectionResetError": os_error(ConnectionResetError, 104, "reset"),
    "ssl.SSLCertVerificationError": os_error(ssl.SSLCertVerificationError, 1, "certificate"),
    "_socket.gaierror": os_error(PYPY[0], -2, ""),
    "_cffi_ssl.SSLCertVerificationError": os_error(PYPY[1], 1, "certificate"),
}


def build(name, inner=None, text=""):
    """One exception with the next one inside; requests and SSLError keep it as their argument."""
    builder = BUILDERS.get(name)
    if builder is not None:
        return builder(inner, text)
    module, _, cls = name.rpartition(".")
    return getattr(import_module(module), cls)(text if inner is None else inner)


def chain(names, text="", is_linked=True):
    """Exceptions from the outermost to the innermost, linked as the libraries link them; or, as
    where someone raises them anew, by nothing but ``__cause__``.
    """
    error = None
    names = names.replace("rq.", "requests.exceptions.").replace("u3.", "urllib3.exceptions.")
    for name in reversed(names.split()):
        inner = error
        error = build(name, inner if is_linked else None, "" if is_linked and inner else text)
        if not is_linked or (inner is not None and name.startswith("urllib3.")):
            error.__cause__ = inner  # urllib3 always says it, requests never does
    return error


CORPUS = Path(__file__).parents[1] / "corpus" / "retry_safety.json"
OURS = ("requests.", "urllib3.", "asyncio.", "builtins.")
CASES = [
    case
    for case in json.loads(CORPUS.read_text(encoding="utf-8"))["cases"]
    if case["outcome"].get("exception", "").startswith(OURS)
]
# The corpus has finer labels than ``Reason``.
REASONS = {
    **dict.fromkeys(("decoding-error", "inner-retries-exhausted"), "permanent-error"),
    "cancelled": "unknown-error",
}


def test_corpus():
    assert len(CASES) == 14 + 10 + 2
    for case in CASES:
        outcome, expect = case["outcome"], case["expect"]
        wraps, text = outcome.get("wraps", ()), outcome.get("message", "")
        failure = classify(chain(" ".join([outcome["exception"], *wraps]), text))
        if outcome.get("phase") == "body":  # handed over: no adapter asks
            continue
        headers = [*map(tuple, case["headers"])]
        request = Request(case["method"], "http://origin.example:80", headers)
        call = Call(RetryPolicy(), request, Limits(), 0.0, 4)
        call.sending(0.0)
        ready = case["body"] != "one-shot" or not case["body_read"]
        call.request.guard = SimpleNamespace(ready=ready)
        verdict, label = decide(call, failure, 0.0), expect["reason"]
        if expect["may_retry"]:
            assert isinstance(verdict, SendAgain), case["id"]
            assert (failure.phase is UNSENT) is (label == "not-sent"), case["id"]
        else:
            assert verdict == GiveUp(Reason(REASONS.get(label, label))), case["id"]


NEVER_SENT, NEVER_ANSWERED = (K.PERMANENT, UNSENT), (K.PERMANENT, ANSWERED)


def raw(cls):
    """An instance that tells nothing but its class."""
    return cls.__new__(cls)


def exceptions_of(module):
    for _, cls in inspect.getmembers(module, inspect.isclass):
        is_error = issubclass(cls, BaseException) and not issubclass(cls, Warning)
        if is_error and cls.__module__ == module.__name__:
            yield cls


@pytest.mark.parametrize(("module", "table"), [(rq, REQUESTS), (u3, URLLIB3)])
def test_every_class_of_the_installed_version_has_its_own_entry(module, table):
    classes = {cls.__name__: cls for cls in exceptions_of(module)}
    assert classes.keys() == table.keys()
    for name, cls in classes.items():
        mine = type("Mine", (cls,), {"__module__": "mine"})
        assert meaning(raw(mine)) == meaning(raw(cls)) == table[name]


TUNNEL = "Tunnel connection failed: "
CHAINS = [
    # requests, as adapters.send and iter_content raise it
    ("rq.ConnectTimeout u3.MaxRetryError u3.ConnectTimeoutError builtins.TimeoutError", K.CONNECT_TIMEOUT, UNSENT),
    ("rq.ConnectionError u3.MaxRetryError u3.NewConnectionError builtins.ConnectionRefusedError", K.REFUSED, UNSENT),
    ("rq.ConnectionError u3.MaxRetryError u3.NameResolutionError socket.gaierror", K.DNS, UNSENT),
    ("rq.ConnectionError u3.ProtocolError http.client.RemoteDisconnected", K.RESET, SENT),
    ("rq.ConnectionError u3.ProtocolError builtins.ConnectionResetError", K.RESET, SENT),
    ("rq.ConnectionError u3.ProtocolError http.client.BadStatusLine", K.PROTOCOL, SENT),
    ("rq.ConnectionError u3.ProtocolError http.client.InvalidURL", K.PERMANENT, UNSENT),
    ("rq.ConnectionError u3.ProtocolError builtins.TimeoutError", K.WRITE_TIMEOUT, SENT),
    # requests-unixsocket and docker: their connections raise it raw, and urllib3 says no more than
    # this
    ("rq.ConnectionError u3.ProtocolError builtins.ConnectionRefusedError", K.REFUSED, SENT),
    ("rq.ConnectionError u3.MaxRetryError u3.ProtocolError builtins.ConnectionResetError", K.RESET, SENT),
    ("rq.ConnectionError u3.ReadTimeoutError", K.READ_TIMEOUT, ANSWERED),
    ("rq.ConnectionError u3.ClosedPoolError", K.PERMANENT, UNSENT),
    ("rq.ConnectionError u3.MaxRetryError u3.ResponseError", K.PERMANENT, ANSWERED),
    ("rq.ConnectionError u3.MaxRetryError u3.SSLError ssl.SSLError", K.TLS, SENT),
    ("rq.ConnectionError u3.LocationParseError", K.PERMANENT, UNSENT),
    ("rq.ReadTimeout u3.ReadTimeoutError builtins.TimeoutError", K.READ_TIMEOUT, SENT),
    ("rq.RetryError u3.MaxRetryError u3.ResponseError", K.PERMANENT, ANSWERED),
    ("rq.SSLError u3.MaxRetryError u3.SSLError ssl.SSLEOFError", K.TLS, SENT),
    ("rq.InvalidHeader u3.InvalidHeader", K.PERMANENT, SENT),
    ("rq.InvalidURL u3.LocationParseError", K.PERMANENT, UNSENT),
    ("rq.ChunkedEncodingError u3.ProtocolError http.client.IncompleteRead", K.PROTOCOL, ANSWERED),
    ("rq.ChunkedEncodingError u3.ProtocolError builtins.ConnectionResetError", K.RESET, ANSWERED),
    ("rq.ContentDecodingError u3.DecodeError", K.DECODING, ANSWERED),
    # urllib3
    ("u3.ProtocolError http.client.IncompleteRead", K.PROTOCOL, ANSWERED),
    ("u3.ProtocolError ssl.SSLError", K.TLS, SENT),
    ("u3.ProtocolError socket.gaierror", K.DNS, SENT),
    ("rq.ConnectionError u3.MaxRetryError u3.NewConnectionError _socket.gaierror", K.DNS, UNSENT),
    ("u3.MaxRetryError u3.InvalidHeader", K.PROTOCOL, ANSWERED),
    ("u3.MaxRetryError u3.DecodeError", K.DECODING, ANSWERED),
    ("u3.MaxRetryError u3.EmptyPoolError", K.POOL, UNSENT),
    # proxies: S8, S10
    ("u3.ProxyError u3.NewConnectionError builtins.ConnectionRefusedError", K.PROXY, UNSENT),
    ("u3.ProxyError u3.ReadTimeoutError builtins.TimeoutError", K.PROXY, SENT),
    ("u3.ProxyError builtins.ConnectionResetError", K.PROXY, SENT),
    ("rq.ProxyError u3.MaxRetryError u3.ProxyError u3.NewConnectionError", K.PROXY, UNSENT),
    ("rq.ProxyError u3.MaxRetryError u3.ProxyError http.client.RemoteDisconnected", K.PROXY, SENT),
    ("rq.ConnectionError u3.MaxRetryError u3.ProxyError u3.NewConnectionError", K.PROXY, UNSENT),
    # certificates: S9, anywhere inside
    ("rq.SSLError u3.MaxRetryError u3.SSLError ssl.SSLCertVerificationError", K.CERTIFICATE, UNSENT),
    ("u3.MaxRetryError u3.ProxyError u3.SSLError ssl.SSLCertVerificationError", K.CERTIFICATE, UNSENT),
    ("u3.ProtocolError ssl.SSLCertVerificationError", K.CERTIFICATE, UNSENT),
    ("rq.SSLError u3.SSLError _cffi_ssl.SSLCertVerificationError", K.CERTIFICATE, UNSENT),
    ("u3.SSLError urllib3.util.ssl_match_hostname.CertificateError", K.CERTIFICATE, UNSENT),
    # a class that promises too much is not believed: what is inside came from elsewhere, or says
    # otherwise
    ("rq.ConnectTimeout u3.MaxRetryError u3.ReadTimeoutError", K.CONNECT_TIMEOUT, SENT),
    ("rq.ConnectTimeout asyncio.InvalidStateError", K.CONNECT_TIMEOUT, SENT),
    ("rq.ConnectTimeout builtins.TimeoutError", K.CONNECT_TIMEOUT, UNSENT),
]  # fmt: skip


def test_the_error_inside_says_what_was_sent():
    """Rules S8-S10: a class alone proves little; the error inside it does."""
    for names, kind, phase in CHAINS:
        for is_linked in (True, False):
            assert meaning(chain(names, is_linked=is_linked)) == (kind, phase), names


def test_a_proxy_that_refuses_the_tunnel_keeps_the_request_from_the_origin():
    """S8, S9: nothing was sent; with 4xx it will be refused again."""
    names = "rq.ProxyError u3.MaxRetryError u3.ProxyError builtins.OSError"
    refusals = ("403 Forbidden", "407 Proxy Authentication Required", "499 ")
    for answer in (*refusals, "500 Internal Server Error", "302 Found", ""):
        kind = K.PERMANENT if answer in refusals else K.PROXY
        for is_linked in (True, False):
            assert meaning(chain(names, TUNNEL + answer, is_linked)) == (kind, UNSENT), answer
    # A URL cannot pass for it.
    inner = u3.ProxyError("Unable to connect to proxy", ConnectionResetError())
    error = rq.ProxyError(u3.MaxRetryError(POOL, f"/{TUNNEL}403 Forbidden", inner))
    assert TUNNEL in str(error)
    assert meaning(error) == (K.PROXY, SENT)


def test_what_no_rule_names_is_not_retried():
    """S9: errors of the caller's body, of other libraries and our own end the call."""
    nameless = (ConnectionRefusedError, ssl.SSLError, http.client.RemoteDisconnected)
    ours = CircuitOpenError("open", reason=Reason.CIRCUIT_OPEN)
    ours.__cause__ = ssl.SSLCertVerificationError()  # whatever it was raised from
    for error, expected in (
        *((cls(), (K.UNKNOWN, SENT)) for cls in (*nameless, asyncio.CancelledError)),
        (KeyboardInterrupt(), (K.UNKNOWN, SENT)),
        (OSError(5, "Input/output error"), (K.UNKNOWN, SENT)),
        (ValueError("of the caller's body"), (K.UNKNOWN, SENT)),
        (ssl.SSLCertVerificationError(), (K.CERTIFICATE, UNSENT)),
        (CertificateError(), (K.CERTIFICATE, UNSENT)),
        (UnicodeError("label empty or too long"), NEVER_SENT),
        (ours, NEVER_SENT),
        (u3.MaxRetryError(POOL, "/", ours), NEVER_SENT),
        (rq.ConnectionError(ours), NEVER_SENT),
    ):
        assert meaning(error) == expected, repr(error)
        assert expected[0] not in RETRYABLE_KINDS


def test_another_librarys_class_of_the_same_name_proves_nothing():
    names = {"ConnectTimeout": ("niquests.exceptions", "acme.requests.exceptions")}
    names["NewConnectionError"] = ("urllib3_future.exceptions", "urllib3.util.timeout")
    for name, modules in names.items():
        for module in modules:
            cls = type(name, (OSError,), {"__module__": module})
            assert meaning(cls()) == (K.UNKNOWN, SENT)


def test_a_claim_that_nothing_was_sent_needs_a_cause_from_the_socket():
    foreign = type("ServerDisconnected", (OSError,), {"__module__": "aiohttp.client_exceptions"})()
    of_pysocks = type("GeneralProxyError", (OSError,), {"__module__": "socks"})()
    for error in (u3.NewConnectionError(CONNECTION, ""), u3.ConnectTimeoutError(CONNECTION, "")):
        error.__cause__ = foreign
        kind = meaning(error)[0]
        assert meaning(error) == (kind, SENT)
        assert meaning(rq.ConnectionError(u3.MaxRetryError(POOL, "/", error))) == (kind, SENT)
        assert meaning(u3.ProxyError("", error)) == (K.PROXY, SENT)
        error.__cause__ = of_pysocks
        assert meaning(error) == (kind, UNSENT)


def test_the_callers_own_error_is_not_taken_for_the_cause():
    with pytest.raises(rq.ConnectionError) as caught:
        try:
            raise ssl.SSLCertVerificationError("of another connection")
        except ssl.SSLError:
            inner = u3.ProtocolError("Connection aborted.", ConnectionResetError())
            raise rq.ConnectionError(inner)  # noqa: B904  # without "from" is the point
    assert isinstance(caught.value.__context__, ssl.SSLCertVerificationError)
    assert meaning(caught.value) == (K.RESET, SENT)


def test_errors_linked_in_a_ring_end():
    a, b = u3.MaxRetryError(POOL, "/", None), u3.ProxyError("", None)
    a.reason, b.original_error = b, a
    a.__cause__, b.__cause__ = b, a
    assert meaning(a) == (K.PROXY, SENT)
    alone = rq.ConnectTimeout()
    alone.args = (alone,)
    assert meaning(alone) == (K.CONNECT_TIMEOUT, SENT)
    alone.args = (*[alone] * 20, ssl.SSLCertVerificationError())
    assert meaning(alone) == (K.CERTIFICATE, UNSENT)
