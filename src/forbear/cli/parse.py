"""``forbear parse``: what the headers of a response ask for, and a policy's verdict.

Reads header lines as ``curl -sI`` prints them, and says what each of them asks for by itself and
together with the others. core/headers decides how a header is read and which one wins; it is called
with each header alone and with all of them.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from math import inf

from ..core.call import Call
from ..core.decide import answered, decide
from ..core.headers.fields import OWS, Clock
from ..core.headers.hints import READ, read_hint
from ..core.headers.quota import QUOTA_FIELDS, is_rate_limit, least
from ..core.outcome import GiveUp, Hint, SendAgain
from ..core.policy import RetryPolicy
from ..core.request import Request
from ..engine.settings import limits_of
from . import add_policy_arguments, chosen, complain, say, spoken, table, visible

ASKS, NOTHING, MALFORMED = 0, 1, 2
ASSUMED = 429  # the status that all of these headers are sent with

ABOUT = (
    "Read the headers of a response: which of them asked for what, which one won and why, and what"
    " a policy makes of it. Sends nothing."
)
EXAMPLES = """\
examples:
  forbear parse 'Retry-After: 120'
  forbear parse 'Retry-After: Fri, 31 Dec 2027 23:59:59 GMT'
  curl -sI https://api.example.com/ | forbear parse -    with its status; the last response counts
  forbear parse 'x-ratelimit-remaining: 0' 'x-ratelimit-reset: 30' --status 403 --vendors github

exit status: 0 they ask for something, 1 for nothing, 2 unreadable, or an argument is wrong.
"""
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of a header, RFC 9110 section 5.6.2
Lines = list[tuple[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("lines", nargs="+", metavar="LINE", help="'Name: value', a status line, or - for a pipe")
    add("--status", type=int, metavar="N", help=f"of the response (its status line, or {ASSUMED})")
    add("--method", type=str.upper, default="GET", metavar="NAME", help="of the request (GET)")
    add("--key", action="store_true", help="the request carried an idempotency key")
    add_policy_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print what the header lines ask for, return the exit status."""
    try:
        policy = chosen(options)
        now = time.time()
        given, lines = read(options.lines)
        status = options.status or given or ASSUMED
        if not 100 <= status <= 999:
            raise ValueError(f"a status has three digits, got {status}")
        if not (options.method.isascii() and options.method.isalpha()):
            raise ValueError(f"--method must be a name such as GET, got {options.method!r}")
    except (ValueError, TypeError) as mistake:
        return complain("parse", mistake)
    hint = read_hint(status, lines, now=now)
    rows = findings(status, lines, now, hint)
    assumed = "" if options.status or given else " (assumed; --status says another)"
    say(f"status {status}{assumed}, {options.method}{' with a key' * options.key}")
    print()
    table(("header", "value", "asks for", "result"), rows)
    request = Request(
        options.method, "https://origin.invalid:443", [("Idempotency-Key", "k")] * options.key
    )
    print()
    say(f"forbear: {verdict(policy, request, status, lines, now)}")
    if hint.delay is not None or hint.should_retry is not None:
        return ASKS
    return MALFORMED if any(result == "malformed" for *_, result in rows) else NOTHING


def read(words: list[str]) -> tuple[int | None, Lines]:
    """Return the status, if there is a status line, and the header lines of the last response.

    A pipe may hold several header sections, as curl -L prints them; a body is not read.

    Raises:
        ValueError: A line is not a header line.
    """
    piped = (str(sys.stdin.buffer.read(), "latin-1") if word == "-" else word for word in words)
    text = "\n".join(piped).replace("\r\n", "\n").strip("\n")
    section = re.split(r"^(?=HTTP/)", text, flags=re.MULTILINE)[-1].partition("\n\n")[0]
    status: int | None = None
    lines: Lines = []
    for line in re.sub(r"\n[ \t]+", " ", section).split("\n"):  # folded, RFC 9112 section 5.2
        name, colon, value = line.partition(":")
        if found := re.match(r"HTTP/\S+ ([0-9]{3})", line):
            status = int(found[1])
        elif colon and NAME.fullmatch(name):
            lines.append((name, value.strip(OWS)))
        else:
            raise ValueError(
                f"no header line: {visible(line)}; write 'Retry-After: 120', or - for a pipe"
            )
    return status, lines


def verdict(policy: RetryPolicy, request: Request, status: int, lines: Lines, now: float) -> str:
    """Say what the policy does after the first attempt, with the least and the greatest jitter."""
    sends: list[SendAgain] = []
    for random in (lambda: 0.0, lambda: 1.0):
        call = Call(policy, request, limits_of(random), 0.0, policy.max_attempts)
        call.deadline_at = inf if policy.total_timeout is None else policy.total_timeout
        call.sending(0.0)
        failure = answered(policy, status, lines, lambda: now)
        decision = decide(call, failure, 0.0) if status >= 400 else None
        if isinstance(decision, SendAgain):
            sends.append(decision)
        elif isinstance(decision, GiveUp) and not sends:
            return f"returns the response: {decision.reason}"
    if not sends:
        return f"returns the response: {status} is not retried"
    delays = dict.fromkeys(spoken(one.delay) for one in sends)
    source = "its own backoff" if sends[-1].source == "backoff" else "the server's hint"
    return f"retries after {' to '.join(delays)}, by {source}"


def findings(status: int, lines: Lines, now: float, hint: Hint) -> list[tuple[str, ...]]:
    """Return a row for every header that concerns retries, in the order of their precedence."""
    fields: dict[str, list[str]] = {}
    for name, value in lines:
        fields.setdefault(name.lower(), []).append(value)
    rows: list[tuple[str, ...]] = []
    for name in (*READ, *sorted(QUOTA_FIELDS)):
        if name in fields:
            # The hint of this header alone, in a response that is not from a cache.
            own = [(name, value) for value in fields[name]]
            usual = 429 if name in QUOTA_FIELDS else 503
            alone = read_hint(usual, own, now=Clock(lines, now).utc())
            delay = "" if alone.delay is None else spoken(alone.delay)
            value = ", ".join(fields[name])
            rows.append((name, visible(value), delay, result(name, value, alone, hint, status)))
    return rows


def result(name: str, value: str, alone: Hint, hint: Hint, status: int) -> str:
    """Say what became of a header, together with the others, and why."""
    if alone.should_retry is not None or alone.delay is not None:
        if status < 300:
            return f"ignored: a {status} is no failure"
        if hint.should_retry is False and alone.should_retry is not False:
            return "lost: the server says no"
        if alone.should_retry is not None or hint.source == name:
            return "won"
        if hint.source is not None:
            return f"lost to {hint.source}"
        return "ignored: a used-up quota counts on 403, 429, 503, and not from a cache"
    if name == "idempotent-replayed":
        return "counts if the request carried a key"
    if name in QUOTA_FIELDS and (least([value]) is not None or is_rate_limit(value)):
        return "read with its reset, which counts if nothing is left"
    return "malformed"
