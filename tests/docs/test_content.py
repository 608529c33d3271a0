"""What the pages say is what the code does: tables, names, sessions of the command, links."""

import io
import re
import shlex
import ssl
from importlib import import_module
from logging import ERROR, INFO, getLevelName
from types import SimpleNamespace

import httpx
import pytest

import forbear.httpx
import forbear.testing
from benchmarks import house
from forbear import Reason, RetryPolicy, events, pytest_plugin
from forbear.addons.options import FamilyOptions, Options
from forbear.cli import demo
from forbear.cli import main as command
from forbear.cli.explain import worst_case
from forbear.core.policy import FIELDS
from forbear.core.waits import ranges
from forbear.telemetry import assets
from forbear.telemetry.event_log import LINES, level_of
from forbear.telemetry.metrics import METRICS
from forbear.testing import FakeClock, ScriptedTransport, answer

from .pages import DOCS, EVERYTHING, PAGES, ROOT, blocks, section, table

ORDERS = "https://api.example.com/orders"

# Names of the code, in the page that explains them.

NAMED = {  # page and head of a table: the names that its first column must have
    ("troubleshooting.md", "reason"): [reason.value for reason in Reason],
    ("guides/observing.md", "event"): [
        kind._field_defaults["name"]
        for kind in vars(events).values()
        if isinstance(kind, type) and "name" in getattr(kind, "_field_defaults", {})
    ],
    ("guides/metrics.md", "metric"): [metric.prometheus_name for metric in METRICS.values()],
    ("guides/options.md", "option"): [
        "policy", *{**Options.__annotations__, **FamilyOptions.__annotations__}
    ],
    ("how/waits.md", "field"): FIELDS,
    ("guides/testing.md", "fixture"): pytest_plugin.__all__,
}  # fmt: skip


@pytest.mark.parametrize(("page", "head"), NAMED)
def test_each_name_is_explained(page, head):
    _, rows = table(page, head)
    assert {row[0].strip("`") for row in rows} == set(NAMED[page, head])


def test_the_values_of_labels_are_listed():
    pages = "guides/metrics.md", "troubleshooting.md", "how/hedging.md"
    explained = "".join(PAGES[page] for page in pages)
    for metric in METRICS.values():
        for label in set(metric.labels) - {"method", "scope", "backend"}:
            for value in metric.labels[label] or ():
                assert f"`{value}`" in explained


def test_the_script_language_is_explained_in_full():
    """Every step and modifier, as the messages name them, in ``help(forbear.testing)`` and a page."""
    with pytest.raises(ValueError, match="known are") as caught:
        answer("?")
    steps = str(caught.value).partition("a status, ")[2].split(", ")
    words = {step.partition(":")[0] for step in steps}
    for step in (200, "early:413:1", "drip"):
        with pytest.raises(ValueError, match="takes NAME=VALUE") as caught:
            answer(f"{step};?=1")
        words |= {f"{name}=" for name in str(caught.value).partition("with: ")[2].split(", ")}
    assert len(words) == 10 + 10
    for text in (forbear.testing.__doc__, PAGES["guides/testing.md"]):
        assert {word for word in words if f"`{word}" not in text} == set()


def test_each_exit_status_is_explained():
    for name in ("demo", "explain", "parse", "dashboards"):
        told = re.search(r"exit status: (.*)", import_module(f"forbear.cli.{name}").EXAMPLES, re.S)
        statuses = set(re.findall(r"(?<!-)\b(\d+) [a-zA-Z-]", told[1])) if told else set()
        text = section("command.md", f"forbear {name}")
        explained = set(re.findall(r"\b(\d+) [a-z]", text.partition("Exit status")[2]))
        explained |= {row[2:].partition(" ")[0] for row in re.findall(r"^\| \d+ ", text, re.M)}
        assert statuses <= explained, name


def test_each_log_event_is_explained():
    """Everything that is logged, at the highest of the levels that the page names."""
    rows = [row for head in ("event", "line") for row in table("guides/observing.md", head)[1]]
    explained = {row[0].strip("`"): row[1].partition(",")[0] for row in rows if row[1] != "–"}
    call, facts = SimpleNamespace(last_failure=1, most_attempts=2), {"to_state": "open"}
    facts["reason"] = Reason.DEADLINE
    made = [kind(*map(facts.get, kind._fields[:-1])) for kind in events.Event.__args__]
    levels = {one.name: level_of(one, call) for one in made}
    levels |= {name: level for name, (level, _) in LINES.items()}
    levels |= {"shared_budget_lost": ERROR, "shared_budget_back": INFO}
    assert explained == {name: getLevelName(level) for name, level in levels.items()}


def test_each_sdk_has_a_page():
    tested = {path.stem[5:] for path in (ROOT / "tests" / "sdk").glob("test_*.py")}
    pages = {path.stem.replace("-", "_") for path in (DOCS / "guides" / "sdks").glob("*.md")}
    assert pages - {"index"} == tested - {"pages"}


# What is retried, and when.


CERTIFICATE = httpx.ConnectError("certificate verify failed")
CERTIFICATE.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
PERMANENT = [CERTIFICATE, httpx.UnsupportedProtocol("no scheme"), ZeroDivisionError("unknown")]
REFUSALS = {"x-should-retry": "false"}, {"grpc-retry-pushback-ms": "-1"}


def waits_of(policy, drawn):
    """The waits while all is healthy, if the randomness answers ``drawn`` each time."""
    fast = getattr(policy.backoff, "fast_first", None)
    waits = [] if fast is None else [fast * drawn]
    previous = 0.0
    for n in range(1, policy.max_attempts - len(waits)):
        previous = policy.backoff.delay(n, previous, lambda: drawn)
        waits.append(previous)
    return waits[: policy.max_attempts - 1]


def seconds(cell):
    return float(cell.removesuffix(" s"))


def test_the_default_waits_are_as_the_table_says():
    _, rows = table("how/waits.md", "before attempt")
    least, mean, worst = (waits_of(RetryPolicy(), drawn) for drawn in (0.0, 0.5, 1.0))
    assert len(rows) == len(mean)
    for n, (attempt, wait, of_wait, of_all, at_worst) in enumerate(rows):
        assert int(attempt) == n + 2
        shortest, longest = wait.split(" to ")
        said = [float(shortest), *map(seconds, (longest, of_wait, of_all, at_worst))]
        so_far = [sum(mean[: n + 1]), sum(worst[: n + 1])]
        assert said == pytest.approx([least[n], worst[n], mean[n], *so_far])


def test_the_presets_are_as_the_table_says():
    _, rows = table("how/waits.md", "preset")
    for name, attempts, mean, at_worst, patience, in_all, _ in rows:
        policy = eval(name.strip("`"), {"RetryPolicy": RetryPolicy})
        assert int(attempts) == policy.max_attempts
        assert seconds(mean) == pytest.approx(sum(waits_of(policy, 0.5)), rel=0.005), name
        for said, held in ((at_worst, 0.0), (in_all, policy.patience)):
            waits = {"backoff": ranges(policy.backoff, policy.max_attempts - 1)}
            longest = worst_case(policy.replace(patience=held), waits, 0.0)
            assert seconds(said) == pytest.approx(longest, rel=0.005), name
        if policy.max_attempts > 1:
            assert seconds(patience) == policy.patience


# Rows of the table, by what they begin with: what makes them happen.
HAPPENED = {
    "408": [408, 425, 429, 500, 502, 503, 504],
    "409": [409],
    "any other status": [400, 401, 403, 404, 410, 422, 501, 505, 520, 529],
    "`x-should-retry: true`": [(status, {"x-should-retry": "true"}) for status in (400, 501)],
    "the server says no": [(503, headers) for headers in REFUSALS],
    "`Idempotent-Replayed: true`": [(503, {"Idempotent-Replayed": "true"})],
    "nothing was sent": ["connect_error", "connect_timeout"],
    "connection reset": ["read_error", "disconnect", "read_timeout", "write_timeout"],
    "bad certificate": [*PERMANENT, "pool_timeout"],
}
KEY = {"headers": {"Idempotency-Key": "k-1"}}
COLUMNS = [(1, "GET", {}), (2, "POST", {}), (3, "POST", KEY), (3, "GET", KEY)]


def attempts(step, **request):
    """Requests sent, and how the call ended, if ``step`` happens every time.

    The table says what may be retried. When that happens is the gate's matter, so there is none.
    """
    script = ScriptedTransport([step])
    options = {"gate": None, "clock": FakeClock(), "random": lambda: 0.5}
    transport = forbear.httpx.RetryTransport(script, **options)
    with httpx.Client(transport=transport) as client:
        try:
            client.request(url=ORDERS, **request)
        except (httpx.TransportError, ZeroDivisionError):
            return len(script.requests), "raised"
    return len(script.requests), "returned"


@pytest.mark.parametrize("row", HAPPENED)
def test_what_is_retried_is_what_the_table_says(row):
    """ "retried" is all attempts; "returned" and "raised" are one, and what is got."""
    head, rows = table("how/index.md", "what happened")
    assert set(head[1].split(", ")) == RetryPolicy().methods
    (cells,) = [cells for cells in rows if cells[0].startswith(row)]
    for column, method, request in COLUMNS:
        said = cells[column].partition(":")[0]
        for step in HAPPENED[row]:
            sent, ended = attempts(step, method=method, **request)
            if said == "retried":
                assert sent == RetryPolicy().max_attempts, (step, method, request)
            else:
                assert (sent, ended) == (1, said), (step, method, request)


def test_the_table_has_no_other_rows():
    _, rows = table("how/index.md", "what happened")
    assert len(rows) == len(HAPPENED) + 1
    assert {int(status) for status in rows[0][0].split(", ")} == RetryPolicy().statuses
    # The one left is of a body that cannot be read again.
    for step, ended in ((503, "returned"), ("read_error", "raised")):
        assert attempts(step, method="PUT", content=iter([b"once"])) == (1, ended)


# What the command and a traceback show.


def numbers_aside(text):
    """Without the figures that differ from run to run."""
    return re.sub(r"\d+\.\d+ s", "0 s", " ".join(text.split()))


def test_the_demo_prints_what_the_readme_shows(capsys):
    assert demo.run(callers=demo.CALLERS[:1], scenes=demo.SCENES[:4]) == 0
    (shown,) = [b.text for b in blocks("README.md", "text") if "a plain loop" in b.text]
    printed = numbers_aside(capsys.readouterr().out)
    for part in shown.split("\n\n"):
        assert numbers_aside(part) in printed


@pytest.mark.parametrize("page", ["README.md", "guides/observing.md"])
def test_the_note_on_an_exception_is_as_shown(page):
    (shown,) = [b.text for b in blocks(page, "text") if "forbear: 1 attempt" in b.text]
    inner = ScriptedTransport(["read_error"])
    with httpx.Client(transport=forbear.httpx.RetryTransport(inner)) as client:
        with pytest.raises(httpx.ReadError) as caught:
            client.post(ORDERS)
    (note,) = caught.value.__notes__
    assert re.sub(r" in \S+ s,", "", note) in re.sub(r" in \S+ s,", "", shown)


# What is fed to the command that reads response headers.
FED = "HTTP/2 429\r\nretry-after: 16\r\nretry-after-ms: 15500\r\n\r\n"
LINES_OF = {page: "".join(block.text for block in blocks(page, "console")) for page in PAGES}
SESSIONS = re.findall(r"^\$.*forbear (?:explain|parse).*", "\n".join(LINES_OF.values()), re.M)


@pytest.mark.parametrize("line", SESSIONS)
def test_a_session_prints_what_is_shown(line, monkeypatch, capsys):
    """Part by part: the page leaves out some lines between them."""
    shown = PAGES["command.md"].partition(f"{line}\n```\n\n```text\n")[2].partition("```")[0]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(FED.encode())))
    assert command(shlex.split(line.partition("forbear ")[2])) == 0
    printed = capsys.readouterr().out
    assert shown
    for part in shown.strip().split("\n\n"):
        assert part in printed


@pytest.mark.parametrize("end", ["&& forbear demo", "&& pytest "])
def test_the_commands_are_those_that_ci_runs(end):
    """`.ci/run` takes them from the README; each stands once, alone on its line."""
    assert [end in f"{line} " for line in LINES_OF["README.md"].splitlines()].count(True) == 1


def test_the_test_that_is_shown_to_contributors_is_run():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    tests = (ROOT / "tests" / "adapters" / "test_conformance_time.py").read_text(encoding="utf-8")
    assert shown in tests


def test_the_tuning_table_names_what_ships():
    """Alerts and recorded series stand in the rules, metrics in the exporters' common table."""
    text = section("guides/metrics.md", "Tuning")
    rules = assets.read(assets.RULES)
    for alert in re.findall(r"`(Forbear\w+)`", text):
        assert f"alert: {alert}\n" in rules
    for series, threshold in re.findall(r"`(forbear:[\w:]+)` ([<>] [\d.]+)", text):
        assert re.search(rf"record: {series}\b", rules), series
        assert re.search(rf"{series}\S* {threshold}\b", rules), (series, threshold)
    told = set(re.findall(r"`(forbear_\w+)", text))
    assert told
    assert told <= {metric.prometheus_name for metric in METRICS.values()}


def test_what_is_loaded_is_what_the_page_says():
    """Roughly, so that not each change of the source is one of the page."""
    again = "write the page again with: python benchmarks/house.py --page"
    shown = PAGES["what-you-let-in.md"].partition(house.BEGIN)[2].partition(house.END)[0].strip()
    for said, line in zip(shown.splitlines(), house.page().splitlines(), strict=True):
        for cell, figure in zip(said.split(" | "), line.split(" | "), strict=True):
            if figure.strip("| ").replace(",", "").isdigit():
                least, most = sorted(
                    int(one.strip("| ").replace(",", "")) for one in (cell, figure)
                )
                assert most - least <= max(4, 0.1 * most), f"{line}: {again}"
            else:
                assert cell == figure, again


def test_the_figures_of_hedging_are_those_of_the_benchmark():
    _, rows = table("benchmarks.md", "load")
    kept = ROOT / "benchmarks" / "pictures"
    lines = (kept / "hedging.md").read_text(encoding="utf-8").split("\n## ")[1].splitlines()
    found = [line.strip("| ").split(" | ")[: len(rows[0])] for line in lines if "→" in line]
    assert len(rows) > 4
    assert [cells for cells in rows if cells not in found] == []
    assert (DOCS / "pictures" / "hedging.svg").read_bytes() == (kept / "hedging.svg").read_bytes()


# The pages themselves.


def test_the_pages_are_short():
    """Words of prose and tables; a block of code is as long as it has to be."""
    assert PAGES["README.md"].count("\n") <= 180
    assert len(PAGES["README.md"].split()) <= 1300
    prose = without_blocks(EVERYTHING)
    assert sum(any(map(str.isalnum, word)) for word in prose.split()) <= 24_000


def without_blocks(text):
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_the_readme_works_on_an_index_page():
    """No link or picture is relative, as an index has no files beside it; a page that is named exists."""
    assert re.findall(r"\]\((?!https?:|#)([^)]+)\)", PAGES["README.md"]) == []
    for name in re.findall(r"`(docs/[^`]*)`", PAGES["README.md"]):
        assert (ROOT / name).exists(), name


def test_a_source_is_given():
    """A claim about another library names a file at a version or commit, and the lines."""
    source = r"https://github\.com/[\w-]+/[\w-]+/blob/([0-9a-f]{7}|[\d.]+)/\S+\.py#L\d+(-L\d+)?"
    text = PAGES["compared.md"]
    named = set(re.findall(r"\[read\]\[([^\]]+)\]", text))
    assert named
    for name in named:
        (target,) = re.findall(rf"^\[{re.escape(name)}\]: (\S+)$", text, re.MULTILINE)
        assert re.fullmatch(source, target), name


# Words of everyday speech that stood for a term of the field, which nobody would search for.
DIALECT = re.compile(
    r"""\b(answer(s|ed|ing)?|sendings?|(send|sends|sent)\ again|repeat(s|ed|able)?|troubles?|backends?
    |colours?|flood(s|ed)?|draws?|drawn|told|tells?|hears?|heard|hurried|punctual|price[sd]?
    |ow(es|ed)|paid|guard(s|ed)?|lets?\ go|unwell|besides?|rac(e|es|ed|ing)|octets?|pieces?
    |tak(e|es|en|ing)\ up|lost\ slot|mend(s|ed)?|at\ last|reads?\ ahead|(?<!retry\ )storms?)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# The same words in their ordinary sense.
ORDINARY = (
    "class that answers", "guarded bodies", "draws pictures", "last step repeats", "server owes",
    "tell the gate", "tells the operator", "tells them apart", "tell the maintainers",
    "Repeatable Requests", "a backend", "the backend", "one backend", "different backends", "whole backend",
)  # fmt: skip


def dialect(text):
    """Words of prose and tables; blocks, names and links' targets are somebody else's words."""
    text = without_blocks(text)
    text = re.sub(r"``[^`]*``|`[^`]*`|\]\([^)]*\)", " ", text)
    for use in ORDINARY:
        text = re.sub(use.replace(" ", r"\s+"), " ", text, flags=re.IGNORECASE)
    return [word[0] for word in DIALECT.finditer(text)]


def test_the_words_are_those_of_the_field():
    found = {page: dialect(text) for page, text in PAGES.items()}
    assert {page: words for page, words in found.items() if words} == {}
