"""``forbear get``: fetch one URL, saying what each attempt came to. Floor: acts.

The transport retries and resumes; this command says so on standard error, and goes on with the part
of a file that an earlier run has left.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import re
import sys
import time
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from ...core.checks import to_install
from ...core.headers.ranges import Part as Answer
from ...core.headers.ranges import download_of
from ...core.outcome import FailureKind as K
from ...core.record import record_of
from ...sending.context import deadline
from . import complain, teach
from .part import Part
from .progress import Progress
from .settings import add_policy_arguments, chosen
from .tables import amount

__all__ = ["add_arguments", "run"]

# As curl's, but for the last: EX_DATAERR of sysexits.h.
CUT_SHORT, STATUS, NOT_WRITTEN, TOO_LATE = 18, 22, 23, 28
REDIRECTS, LOST, OTHER_CONTENT = 47, 56, 65
BY_KIND = {K.PERMANENT: 3, K.DNS: 6, K.REFUSED: 7, K.PROXY: 7, K.TLS: 35, K.CERTIFICATE: 60}
TIMEOUT = 30.0  # seconds for each phase of an attempt
ABOUT = (
    "Fetch a URL, retrying what is safe to repeat and resuming what breaks off. A file is FILE.part"
    " until it is complete; the same command goes on with it."
)
EXAMPLES = """\
examples:
  forbear get https://example.com/big.iso -o big.iso --sha256 9f86d081884c7d65…
  forbear get https://api.example.com/orders -d @order.json -H 'Content-Type: application/json' \\
              -H 'Idempotency-Key: order-4711'     a POST; without the key it is sent once

exit status: 0 done; as curl's: 3 not a URL, 6 no such host, 7 no connection, 18 cut short, 22 an
error status, 23 cannot write, 28 too late, 35 TLS, 47 too many redirects, 56 connection lost,
60 certificate; 65 the SHA-256 is another one; 2 an argument is wrong, or no httpx is installed.
"""


class Stop(Exception):
    """The end: what to say, and the exit status."""


def header(line: str) -> tuple[str, bytes]:
    name, colon, value = line.partition(":")
    if not colon or not re.fullmatch(r"[!-~]+", name):
        raise argparse.ArgumentTypeError("a header must be 'Name: value'")  # it may be a secret
    return name, os.fsencode(value.strip())


def data(text: str) -> bytes:
    try:
        return Path(text[1:]).read_bytes() if text.startswith("@") else os.fsencode(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {text[1:]}: {error.strerror}") from None


def digest(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"must be 64 hexadecimal digits, got {text!r}")
    return text.lower()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    add = parser.add_argument
    add("url", metavar="URL", help="http:// or https://")
    add("-o", "--output", metavar="FILE", default="-", help="where to (standard output)")
    add("-X", "--request", type=str.upper, metavar="METHOD", help="GET, or POST with -d")
    add("-H", "--header", type=header, action="append", default=[], metavar="'NAME: VALUE'")
    add("-d", "--data", type=data, metavar="DATA", help="of the request; @FILE: what a file holds")
    add("--sha256", type=digest, metavar="HEX", help="what the SHA-256 of the body must be")
    add_policy_arguments(parser)


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Fetch, return the exit status."""
    logging.getLogger("forbear").addHandler(logging.NullHandler())  # it would say the same again
    try:
        with ExitStack() as stack:
            Fetch(options, stack).run(getattr(out, "buffer", out))
        return 0
    except BrokenPipeError:
        raise
    except Stop as stop:
        return complain("get", *stop.args)
    except (ValueError, TypeError) as error:
        return complain("get", error)
    except OSError as error:
        told = f"cannot write {error.filename or 'the body'}: {error.strerror}"
        return complain("get", told, NOT_WRITTEN)


class Fetch:
    """One run of the command; what it opens is closed with the stack."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self.options, self.stack, policy = options, stack, chosen(options)
        self.library, self.ours = clients()
        self.progress, self.digest = Progress(sys.stderr), hashlib.sha256()
        self.began_at, self.received = time.monotonic(), 0
        self.part: Part | None = None
        client = self.library.Client(timeout=TIMEOUT, follow_redirects=True)
        self.ours.wrap(client, policy, on_event=[self.tell], name="get")
        self.client = stack.enter_context(client)
        if policy.total_timeout is not None:
            stack.enter_context(deadline(policy.total_timeout))

    def run(self, sink: Any) -> None:
        if self.options.output != "-":
            path = Path(self.options.output).resolve()  # a link stays one
            if path.exists() and not path.is_file():  # and /dev/null a device
                sink = self.stack.enter_context(path.open("wb"))
            else:
                sink = self.part = Part(path, self.options.url)
                self.stack.callback(self.leave)
        self.stack.callback(self.progress.end)
        try:
            self.fetch(sink)
        except (self.library.HTTPError, self.library.InvalidURL, UnicodeError) as error:
            status = BY_KIND.get(self.ours.classify(error).kind, LOST)
            if isinstance(error, self.library.TooManyRedirects):
                status = REDIRECTS
            elif isinstance(error, self.library.TimeoutException):  # a deadline's, too
                status = TOO_LATE
            elif self.received:
                status = CUT_SHORT
            raise Stop(f"{type(error).__name__}: {error}", status) from None

    def fetch(self, sink: Any) -> None:
        """Ask for the body, or for the rest of it, and write it."""
        options, part, begun, answer = self.options, self.part, None, Answer.OTHER
        method = options.request or ("GET" if options.data is None else "POST")
        headers = self.library.Headers(options.header)
        if options.data is not None:
            headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        headers.setdefault("Accept-Encoding", "identity")  # places in the file are in the body
        if part is not None and method == "GET" and "Range" not in headers:
            begun = part.download
            headers.update(begun.fields(part.size) if begun is not None else ())
        body = {"headers": headers, "content": options.data}
        response = self.stack.enter_context(self.client.stream(method, options.url, **body))
        status, lines = response.status_code, response.headers.raw
        if part is not None and begun is not None:
            answer = begun.judge(part.size, status, lines)
            if answer is Answer.OTHER and status in (206, 416):  # not the rest of this file
                part.begin(None)
                self.fetch(sink)
                return
        if status >= 400 and answer is Answer.OTHER:
            if part is None:  # the body of an error is for eyes, not for the file
                self.receive(response, sink)
            raise Stop(f"{status} {self.library.codes.get_reason_phrase(status)}", STATUS)
        if part is not None and answer is Answer.OTHER:
            part.begin(download_of(method, (), status, lines))
        elif part is not None:
            self.progress.say(f"going on at {amount(part.size)} with {part.place}")
            with part.place.open("rb") as file:
                self.digest = hashlib.file_digest(file, "sha256")
        if answer is not Answer.COMPLETE:
            self.receive(response, sink)
        self.finish(response)

    def receive(self, response: Any, sink: Any) -> None:
        length = response.headers.get("content-length", "")
        if self.part is not None:
            there = self.part.size
            self.progress.begin(there, there + int(length) if length.isdecimal() else None)
        for octets in response.iter_bytes():
            sink.write(octets)
            self.digest.update(octets)
            self.received += len(octets)
            self.progress.advance(len(octets))

    def finish(self, response: Any) -> None:
        """Check the body, give the file its name, say what came."""
        part, wanted, found = self.part, self.options.sha256, self.digest.hexdigest()
        if wanted not in (None, found):
            if part is not None:
                part.download = None  # no other run can go on with it
            raise Stop(f"the SHA-256 is {found}", OTHER_CONTENT)
        if part is not None:
            part.complete()
        self.part = None
        self.progress.end()
        seconds, attempts = time.monotonic() - self.began_at, len(record_of(response).attempts)
        told = f"{amount(self.received)} in {seconds:.3g} s, {amount(self.received / seconds)}/s"
        told += f", {attempts} attempts" * (attempts > 1)
        told += ", SHA-256 as expected" * (wanted is not None)
        where = "" if part is None else f" {self.options.output},"
        self.progress.say(f"{response.status_code}:{where} {told}")

    def leave(self) -> None:
        """Say what another run can go on with."""
        if self.part is not None and self.part.leave():
            kept = f"{amount(self.part.size)} are in {self.part.place}"
            self.progress.say(f"{kept}; the same command goes on from there")

    def tell(self, event: Any) -> None:
        """Say a line for each attempt that failed, and for each resumption."""
        told = ""
        if event.name == "retry_scheduled":
            by = "" if event.delay_source == "backoff" else f" ({event.delay_source})"
            failed = f"attempt {event.attempt}: {event.status or event.error}"
            failed = f"broke off, {event.error}" if self.received else failed
            told = f"{failed}, again in {event.delay:.3g} s{by}"
        elif event.name == "gave_up":
            failed = event.status or event.error
            told = f"attempt {event.attempts}: {failed}, not again: {event.reason}"
        elif event.name == "resume" and event.result == "resumed":
            told = f"resumed at {amount(event.offset)}"
        if told:
            self.progress.say(told)


def clients() -> tuple[Any, Any]:
    """A client library of the httpx family, and forbear's module for it."""
    for name in ("httpx2", "httpx"):
        with suppress(ImportError):
            return import_module(name), import_module(f"forbear.{name}")
    raise Stop(f"httpx is not installed: {to_install('httpx')}", 2)
