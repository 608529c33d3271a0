"""``forbear get``: fetch one URL, saying what each attempt came to. Floor: acts.

The transport retries and resumes; this command says so on standard error, and goes on with the part
of a file that an earlier run has left.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import random
from typing import Any, TextIO

from ...core.checks import to_install
from ...core.headers.ranges import Part as Answer
from ...core.headers.ranges import download_of
from ...core.outcome import FailureKind as K
from ...core.record import record_of
from ...core.verdict import Reason
from ...sending.context import deadline
from . import complain, teach
from .part import Part
from .progress import Progress
from .settings import a_digest, a_header, add_policy_arguments, chosen, content
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    add = parser.add_argument
    add("url", metavar="URL", help="http:// or https://")
    add("-o", "--output", metavar="FILE", default="-", help="where to (standard output)")
    add("-X", "--request", type=str.upper, metavar="METHOD", help="GET, or POST with -d")
    add("-H", "--header", type=a_header, action="append", default=[], metavar="'NAME: VALUE'")
    add("-d", "--data", type=content, metavar="DATA", help="of the request; @FILE: of a file")
    add("--sha256", type=a_digest, metavar="HEX", help="what the SHA-256 of the body must be")
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
    except ImportError:
        return complain("get", f"httpx is not installed: {to_install('httpx')}")
    except (ValueError, TypeError) as error:
        return complain("get", error)
    except OSError as error:
        where = error.filename or "the body"
        return complain("get", f"cannot write {where}: {error.strerror}", NOT_WRITTEN)


class Fetch:
    """One run of the command; what it opens is closed with the stack."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self.options, self.stack, self.policy = options, stack, chosen(options)
        name = "httpx2" if find_spec("httpx2") else "httpx"
        self.library, self.ours = import_module(name), import_module(f"forbear.{name}")
        self.progress, self.began_at = Progress(sys.stderr), time.monotonic()
        self.part: Part | None = None
        self.sent, self.has_ranges = 0, True  # attempts before this beginning; for all one knows
        client = self.library.Client(timeout=TIMEOUT, follow_redirects=True)
        self.ours.wrap(client, self.policy, on_event=[self.tell], name="get")
        self.client = stack.enter_context(client)
        if self.policy.total_timeout is not None:
            stack.enter_context(deadline(self.policy.total_timeout))

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
            while not self.is_fetched(sink):
                pass
        except (self.library.HTTPError, self.library.InvalidURL, UnicodeError) as error:
            kind = self.ours.classify(error).kind
            status = CUT_SHORT if self.received else BY_KIND.get(kind, LOST)
            if isinstance(error, self.library.TimeoutException):  # a deadline's, too
                status = TOO_LATE
            elif isinstance(error, self.library.TooManyRedirects):
                status = REDIRECTS
            raise Stop(f"{type(error).__name__}: {error}", status) from None

    def is_fetched(self, sink: Any) -> bool:
        """Ask for the body, or for the rest of it, and write it; False: it is to be begun anew."""
        options, part, answer = self.options, self.part, Answer.OTHER
        self.received, self.digest = 0, hashlib.sha256()
        method = options.request or ("GET" if options.data is None else "POST")
        headers = self.library.Headers(options.header)
        if options.data is not None:
            headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        headers.setdefault("Accept-Encoding", "identity")  # places in the file are in the body
        is_part = "Range" in headers
        begun = None if part is None or is_part or method != "GET" else part.download
        left = {"forbear": {"max_attempts": self.policy.max_attempts - self.sent}}
        if part is not None and begun is not None:
            headers.update(begun.fields(part.size))
        request = {"headers": headers, "content": options.data, "extensions": left}
        response = self.stack.enter_context(self.client.stream(method, options.url, **request))
        status, lines = response.status_code, response.headers.raw
        if part is not None and begun is not None:
            answer = begun.judge(part.size, status, lines)
            if answer is Answer.OTHER and status in (206, 416):  # not the rest of this file
                part.begin(None)
                return False
        if answer is Answer.OTHER and (status >= 400 or (status == 206 and not is_part)):
            if part is None:  # the body of an error is for eyes, not for the file
                self.receive(response, sink)
            told = f"{status} {self.library.codes.get_reason_phrase(status)}"
            raise Stop(told, STATUS if status >= 400 else CUT_SHORT)
        if part is not None and answer is Answer.OTHER:
            part.begin(download_of(method, (), status, lines) if self.has_ranges else None)
        elif part is not None:
            self.progress.say(f"going on at {amount(part.size)} with {part.place}")
            self.digest = part.digest()
        try:
            if answer is not Answer.COMPLETE:
                self.receive(response, sink)
        except self.library.TransportError as error:
            if method in self.policy.methods and self.begins_anew(error):
                return False
            raise
        self.finish(response)
        return True

    def receive(self, response: Any, sink: Any) -> None:
        length = response.headers.get("content-length", "")
        if self.part is not None:
            self.progress.begin(self.part.size, int(length) if length.isdecimal() else None)
        for octets in response.iter_bytes():
            sink.write(octets)
            self.digest.update(octets)
            self.received += len(octets)
            self.progress.advance(len(octets))

    def begins_anew(self, error: Exception) -> bool:
        """Wait, and empty the file, if its body has broken and nobody sends the rest alone."""
        part, record, limit = self.part, record_of(error), self.policy.total_timeout
        self.sent += max(1, len(record.attempts))
        delay = self.policy.backoff.delay(self.sent, 0.0, random)
        is_late = limit is not None and time.monotonic() + delay >= self.began_at + limit
        if part is not None and record.reason is Reason.RESPONSE_DELIVERED:
            self.has_ranges, part.download = False, None  # something other than the rest came
        if part is None or part.download or is_late or self.sent >= self.policy.max_attempts:
            return False
        self.progress.say(f"{type(error).__name__}: from the beginning in {delay:.3g} s")
        part.begin(None)
        time.sleep(delay)
        return True

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
        seconds = time.monotonic() - self.began_at
        attempts = self.sent + len(record_of(response).attempts)
        told = f"{amount(self.received)} in {seconds:.3g} s, {amount(self.received / seconds)}/s"
        told += f", {attempts} attempts" * (attempts > 1)
        told += ", SHA-256 as expected" * (wanted is not None)
        where = f" {self.options.output}," * (part is not None)
        self.progress.say(f"{response.status_code}:{where} {told}")

    def leave(self) -> None:
        """Say what another run can go on with."""
        if self.part is not None and self.part.leave():
            kept = f"{amount(self.part.size)} are in {self.part.place}"
            self.progress.say(f"{kept}; the same command goes on from there")

    def tell(self, event: Any) -> None:
        """Say a line for each attempt that failed, and for each resumption."""
        failed = getattr(event, "status", None) or getattr(event, "error", None)
        if event.name == "retry_scheduled":
            by = "" if event.delay_source == "backoff" else f" ({event.delay_source})"
            what = "broke off," if self.received else f"attempt {event.attempt}:"
            self.progress.say(f"{what} {failed}, again in {event.delay:.3g} s{by}")
        elif event.name == "gave_up":
            self.progress.say(f"attempt {event.attempts}: {failed}, not again: {event.reason}")
        elif event.name == "resume" and event.result == "resumed":
            self.progress.say(f"resumed at {amount(event.offset)}")
