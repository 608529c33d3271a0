"""Steps: what the faulting server does with one request, parsed from text.

``name[:arg][;modifier=value]…``, as testing/__init__.py explains. Nothing is guessed: an unknown
name, a modifier without an effect on its step and a value out of range are ValueErrors, because a
mistyped fault that passes for a good response makes its test worthless. Durations are milliseconds
in the text and seconds in a ``Step``.

Requests are read leniently where a client library may differ, strictly about framing (RFC 9112 §6):
a body whose end is in doubt would make the ledger's digest worthless.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BufferedReader
from json import dumps
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

URL_PREFIX = "/s/"
DEFAULT_BODY_BYTES = 32
DEFAULT_DRIP_INTERVAL = 0.05  # seconds; 20 bytes a second keep any read timeout from firing

# The modifiers that each step accepts.
_SILENT = frozenset({"delay", "executes"})
_RESPONSE = _SILENT.union(
    ("retry-after", "header", "body", "from", "etag", "head-delay", "drip", "chunked", "close")
)
_MODIFIERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("reset", "close", "hang", "garbage"), _SILENT),
    **dict.fromkeys(("status", "cut", "reset-body", "stale"), _RESPONSE),
    "early": _RESPONSE | {"linger"},
    "drip": _SILENT | {"interval"},
    "reset-head": frozenset({"delay"}),  # the body is not read, so there is nothing to execute
    "reset-before": frozenset(),
}
_DURATIONS = frozenset({"delay", "head-delay", "drip", "interval"})
_ARGUMENTS = {"cut": "cut:N", "reset-body": "reset-body:N", "early": "early:NNN:BYTES"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # RFC 9110 §5.5
_NUMBER = re.compile(r"[0-9]{1,9}")


def _content(size: int, start: int = 0) -> bytes:
    start %= 16
    return (b"0123456789abcdef" * ((start + size) // 16 + 1))[start : start + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The part of the server in one request: made by ``answer``, or from a step of a script.

    Attributes:
        name: The name in the script language; "status" for a status.
        status: The response's.
        at: Bytes of the body before a cut or reset, or of the upload before an early response.
        headers: Header lines of the response.
        content: The body of the response.
        delay: Seconds before the response; ``head_delay`` inside its head, ``drip`` between pieces
            of its body, ``interval`` between bytes of the step "drip".
        chunked: Whether the body has no length; ``close`` and ``linger`` as in the language.
        etag: With one, ranges of the content are served.
        executes: The request has its side effect.
    """

    name: str = "status"
    status: int = 200
    at: int = 0
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    content: bytes = field(default=_content(DEFAULT_BODY_BYTES), repr=False)
    delay: float = 0.0
    head_delay: float = 0.0
    drip: float = 0.0
    interval: float = DEFAULT_DRIP_INTERVAL
    chunked: bool = False
    close: bool = False
    linger: bool = True
    etag: str = ""
    executes: bool = False

    def replayed(self) -> Step:
        """Return the response to a retry of an executed request: whole, and at once."""
        headers = (*self.headers, ("Idempotent-Replayed", "true"))
        return Step(status=self.status, headers=headers, content=self.content)


def refusal(status: int, message: str) -> Step:
    """Return the server's own response to a request that consumes no step."""
    return Step(status=status, content=message.encode("utf-8", "replace") + b"\n")


def answer(
    step: int | str = 200,
    *,
    json: Any = ...,
    text: str | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> Step:
    """Return a step that responds with the test's own body: ``answer(json={"id": 7})``.

    Args:
        step: A step that responds: ``429``, ``"200;delay=50"``, ``"cut:10"``, ``"reset-body:10"``.
        json: The body, to be sent as JSON. None is ``null``.
        text: The body, sent as UTF-8.
        body: The body, as it is.
        headers: Header lines of the response. A Content-Type replaces the usual one.

    Raises:
        ValueError: The step does not respond, has a body of its own or would send all of this one;
            there are two bodies; or a header cannot be sent.
        TypeError: ``json`` is not serializable.
    """
    parsed, shown = parse_step(step), str(step)
    if "header" not in _MODIFIERS[parsed.name]:
        _refuse(shown, "it sends no response that could have a body or headers")
    pairs: Any = headers.items() if isinstance(headers, Mapping) else headers
    lines = [_header(shown, name, value) for name, value in pairs]
    contents = {
        "application/json": None if json is ... else dumps(json).encode(),
        "text/plain; charset=utf-8": None if text is None else text.encode(),
        "application/octet-stream": body,
    }
    found = [(kind, content) for kind, content in contents.items() if content is not None]
    if len(found) > 1:
        _refuse(shown, "give one of json=, text= and body=")
    for kind, content in found:
        if re.search(";(body|from)=", shown):
            _refuse(shown, "it has a body of its own; leave body= and from= out of the step")
        if parsed.name in ("cut", "reset-body") and len(content) <= parsed.at:
            _refuse(shown, f"a body of {len(content)} bytes ends before byte {parsed.at}")
        if "content-type" not in {name.lower() for name, _ in (*parsed.headers, *lines)}:
            lines.append(("Content-Type", kind))
        parsed = replace(parsed, content=content)
    return replace(parsed, headers=(*parsed.headers, *lines))


def parse_step(step: int | str | Step) -> Step:
    """Parse one step, unless it is one already.

    Raises:
        ValueError: With the step, what is wrong with it and what would be right.
    """
    if isinstance(step, Step):
        return step
    if isinstance(step, bool) or not isinstance(step, (int, str)):
        raise ValueError(f"a step is an int or a str, got {step!r}")
    text = str(step)
    first, *modifiers = text.split(";")
    parsed = _parse_name(text, first)
    allowed = _MODIFIERS[parsed.name]
    seen: set[str] = set()
    start = 0
    for modifier in modifiers:
        word, equals, value = modifier.partition("=")
        if word not in allowed or not equals:
            can = ", ".join(sorted(allowed)) or "none"
            _refuse(text, f"unknown modifier {modifier!r}; {first!r} takes NAME=VALUE with: {can}")
        if word in seen and word != "header":
            _refuse(text, f"{word}= is given twice")
        seen.add(word)
        if word == "from":
            start = _number(text, value)
        else:
            parsed = _apply(text, parsed, word, unquote(value, "latin-1"))
    if parsed.name in ("cut", "reset-body"):
        if "body" not in seen:
            parsed = replace(parsed, content=_content(2 * parsed.at + DEFAULT_BODY_BYTES))
        elif (size := len(parsed.content)) <= parsed.at:
            _refuse(text, f"a body of {size} bytes ends before byte {parsed.at}; raise body=")
    return replace(parsed, content=_content(len(parsed.content), start)) if start else parsed


def _parse_name(text: str, first: str) -> Step:
    name, *arguments = first.split(":")
    if _NUMBER.fullmatch(name) and not arguments:
        return _with_status(text, Step(), name)
    if name == "status" or name not in _MODIFIERS:
        names = [_ARGUMENTS.get(known, known) for known in _MODIFIERS if known != "status"]
        _refuse(text, f"unknown step {first!r}; known are a status, {', '.join(names)}")
    step = Step(name=name, executes=name in ("reset", "close", "cut", "reset-body", "stale"))
    wanted = _ARGUMENTS.get(name, name)
    if len(arguments) != wanted.count(":"):
        _refuse(text, f"write {wanted}")
    if name == "early":
        step = _with_status(text, step, arguments.pop(0))
    return replace(step, at=_number(text, arguments[0])) if arguments else step


def _with_status(text: str, step: Step, digits: str) -> Step:
    status = _number(text, digits)
    if not 200 <= status <= 599:
        _refuse(text, f"a final status is 200 to 599, got {status}")
    return replace(step, status=status, executes=status < 300)


def _apply(text: str, step: Step, word: str, value: str) -> Step:
    changed: Any
    field_name = word.replace("-", "_")
    if word in _DURATIONS:
        changed = _number(text, value) / 1000
    elif word == "body":
        field_name, changed = "content", _content(_number(text, value))
    elif word == "etag":
        changed = _header(text, "ETag", f'"{value}"')[1]
    elif word in ("retry-after", "header"):
        line = f"Retry-After:{value}" if word == "retry-after" else value
        name, colon, rest = line.partition(":")
        if not colon:
            _refuse(text, f"write header=Name:Value, got {value!r}")
        field_name, changed = "headers", (*step.headers, _header(text, name, rest.strip()))
    elif value in ("0", "1"):
        changed = value == "1"
    else:
        _refuse(text, f"{word}= is 0 or 1, got {value!r}")
    return replace(step, **{field_name: changed})


def _number(text: str, digits: str) -> int:
    if not _NUMBER.fullmatch(digits):
        _refuse(text, f"{digits!r} is not a whole number")
    return int(digits)


def _header(text: str, name: str, value: str) -> tuple[str, str]:
    if not _TOKEN.fullmatch(name) or not _FIELD_VALUE.fullmatch(value):
        _refuse(text, f"{name!r}: {value!r} cannot be a header")
    return name, value


def _refuse(text: str, why: str) -> NoReturn:
    raise ValueError(f"step {text!r}: {why}")


def script_name(path: str) -> str:
    """Return the name of a script in the ledger: the path; ``/s/ID`` of ``/s/ID/STEPS``."""
    if path.startswith(URL_PREFIX):
        return URL_PREFIX + path.removeprefix(URL_PREFIX).partition("/")[0]
    return path


def ranged(step: Step, head: RequestHead) -> Step:
    """Return the step that responds with the part that a request asks for, or with the whole.

    One range of bytes (RFC 9110 sections 13.1.5 and 14); any other gets the whole.
    """
    size = len(step.content)
    step = replace(step, headers=(*step.headers, ("ETag", step.etag), ("Accept-Ranges", "bytes")))
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", head.field("range") or "")
    if (
        asked is None
        or asked[0] == "bytes=-"
        or step.status != 200
        or (head.field("if-range") or step.etag) != step.etag
    ):
        return step
    if asked[1]:
        first, last = int(asked[1]), min(int(asked[2] or size), size - 1)
    else:
        first, last = max(0, size - int(asked[2])), size - 1
    status, place, content = 206, f"bytes {first}-{last}/{size}", step.content[first : last + 1]
    if first > last:
        status, place, content = 416, f"bytes */{size}", b""
    headers = (*step.headers, ("Content-Range", place))
    return replace(step, status=status, headers=headers, content=content)


class Scripts:
    """The steps of every path and how far each has come. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rest: dict[str, list[Step]] = {}  # the last one stays
        self._url_steps: dict[str, str] = {}

    def set(self, path: str, steps: Sequence[int | str | Step]) -> None:
        if not path.startswith("/") or "?" in path or "#" in path:
            raise ValueError(f"a path starts with '/' and has no query, got {path!r}")
        if path.startswith(URL_PREFIX):
            raise ValueError(f"paths under {URL_PREFIX} bring their own steps, got {path!r}")
        if not steps:
            raise ValueError(f"no steps for {path!r}; give at least one, for example 200")
        parsed = [parse_step(step) for step in steps]
        with self._lock:
            self._rest[path] = parsed

    def take_reset(self) -> bool:
        """Consume the ``reset-before`` that a scripted path has for the next connection, if any.

        Steps in a URL do not apply to connections: the next one may be for another path.
        """
        with self._lock:
            for name, (step, *_) in self._rest.items():
                if step.name == "reset-before" and name not in self._url_steps:
                    self._advance(name)
                    return True
            return False

    def take(self, path: str, *, fresh: bool) -> Step:
        """Consume the next step of ``path``; ``fresh``: the connection was not used before."""
        name = script_name(path)
        with self._lock:
            if path.startswith(URL_PREFIX) and (wrong := self._learn(name, path)) is not None:
                return wrong
            if name not in self._rest:
                hint = f"call script() or ask for {URL_PREFIX}ID/STEPS"
                return refusal(404, f"no steps for {path}; {hint}")
            step = self._rest[name][0]
            if step.name != "stale":
                self._advance(name)
                return step
            if fresh:
                return replace(step, name="status")
            self._advance(name)
            return Step(name="close")

    def _learn(self, name: str, path: str) -> Step | None:
        steps = path.removeprefix(name).removeprefix("/")
        known = self._url_steps.get(name)
        if known == steps:
            return None
        if known is not None:
            return refusal(400, f"{name} already has the steps {known}; take another id")
        try:
            if name == URL_PREFIX:
                raise ValueError(f"write {URL_PREFIX}ID/STEPS")
            self._rest[name] = [parse_step(step) for step in steps.split(",")]
        except ValueError as error:
            return refusal(400, str(error))
        self._url_steps[name] = steps
        return None

    def _advance(self, name: str) -> None:
        steps = self._rest[name]
        if len(steps) > 1:
            steps.pop(0)


MAX_HEAD_BYTES = 65_536  # twice what the strictest client library will send
MAX_LINE_BYTES = 4_096  # a chunk's size with its extensions, or one trailer
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/1\.([01])")
_FIELD_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK_SIZE = re.compile(r"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?")


class Malformed(Exception):
    """The peer does not speak HTTP/1.1; raised with a status and a message for it."""


def read_line(peer: BufferedReader, most: int = MAX_LINE_BYTES) -> str:
    """Return a line without its end; raise Malformed or EOFError if that is missing."""
    line = peer.readline(max(most, 0) + 2)
    if line.endswith(b"\r\n"):
        return line[:-2].decode("latin-1")
    if len(line) > most:
        raise Malformed(431, f"more than {most} bytes before a line's end")
    if line.endswith(b"\n"):
        raise Malformed(400, "a line that ends without CR")
    raise EOFError("the peer closed its side")


class RequestHead(NamedTuple):
    """A request without its body."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    keeps_alive: bool
    length: int | None  # bytes of the body; None if it comes in chunks
    expects_continue: bool

    def field(self, name: str) -> str | None:
        """Return the first value of a header, by its name in lower case."""
        return next((value for each, value in self.headers if each.lower() == name), None)


def read_head(peer: BufferedReader) -> RequestHead:
    """Read one head; raise Malformed if it is none, EOFError if the peer closes before its end."""
    first = read_line(peer, MAX_HEAD_BYTES) or read_line(peer, MAX_HEAD_BYTES)
    request_line = _REQUEST_LINE.fullmatch(first)
    if request_line is None:
        raise Malformed(400, "not an HTTP/1.1 request line")
    lines: list[str] = []
    left = MAX_HEAD_BYTES - len(first)
    while line := read_line(peer, left):
        lines.append(line)
        left -= len(line) + 2
    method, target, minor = request_line.groups()
    headers: list[tuple[str, str]] = []
    for line in lines:
        field_line = _FIELD_LINE.fullmatch(line)
        if field_line is None:
            raise Malformed(400, "a header line without a name")
        headers.append((field_line[1], field_line[2]))
    if not target.startswith("/"):  # absolute-form, as to a proxy (RFC 9112 §3.2.2)
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    keeps_alive = minor == "1" and "close" not in _listed(headers, "connection")
    expects_continue = minor == "1" and "100-continue" in _listed(headers, "expect")
    length = _body_length(headers)
    return RequestHead(method, path, query, headers, keeps_alive, length, expects_continue)


def _listed(headers: list[tuple[str, str]], name: str) -> list[str]:
    values = [value for field_name, value in headers if field_name.lower() == name]
    return [member.strip().lower() for value in values for member in value.split(",")]


def _body_length(headers: list[tuple[str, str]]) -> int | None:
    lengths = set(_listed(headers, "content-length"))
    codings = _listed(headers, "transfer-encoding")
    if codings:
        if lengths:
            raise Malformed(400, "both Content-Length and Transfer-Encoding")
        if codings != ["chunked"]:
            raise Malformed(501, "a transfer coding other than chunked")
        return None
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise Malformed(400, "a Content-Length that is not one number")
    return int(length)


def body_pieces(peer: BufferedReader, length: int | None) -> Iterator[bytes]:
    """Yield the body as it comes in, to its end; raise Malformed or EOFError if that is missing."""
    if length is not None:
        yield from _exactly(peer, length)
        return
    while True:
        size_line = _CHUNK_SIZE.fullmatch(read_line(peer))
        if size_line is None:
            raise Malformed(400, "a chunk without a size")
        size = int(size_line[1], 16)
        if size == 0:
            break
        yield from _exactly(peer, size)
        if read_line(peer):
            raise Malformed(400, "a chunk longer than its size")
    while read_line(peer):
        pass  # trailers


def _exactly(peer: BufferedReader, size: int) -> Iterator[bytes]:
    while size:
        piece = peer.read1(min(size, 65_536))
        if not piece:
            raise EOFError("the peer closed its side")
        size -= len(piece)
        yield piece
