"""``forbear parse``: which header asked for what, which one won and why, what the policy does."""

import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from forbear import read_hint
from forbear.cli.parse import EXAMPLES, findings, read

CORPUS = Path(__file__).parent.parent / "corpus" / "server_hints.json"
CASES = json.loads(CORPUS.read_text(encoding="utf-8"))["cases"]
NOON, NINE = 1_795_176_000.0, 1_795_208_400.0  # 2026-11-20T12:00:00Z and 21:00:00Z
POLICY = shlex.split("--backoff base=0.5,cap=30,jitter=full --max-attempts 4")
GIVEN = ("parse", *POLICY)


def verdict(out):
    return re.sub(r"\s+", " ", out.partition("forbear: ")[2]).strip()


CURL = "\r\n".join([
    "HTTP/1.1 301 Moved Permanently", "location: https://api.example.com/", "retry-after: 900", "",
    "HTTP/2 429 ", "date: Fri, 20 Nov 2026 20:00:00 GMT", "retry-after: 30", "Retry-After-Ms: 1500",
    "x-ratelimit-remaining: 0", "x-ratelimit-reset: 1795467600", "x-should-retry: true", "",
    "retry-after: 77", "",
])  # fmt: skip


def test_what_curl_prints(command, monkeypatch):
    """The last response counts, not the redirect before it nor the body after it."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CURL.encode())))
    status, out, _ = command(*GIVEN, "-")
    lines = [re.split(r"  +", line) for line in out.splitlines()]
    assert (status, lines[0]) == (0, ["status 429, GET"])
    assert [line[0] for line in lines[3:8]] == [
        "retry-after-ms", "retry-after", "x-should-retry", "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ]  # fmt: skip
    assert lines[3] == ["retry-after-ms", "1500", "1.5 s", "won"]
    assert verdict(out) == "retries after 1.5 s to 1.88 s, by the server's hint"


@pytest.mark.parametrize(("lines", "exit_status", "said"), [
    (["503", "Retry-After: 5"], 0, "retries after 5 s to 6.25 s, by the server's hint"),
    (["503", "Retry-After: 0"], 0, "retries after 0 s to 0.5 s, by its own backoff"),
    (["503", "Retry-After: soon"], 2, "retries after 0 s to 0.5 s, by its own backoff"),
    (["404", "Server: nginx"], 1, "returns the response: 404 is not retried"),
    (["404", "x-should-retry: true"], 0, "retries after 0 s to 0.5 s, by its own backoff"),
    (["503", "x-should-retry: false"], 0, "returns the response: server-said-no"),
    (["503", "Retry-After: 5", "--method=post"], 0, "method-not-replayable"),
    (["503", "Retry-After: 5", "--method=POST", "--key"], 0, "retries after 5 s to 6.25 s"),
    (["503", "Retry-After: 5", "--max-attempts=1"], 0, "attempts-exhausted"),
    (["503", "Retry-After: 5", "--total-timeout=4"], 0, "returns the response: deadline"),
    (["503", "Retry-After: 5", "--total-timeout=5.2"], 0, "retries after 5 s to 5.2 s"),
    (["503", "Retry-After: 5", "--hints=ignore"], 0, "by its own backoff"),
    (["503", "Idempotent-Replayed: true", "--key"], 1, "replayed-response"),
])  # fmt: skip
def test_exit_status_and_verdict(command, lines, exit_status, said):
    found, out, err = command(*GIVEN, "--status", *lines)
    assert (found, err) == (exit_status, "")
    assert said in verdict(out)


def told(lines, status=429):
    """What became of each header."""
    pairs = [tuple(line.split(": ", 1)) for line in lines]
    rows = findings(status, pairs, NINE, read_hint(status, pairs, now=NINE))
    return {name: (delay, result) for name, _, delay, result in rows}


@pytest.mark.parametrize(("line", "delay"), [
    ("retry-after: Fri, 20 Nov 2026 21:00:30 GMT", "30 s"),
    ("retry-after: Fri, 20 Nov 2026 20:59:59 GMT", "0 s"), ("retry-after: 5, 9", "9 s"),
    ("x-amz-retry-after: 1500", "1.5 s"), ("x-ratelimit-reset: 1795208460", "60 s"),
    ("x-ratelimit-reset-requests: 1m30s", "90 s"), ('ratelimit: "x";r=0;t=12', "12 s"),
])  # fmt: skip
def test_how_a_value_is_read(line, delay):
    assert list(told([line]).values()) == [(delay, "won")]


@pytest.mark.parametrize(("status", "lines", "result"), [
    (503, ["retry-after: 1e3"], "malformed"),
    (429, ["x-ratelimit-reset: soon"], "malformed"),
    (429, ['ratelimit: "a";r=5;t=9'], "read with its reset"),
    (429, ["x-ratelimit-remaining: 0"], "read with its reset"),
    (403, ["x-ratelimit-reset: 9", "x-ratelimit-remaining: 5"], "ignored: a used-up quota"),
    (503, ["x-ratelimit-reset: 9"], "ignored: a used-up quota"),
    (301, ["x-ratelimit-reset: 9"], "ignored: a used-up quota"),
    (200, ["x-ratelimit-reset: 9"], "ignored: a 200 is no failure"),
    (429, ["x-ratelimit-reset: 9", "age: 3"], "ignored: a used-up quota"),
    (429, ["x-ratelimit-reset: 9", "retry-after: 3"], "lost to retry-after"),
    (503, ["retry-after: 9", "x-ms-retry-after-ms: 9"], "lost to x-ms-retry-after-ms"),
    (503, ["retry-after: 9", "x-should-retry: false"], "lost: the server says no"),
    (503, ["x-should-retry: true", "stripe-should-retry: false"], "lost: the server says no"),
    (503, ["x-should-retry: true"], "won"), (503, ["x-should-retry: false"], "won"),
    (503, ["grpc-retry-pushback-ms: soon"], "won"),
])  # fmt: skip
def test_what_becomes_of_a_header_and_why(status, lines, result):
    """Of the first of these lines."""
    assert told(lines, status)[lines[0].partition(":")[0]][1].startswith(result)


def test_one_header_wins_and_it_is_the_one_that_is_read():
    """Over the corpus: the header that is said to have won is the one that ``read_hint`` names."""
    for case in CASES:
        lines = [(name, value) for name, value in case["headers"]]
        hint = read_hint(case["status"], lines, now=NOON)
        won = [row for row in findings(case["status"], lines, NOON, hint) if row[3] == "won"]
        expected = [] if hint.delay is None or hint.should_retry is False else [hint.source]
        assert [name for name, _, delay, _ in won if delay] == expected, case["id"]
        assert any(not row[2] for row in won) is (hint.should_retry is not None), case["id"]


@pytest.mark.parametrize(("fed", "found"), [
    ("\nRetry-After:\n  5\nAge: 1", (None, [("Retry-After", "5"), ("Age", "1")])),
    ("HTTP/1.1 100 On\r\n\r\nHTTP/1.1 503 Down\r\nA: b\r\n\r\nC: d", (503, [("A", "b")])),
    ("HTTP/1.1 503 \xe9\nretry-after: 5\xa0\n", (503, [("retry-after", "5\xa0")])),
])  # fmt: skip
def test_a_pipe_is_read_as_http_is(monkeypatch, fed, found):
    """Folded lines, several responses, bytes that are Latin-1 and no whitespace of HTTP."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(fed.encode("latin-1"))))
    assert read(["-"]) == found


@pytest.mark.parametrize(("arguments", "says"), [
    (["nothing"], "no header line: nothing; write 'Retry-After: 120'"),
    (["\x1b[31mretry-after: 5"], "no header line: \\x1b[31mretry-after: 5"),
    (["HTTP/1.1 down"], "no header line: HTTP/1.1 down"),
    (["A: b", "--status", "20"], "a status has three digits, got 20"),
    (["A: b", "--method", "ge t"], "--method must be a name such as GET, got 'GE T'"),
])  # fmt: skip
def test_a_mistake_is_told_in_a_line_and_is_status_2(mistake, arguments, says):
    assert says in mistake(*GIVEN, *arguments)


@pytest.mark.parametrize("name", ["retry-after", "x-should-retry", "x-ratelimit-remaining"])
def test_no_value_reaches_a_terminal_that_it_would_obey(command, name):
    """Escape sequences, a C1 control, a right-to-left override."""
    _, out, err = command(*GIVEN, f"{name}: \x1b[2Jgone\x08\x9b\u202e")
    assert (out + err).replace("\n", "").isprintable()
    assert "gone" in out


def test_the_examples_of_the_help_work(command, monkeypatch):
    pattern = r"^  (?:curl .* \| )?forbear (parse .*?)(?:  +[a-z].*)?$"
    for line in re.findall(pattern, EXAMPLES, re.MULTILINE):
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(b"HTTP/1.1 503\nRetry-After: 1"))
        )
        status, _, err = command(*shlex.split(line.partition(" < ")[0]))
        assert (status, err) == (0, ""), line
