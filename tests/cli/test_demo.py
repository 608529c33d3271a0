"""``forbear demo`` shows each promise kept, in text a stranger can read, and says so in its exit
status.
"""

import io
import logging
import re
import sys
import time

import pytest

from forbear.tools.cli import main
from forbear.tools.cli.callers import HttpxCaller, Order, installed
from forbear.tools.cli.demo import run
from forbear.tools.cli.scenes import SCENES, SECRET, Scene, Seen

CALLERS = ("httpx sync", "httpx async", "httpx2 sync", "httpx2 async", "requests", "urllib3")
# What each library raises for a connection that is reset after the request was read.
OWN_ERRORS = ("ReadError",) * 4 + ("ConnectionError", "ProtocolError")
ROW = re.compile(
    r"^ ([✓✗]) (httpx2? a?sync|requests|urllib3) +(\S.*?)  +(-|[0-9.]+ s) +([0-9.]+ s) +(\S.*)$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def demo():
    """The status, the text and the seconds of one demo."""
    out = io.StringIO()
    started_at = time.monotonic()
    status = run(out)
    return status, out.getvalue(), time.monotonic() - started_at


@pytest.fixture(scope="module")
def rows(demo):
    """What each scene shows: by its number, six rows of (server saw, waited, took, caller got)."""
    found = {}
    for number, text in re.findall(
        r"^(\d+)\. (.*?)(?=^\d+\. |^Afterwards)", demo[1], re.MULTILINE | re.DOTALL
    ):
        matches = ROW.findall(text)
        assert tuple(match[1] for match in matches) == CALLERS
        found[int(number)] = [match[2:] for match in matches]
    return found


def test_every_promise_held(demo):
    """The exit status is 0 and every row has its mark: eleven scenes, six clients, two closing
    checks.
    """
    status, text, _ = demo
    assert status == 0
    assert text.count("✓") == 11 * 6 + 2
    assert "✗" not in text
    assert re.search(r"^All 68 checks held, in \d+\.\d s\.$", text, re.MULTILINE)


def test_it_is_over_soon(demo):
    assert demo[2] < 15


def test_no_line_is_wider_than_100_columns(demo):
    assert max(map(len, demo[1].splitlines())) <= 100


def test_each_promise_is_named_in_words(demo):
    """P9, the price of a call, is the benchmark's to show."""
    promises = re.findall(r"^ [ ✓] P(\d+): \w+", demo[1], re.MULTILINE)
    assert {int(number) for number in promises} == {1, 2, 3, 4, 5, 6, 7, 8, 10}


@pytest.mark.parametrize(
    ("scene", "server_saw", "caller_got"),
    [
        pytest.param(2, "2 requests", "200", id="dropped GET is sent again"),
        pytest.param(4, "2 requests, executed once", "200", id="POST with a key"),
        pytest.param(5, "2 requests, bodies whole", "200", id="upload from memory"),
        pytest.param(
            6, "1 request, body whole", "503 (body-consumed)", id="upload from a generator"
        ),
        pytest.param(7, "1 request", "503 (retry-after-too-long)", id="an hour of Retry-After"),
        pytest.param(8, "1 request", "DeadlineExceeded (deadline)", id="hanging server"),
        pytest.param(9, "1 request", "503 (deadline)", id="no time for the wait"),
        pytest.param(10, "3 requests", "200", id="nonsense"),
    ],
)
def test_a_scene_tells_what_happened(rows, scene, server_saw, caller_got):
    for saw, _, _, got in rows[scene]:
        assert saw == server_saw
        assert got == caller_got


def test_a_post_without_a_key_is_sent_once_and_raises_the_clients_own_error(rows):
    assert [row[0] for row in rows[3]] == ["1 request, executed once"] * 6
    assert [row[3] for row in rows[3]] == [
        f"{error} (method-not-replayable)" for error in OWN_ERRORS
    ]


def test_the_throttled_get_waits_the_second_that_was_asked_for(rows):
    for saw, waited, took, _ in rows[1]:
        gap = float(re.fullmatch(r"2 requests, ([0-9.]+) s apart", saw)[1])
        # Retry-After: 1, at most a tenth more (hint_spread), and what a busy machine adds to the
        # gap.
        assert 1.0 <= float(waited.removesuffix(" s")) <= 1.1
        assert 1.0 <= gap <= float(took.removesuffix(" s"))


def test_an_outage_costs_no_more_than_the_budget(rows):
    """100 calls: 7 tokens at the start, a tenth of the calls, and one per second that it took."""
    for saw, _, took, _ in rows[11]:
        requests = int(re.fullmatch(r"(\d+) requests for 100 calls", saw)[1])
        assert 100 + 7 <= requests <= 100 + 7 + 10 + float(took.removesuffix(" s")) + 1


def test_the_library_log_is_not_printed_and_is_put_back(capsys):
    """Somebody's own logging set-up is as before, and the warnings of the demo do not spoil its
    tables.
    """
    logger = logging.getLogger("forbear")
    before = logger.level, logger.propagate, list(logger.handlers)
    assert run(sys.stdout, callers=installed()[:1], scenes=SCENES[2:3]) == 0
    captured = capsys.readouterr()
    assert "gave up" not in captured.out + captured.err
    assert "2 log records" in captured.out  # attempt_failed and gave_up
    assert (logger.level, logger.propagate, logger.handlers) == before


def test_a_promise_that_does_not_hold_is_marked_and_changes_the_exit_status():
    """A scene that asks for what nobody can keep: a server that always fails to answer 200."""

    def judge(caller, answers, arrivals):
        return Seen("one request", [f"the caller was to get 200, got {answers[0].status}"])

    broken = Scene("An impossible wish", "P0: none", "answers 404", (404,), Order(), judge)
    out = io.StringIO()
    assert run(out, callers=installed()[:1], scenes=[broken]) == 1
    assert re.search(
        r"\n ✗ httpx sync .* 404\n     the caller was to get 200, got 404\n", out.getvalue()
    )
    assert "1 of 3 checks failed" in out.getvalue()


@pytest.mark.parametrize(
    ("scene", "steps", "claim"),
    [
        pytest.param(0, (429, 200), "sooner|asked for 1 s", id="nobody asked for a second"),
        pytest.param(1, (200,), "2 requests were to come, 1 came", id="nothing dropped"),
        pytest.param(2, (200,), "own error, got None", id="keyless POST answered"),
        pytest.param(3, (200,), "2 requests were to come, 1 came", id="keyed POST answered"),
        pytest.param(
            4, ("early:503:1000", 200), "a body of 1000 bytes arrived", id="upload cut short"
        ),
        pytest.param(5, (200,), "was to get 503, got 200", id="generator not refused"),
        pytest.param(
            6, ("503;delay=400;retry-after=3600",), "told at once, it took 0", id="slow to say no"
        ),
        pytest.param(7, (200,), "long before its deadline", id="hanging server answers"),
        pytest.param(8, (503, 200), "was to get 503, got 200", id="time enough after all"),
        pytest.param(9, (200,), "3 requests were to come, 1 came", id="talks sense"),
        pytest.param(10, (200,), "0 retries, although", id="no outage"),
    ],
)
def test_each_scene_can_fail(scene, steps, claim):
    """The judges do not nod through whatever happens: with another fault than theirs they
    object.
    """
    out = io.StringIO()
    altered = SCENES[scene]._replace(steps=steps)
    assert run(out, callers=[HttpxCaller("httpx")], scenes=[altered]) == 1
    assert re.search(claim, out.getvalue())


def test_a_secret_in_the_log_is_noticed():
    """The closing check is no formality: a line with the secret of the demo fails it."""

    def judge(caller, answers, arrivals):
        logging.getLogger("forbear").warning("GET %s", arrivals[0].path)
        return Seen("1 request", [])

    out = io.StringIO()
    scene = Scene("A leak", "P10", "answers 200", (200,), Order(), judge)
    assert run(out, callers=installed()[:1], scenes=[scene]) == 1
    assert "1 with a path, query or header in them" in out.getvalue()
    assert SECRET not in out.getvalue()


LIBRARIES = ("httpx", "httpx2", "requests", "urllib3")


def without(monkeypatch, *names):
    for name in names:
        monkeypatch.setitem(
            sys.modules, name, None
        )  # how Python itself marks a module as not importable


def test_without_a_client_it_says_what_to_install(monkeypatch, capsys):
    without(monkeypatch, *LIBRARIES)
    assert main(["demo"]) == 2
    out = capsys.readouterr().out
    assert (
        "needs httpx, httpx2, requests or urllib3 to send requests with; none is installed" in out
    )
    assert "pip install 'forbear[httpx,httpx2,requests,urllib3]'" in out


@pytest.mark.parametrize(
    ("library", "labels"),
    [
        ("httpx", ["httpx sync", "httpx async"]),
        ("httpx2", ["httpx2 sync", "httpx2 async"]),
        ("requests", ["requests"]),
        ("urllib3", ["urllib3"]),
    ],
)
def test_with_one_client_the_others_are_left_out(monkeypatch, library, labels):
    without(monkeypatch, *(name for name in LIBRARIES if name != library))
    assert [caller.label for caller in installed()] == labels


def test_a_server_that_cannot_listen_is_told_in_one_line(monkeypatch, capsys):
    def refuse(*_):
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr("socket.socket.bind", refuse)
    assert main(["demo"]) == 2
    assert capsys.readouterr().out == (
        "forbear demo cannot start its server on 127.0.0.1: Cannot assign requested address\n"
    )


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        pytest.param({"TERM": "xterm"}, True, id="a terminal"),
        pytest.param({"TERM": "xterm", "NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param(
            {"TERM": "xterm", "NO_COLOR": ""}, True, id="an empty NO_COLOR does not count"
        ),
        pytest.param({"TERM": "dumb"}, False, id="a dumb terminal"),
    ],
)
def test_colours_are_for_terminals_and_can_be_turned_off(monkeypatch, environment, coloured):
    """https://no-color.org: any value that is not empty turns them off."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    run(out, callers=[], scenes=())
    run(out, callers=installed()[:1], scenes=SCENES[6:7])
    assert ("\x1b[" in out.getvalue()) is coloured


def test_a_terminal_without_check_marks_gets_words():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert run(out, callers=installed()[:1], scenes=SCENES[6:7]) == 0
    assert out.buffer.getvalue().decode("ascii").count("\nok ") == 3
