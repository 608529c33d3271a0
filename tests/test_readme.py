"""What the README shows is true: its blocks run, its tables are the library's, its links lead on.

Nothing leaves this machine and nothing sleeps: the clients' own transports are answered here, and
every request is dropped the first time it comes, so that a block which shows a retry makes one.
"""

import ast
import io
import re
import shlex
import ssl
from contextlib import redirect_stdout
from functools import partialmethod
from pathlib import Path

import httpx
import httpx2
import prometheus_client
import pytest
import redis
import urllib3
from starlette.testclient import TestClient
from urllib3.connectionpool import HTTPConnectionPool

import forbear.httpx
import forbear.httpx2
import forbear.requests
import forbear.urllib3
from forbear import RetryPolicy
from forbear.telemetry import METRICS, assets
from forbear.testing import FakeClock, ScriptedTransport
from forbear.tools.cli import main as command
from forbear.tools.cli import parser_for
from forbear.tools.cli.callers import HttpxCaller
from forbear.tools.cli.demo import run
from forbear.tools.cli.scenes import SCENES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ORDERS = "https://api.example.com/orders"


def blocks(language):
    """Text of each block of a language, and the number of its first line."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [(block[1], README.count("\n", 0, block.start(1)) + 1) for block in found]


def packages_of(source):
    """The packages that a block imports."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


PYTHON = blocks("python")
# Files of tests, for pytest; tests/sdk runs those of SDKs.
TESTS = [
    source
    for source, _ in PYTHON
    if "\ndef test_" in source and not {"openai", "stripe"} & packages_of(source)
]
PROGRAMS = [
    pytest.param(source, line, id=f"line {line}")
    for source, line in PYTHON
    if "\ndef test_" not in source
]


def table(first_cell):
    """The rows of the table whose first head cell is this, each a list of cells."""
    lines = README.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_cell} |"))
    rows = []
    for line in lines[at:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows[0], rows[2:]


@pytest.fixture
def wire(monkeypatch):
    """Every request that a client's own transport would have sent; the first of each is dropped."""
    arrived = []

    def answer(library, request):
        line = f"{request.method} {request.url}"
        arrived.append(line)
        if arrived.count(line) == 1:
            raise library.ReadError("the server closed the connection")
        # What the SDKs expect of a list; others do not look.
        return library.Response(
            200,
            json={
                "object": "list",
                "data": [],
                "has_more": False,
                "first_id": None,
                "last_id": None,
            },
        )

    for library in (httpx, httpx2):

        def handle(self, request, library=library):
            return answer(library, request)

        async def ahandle(self, request, library=library):
            return answer(library, request)

        monkeypatch.setattr(library.HTTPTransport, "handle_request", handle)
        monkeypatch.setattr(library.AsyncHTTPTransport, "handle_async_request", ahandle)

    def make_request(self, conn, method, url, *arguments, **named):
        line = f"{method} {self.scheme}://{self.host}{url}"
        arrived.append(line)
        if arrived.count(line) == 1:
            raise ConnectionResetError(104, "the server closed the connection")
        return urllib3.HTTPResponse(
            io.BytesIO(b"{}"), status=200, preload_content=False, request_method=method
        )

    monkeypatch.setattr(HTTPConnectionPool, "_make_request", make_request)
    # A Redis that lends eleven tokens, whatever it is told; tests/real asks a real one.
    monkeypatch.setattr(redis.Redis, "eval", lambda *arguments: [11, 1_800_000_000_000])
    return arrived


@pytest.fixture
def clock(monkeypatch):
    """As if each block had given ``clock=`` and ``random=`` to its transports."""
    clock = FakeClock()
    for module in (forbear.httpx, forbear.httpx2):
        for transport in (module.RetryTransport, module.AsyncRetryTransport):
            still = partialmethod(transport.__init__, clock=clock, random=lambda: 0.5)
            monkeypatch.setattr(transport, "__init__", still)
    of_urllib3 = (
        forbear.requests.RetryAdapter,
        forbear.urllib3.RetryPoolManager,
        forbear.urllib3.Retry,
    )
    for retrying in of_urllib3:
        still = partialmethod(retrying.__init__, clock=clock, random=lambda: 0.5)
        monkeypatch.setattr(retrying, "__init__", still)
    return clock


@pytest.mark.parametrize(("source", "line"), PROGRAMS)
def test_a_block_runs_as_it_stands(source, line, wire, clock, monkeypatch):
    """Pasted into a file of its own, it prints what its comments say; what it sends is retried."""
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry())
    names = {"__name__": "readme"}
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile("\n" * (line - 1) + source, str(ROOT / "README.md"), "exec"), names)
    if "HTTPXClientInstrumentor" in names:
        names["HTTPXClientInstrumentor"]().uninstrument()
    printed = out.getvalue().splitlines()
    for told in re.findall(r"print\(.*\)  # (.+)$", source, re.MULTILINE):
        assert told in printed
    if wire:
        assert len(clock.sleeps) >= 1
        assert len(wire) >= 2


@pytest.mark.parametrize("source", TESTS)
def test_the_tests_pass(source, run_readme_tests):
    """Pasted into a file of tests, in a project that has forbear installed and nothing set."""
    run_readme_tests(source, source.count("\ndef test_"))


def test_no_line_of_a_block_is_scrolled():
    """GitHub shows about 100 characters of a line of code."""
    long = [line for source, _ in PYTHON for line in source.splitlines() if len(line) >= 100]
    assert long == []


def test_there_are_blocks_of_both_kinds():
    """A pattern that found nothing would find no fault either."""
    assert len(PROGRAMS) >= 5
    assert TESTS


@pytest.mark.parametrize("framework", ["fastapi", "flask"])
def test_the_services_do_what_is_said(framework, wire, clock):
    """A dropped request is sent again. For a request that is itself a retry it is sent once."""
    (source,) = [text for text, _ in PYTHON if f"from {framework} import" in text]
    names = {"__name__": "readme"}
    exec(source, names)
    if framework == "flask":
        client = names["app"].test_client()
    else:
        client = TestClient(names["app"], raise_server_exceptions=False)
    assert client.get("/orders/1").status_code == 200
    assert wire == [f"GET {ORDERS}/1"] * 2
    answer = client.get("/orders/2", headers={"x-stainless-retry-count": "1"})
    assert (answer.status_code, answer.headers.get("x-should-retry")) == (500, None)
    assert wire[2:] == [f"GET {ORDERS}/2"]
    assert clock.sleeps == [0.1]  # the middle of 0 to 0.2 s, after a connection that broke


def certificate_error(request):
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    return error


def unsupported(request):
    return httpx.UnsupportedProtocol("no scheme")


def waits_of(policy, drawn):
    """The waits of the policy's schedule, if its randomness answers ``drawn`` each time."""
    waits = [0.0]
    for n in range(1, policy.max_attempts):
        waits.append(policy.backoff.delay(n, waits[-1], lambda: drawn))
    return waits[1:]


def seconds(cell):
    return float(cell.removesuffix(" s"))


def test_the_default_waits_are_as_the_table_says():
    _, rows = table("before attempt")
    least, mean, worst = (waits_of(RetryPolicy(), drawn) for drawn in (0.0, 0.5, 1.0))
    assert len(rows) == len(mean)
    for n, (attempt, wait, of_wait, of_all, at_worst) in enumerate(rows):
        assert int(attempt) == n + 2
        shortest, longest = wait.split(" to ")
        said = [float(shortest), seconds(longest), seconds(of_wait), seconds(of_all)]
        assert [*said, seconds(at_worst)] == pytest.approx(
            [least[n], worst[n], mean[n], sum(mean[: n + 1]), sum(worst[: n + 1])]
        )


def test_the_presets_are_as_the_table_says():
    _, rows = table("preset")
    for name, attempts, mean, worst, patience, _ in rows:
        policy = eval(name.strip("`"), {"RetryPolicy": RetryPolicy})
        assert int(attempts) == policy.max_attempts
        assert seconds(mean) == pytest.approx(sum(waits_of(policy, 0.5)), rel=0.005), name
        assert seconds(worst) == pytest.approx(sum(waits_of(policy, 1.0)), rel=0.005), name
        if policy.max_attempts > 1:
            assert seconds(patience) == policy.patience


# Rows of the README's table, by what they begin with: what makes them happen.
HAPPENED = {
    "408": [408, 425, 429, 500, 502, 503, 504],
    "409": [409],
    "any other status": [400, 401, 403, 404, 410, 422, 501, 505, 520, 529],
    "`x-should-retry: true`": [
        (400, {"x-should-retry": "true"}),
        (501, {"x-should-retry": "true"}),
    ],
    "the server says no": [
        (503, {"x-should-retry": "false"}),
        (503, {"grpc-retry-pushback-ms": "-1"}),
    ],
    "`Idempotent-Replayed: true`": [(503, {"Idempotent-Replayed": "true"})],
    "nothing was sent": ["connect_error", "connect_timeout"],
    "reset": ["read_error", "disconnect", "read_timeout", "write_timeout", "write_error"],
    "bad certificate": [
        certificate_error,
        unsupported,
        "pool_timeout",
        ZeroDivisionError("unknown"),
    ],
}
COLUMNS = [
    (1, {"method": "GET"}),
    (2, {"method": "POST"}),
    (3, {"method": "POST", "headers": {"Idempotency-Key": "k-1"}}),
    (3, {"method": "GET", "headers": {"Idempotency-Key": "k-1"}}),
]


def attempts(step, **request):
    """Requests sent, and how the call ended, if ``step`` happens every time.

    The table says what may be sent again. When that happens is the gate's matter, so there is none.
    """
    script = ScriptedTransport([step])
    transport = forbear.httpx.RetryTransport(
        script, gate=None, clock=FakeClock(), random=lambda: 0.5
    )
    with httpx.Client(transport=transport) as client:
        try:
            client.request(url=ORDERS, **request)
        except (httpx.TransportError, ZeroDivisionError):
            return len(script.requests), "raised"
    return len(script.requests), "returned"


@pytest.mark.parametrize("row", HAPPENED)
def test_what_is_retried_is_what_the_table_says(row):
    """ "again" is four requests in all; "returned" and "raised" are one, and what the caller gets."""
    head, rows = table("what happened")
    assert set(head[1].split()) == RetryPolicy().methods
    (cells,) = [cells for cells in rows if cells[0].startswith(row)]
    for column, request in COLUMNS:
        said = cells[column].partition(":")[0]
        for step in HAPPENED[row]:
            sent, ended = attempts(step, **request)
            if said == "again":
                assert sent == 4, (step, request)
            else:
                assert (sent, ended) == (1, said), (step, request)


def test_the_table_has_no_other_rows():
    _, rows = table("what happened")
    assert len(rows) == len(HAPPENED) + 1
    assert {int(status) for status in rows[0][0].split(", ")} == RetryPolicy().statuses
    # The one left is of a body that cannot be read again.
    for step, ended in ((503, "returned"), ("read_error", "raised")):
        assert attempts(step, method="PUT", content=iter([b"once"])) == (1, ended)


def numbers_aside(text):
    """A line without the figures that differ from run to run."""
    return re.sub(r"\d+\.\d+ s", "0 s", " ".join(text.split()))


def test_the_demo_prints_what_is_shown():
    out = io.StringIO()
    assert run(out, callers=[HttpxCaller("httpx")], scenes=SCENES[:4]) == 0
    (shown,) = [text for text, _ in blocks("text") if "The server executes it" in text]
    printed = numbers_aside(out.getvalue())
    for part in shown.split("\n\n"):
        assert numbers_aside(part) in printed


def test_the_note_on_an_exception_is_as_shown(wire, clock):
    (shown,) = [text for text, _ in blocks("text") if "forbear: 1 attempt" in text]
    with httpx.Client(transport=forbear.httpx.RetryTransport(httpx.HTTPTransport())) as client:
        with pytest.raises(httpx.ReadError) as caught:
            client.post(ORDERS)
    (note,) = caught.value.__notes__
    assert numbers_aside(re.sub(r" in 0 s", " in 0.0 s", note)) in numbers_aside(shown)


# What is fed to the command that reads response headers.
FED = "HTTP/2 429\r\nretry-after: 16\r\nretry-after-ms: 15500\r\n\r\n"
COMMANDS = [line for text, _ in blocks("console") for line in text.splitlines() if line[:1] == "$"]


@pytest.mark.parametrize("line", [c for c in COMMANDS if re.search("forbear (explain|parse)", c)])
def test_a_session_prints_what_is_shown(line, monkeypatch, capsys):
    """Part by part: the README leaves out some lines between them."""
    shown = README.partition(f"{line}\n```\n\n```text\n")[2].partition("```")[0]
    monkeypatch.setattr("sys.stdin", io.StringIO(FED))
    assert command(shlex.split(line.partition("forbear ")[2])) == 0
    printed = capsys.readouterr().out
    assert shown
    for part in shown.strip().split("\n\n"):
        assert part in printed


def test_the_options_shown_exist():
    """The command accepts every line that is shown with options."""
    shown = re.findall(r"`forbear\s+([^`]* --[^`]*)`", README)
    shown += [line.partition("forbear ")[2] for line in COMMANDS if "forbear " in line]
    assert len(shown) >= 6
    for line in shown:
        given = shlex.split(line)
        if "--help" not in given:
            assert parser_for(given).parse_args(given).command == given[0]


@pytest.mark.parametrize("end", ["&& forbear demo", "&& pytest "])
def test_the_commands_are_those_that_ci_runs(end):
    """`.ci/run` takes them from here; each stands once, alone on its line."""
    assert len([line for line in COMMANDS if end in f"{line} "]) == 1


def test_a_link_into_the_repository_leads_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_a_link_within_the_page_leads_to_a_heading():
    """As GitHub names headings: lower case, no punctuation, a hyphen for each space."""
    headings = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= named


def test_a_source_is_given():
    """A claim about another library names a file at a version or commit, and the lines."""
    source = r"https://github\.com/[\w-]+/[\w-]+/blob/([0-9a-f]{7}|[\d.]+)/\S+\.py#L\d+(-L\d+)?"
    for name in set(re.findall(r"\[read\]\[([^\]]+)\]", README)):
        (target,) = re.findall(rf"^\[{re.escape(name)}\]: (\S+)$", README, re.MULTILINE)
        assert re.fullmatch(source, target), name


def test_every_sdk_of_the_table_is_tested():
    """Its row is backed by a file in tests/sdk, and every such file has a row."""
    _, rows = table("SDK")
    named = {re.sub(r" \d.*", "", cells[0]).lower().replace("-", "_") for cells in rows}
    assert named == {
        path.stem.removeprefix("test_") for path in (ROOT / "tests" / "sdk").glob("test_*.py")
    }


def test_the_tuning_table_names_what_ships():
    """Alerts and recorded series stand in the rules, metrics in the exporters' common table."""
    section = README.partition("### Tuning")[2].partition("\n## ")[0]
    rules = assets.read(assets.RULES)
    for alert in re.findall(r"`(Forbear\w+)`", section):
        assert f"alert: {alert}\n" in rules
    for series, threshold in re.findall(r"`(forbear:[\w:]+)` ([<>] [\d.]+)", section):
        assert re.search(rf"record: {series}\b", rules), series
        assert re.search(rf"{series}\S* {threshold}\b", rules), (series, threshold)
    told = set(re.findall(r"`(forbear_\w+)", section))
    assert told
    assert told <= {metric.prometheus_name for metric in METRICS.values()}
