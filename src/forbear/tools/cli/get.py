"""``forbear get``: fetch one URL, saying what each attempt came to. Floor: acts.

What is retried and resumed is the transport's business; this command shows it, and goes on with
what an earlier run of it has left. Standard output gets the body or nothing, standard error
everything that is said.
"""

from __future__ import annotations

import argparse
import logging
import os
import ssl
import sys
import time
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO
from urllib.parse import urlsplit

from ...core.headers.ranges import Part as Answer
from ...core.outcome import FailureKind
from ...core.record import record_of
from ...errors import DeadlineExceeded
from ...sending.context import deadline
from .page import complain, spoken, teach
from .part import Part
from .progress import amount, progress_on
from .settings import add_policy_arguments, chosen

if TYPE_CHECKING:
    from ...core.policy import RetryPolicy
    from .progress import Progress

__all__ = ["add_arguments", "run"]

DONE = 0
# As of curl, where it has one for it.
NOT_A_URL, NO_NAME, NO_CONNECTION, CUT_SHORT, STATUS, NOT_WRITTEN, NOT_READ = (
    3,
    6,
    7,
    18,
    22,
    23,
    26,
)
TOO_LATE, NO_TLS, REDIRECTS, NO_ANSWER, NOT_SENT, NOT_RECEIVED, UNTRUSTED, CODING = (
    28,
    35,
    47,
    52,
    55,
    56,
    60,
    61,
)
WRONG_CONTENT = 65  # EX_DATAERR of sysexits.h; curl compares nothing
BY_KIND = {
    FailureKind.DNS: NO_NAME,
    FailureKind.REFUSED: NO_CONNECTION,
    FailureKind.PROXY: NO_CONNECTION,
    FailureKind.TLS: NO_TLS,
    FailureKind.CERTIFICATE: UNTRUSTED,
    FailureKind.CONNECT_TIMEOUT: TOO_LATE,
    FailureKind.READ_TIMEOUT: TOO_LATE,
    FailureKind.WRITE_TIMEOUT: TOO_LATE,
    FailureKind.TIMEOUT: TOO_LATE,
    FailureKind.DECODING: CODING,
}
TIMEOUT = 30.0  # seconds for each phase of an attempt

ABOUT = (
    "Fetch a URL, retrying what is safe to repeat and resuming what breaks off. Without -o the body goes to standard"
    " output. A file has the name FILE.part until it is complete; run again, the command goes on with it."
)
EXAMPLES = """\
examples:
  forbear get https://example.com/big.iso -o big.iso
  forbear get https://example.com/big.iso -o big.iso --sha256 9f86d081884c7d65…
  forbear get https://api.example.com/orders -H 'Authorization: Bearer …' --max-attempts 5
  forbear get https://api.example.com/orders -d @order.json -H 'Content-Type: application/json' \\
              -H 'Idempotency-Key: order-4711'     a POST; without the key it is sent once

exit status: 0 done; as curl's where it has one: 3 not a URL, 6 no such host, 7 no connection,
18 cut short, 22 an error status, 23 cannot write, 26 cannot read, 28 too late, 35 TLS, 47 too many
redirects, 52 no answer, 55 and 56 connection lost, 60 certificate, 61 coding; 65 the SHA-256 is
another one; 2 an argument is wrong, or no httpx is installed.
"""


class Mistake(Exception):
    """What the user got wrong, and the exit status for it."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    parser.add_argument("url", metavar="URL", help="http:// or https://")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to; - is standard output"
    )
    parser.add_argument("-X", "--request", metavar="METHOD", help="GET, or POST with -d")
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="LINE",
        help="'Name: value', repeatable",
    )
    parser.add_argument(
        "-d", "--data", metavar="DATA", help="body of the request; @FILE reads it from a file"
    )
    parser.add_argument("--sha256", metavar="HEX", help="what the SHA-256 of the body must be")
    parser.add_argument("-s", "--silent", action="store_true", help="say errors only")
    parser.add_argument(
        "--policy", metavar="POLICY", help="a preset, or module:attribute (the default policy)"
    )
    add_policy_arguments(parser)


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Fetch, return the exit status."""
    try:
        library, ours = clients()
        policy = chosen(options).policy
        order = Order(options)
    except Mistake as mistake:
        complain("get", mistake)
        return mistake.status
    except (ValueError, TypeError, ImportError) as mistake:
        return complain("get", mistake)
    logging.getLogger("forbear").addHandler(
        logging.NullHandler()
    )  # the same is said here, in fewer words
    progress = progress_on(sys.stderr, quiet=options.silent)
    fetch = Fetch(order, policy, progress, library, ours, silent=options.silent)
    try:
        if order.device is None:
            return fetch.run(out)
        try:
            with order.device.open("wb") as device:
                return fetch.run(device)
        except OSError as error:
            complain("get", f"cannot write {order.device}: {error.strerror}")
            return NOT_WRITTEN
    except BaseException:
        fetch.leave()
        raise
    finally:
        fetch.close()


class Order:
    """What is to be fetched.

    Raises:
        Mistake: That cannot be.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.url: str = options.url
        self.headers: list[tuple[str, str | bytes]] = [header(line) for line in options.header]
        self.content = content(options.data)
        self.method: str = (options.request or ("GET" if self.content is None else "POST")).upper()
        self.sha256: str | None = None if options.sha256 is None else options.sha256.lower()
        scheme, separator, _ = self.url.partition("://")
        if scheme.lower() not in ("http", "https") or not separator:
            # Not the rest of it, nor what stands before an @: there may be a password.
            beginning = scheme.rpartition("@")[2].partition("/")[0].partition("?")[0]
            raise Mistake(
                f"the URL must begin with http:// or https://, got {beginning!r}", NOT_A_URL
            )
        if not is_text(self.url):
            raise Mistake("the URL is not text: write %FF for the byte 0xFF, and so on", NOT_A_URL)
        output: Path | None = options.output
        if output is not None and str(output) == "-":
            output = None
        if output is not None and output.is_symlink():
            output = output.resolve()  # what it leads to is written, it stays
        self.device: Path | None = None  # or a pipe: nothing that could be replaced by a file
        if output is not None and output.exists() and not (output.is_file() or output.is_dir()):
            self.device, output = output, None
        self.part = None if output is None else Part(output, self.url)
        if not is_address(self.url):
            raise Mistake("the URL must name a host, and a port up to 65535 if any", NOT_A_URL)
        if not self.method.isascii():
            raise Mistake(f"-X takes a method such as PUT, got {options.request!r}")
        if self.sha256 is not None and (
            len(self.sha256) != 64 or not set(self.sha256) <= set("0123456789abcdef")
        ):
            raise Mistake(f"--sha256 must be 64 hexadecimal digits, got {options.sha256!r}")
        if self.part is not None and self.part.path.is_dir():
            raise Mistake(
                f"{self.part.path} is a directory: give -o the name of a file", NOT_WRITTEN
            )
        if self.part is not None and not self.part.path.parent.is_dir():
            raise Mistake(
                f"there is no directory {self.part.path.parent} to write into", NOT_WRITTEN
            )
        names = {name.lower() for name, _ in self.headers}
        if self.content is not None and "content-type" not in names:
            self.headers.append(("Content-Type", "application/x-www-form-urlencoded"))
        if "accept-encoding" not in names:
            self.headers.append(
                ("Accept-Encoding", "identity")
            )  # places in the file are places in the body
        # What the caller asks a part of is not ours to go on with.
        self.is_resumable = self.part is not None and self.method == "GET" and "range" not in names


class Fetch:
    """One run of the command."""

    def __init__(
        self,
        order: Order,
        policy: RetryPolicy,
        progress: Progress,
        library: Any,
        ours: Any,
        *,
        silent: bool,
    ) -> None:
        self.order = order
        self.policy = policy
        self.progress = progress
        self.library = library
        self.ours = ours
        self.silent = silent
        self.began_at = time.monotonic()
        self.received = 0
        self.client = ours.wrap(
            library.Client(timeout=TIMEOUT, follow_redirects=True),
            policy,
            on_event=[self.tell],
            name="get",
        )

    def run(self, out: TextIO | BinaryIO) -> int:
        try:
            with (
                nullcontext()
                if self.policy.total_timeout is None
                else deadline(self.policy.total_timeout)
            ):
                return self._fetch(out)
        except self.library.TooManyRedirects:
            return self._failed("too many redirects", REDIRECTS)
        except (self.library.InvalidURL, self.library.UnsupportedProtocol) as error:
            return self._failed(f"this is not a URL that can be fetched: {error}", NOT_A_URL)
        except UnicodeError:  # of the host's name, which the socket looks at last
            return self._failed(
                "this is not a URL that can be fetched: its host has no valid name", NOT_A_URL
            )
        except self.library.HTTPError as error:
            return self._failed(f"{type(error).__name__}: {error}", self._status_of(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            return self._failed(
                f"cannot write {error.filename or 'the body'}: {error.strerror}", NOT_WRITTEN
            )

    def _fetch(self, out: TextIO | BinaryIO) -> int:
        order, part = self.order, self.order.part
        begun = part.pick_up() if part is not None and order.is_resumable else None
        headers = list(order.headers)
        if begun is not None and part is not None:
            headers.extend(begun.fields(part.size))
        with self.client.stream(
            order.method, order.url, headers=headers, content=order.content
        ) as response:
            status, lines = response.status_code, response.headers.raw
            if begun is not None and part is not None:
                answer = begun.judge(part.size, status, lines)
                if answer is Answer.COMPLETE:
                    part.open(anew=False)
                    return self._complete(response)
                if answer is Answer.CONTINUES:
                    self._say(f"going on at {amount(part.size)} with {part.place}")
                    part.open(anew=False)
                    return self._receive(response, out)
                if status in (206, 416):  # not what was asked for: once more, and all of it
                    part.discard()
                    response.close()
                    return self._fetch(out)
            if status >= 400:
                return self._refused(response, out)
            if part is not None:
                part.open(anew=True, status=status, lines=lines)
            return self._receive(response, out)

    def _receive(self, response: Any, out: TextIO | BinaryIO) -> int:
        part, progress = self.order.part, self.progress
        there = 0 if part is None else part.size
        length = response.headers.get("content-length", "")
        coded = "content-encoding" in response.headers
        total = there + int(length) if length.isdecimal() and not coded else None
        if part is not None:
            progress.begin(there, total)
        digest = None if part is None else part.digest
        if part is None and self.order.sha256 is not None:
            import hashlib

            digest = hashlib.sha256()
        for octets in response.iter_bytes():
            if part is None:
                if digest is not None:
                    digest.update(octets)
                binary(out).write(octets)
            else:
                part.write(octets)
                progress.advance(len(octets))
            self.received += len(octets)
        if part is None:
            binary(out).flush()
            if digest is not None and digest.hexdigest() != self.order.sha256:
                return self._failed(f"the SHA-256 is {digest.hexdigest()}", WRONG_CONTENT)
            return self._done(response)
        return self._complete(response)

    def _complete(self, response: Any) -> int:
        part = self.order.part
        assert part is not None
        self.progress.end()
        found = part.digest.hexdigest()
        if self.order.sha256 is not None and found != self.order.sha256:
            part.discard()
            return self._failed(f"the SHA-256 is {found}: {part.place} was removed", WRONG_CONTENT)
        part.complete()
        return self._done(response)

    def _done(self, response: Any) -> int:
        record, part = record_of(response), self.order.part
        seconds = time.monotonic() - self.began_at
        rate = f", {amount(self.received / seconds)}/s" if seconds else ""
        sends = len(record.attempts)
        counts = f", {sends} attempts" if sends > 1 else ""
        resumed = self.progress.resumed
        counts += f", resumed {resumed} ×" if resumed else ""
        to = "" if part is None else f" {part.path},"
        checked = ", SHA-256 as expected" if self.order.sha256 is not None else ""
        self._say(
            f"{response.status_code}:{to} {amount(self.received)} in {spoken(seconds)}{rate}{counts}{checked}"
        )
        return DONE

    def _refused(self, response: Any, out: TextIO | BinaryIO) -> int:
        """An answer that is an error: its body is for eyes, not for the file."""
        if self.order.part is None:
            for octets in response.iter_bytes():
                binary(out).write(octets)
            binary(out).flush()
        return self._failed(f"{response.status_code} {response.reason_phrase}".rstrip(), STATUS)

    def _status_of(self, error: Exception) -> int:
        if isinstance(error, DeadlineExceeded):
            return TOO_LATE
        if self.received:
            return TOO_LATE if isinstance(error, self.library.TimeoutException) else CUT_SHORT
        cause = error.__cause__ or error.__context__
        if isinstance(error, self.library.ConnectError) and isinstance(cause, ssl.SSLError):
            return UNTRUSTED if isinstance(cause, ssl.SSLCertVerificationError) else NO_TLS
        status = BY_KIND.get(self.ours.classify(error).kind)
        if status is not None:
            return status
        if isinstance(error, self.library.RemoteProtocolError):
            return NO_ANSWER
        return NOT_SENT if isinstance(error, self.library.WriteError) else NOT_RECEIVED

    def _failed(self, text: str, status: int) -> int:
        self.progress.end()
        complain("get", text)
        self.leave()
        return status

    def leave(self) -> None:
        """Keep what came so far, if another run can go on with it, and say so."""
        self.progress.end()
        part = self.order.part
        if part is not None and part.is_worth_keeping:
            print(
                f"{amount(part.size)} are in {part.place}; the same command goes on from there",
                file=sys.stderr,
            )
        elif part is not None and part.size:
            part.discard()

    def tell(self, event: Any) -> None:
        """One line for each attempt that failed, and for each place that the download was gone on
        with.
        """
        name = event.name
        if name == "retry_scheduled":
            begun = f"attempt {event.attempt}: {event.status or event.error}"
            what = f"broke off, {event.error}" if self.received else begun
            by = "" if event.delay_source == "backoff" else f" ({event.delay_source})"
            self._say(f"{what}, again in {spoken(event.delay)}{by}")
        elif name == "gave_up":
            self._say(
                f"attempt {event.attempts}: {event.status or event.error}, not again: {event.reason}"
            )
        elif name == "resume" and event.result == "resumed":
            self.progress.resumed += 1
            of = "" if event.total is None else f" of {amount(event.total)}"
            self._say(f"resumed at {amount(event.offset)}{of}")

    def _say(self, text: str) -> None:
        if not self.silent:
            self.progress.say(text)

    def close(self) -> None:
        if self.order.part is not None:
            self.order.part.close()
        self.client.close()


def clients() -> tuple[Any, Any]:
    """A client library of the httpx family, and forbear's module for it."""
    for name in ("httpx2", "httpx"):
        try:
            return import_module(name), import_module(f"forbear.{name}")
        except ImportError:
            continue
    raise Mistake("httpx is not installed: pip install 'forbear[httpx]'")


def is_address(url: str) -> bool:
    """Can it be connected to? Asked here, since a port that does not exist would be retried as a
    refusal.
    """
    try:
        parts = urlsplit(url)
        return bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:
        return False


def header(line: str) -> tuple[str, str | bytes]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip() or name != name.strip() or not name.isascii():
        raise Mistake(f"-H takes 'Name: value', got {line!r}")
    value = value.strip()
    return name, value if value.isascii() else os.fsencode(
        value
    )  # the bytes that were given, as curl does


def is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:  # bytes that are none
        return False
    return True


def content(data: str | None) -> bytes | None:
    if data is None or not data.startswith("@"):
        return None if data is None else data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise Mistake(f"cannot read {data[1:]}: {error.strerror}", NOT_READ) from None


def binary(out: TextIO | BinaryIO) -> Any:
    return getattr(out, "buffer", out)
