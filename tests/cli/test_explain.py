"""``forbear explain``: what it prints, for which description of a policy, with which exit status."""

import re
import sys

import pytest

from ..processes import python

FULL = ("--max-attempts", "5", "--backoff", "base=0.5,cap=20,jitter=full")


@pytest.fixture(autouse=True)
def a_few_calls(monkeypatch):
    """What is told of 200 calls is told of twenty."""
    monkeypatch.setattr("forbear.cli.explain.CALLS", 20)
    monkeypatch.setattr("forbear.cli.explain.MOST_WAITS", 10_000)


@pytest.fixture
def told(command):
    """A function: its sentences, without line breaks."""
    return lambda *arguments: " ".join(command("explain", *arguments)[1].split())


def rows(out):
    return [re.split(r"  +", line) for line in out.splitlines() if re.match(r"\d+  ", line)]


def warned(text):
    """The fields that are warned of."""
    return re.findall(r"warning: (\w+)", text)


def test_the_waits_are_those_of_full_jitter(command):
    status, out, err = command("explain", *FULL)
    assert (status, err) == (0, "")
    assert out.startswith("RetryPolicy(backoff=Exponential(cap=20.0))\n")
    found = [row for row in rows(out) if len(row) == 2]
    assert found == [
        ["1", "0 s – 0.5 s"],
        ["2", "0 s – 1 s"],
        ["3", "0 s – 2 s"],
        ["4", "0 s – 4 s"],
    ]
    assert warned(out) == []
    assert max(map(len, out.splitlines())) <= 100


def test_a_call_is_played_against_each_kind_of_outage(command):
    """Its only retry comes after 6 s: into the outage that does not end, and after the other."""
    schedule = ("--max-attempts", "2", "--backoff", "base=6,jitter=none")
    status, out, _ = command("explain", *schedule, "--attempt-timeout", "1.5")
    assert status == 0
    for_ever, hang, ends = out.partition("A lone call meets ")[2].split("A lone call meets ")
    attempts = [
        ["1", "0 s", "0 s", "100%", "first attempt"],
        ["2", "6 s", "6 s", "100%", "backoff"],
    ]
    assert rows(for_ever) == rows(ends) == attempts
    assert for_ever.startswith("a server that always responds with 503:")
    assert "100% fail after 6 s (p95 6 s): attempts-exhausted" in for_ever
    assert hang.startswith("a server that hangs, attempts time out after 1.5 s:")
    assert "100% succeed after 6 s" in ends


def test_it_names_the_attempts_that_the_patience_adds(command):
    """A table of more attempts than max_attempts is no contradiction to its last line."""
    for patience, has_more in (("10", False), ("30", True)):
        _, out, _ = command("explain", "--patience", patience)
        assert any(row[0] == "6" for row in rows(out)) == has_more  # of 5 attempts
        assert ("Attempts sent as probes come in addition" in out) == has_more


def test_of_many_attempts_the_last_one_is_shown(command):
    _, out, _ = command("explain", "batch", "--patience", "100000", "--max-attempts", "40")
    for_ever = out.split("A lone call meets ")[1]
    numbers = [int(row[0]) for row in rows(for_ever)]
    assert numbers[:9] == list(range(1, 10))
    assert len(numbers) == 10


def test_what_is_retried_is_told(told):
    text = told(*FULL, "--statuses", "429,503", "--methods", "get,post", "--failures", "none")
    assert "statuses: 429 503; failures: none methods: GET POST; others with an Idempotency" in text
    assert warned(text) == ["methods"]


@pytest.mark.parametrize(("arguments", "says"), [
    # 5 × 2 s, 7.5 s and 10 s held; with four hints of 30 s and their quarter 150 s, not 7.5.
    ("--max-retry-after 30", "worst case: 27.5 s, with all attempts of 2 s"),
    ("--max-retry-after 30", "0:02:50 if the server asks for max_retry_after each time"),
    ("--max-attempts 1", "retried: nothing; every request is sent once worst case: 2 s, with"),
    ("--hints ignore", "27.5 s if the server asks"),
    ("--total-timeout 9", "worst case: 9 s, "),
    ("--total-timeout 0", "no request is sent worst case: 0 s, "),
    ("--throttle-backoff 1.5", "worst case: 29 s, "),
    ("--max-attempts 1000000 --backoff 9", "worst case: 127 days, 7:33:21, "),
    ("--slo 10", "warning: max_attempts: its retries can take 15.5 s, more than a third of the SLO"),
    ("--slo 14", "max_attempts=2 would fit"),
    ("--slo 10", "total_timeout=10 ends it in time"),
])  # fmt: skip
def test_the_worst_case_counts_attempts_waits_and_hints(told, arguments, says):
    assert says in told(*FULL, "--attempt-timeout", "2", *arguments.split())


SOUND = ("--max-attempts", "3", "--backoff", "base=0.5,cap=10", "--max-retry-after", "2")


@pytest.mark.parametrize(("change", "field", "says"), [
    *((f"--backoff {schedule}", "backoff", "no jitter") for schedule in ("1", "jitter=none", "jitter=0")),
    ("--throttle-backoff 1", "throttle_backoff", "no jitter"),
    ("--backoff 0", "backoff", "no wait at all"),
    ("--backoff base=0,cap=9 --max-attempts 2", "backoff", "no wait at all"),
    ("--methods get,post,patch", "methods", "PATCH and POST may take effect twice"),
    ("--unexecuted-statuses 429,502,504", "unexecuted_statuses", "502 and 504 may follow"),
    ("--hints ignore", "hints", "retried sooner"),
    ("--hint-spread 0", "hint_spread", "the same second"),
    ("--patience 0 --max-attempts 10", "patience", "only about the first 3 of its 10 attempts"),
])  # fmt: skip
def test_what_is_likely_to_hurt_is_told_with_its_field(told, change, field, says):
    text = told(*SOUND, *change.split())
    assert warned(text) == [field]
    assert says in text


def test_what_does_not_hurt_is_not_told(told):
    """A hint that cannot be obeyed needs no spread; without patience three attempts are sent."""
    for change in ("--hint-spread 0 --max-retry-after 0", "--patience 0", "--slo 60"):
        assert warned(told(*SOUND, *change.split())) == []


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a user's modules, which is where the command is started."""
    (tmp_path / "policies.py").write_text(
        """
import urllib3, httpx_retries
from forbear import Fixed, RetryPolicy
import forbear.urllib3
mine = RetryPolicy(max_attempts=2, backoff=Fixed(1.0))
theirs = urllib3.Retry(6, backoff_factor=1)
other = httpx_retries.Retry(5)
ours = forbear.urllib3.Retry(mine)
class settings:
    number = 3
    text = "nothing"
def made():
    return mine
class Odd:
    def delay(self, attempt, previous, random):
        return -1.0
odd = RetryPolicy(max_attempts=2, backoff=Odd())
"""
    )
    (tmp_path / "talks.py").write_text("raise RuntimeError('one\\ntwo')\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("policies", None)


@pytest.mark.parametrize(("place", "attempts"), [
    ("policies:mine", 2), ("policies:made", 2), ("policies:theirs", 7), ("policies:other", 6),
    ("policies:ours", 2), ("policies:settings.number", 4), ("high-availability", 6),
])  # fmt: skip
def test_a_preset_or_module_and_attribute(command, project, place, attempts):
    """A policy, a function that returns one, another library's Retry, or a number of retries."""
    status, out, err = command("explain", place)
    assert (status, err) == (0, "")
    assert f"RetryPolicy(max_attempts={attempts}, " in out.replace("\n  ", " ")


@pytest.mark.parametrize(("arguments", "says"), [
    ([], "after 0 s – 50 ms"), (["batch"], ""), (["--max-attempts", "1"], ""),
    (["--backoff", "base=1,fast_first=0.2"], "after 0 s – 0.2 s"),
])  # fmt: skip
def test_the_fast_first_retry_is_told_with_the_waits(told, arguments, says):
    """The table, which is of the schedule alone, would contradict the calls below it."""
    text = told(*arguments)
    assert ("One fast first retry, " in text) is bool(says)
    assert says in text


def test_the_policy_of_the_environment(told, monkeypatch):
    monkeypatch.setenv("MYAPP_RETRY_MAX_ATTEMPTS", "3")
    for arguments in (["env:MYAPP_RETRY_"], ["--policy", "env:MYAPP_RETRY_"]):
        text = told(*arguments, "--patience", "0")
        assert text.startswith("RetryPolicy(max_attempts=3, patience=0.0)")


@pytest.mark.parametrize(("arguments", "says"), [
    ("policies:absent", "cannot get policies:absent: AttributeError: "),
    ("talks:policy", "cannot get talks:policy: RuntimeError: one two"),
    ("leaves:policy", "cannot get leaves:policy: SystemExit: 7"),
    ("policies:settings.text", "takes a urllib3.Retry or a whole number of retries, got 'nothing'"),
    ("policies:odd", "returns -1.0 for attempt 1"),
    ("env:ABSENT", "prefix must end with _, such as 'MYAPP_RETRY_', got 'ABSENT'"),
    ("defualt", "POLICY cannot be 'defualt': write one of latency_sensitive, "),
    ("policies", "(there is no such preset), or module:attribute for what your code uses"),
    ("--max-attempts 0", "--max-attempts cannot be '0': write a whole number, such as 5 (max_attempts must"),
    ("--backoff jitter=wild", "jitter must be one of"), ("--slo 0", "slo must be more than 0"),
    ("--slo -1", "slo must be at least 0"),
])  # fmt: skip
def test_what_is_no_policy_is_a_mistake(mistake, project, arguments, says):
    assert says in mistake("explain", *arguments.split())


def test_it_needs_nothing_that_is_installed():
    """No client library, and no matplotlib."""
    code = (
        "from forbear.cli import main; main(['explain']);"
        "assert not {'httpx', 'requests', 'urllib3', 'matplotlib'} & set(sys.modules)"
    )
    python(code, PYTHONIOENCODING="utf-8")
