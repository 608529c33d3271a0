"""``forbear parse``: which header asked for what, which one won and why, what the policy does, and
the exit status.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forbear
from forbear import Exponential, RetryPolicy, read_hint
from forbear.tools.cli import main
from forbear.tools.cli.findings import findings
from forbear.tools.cli.parse import EXAMPLES, decide, last_section

SOURCE = Path(forbear.__file__).parent.parent
CASES = json.loads(
    (Path(__file__).parent.parent / "corpus" / "server_hints.json").read_text(encoding="utf-8")
)["cases"]
NOW = ("--now", "2026-11-20T21:00:00Z")
POLICY = (
    "--base",
    "0.5",
    "--cap",
    "30",
    "--jitter",
    "full",
    "--max-attempts",
    "4",
    "--max-retry-after",
    "60",
)


def parse(capsys, *arguments):
    status = main(["parse", *NOW, *POLICY, *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def found(capsys, *arguments):
    """Status, and by header what it says, asks for and what became of it."""
    status, out, _ = parse(capsys, *arguments, "--json")
    return status, {
        one["name"]: (one["says"], one["delay"], one["result"])
        for one in json.loads(out)["headers"]
    }


def verdict(out):
    return re.sub(r"\s+", " ", out.partition("forbear: ")[2]).strip()


# --- sessions ----------------------------------------------------------------------------------


def test_a_date_far_away(capsys):
    """From 21:00:00 on 2026-11-20 to 23:59:59 on 2027-12-31: 406 days, 2 h 59 m 59 s."""
    status, out, err = parse(capsys, "retry-after: Fri, 31 Dec 2027 23:59:59 GMT")
    assert (status, err) == (0, "")
    assert "status 429 (assumed; --status says another), GET" in out
    assert "retry-after  HTTP-date (IMF-fixdate)  406 d 2 h 59 m 59 s  won" in out
    assert verdict(out) == (
        "returns the response: 406 d 2 h 59 m 59 s is over max_retry_after, 60 s (retry-after-too-long)"
    )


CURL = """\
HTTP/1.1 301 Moved Permanently\r
location: https://api.example.com/\r
retry-after: 900\r
\r
HTTP/2 429 \r
date: Fri, 20 Nov 2026 20:00:00 GMT\r
retry-after: 30\r
Retry-After-Ms: 1500\r
x-ratelimit-remaining: 0\r
x-ratelimit-reset: 1795467600\r
ratelimit: "hour";r=5;t=10\r
ratelimit-policy: "hour";q=100\r
x-should-retry: true\r
\r
retry-after: 77\r
"""


def test_what_curl_prints(capsys, monkeypatch):
    """The last response counts, not the redirect before it nor the body after it."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CURL.encode())))
    status, out, _ = parse(capsys, "-")
    assert status == 0
    assert out.splitlines()[0] == "status 429, GET"
    table = [
        re.split(r"  +", line) for line in out.splitlines()[2:] if line and not line.startswith(" ")
    ]
    assert [row[0] for row in table[1:-1]] == [
        "retry-after-ms", "retry-after", "x-should-retry", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit",
        "ratelimit-policy",
    ]  # fmt: skip
    assert table[1] == ["retry-after-ms", "milliseconds", "1.5 s", "won"]
    assert table[2] == ["retry-after", "seconds", "30 s", "lost: retry-after-ms is more exact"]
    assert verdict(out) == "retries after 1.5 s to 1.65 s: as retry-after-ms asks"


def test_a_pipe_that_is_text_already(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("HTTP/1.1 503 Down\nRetry-After: 5\n\tignored\n"))
    status, out, _ = parse(capsys, "-")
    assert status == 2  # the folded line makes "5 ignored" of it
    assert "malformed" in out


def test_octets_are_latin_1(capsys, monkeypatch):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"HTTP/1.1 503 \xe9\nretry-after: 5\xa0\n"))
    )
    status, found_ = found(capsys, "-")
    assert status == 2  # NBSP is no whitespace of HTTP
    assert found_["retry-after"][2] == "malformed"


@pytest.mark.parametrize(
    ("lines", "status", "exit_status", "said"),
    [
        (["Retry-After: 5"], "503", 0, "retries after 5 s to 5.5 s: as retry-after asks"),
        (
            ["Retry-After: 0"],
            "503",
            0,
            "retries after 0 s to 0.5 s: by its own backoff, which can be longer than retry-after asks",
        ),
        (["Retry-After: soon"], "503", 2, "retries after 0 s to 0.5 s: by its own backoff"),
        (["Server: nginx"], "503", 1, "retries after 0 s to 0.5 s: by its own backoff"),
        (["Server: nginx"], "404", 1, "returns the response: 404 is not retried"),
        (["Retry-After: 5"], "202", 1, "returns the response: no failure"),
        (["Retry-After: 5"], "404", 0, "returns the response: 404 is not retried"),
        (["x-should-retry: true"], "404", 0, "retries after 0 s to 0.5 s: by its own backoff"),
        (
            ["x-should-retry: false", "Retry-After: 5"],
            "503",
            0,
            "returns the response: the server says that another attempt is no use (server-said-no)",
        ),
    ],
)
def test_exit_status_and_verdict(capsys, lines, status, exit_status, said):
    found_, out, err = parse(capsys, *lines, "--status", status)
    assert (found_, err) == (exit_status, "")
    assert verdict(out) == said


def test_no_header_of_the_kind(capsys):
    _, out, _ = parse(capsys, "Server: nginx")
    assert "No header has to do with trying again." in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "post"], "it carries no key that it would recognise (method-not-replayable)"),
        (["--method", "POST", "--key"], "retries after 5 s to 5.5 s"),
        (["--method", "DELETE"], "retries after 5 s to 5.5 s"),
        (["--max-attempts", "1"], "the policy sends once (attempts-exhausted)"),
        (["--max-retry-after", "4"], "5 s is over max_retry_after, 4 s (retry-after-too-long)"),
        (["--total-timeout", "4"], "5 s is more than total_timeout leaves (deadline)"),
        (["--total-timeout", "5.2"], "retries after 5 s to 5.2 s"),
        (
            ["--hints", "ignore"],
            "retries after 0 s to 0.5 s: by its own backoff, hints are ignored",
        ),
        (["--statuses", "429"], "503 is not retried"),
    ],
)
def test_the_policy_decides(capsys, arguments, said):
    _, out, _ = parse(capsys, "Retry-After: 5", "--status", "503", *arguments)
    assert said in verdict(out)


def test_a_preset_decides_too(capsys):
    status = main(["parse", "Retry-After: 5", "--policy", "disabled"])
    assert status == 0
    assert "(attempts-exhausted)" in capsys.readouterr().out


def test_a_stored_answer_is_told(capsys):
    lines = ("Idempotent-Replayed: true", "Retry-After: 5")
    _, out, _ = parse(capsys, *lines, "--status", "503", "--key")
    assert "(replayed-response)" in verdict(out)
    _, out, _ = parse(capsys, *lines, "--status", "503")
    assert verdict(out).startswith("retries after 5 s")
    assert "a stored answer" in out
    assert (
        found(capsys, "Idempotent-Replayed: no")[1]["idempotent-replayed"][0]
        == "not a stored answer"
    )


# --- findings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says", "delay"),
    [
        ("retry-after: 7", "seconds", 7),
        ("retry-after: 99999999999999", "seconds", 2_147_483_648),
        ("retry-after: Friday, 20-Nov-26 21:00:30 GMT", "HTTP-date (rfc850-date)", 30),
        ("retry-after: Fri Nov 20 21:00:30 2026", "HTTP-date (asctime-date)", 30),
        ("retry-after: Fri, 20 Nov 2026 20:59:59 GMT", "HTTP-date (IMF-fixdate), already past", 0),
        ("retry-after: 5, 9", "several values, the longest", 9),
        ("x-ms-retry-after-ms: 250", "milliseconds", 0.25),
        ("x-amz-retry-after: 1500", "milliseconds", 1.5),
        ("grpc-retry-pushback-ms: 100", "milliseconds", 0.1),
        ("x-ratelimit-reset: 30", "seconds", 30),
        # 2026-11-20 21:00:00 UTC is 1,795,208,400
        ("x-ratelimit-reset: 1795208460", "Unix seconds", 60),
        ("x-ratelimit-reset: 1795208460000", "Unix milliseconds", 60),
        ("x-ratelimit-reset: 1795208300", "Unix seconds, already past", 0),
        ("x-ratelimit-reset: 2026-11-20T21:01Z", "RFC 3339 date", 60),
        ("x-ratelimit-reset-requests: 1m30s", "duration", 90),
        ('ratelimit: "x";r=0;t=12', "structured field", 12),
        ("ratelimit: limit=10, remaining=0, reset=12", "structured field", 12),
    ],
)
def test_how_a_value_is_read(capsys, line, says, delay):
    status, of = found(capsys, line)
    assert status == 0
    assert of == {line.partition(":")[0]: (says, delay, "won")}


@pytest.mark.parametrize(
    ("lines", "status", "name", "result", "why"),
    [
        (["retry-after-ms: soon"], 503, "retry-after-ms", "malformed", "no number of milliseconds"),
        (
            ["x-amz-retry-after: 1.5"],
            503,
            "x-amz-retry-after",
            "malformed",
            "no whole number of milliseconds",
        ),
        (["retry-after: 1e3"], 503, "retry-after", "malformed", "neither seconds nor an HTTP-date"),
        (["ratelimit: x"], 429, "ratelimit", "malformed", "neither form of the drafts"),
        (
            ["x-ratelimit-reset: soon"],
            429,
            "x-ratelimit-reset",
            "malformed",
            "neither seconds nor a date",
        ),
        (["x-ratelimit-remaining: few"], 429, "x-ratelimit-remaining", "malformed", "not a number"),
        (["x-should-retry: maybe"], 503, "x-should-retry", "malformed", "neither true nor false"),
        (['ratelimit: "a";r=5;t=9'], 429, "ratelimit", "ignored", "another limit was hit"),
        (
            ["x-ratelimit-reset: 9", "x-ratelimit-remaining: 5"],
            403,
            "x-ratelimit-reset",
            "ignored",
            "is not 0",
        ),
        (
            ["x-ratelimit-reset: 9"],
            503,
            "x-ratelimit-reset",
            "ignored",
            "a reset alone counts on a 429 only",
        ),
        (
            ["x-ratelimit-reset: 9"],
            500,
            "x-ratelimit-reset",
            "ignored",
            "read on 403, 429 and 503, not on 500",
        ),
        (["x-ratelimit-reset: 9"], 200, "x-ratelimit-reset", "ignored", "a 200 is no failure"),
        (
            ["x-ratelimit-reset: 9"],
            301,
            "x-ratelimit-reset",
            "ignored",
            "of a redirect only Retry-After",
        ),
        (
            ["x-ratelimit-reset: 9", "age: 3"],
            429,
            "x-ratelimit-reset",
            "ignored",
            "from a cache (Age)",
        ),
        (
            ["x-ratelimit-remaining: 0"],
            429,
            "x-ratelimit-remaining",
            "ignored",
            "no reset beside it",
        ),
        (
            ["x-ratelimit-remaining: 0", "x-ratelimit-reset: 9"],
            403,
            "x-ratelimit-remaining",
            "gate",
            "decides whether x-ratelimit-reset counts",
        ),
        (
            ["x-ratelimit-reset: 9", "retry-after: 3"],
            429,
            "x-ratelimit-reset",
            "lost",
            "retry-after asks outright",
        ),
        (
            ["x-ratelimit-reset: 9", "ratelimit-reset: 3"],
            429,
            "x-ratelimit-reset",
            "lost",
            "ratelimit-reset comes",
        ),
        (
            ["x-ratelimit-reset-requests: 1s", "x-ratelimit-reset-tokens: 6m"],
            429,
            "x-ratelimit-reset-requests",
            "lost",
            "x-ratelimit-reset-tokens has the longer wait",
        ),
        (
            ["retry-after: 9", "x-ms-retry-after-ms: 9"],
            503,
            "retry-after",
            "lost",
            "x-ms-retry-after-ms is more exact",
        ),
        (
            ["x-ms-retry-after-ms: 9", "retry-after-ms: 9"],
            503,
            "x-ms-retry-after-ms",
            "lost",
            "comes first",
        ),
        (
            ["retry-after: 9", "x-should-retry: false"],
            503,
            "retry-after",
            "lost",
            "the server says no",
        ),
        (
            ["x-should-retry: true", "stripe-should-retry: false"],
            503,
            "x-should-retry",
            "lost",
            "any no wins",
        ),
        (["x-should-retry: true"], 503, "x-should-retry", "won", "the server wants it again"),
        (["x-should-retry: true"], 200, "x-should-retry", "ignored", "no failure"),
        (["x-should-retry: false"], 200, "x-should-retry", "ignored", "no failure"),
        (
            ["x-should-retry: false"],
            503,
            "x-should-retry",
            "won",
            "an explicit no is always obeyed",
        ),
        (["grpc-retry-pushback-ms: -1"], 503, "grpc-retry-pushback-ms", "won", "an explicit no"),
        (
            ["x-ms-retry-after: 9"],
            503,
            "x-ms-retry-after",
            "ignored",
            "nobody says whether these are seconds",
        ),
        (['ratelimit-policy: "a";q=9'], 429, "ratelimit-policy", "ignored", "asks for nothing"),
        (
            ["x-retry-after-hint: 9"],
            429,
            "x-retry-after-hint",
            "ignored",
            "asks for nothing that is known",
        ),
    ],
)
def test_what_becomes_of_a_header_and_why(lines, status, name, result, why):
    given_ = [tuple(line.split(": ", 1)) for line in lines]
    hint = read_hint(status, given_, now=1_795_208_400.0)
    (one,) = [one for one in findings(status, given_, 1_795_208_400.0, hint) if one.name == name]
    assert one.result == result
    assert why in one.why


def test_an_unreadable_pushback_is_a_no(capsys):
    _, of = found(capsys, "grpc-retry-pushback-ms: soon", "--status", "503")
    assert of["grpc-retry-pushback-ms"] == ("unreadable, which means no (gRPC A6)", None, "won")


def test_times_are_measured_from_the_servers_own_clock(capsys):
    """An hour off: the date is 30 s after the answer's own."""
    _, of = found(
        capsys, "Date: Fri, 20 Nov 2026 20:00:00 GMT", "Retry-After: Fri, 20 Nov 2026 20:00:30 GMT"
    )
    assert of["retry-after"][1] == 30


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_one_header_wins_and_it_is_the_one_that_is_read(case):
    """Over the whole corpus: what is said to have won is where ``read_hint`` has the delay from,
    and no other.
    """
    lines = [(name, value) for name, value in case["headers"]]
    hint = read_hint(case["status"], lines, now=1_795_176_000.0)
    of = findings(case["status"], lines, 1_795_176_000.0, hint)
    winners = [one for one in of if one.result == "won" and one.delay is not None]
    if hint.delay is None or hint.should_retry is False:
        assert winners == []
    else:
        (winner,) = winners
        assert winner.name == hint.source
        assert winner.delay == pytest.approx(hint.delay, abs=0.001)
    said = {one.says for one in of if one.result == "won" and one.delay is None}
    assert bool(said) is (hint.should_retry is not None)


NAMES = [
    "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms",
    "x-should-retry", "stripe-should-retry", "ratelimit", "ratelimit-reset", "ratelimit-remaining",
    "x-ratelimit-reset", "x-ratelimit-remaining", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens", "date",
    "age", "idempotent-replayed", "x-ms-retry-after", "server",
]  # fmt: skip
values = st.sampled_from(
    ["0", "5", "1500", "-1", "true", "false", "soon", "1795208460", "Fri, 20 Nov 2026 21:00:30 GMT", "6m0s",
     '"a";r=0;t=9', '"a";r=3;t=9', "limit=1, remaining=0, reset=4", "2026-11-20T21:01:00Z", ""]
) | st.text(max_size=12)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=6), st.integers(100, 599))
def test_any_headers_can_be_told(lines, status):
    """Nothing raises, each related header is told once, and what is told agrees with what is
    decided.
    """
    now = 1_795_208_400.0
    hint = read_hint(status, lines, now=now)
    of = findings(status, lines, now, hint)
    assert len({one.name for one in of}) == len(of)
    assert {one.name for one in of} == {name for name, _ in lines} - {"date", "age", "server"}
    assert all(one.why for one in of if one.result != "won")
    policy = RetryPolicy(max_attempts=4, backoff=Exponential(0.5, 30.0), max_retry_after=60.0)
    decision = decide(policy, status, lines, now, "GET", keyed=False)
    assert decision.verdict in ("retry", "stop", "accept")
    if decision.verdict == "retry" and hint.delay is not None:
        assert decision.delay >= hint.delay
        assert decision.longest >= decision.delay


# --- what is given -----------------------------------------------------------------------------


def test_folded_lines_and_blank_ones_before_the_headers():
    assert last_section(["", "Retry-After:", "  5", "Age: 1"]) == (
        None,
        [("Retry-After", "5"), ("Age", "1")],
    )
    assert last_section(["HTTP/1.1 100 Continue", "", "HTTP/1.1 503 Down", "A: b", "", "C: d"]) == (
        503,
        [("A", "b")],
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing"], "no header line: nothing; write 'Retry-After: 120'"),
        ([": 5"], "no header line: : 5"),
        (["Retry After: 5"], "no header line: Retry After: 5"),
        (["\x1b[31mretry-after: 5"], "no header line: \\x1b[31mretry-after: 5"),
        (["HTTP/1.1 down"], "no status line: HTTP/1.1 down"),
        (["A: b", "--status", "20"], "a status has three digits, got 20"),
        (["A: b", "--method", "GE T"], "--method must be a name such as GET, got 'GE T'"),
        (
            ["A: b", "--now", "noon"],
            "--now must be like 2026-11-20T21:00:00Z, or Unix seconds, got 'noon'",
        ),
        (["A: b", "--policy", "none"], "there is no preset 'none'"),
        (["A: b", "--base", "-1"], "base must be at least 0"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_is_status_2(capsys, arguments, says):
    status, out, err = parse(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("forbear parse: ")
    assert says in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "when", ["1795208400", "2026-11-20T21:00:00Z", "Fri, 20 Nov 2026 21:00:00 GMT"]
)
def test_now_in_any_form(capsys, when):
    main(["parse", "Retry-After: Fri, 20 Nov 2026 21:00:30 GMT", "--now", when, "--json"])
    assert json.loads(capsys.readouterr().out)["hint"]["delay"] == 30


def test_without_now_it_is_now(capsys):
    main(["parse", "Retry-After: Fri, 20 Nov 2020 21:00:30 GMT", "--json"])
    assert json.loads(capsys.readouterr().out)["hint"]["delay"] == 0


def test_what_a_server_sends_cannot_move_the_cursor(capsys):
    """Neither in a value nor in one that is too long."""
    _, out, _ = parse(capsys, "retry-after: \x1b[2J\x07" + "x" * 500)
    assert "\x1b" not in out
    assert "\\x1b[2J\\x07xxx" in out
    assert "x" * 60 not in out


def test_a_status_that_nobody_knows(capsys):
    _, out, _ = parse(capsys, "HTTP/1.1 999 Denied", "Retry-After: 5")
    assert "status 999, GET" in out
    assert verdict(out) == "returns the response: 999 is not retried"


# --- JSON, help, processes ---------------------------------------------------------------------


def test_json(capsys):
    status, out, err = parse(capsys, "Retry-After: 5", "--status", "503", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "status": 503,
        "headers": [
            {"name": "retry-after", "value": "5", "says": "seconds", "delay": 5.0, "result": "won", "why": ""}
        ],
        "hint": {"delay": 5.0, "should_retry": None, "source": "retry-after"},
        "decision": {
            "verdict": "retry", "reason": None, "delay": 5.0, "longest": pytest.approx(5.5), "source": "retry-after",
        },
    }  # fmt: skip


def test_the_examples_of_the_help_work(capsys, monkeypatch):
    for command in re.findall(
        r"^  (?:curl .* \| )?(forbear parse .*?)(?:  +[a-z].*)?$", EXAMPLES, re.MULTILINE
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO("HTTP/1.1 503\nRetry-After: 1\n"))
        words = shlex.split(command.partition(" < ")[0])
        assert main(words[1:]) == 0, command
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "fed", "status"),
    [
        (["Retry-After: 5"], "", 0),
        (["-"], "HTTP/1.1 429 No\r\nRetry-After: 5\r\n\r\n", 0),
        (["-"], "", 1),
        (["Server: x"], "", 1),
        (["Retry-After: soon"], "", 2),
        (["nothing"], "", 2),
        ([], "", 2),
        (["-"], "<html>", 2),
    ],
)
def test_sessions(arguments, fed, status):
    """As a process: status, and never a traceback."""
    process = subprocess.run(
        [sys.executable, "-m", "forbear", "parse", *arguments],
        input=fed,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        timeout=60,
        check=False,
    )
    assert process.returncode == status
    assert "Traceback" not in process.stderr
    assert process.stdout or process.stderr
