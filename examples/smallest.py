"""The smallest client: forbear over ``http.client``, without pool, redirects and cookies.

For whoever writes another one (docs/architecture.md): a table of exceptions, a port, and a client.
Each member of a port is explained in engine/port.py. Bodies of requests are bytes here; any other
needs a guard, as in adapters/aiohttp/guard.py.
"""

import http.client as library
import socket
from collections import deque
from dataclasses import dataclass, field, replace
from math import inf
from urllib.parse import urlsplit

from forbear import CircuitOpenError as CircuitOpen
from forbear import DeadlineExceeded as Exceeded
from forbear.core.call import RECORD
from forbear.core.outcome import Failure, FailureKind, Phase
from forbear.core.request import Request as View
from forbear.core.request import known_origin
from forbear.engine.calls import call_of
from forbear.engine.clock import SYSTEM_CLOCK
from forbear.engine.current import CURRENT
from forbear.engine.driver import DRAIN_BYTES, WHOLE
from forbear.engine.loop import drive, drive_call
from forbear.engine.prepare import outgoing_for
from forbear.engine.settings import DEFAULT_POLICY, Settings

TIMEOUT = 5.0


class CircuitOpenError(CircuitOpen, library.HTTPException):
    pass


class DeadlineExceeded(Exceeded, library.HTTPException):
    pass


MEANING = {  # looked up along the MRO
    socket.gaierror: (FailureKind.DNS, Phase.UNSENT),
    ConnectionRefusedError: (FailureKind.REFUSED, Phase.UNSENT),
    library.InvalidURL: (FailureKind.PERMANENT, Phase.UNSENT),
    TimeoutError: (FailureKind.TIMEOUT, Phase.SENT),
    OSError: (FailureKind.RESET, Phase.SENT),
    library.RemoteDisconnected: (FailureKind.RESET, Phase.SENT),
    library.HTTPException: (FailureKind.PROTOCOL, Phase.SENT),
}


@dataclass
class Request:
    method: str
    url: str
    headers: dict = field(default_factory=dict)
    body: bytes = b""


class Facts(View):
    """What a decision reads of a request, whose headers are a dictionary."""

    def header_lines(self):
        return list(self.headers.items())

    def path_and_query(self):
        return path_of(self.target)


def path_of(url):
    parts = urlsplit(url)
    return f"{parts.path or '/'}?{parts.query}".removesuffix("?")


class Response:
    """http.client's, with a body that the caller reads through ``source``."""

    def __init__(self, raw, sock):
        self.raw, self.status, self.lines = raw, raw.status, raw.getheaders()
        self.source = self.live = Live(raw, sock)

    def read(self):
        return b"".join(iter(lambda: drive(self.source.read()), b""))


class Live:
    """The only reader of what is still to come of a response, after what was put back."""

    can_wait = False  # a read that is given up would lose bytes
    ends_at = inf

    def __init__(self, raw, sock):
        self.raw, self.sock, self.pieces = raw, sock, deque()

    async def has_more(self):
        return self.ends_at > SYSTEM_CLOCK.true_monotonic()

    async def read(self):
        if self.pieces:
            piece = self.pieces.popleft()
            if isinstance(piece, Exception):
                raise piece
            return piece
        if self.raw.isclosed():
            return b""
        left = self.ends_at - SYSTEM_CLOCK.true_monotonic()
        if left <= 0:
            raise TimeoutError("the body is late")
        self.sock.settimeout(min(TIMEOUT, left))
        piece = self.raw.read1(65_536)
        if not piece and self.raw.length:
            raise library.IncompleteRead(piece, self.raw.length)
        return piece

    async def close(self):
        self.raw.close()
        self.sock.close()


class ClientPort:
    body_name, decodes, repeats, backstop = "body", False, False, None
    circuit_open_error, deadline_exceeded = CircuitOpenError, DeadlineExceeded

    def __init__(self, settings):
        self.settings, self.clock = settings, settings.clock

    # What is sent.

    def view_of(self, request):
        url = urlsplit(request.url)
        origin = known_origin(url.scheme, url.hostname, url.port)
        names = self.settings.key_names
        return Facts(request.method, origin, request.headers, names, request.url, request)

    def copied(self, request, lines=None, url=None):
        headers = {**request.headers, **dict(lines or ())}
        return replace(request, headers=headers, url=url or request.url)

    def url_at(self, url, scheme, host, port):
        return urlsplit(url)._replace(scheme=scheme, netloc=f"{host}:{port}").geturl()

    def host_of(self, url):
        return urlsplit(url).netloc

    def bound(self, outgoing):
        """``transmit`` reads the limits of the call."""

    async def renew(self, call):
        """Bodies are bytes: nothing still reads one."""

    async def transmit(self, call, request):
        left = call.deadline_at - self.clock.monotonic()
        url = urlsplit(request.url)
        connection = library.HTTPConnection(url.hostname, url.port, timeout=min(TIMEOUT, left))
        headers = {**request.headers, "Connection": "close"}  # there is no pool
        connection.connect()
        sock = connection.sock
        try:
            connection.request(request.method, path_of(request.url), request.body, headers)
            call.live = Response(connection.getresponse(), sock)
        finally:
            if call.live is None:
                sock.close()
        return call.live

    # The head of a response.

    def status_of(self, response):
        return response.status

    def head_of(self, response):
        return response.status, response.lines

    def story_of(self, response):
        return getattr(response, RECORD, None)

    def attach(self, response, story):
        setattr(response, RECORD, story)

    def add_headers(self, response, lines):
        response.lines += lines.items()

    def note_hop(self, call, response):
        """There are no redirects."""

    # Its body.

    async def received(self, call, response):
        return response  # it is the caller's to read

    def live(self, request, response, ends_at=inf):
        response.live.ends_at = ends_at
        return response.live

    def has_ended(self, response):
        return response.raw.isclosed()

    def is_open(self, response):
        return self.settings.watches_bodies and not self.has_ended(response)

    def is_long(self, response):
        return (response.raw.length or 0) > DRAIN_BYTES

    def is_quick(self, call, response):
        return not self.is_long(response)

    def is_resumable(self, request, response):
        return request.method == "GET"

    def put_back(self, response, live, pieces, ending):
        live.pieces.extendleft(reversed(pieces))
        if isinstance(ending, Exception):
            live.pieces.append(ending)
        return response

    def pieces_of(self, response):
        return list(response.live.pieces)

    def with_body(self, response, pieces):
        return self.put_back(response, response.live, pieces or [], WHOLE)

    def shown(self, response, request, source):
        copy = object.__new__(Response)
        copy.__dict__ = {**vars(response), "source": source}
        return copy

    def surround(self, request, response, make):
        response.source = make(response.source)
        return response

    def source_of_rest(self, call, response):
        return response.source

    def reopen(self, outgoing, response, begin):
        left = outgoing.reads_until - self.clock.monotonic()
        response.live.ends_at = SYSTEM_CLOCK.true_monotonic() + left
        return response

    async def close_unused(self, response):
        if isinstance(response, Response):
            await response.live.close()

    async def close_idle(self, call):
        return False  # each attempt has a new connection

    # Errors.

    def classify_exception(self, call, error):
        known = (MEANING[base] for base in type(error).__mro__ if base in MEANING)
        kind, phase = next(known, (FailureKind.UNKNOWN, Phase.SENT))
        return Failure(kind, phase, error=type(error).__name__)

    def final_error(self, call, error):
        return error

    def closed_error(self):
        return library.HTTPException("the client was closed while the call waited")

    def status_error(self, call, response, body):
        return library.HTTPException(f"{response.status}")

    def stream_error(self, message):
        return library.HTTPException(message)

    def stream_timeout(self, message):
        return TimeoutError(message)


class Client:
    def __init__(self, policy=DEFAULT_POLICY, **options):
        self.port = ClientPort(Settings("Client", policy, options))

    def request(self, method, url, headers=None, body=b""):
        port, request = self.port, Request(method, url, headers or {}, body)
        started_at, context = port.clock.monotonic(), CURRENT.get()
        outgoing = outgoing_for(port, request, request, None, started_at, context, None, None)
        return drive_call(call_of(port, request, outgoing, started_at, context), port)

    def close(self):
        self.port.settings.sleeper.close()
