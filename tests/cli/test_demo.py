"""``forbear demo`` shows each promise kept, and says so in its exit status."""

import logging
import re
import sys

import pytest

from forbear import Reason
from forbear.cli.demo import SCENES, SECRET, Scene, installed, run

CALLERS = [
    "httpx sync", "httpx async", "httpx2 sync", "httpx2 async", "aiohttp", "requests", "urllib3",
]  # fmt: skip
ROW = re.compile(
    rf"^( ✓|NO) ({'|'.join(CALLERS)}) +(\S.*?)  +(-|[0-9.]+ s) +([0-9.]+ s) +(\S.*)$", re.MULTILINE
)


# What each scene shows: what the server saw, and what the caller got.
SHOWN = {
    1: ("1 request, executed once",
        r"(Read|Connection|Protocol|ClientOS|ServerDisconnected)Error \(method-not-replayable\)"),
    2: ("2 requests, executed once", "200"), 3: ("2 requests, bodies whole", "200"),
    4: ("1 request, body whole", r"503 \(body-consumed\)"),
    5: (r"2 requests, \d+\.\d\d s apart", "200"), 6: ("1 request", r"503 \(retry-after-too-long\)"),
    7: ("1 request", r"DeadlineExceeded \(deadline\)"), 8: ("1 request", r"503 \(deadline\)"),
    # The first call has its two retries while the server is healthy; without patience no other one.
    9: ("102 requests for 100 calls", "100 times 503"),
    # 8 responses of 503, and one of 200 for each call.
    10: ("16 requests for 8 calls", "8 times 200"), 11: ("2 requests", "200"),
    12: ("3 requests", "200"),
}  # fmt: skip


@pytest.mark.slow
def test_every_promise_held(capsys):
    """The exit status is 0 and every row has its mark: 12 scenes, 7 clients, 2 closing checks."""
    status, text = run(), capsys.readouterr().out
    assert status == 0, text
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("✓") == 12 * 7 + 2
    assert "\nNO" not in text
    assert re.search(r"^All 86 checks held, in \d+\.\d s\.$", text, re.MULTILINE)
    # What the first scene is compared with has no mark.
    loop = r"^   a plain loop  4 sent, executed 4 times +- +[0-9.]+ s +200$"
    assert len(re.findall(loop, text, re.MULTILINE)) == 1
    # Each promise is named in words. P9, the price of a call, is the benchmark's.
    promises = re.findall(r"^ [ ✓] P(\d+): \w+", text, re.MULTILINE)
    assert set(map(int, promises)) == {1, 2, 3, 4, 5, 6, 7, 8, 10}
    scenes = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^Afterwards)", text, re.MULTILINE | re.DOTALL)
    waited = {}
    for number, shown in ((int(number), shown) for number, shown in scenes):
        matches = ROW.findall(shown)
        assert [match[1] for match in matches] == CALLERS
        for _, _, server_saw, _, _, caller_got in matches:
            assert re.fullmatch(SHOWN[number][0], server_saw), number
            assert re.fullmatch(SHOWN[number][1], caller_got), number
        waited[number] = [match[3].removesuffix(" s") for match in matches]
    assert waited.keys() == SHOWN.keys()
    # 0 to 0.05 s after the first 503, then 0.5 to 1 s; of what was asked, up to a quarter more.
    for number, least, most in ((3, 0, 0.05), (12, 0.5, 1.05), (5, 1, 1.25)):
        assert all(least <= float(seconds) <= most for seconds in waited[number])


def test_the_library_log_is_not_printed_and_is_put_back(capsys):
    """Somebody's own logging set-up is as before, and no warning spoils the tables."""
    logger = logging.getLogger("forbear")
    before = logger.level, logger.propagate
    assert run(callers=installed()[:1], scenes=SCENES[:1]) == 0
    captured = capsys.readouterr()
    assert "gave up" not in captured.out + captured.err
    assert "2 log records" in captured.out  # attempt_failed and gave_up
    assert (logger.level, logger.propagate) == before
    assert all(isinstance(one, logging.NullHandler) for one in logger.handlers)


@pytest.fixture
def played(capsys):
    """A function: what a run of one scene prints, which is to fail."""

    def play(scene):
        assert run(callers=installed()[:1], scenes=[scene]) == 1
        return capsys.readouterr().out

    return play


def test_a_promise_that_does_not_hold_is_marked_and_changes_the_exit_status(played):
    """A scene that asks for what nobody can keep: a server that always fails to answer 200."""
    end = (1, 200, Reason.STATUS_NOT_RETRIED)
    text = played(Scene("A wish", "P0: none", (404,), ends=end))
    assert re.search(r"\nNO httpx sync .* 404 .*\n     the caller was to get 200, got 404\n", text)
    assert "1 of 3 checks failed" in text


def test_a_secret_in_the_log_is_noticed(monkeypatch, played):
    """The closing check is no formality: a line with the secret of the demo fails it."""

    def careless(scene, caller, answers, arrivals):
        logging.getLogger("forbear").warning("GET %s", arrivals[0].path)
        return "1 request", []

    monkeypatch.setattr("forbear.cli.demo.judge", careless)
    text = played(SCENES[10])
    assert "1 with a secret" in text
    assert SECRET not in text


def test_without_a_client_it_says_what_to_install(monkeypatch, mistake):
    libraries = ("httpx", "httpx2", "aiohttp", "requests", "urllib3")
    for name in libraries:
        monkeypatch.setitem(sys.modules, name, None)  # as Python marks what cannot be imported
    says = f": pip install '.[{','.join(libraries)}]' in a checkout of forbear"
    assert says in mistake("demo")


def test_a_server_that_cannot_listen_is_told_in_one_line(monkeypatch, mistake):
    def refuse(*_):
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr("socket.socket.bind", refuse)
    says = "no server can be started on 127.0.0.1: Cannot assign requested address"
    assert mistake("demo").startswith(f"forbear demo: {says}")
