"""``forbear explain``: what it prints, for which description of a policy, and with which exit
status.
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

import forbear
from forbear import Exponential, FailureKind, Fixed, RetryPolicy
from forbear.tools.cli import main
from forbear.tools.cli.explain import EXAMPLES
from forbear.tools.cli.settings import code_of

SOURCE = Path(forbear.__file__).parent.parent


def explain(capsys, *arguments):
    status = main(["explain", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def rows(out):
    lines = out.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith("retry ")]
    found = []
    for line in lines[head + 1 :]:
        if not re.match(r"\d", line):
            break
        found.append(re.split(r"  +", line))
    return found


def warned(out):
    """The fields that are warned of."""
    return re.findall(r"^warning: (\w+)", out, re.MULTILINE)


FULL = ("--max-attempts", "5", "--base", "0.5", "--cap", "20", "--jitter", "full")


def test_the_table_is_that_of_full_jitter(capsys):
    """Means are half of 0.5, 1, 2 and 4 s; p95 of their sums was worked out and simulated elsewhere
    before.
    """
    status, out, err = explain(capsys, *FULL)
    assert (status, err) == (0, "")
    assert out.startswith(
        "RetryPolicy(max_attempts=5, backoff=Exponential(base=0.5, cap=20.0, jitter='full')"
    )
    assert rows(out) == [
        ["1", "0 – 0.5 s", "0.25 s", "0.25 s", "0.475 s", "0.5 s"],
        ["2", "0 – 1 s", "0.5 s", "0.75 s", "1.28 s", "1.5 s"],
        ["3", "0 – 2 s", "1 s", "1.75 s", "2.83 s", "3.5 s"],
        ["4", "0 – 4 s", "2 s", "3.75 s", "5.92 s", "7.5 s"],
    ]
    assert "All figures are worked out." in out
    assert "5 attempts and 7.5 s of waits" in out
    assert warned(out) == []
    assert max(map(len, out.splitlines())) <= 100


def test_what_is_retried_is_told(capsys):
    _, out, _ = explain(
        capsys, *FULL, "--statuses", "429,503", "--methods", "get,post", "--vendors", "github"
    )
    assert (
        "retried: 429 503, 403 that name a time, failed connections, timeouts, resets, answers that are not"
        in out
    )
    assert "methods: GET POST; others only with an Idempotency-Key, or if nothing was sent" in out
    assert warned(out) == ["methods"]


def test_decorrelated_jitter_is_simulated_and_says_so(capsys):
    _, out, _ = explain(
        capsys, "--base", "1", "--cap", "30", "--jitter", "decorrelated", "--max-attempts", "6"
    )
    found = rows(out)
    assert [row[1] for row in found] == ["1 – 3 s", "1 – 9 s", "1 – 27 s", "1 – 30 s", "1 – 30 s"]
    assert [row[2] for row in found][:3] == ["2 s", "3.5 s", "5.75 s"]
    assert [row[-1] for row in found] == ["3 s", "12 s", "39 s", "69 s", "99 s"]
    assert (
        "Means and p95 are of 50,000 simulated calls (seed 0) where they cannot be worked out."
        in out
    )
    _, out, _ = explain(
        capsys, "--base", "1", "--cap", "30", "--jitter", "decorrelated", "--max-attempts", "3"
    )
    assert (
        "Means are worked out, p95 is of 50,000 simulated calls (seed 0) where it cannot be." in out
    )


def test_the_worst_case_counts_attempts_waits_and_hints(capsys):
    """5 × 2 s and 7.5 s; with four hints of 30 s and their 10 %, 5 × 2 s and 132 s."""
    _, out, _ = explain(capsys, *FULL, "--attempt-timeout", "2", "--max-retry-after", "30")
    assert (
        "worst case: 17.5 s, 5 attempts of 2 s with all waits at their longest; 2 m 22 s if the server"
        in out
    )
    _, out, _ = explain(capsys, *FULL, "--attempt-timeout", "2", "--hints", "ignore")
    assert "worst case: 17.5 s, 5 attempts of 2 s with all waits at their longest\n" in out
    _, out, _ = explain(capsys, *FULL, "--attempt-timeout", "2", "--total-timeout", "9")
    assert "worst case: 9 s, 5 attempts of 2 s" in out
    assert "total_timeout: no call goes on after 9 s" in out


def test_an_objective_is_held_against_it(capsys):
    _, out, _ = explain(capsys, *FULL, "--attempt-timeout", "2", "--slo", "10")
    assert "SLO 10 s: retries may take a third of it, 3.33 s" in out
    assert warned(out) == ["max_attempts", "total_timeout", "max_retry_after"]


def test_layers_multiply(capsys):
    _, out, _ = explain(capsys, *FULL, "--layers", "3")
    assert "5 × 5 × 5 = 125 requests of one" in out


def test_no_budget_is_warned_of(capsys):
    _, out, _ = explain(capsys, *FULL, "--no-budget")
    assert warned(out) == ["budget"]
    assert "the load is 5 times as high" in out


def test_one_attempt_needs_no_table(capsys):
    status, out, _ = explain(capsys, "disabled", "--no-budget")
    assert status == 0
    assert "retried: nothing; every request is sent once" in out
    assert "wait between" not in out
    assert warned(out) == []
    _, out, _ = explain(capsys, "disabled", "--attempt-timeout", "2")
    assert "worst case: 2 s, 1 attempt of 2 s" in out


def test_waits_that_are_the_same_share_a_row(capsys):
    _, out, _ = explain(capsys, "--max-attempts", "8", "--base", "0")
    assert rows(out) == [["1 – 7", "0 s", "0 s", "0 s", "0 s", "0 s"]]
    assert warned(out) == ["backoff"]


def test_a_long_series_is_cut(capsys):
    _, out, _ = explain(
        capsys, "--max-attempts", "100", "--base", "1", "--cap", "1", "--jitter", "none"
    )
    assert len(rows(out)) == 20
    assert "… and 79 more" in out
    assert "100 attempts and 99 s of waits" in out


def test_a_slower_schedule_after_throttling_has_its_own_table(capsys, project):
    status, out, _ = explain(capsys, "policies:slower")
    assert status == 0
    assert "after throttling" in out
    assert out.count("wait between") == 2
    text = " ".join(out.split())
    assert "One retry of a call comes at once" in text
    assert "3 attempts of 8 s (attempt_timeout 4 times)" in text


@pytest.mark.parametrize(
    "name", ["latency_sensitive", "high-availability", "batch", "gateway", "disabled"]
)
def test_presets(capsys, name):
    _, out, _ = explain(capsys, name, "--json")
    policy = getattr(RetryPolicy, name.replace("-", "_"))()
    assert (
        eval(json.loads(out)["code"], {"RetryPolicy": RetryPolicy, "Exponential": Exponential})
        == policy
    )


# --- where policies come from ------------------------------------------------------------------


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a user's modules, which is where the command is started."""
    (tmp_path / "policies.py").write_text(
        """
import urllib3, httpx_retries
from forbear import Exponential, Fixed, RetryPolicy
import forbear.urllib3

mine = RetryPolicy(max_attempts=2, backoff=Fixed(1.0))
slower = RetryPolicy(
    attempt_timeout=2.0, hints="ignore",
    max_attempts=3, backoff=Exponential(0.1, immediate_first=True),
    throttle_backoff=Exponential(2.0)
)
theirs = urllib3.Retry(4)
other = httpx_retries.Retry(5)
ours = forbear.urllib3.Retry(mine)
class settings:
    number = 3
    text = "nothing"
def made():
    return mine
def needs(one):
    return mine
class Odd:
    def delay(self, attempt, previous, random):
        return -1.0
odd = RetryPolicy(max_attempts=2, backoff=Odd())
"""
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "talks.py").write_text("raise RuntimeError('one\\ntwo')\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("policies", "broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("place", "attempts"),
    [
        ("policies:mine", 2),
        ("policies:made", 2),
        ("policies:theirs", 5),
        ("policies:other", 6),
        ("policies:ours", 2),
        ("policies:settings.number", 4),
        ("forbear:RetryPolicy.batch", 11),
    ],
)
def test_module_and_attribute(capsys, project, place, attempts):
    """A policy, a function that returns one, another library's Retry, or a number of retries."""
    status, out, err = explain(capsys, place, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["policy"]["max_attempts"] == attempts


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("policies:absent", "cannot get policies:absent: AttributeError: "),
        ("absent:policy", "cannot get absent:policy: ModuleNotFoundError: "),
        ("broken:policy", "cannot get broken:policy: ZeroDivisionError: division by zero"),
        ("talks:policy", "cannot get talks:policy: RuntimeError: one two"),
        ("leaves:policy", "cannot get leaves:policy: SystemExit: 7"),
        ("policies:needs", "cannot get policies:needs: TypeError: "),
        (
            "policies:settings.text",
            "is a str, not a RetryPolicy, a Retry, or a function that returns one",
        ),
        ("policies:", "cannot get policies:: "),
        (":mine", "cannot get :mine: "),
        ("policies:odd", "answers -1.0 for attempt 1"),
    ],
)
def test_what_is_no_policy_is_a_mistake(capsys, project, place, says):
    status, out, err = explain(capsys, place)
    assert (status, out) == (2, "")
    assert err.startswith("forbear explain: ")
    assert says in err
    assert err.count("\n") == 1


def test_a_retry_of_urllib3_is_explained_in_its_own_words(capsys):
    status, out, _ = explain(capsys, "--from-urllib3", "Retry(10, status_forcelist=[503])")
    assert status == 0
    assert out.startswith("The nearest policy to that Retry of urllib3, which sends no more often:")
    assert "warning: backoff (backoff_factor there): 10 retries with no wait at all" in out
    assert warned(out) == ["backoff", "budget"]
    assert "the load is 11 times as high" in out


def test_a_retry_of_httpx_retries_is_explained_in_its_own_words(capsys):
    _, out, _ = explain(
        capsys, "--from-httpx-retries", "Retry(total=3, allowed_methods=['GET', 'POST'])"
    )
    assert "warning: methods (allowed_methods there): POST may take effect twice" in out
    assert "budget: httpx-retries has none" in out


def test_fields_can_be_changed_on_top(capsys):
    _, out, _ = explain(capsys, "gateway", "--max-attempts", "2", "--factor", "2", "--json")
    policy = json.loads(out)["policy"]
    assert policy["max_attempts"] == 2
    assert policy["backoff"] == repr(Exponential(0.05, 30.0, 2.0, 0.2))
    _, out, _ = explain(capsys, "--jitter", "0.3", "--base", "1", "--cap", "4", "--json")
    assert json.loads(out)["policy"]["backoff"] == repr(Exponential(1.0, 4.0, jitter=0.3))


# --- JSON and pictures -------------------------------------------------------------------------


def test_json_holds_the_same(capsys):
    status, out, err = explain(
        capsys,
        *FULL,
        "--attempt-timeout",
        "2",
        "--slo",
        "10",
        "--layers",
        "2",
        "--json",
        "--total-timeout",
        "16",
    )
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["policy"]["statuses"] == [408, 425, 429, 500, 502, 503, 504]
    assert report["policy"]["failures"] == sorted(kind.value for kind in RetryPolicy().failures)
    assert (
        report["worst_case"],
        report["worst_case_without_hints"],
        report["attempt_timeout"],
    ) == (16.0, 16.0, 2.0)
    assert (report["slo"], report["layers"], report["most_requests"]) == (10.0, 2, 25)
    assert [one["field"] for one in report["warnings"]] == [
        "max_attempts",
        "total_timeout",
        "max_retry_after",
    ]
    last = report["retries"][-1]
    assert last.pop("p95") == pytest.approx(5.9158, abs=1e-4)
    assert last.pop("p50") == pytest.approx(3.75)
    assert last.pop("p05") == pytest.approx(1.5842, abs=1e-4)
    assert last == {
        "number": 4, "shortest": 0.0, "longest": 4.0, "mean": 2.0, "so_far": 3.75, "worst": 7.5,
        "mean_is_drawn": False, "quantiles_are_drawn": False,
    }  # fmt: skip


def test_json_is_json_also_where_nothing_is_known(capsys):
    _, out, _ = explain(capsys, "--json")
    report = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert report["worst_case"] is None
    assert report["most_requests"] is None


def test_a_picture_is_drawn(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "waits.png"
    status, out, err = explain(capsys, *FULL, "--plot", str(path), "--slo", "12")
    assert (status, err) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(rows(out)) == 4


def test_without_matplotlib_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in ("forbear.tools.simulation.plot", "forbear.tools.simulation.fan"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    status, out, err = explain(capsys, "--plot", "waits.png")
    assert (status, out) == (2, "")
    assert "pip install 'forbear[plot]'" in err


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fast"], "there is no preset 'fast'; choose among latency_sensitive, "),
        (
            ["batch", "--from-urllib3", "3"],
            "a policy by name and --from-urllib3 exclude each other",
        ),
        (["--max-attempts", "0"], "max_attempts must be at least 1, got 0"),
        (["--base", "9", "--cap", "1"], "cap must be at least base"),
        (
            ["--jitter", "some"],
            "jitter must be one of full, equal, decorrelated, none or a float, got 'some'",
        ),
        (["--statuses", "many"], "--statuses must be numbers with commas between, got 'many'"),
        (["--statuses", "200"], "statuses must hold whole numbers from 400 to 599, got 200"),
        (["--hints", "never"], "hints must be one of 'obey', 'ignore', got 'never'"),
        (["--vendors", "acme"], "vendor must be one of anthropic, cloudflare, github, got 'acme'"),
        (["--slo", "0"], "slo must be more than 0"),
        (["--attempt-timeout", "-1"], "attempt_timeout must be at least 0"),
        (["--layers", "0"], "--layers must be from 1 to 10, got 0"),
        (["--from-urllib3", "Retry(exit())"], "--from-urllib3 reads literals only"),
        (["--plot", "waits.gif"], "must end with one of .png, .svg, .pdf"),
        (["--plot", "/nowhere/waits.png"], "cannot write /nowhere/waits.png: "),
        (["disabled", "--plot", "waits.png"], "there is no wait to draw"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_is_status_2(capsys, arguments, says):
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    status, out, err = explain(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("forbear explain: ")
    assert says in err
    assert err.count("\n") == 1


def test_the_code_that_is_shown_makes_the_policy():
    names = {
        name: getattr(forbear, name)
        for name in ("RetryPolicy", "Exponential", "Fixed", "FailureKind")
    }
    for policy in (
        RetryPolicy(),
        RetryPolicy.batch(),
        RetryPolicy(
            max_attempts=9,
            backoff=Fixed(2),
            throttle_backoff=Exponential(1, 9, 3, 0.5, True),
            statuses=(),
        ),
        RetryPolicy(
            methods={"GET", "POST"}, failures={FailureKind.DNS, FailureKind.RESET}, total_timeout=3
        ),
        RetryPolicy(
            hinted_statuses={403},
            failures=(),
            hints="ignore",
            on_exhausted="raise",
            conflict_with_key=False,
        ),
    ):
        assert eval(code_of(policy), names) == policy


def test_the_examples_of_the_help_work(capsys, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "myservice").mkdir()
    (tmp_path / "myservice" / "http.py").write_text(
        "import forbear\nPOLICY = forbear.RetryPolicy()\n"
    )
    commands = re.findall(r"^  (forbear .*?)(?:  +\w.*)?$", EXAMPLES, re.MULTILINE)
    assert len(commands) >= 8
    for command in commands:
        status, _, err = explain(capsys, *shlex.split(command)[2:])
        assert (status, err) == (0, ""), command
    for name in ("myservice.http", "myservice"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["batch"], 0), (["--json"], 0), (["nothing"], 2), (["--no-such"], 2), (["--base"], 2)],
)
def test_sessions(arguments, status):
    """As a process: status, and never a traceback."""
    process = subprocess.run(
        [sys.executable, "-m", "forbear", "explain", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1"},
        timeout=60,
        check=False,
    )
    assert process.returncode == status
    assert "Traceback" not in process.stderr
    assert (process.stderr == "") is (status == 0)
    assert (process.stdout == "") is (status != 0)


def test_it_needs_nothing_that_is_installed():
    """On a bare installation: no client, no rich, no matplotlib."""
    code = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"httpx", "httpx2", "requests", "urllib3", "rich", "matplotlib", "anyio"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from forbear.tools.cli import main
sys.exit(main(sys.argv[1:]))
"""
    for arguments in (["explain", "--from-urllib3", "Retry(3)"], ["parse", "Retry-After: 5"]):
        process = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            timeout=60,
            check=False,
        )
        assert (process.returncode, process.stderr) == (0, "")


def test_a_terminal_gets_a_picture_of_text(monkeypatch):
    """Colour, bold heads, and nothing wider than the terminal."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "64")
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["explain", *FULL, "--no-budget"]) == 0
    text = out.getvalue()
    assert "\x1b[33mwarning:\x1b[0m" in text
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())) <= 64
