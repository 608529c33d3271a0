"""What the README shows is true: its blocks run, its tables are the library's, its output is the
command's.

Nothing leaves this machine and nothing sleeps: the clients' own transports are answered here, and
every request is dropped the first time it comes, so that a block which shows a retry really makes
one.
"""

import io
import re
import shlex
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
from forbear import RetryBudget, RetryPolicy
from forbear.redis import RedisBudget
from forbear.telemetry import METRICS, assets
from forbear.testing import FakeClock, ScriptedTransport
from forbear.tools.cli import main as command
from forbear.tools.cli.callers import HttpxCaller
from forbear.tools.cli.demo import run
from forbear.tools.cli.scenes import SCENES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

ORDERS = "https://api.example.com/orders"
TWICE = [f"GET {ORDERS}"] * 2

# For each Python block, by its heading: what goes over the wire, what is printed, and the wait
# before each retry (a list where they differ): half of the backoff's base, or what the block's own
# strategy says. A block that is not in here has not been thought about.
BLOCKS = [
    ("forbear", TWICE, [], 2.0),
    ("forbear", ["GET https://api.openai.com/v1/models"] * 2, ["[]"], 2.0),
    ("forbear", TWICE, [], 2.0),
    ("forbear", TWICE, [], 2.0),
    ("What is retried, and for how long", TWICE, [], 0.1),
    ("POSTs and idempotency keys", [f"POST {ORDERS}"] * 2, [], 2.0),
    ("POSTs and idempotency keys", ["POST https://api.stripe.com/v1/charges"] * 2, [], 2.0),
    ("Deadlines", TWICE + ["GET https://api.example.com/customers"] * 2, [], 2.0),
    # The second request's statuses say nothing of dropped connections: those are sent again all the
    # same.
    (
        "Per request and per context",
        TWICE + [f"GET {ORDERS}/1"] * 2 + [f"GET {ORDERS}/2"] * 2,
        [],
        2.0,
    ),
    (
        "Per request and per context",
        [f"GET {ORDERS}/{n}" for n in range(3) for _ in (1, 2)],
        ["3"],
        2.0,
    ),
    ("Response bodies", ["GET https://api.example.com/dataset.tar"] * 2, ["()"], 0.1),
    ("Keeping the client's settings", [], [], 2.0),
    ("requests", TWICE + [f"GET {ORDERS}/1"] * 2, [], 2.0),
    ("urllib3", TWICE, ["200"], 2.0),
    (
        "With SDKs",
        None,
        [],
        0.0,
    ),  # a file of tests for openai; tests/sdk runs it, where the SDKs are
    ("With SDKs", None, [], 0.0),  # and for stripe
    (
        "Which settings for which service",
        [
            line
            for path in ("GET web", "GET stock", "GET batch", "POST model", "GET page")
            for line in [path.replace(" ", " https://api.example.com/")] * 2
        ]
        + ["POST https://api.stripe.com/v1/charges"] * 2,
        [],
        [0.25, 0.005, 0.05, 0.05, 0.5, 1.0],  # half of 0.5, 0.01, 0.1, 0.1, 1 and 2
    ),
    ("The budget", TWICE, ["<RetryBudget 49/50, 1 scope below full>"], 2.0),
    ("The budget", TWICE, ["<RetryBudget 0/1, 1 scope below full>"], 2.0),
    ("One budget for a fleet", TWICE, [], 2.0),
    ("A circuit breaker and cooldown", TWICE, ["<CircuitBreaker closed>"], 2.0),
    (
        "Several servers",
        [
            f"GET {ORDERS}",
            "GET https://standby.example.com/orders",
            f"GET {ORDERS}",
        ],  # the first ones are dropped
        [],
        [2.0, 3.5],
    ),
    # These two only serve: test_the_services_do_what_is_said asks them.
    ("Between services", [], [], 2.0),
    ("Between services", [], [], 2.0),
    (
        "Seeing it",
        [*TWICE, f"POST {ORDERS}"],
        ["orders: ReadError, again in 2.0 s", "(2.0,)", "method-not-replayable"],
        2.0,
    ),
    ("Metrics, traces, logs", [], [], 2.0),
    ("Metrics, traces, logs", [], [], 2.0),
    # A file of tests, for pytest: test_the_tests_pass runs it.
    ("Testing your code", None, [], 0.0),
    ("A strategy of your own", TWICE, [], 1.0),
]


def blocks(language):
    """Heading, text and number of the first line of each block of a language."""
    heading, opened, found = "", None, []
    lines = README.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.startswith("```"):
            if opened is None:
                opened = line.removeprefix("```"), number
                continue
            if opened[0] == language:
                found.append(
                    (heading, "\n".join([*lines[opened[1] : number - 1], ""]), opened[1] + 1)
                )
            opened = None
        elif opened is None and line.startswith("#"):
            heading = line.lstrip("#").strip()
    return found


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
    """Every request that a client's own transport would have sent; the first of its kind is
    dropped.
    """
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


def test_every_python_block_is_listed():
    assert [heading for heading, *_ in blocks("python")] == [heading for heading, *_ in BLOCKS]


@pytest.mark.parametrize(
    ("number", "requests", "printed", "wait"),
    [
        pytest.param(number, requests, printed, wait, id=f"{number + 1} {heading}")
        for number, (heading, requests, printed, wait) in enumerate(BLOCKS)
        if requests is not None
    ],
)
def test_a_block_runs_as_it_stands(number, requests, printed, wait, wire, clock, monkeypatch):
    """Pasted into a file of its own, each block does what its comments say."""
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    _, source, line = blocks("python")[number]
    names = {"__name__": "readme"}
    out = io.StringIO()
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry())
    with redirect_stdout(out):
        exec(compile("\n" * (line - 1) + source, str(ROOT / "README.md"), "exec"), names)
    if "HTTPXClientInstrumentor" in names:
        names["HTTPXClientInstrumentor"]().uninstrument()
    assert sorted(wire) == sorted(requests)
    assert out.getvalue().splitlines() == printed
    for text in printed:
        assert f"# {text}\n" in source or text == "[]", text
    assert clock.sleeps == (
        wait if isinstance(wait, list) else [wait] * (len(requests) - len(set(requests)))
    )


def test_the_tests_pass(run_readme_tests):
    """Pasted into a file of tests, in a project that has forbear installed and nothing set."""
    (source,) = [text for heading, text, _ in blocks("python") if heading == "Testing your code"]
    run_readme_tests(source, passed=4)


@pytest.mark.parametrize("framework", ["fastapi", "flask"])
def test_the_services_do_what_is_said(framework, wire, clock):
    """A dropped request is sent again, unless it was asked for by a retry; then once, and announced
    further down.
    """
    (source,) = [
        text
        for heading, text, _ in blocks("python")
        if heading == "Between services" and framework in text
    ]
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
    assert clock.sleeps == [2.0]


def test_the_schedule_is_the_default_policys():
    """Decorrelated from 1 s: from 1 to 3 × the last one; its mean from the last one's, since that
    is linear.
    """
    _, rows = table("before attempt")
    longest = mean = 1.0
    mean_so_far = worst_so_far = 0.0
    assert len(rows) == RetryPolicy().max_attempts - 1
    for number, (attempt, wait, told_mean, mean_sum, worst_sum) in enumerate(rows, start=2):
        least, last = 1.0, longest
        longest, mean = 3 * longest, (1 + 3 * mean) / 2
        mean_so_far += mean
        worst_so_far += longest
        assert attempt == str(number)
        assert wait == f"1 to {longest:g} s"
        assert (told_mean, mean_sum, worst_sum) == (
            f"{mean:g} s",
            f"{mean_so_far:g} s",
            f"{worst_so_far:g} s",
        )
        delay = RetryPolicy().backoff.delay
        assert (delay(number, last, lambda: 0.0), delay(number, last, lambda: 1.0)) == (
            least,
            longest,
        )


def test_the_presets_are_as_the_table_says():
    _, rows = table("preset")
    for name, attempts, mean, worst, _ in rows:
        policy = eval(name.strip("`"), {"RetryPolicy": RetryPolicy})
        assert int(attempts) == policy.max_attempts
        for cell, drawn in ((mean, 0.5), (worst, 1.0)):
            waits = [0.0]
            for n in range(1, policy.max_attempts):
                waits.append(policy.backoff.delay(n, waits[-1], lambda r=drawn: r))
            assert float(cell.removesuffix(" s")) == pytest.approx(sum(waits), rel=0.005), name


BAD_CERTIFICATE = __import__("ssl").SSLCertVerificationError("self-signed certificate")


def certificate_error(request):
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = BAD_CERTIFICATE
    return error


def unsupported(request):
    return httpx.UnsupportedProtocol("no scheme")


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
    "a body": [],  # below
}
COLUMNS = [
    pytest.param(1, {"method": "GET"}, id="safe"),
    pytest.param(2, {"method": "POST"}, id="POST"),
    pytest.param(
        3, {"method": "POST", "headers": {"Idempotency-Key": "k-1"}}, id="POST with a key"
    ),
    pytest.param(3, {"method": "GET", "headers": {"Idempotency-Key": "k-1"}}, id="GET with a key"),
]


def attempts(step, **request):
    """Requests sent, and how the call ended, if ``step`` happens every time."""
    script = ScriptedTransport([step])
    transport = forbear.httpx.RetryTransport(script, clock=FakeClock(), random=lambda: 0.5)
    with httpx.Client(transport=transport) as client:
        try:
            client.request(url=ORDERS, **request)
        except (httpx.TransportError, ZeroDivisionError):
            return len(script.requests), "raised"
    return len(script.requests), "returned"


@pytest.mark.parametrize(("column", "request_"), COLUMNS)
@pytest.mark.parametrize("row", [row for row in HAPPENED if row != "a body"])
def test_what_is_retried_is_what_the_table_says(row, column, request_):
    """ "again" is four requests in all; "returned" and "raised" is one, and what the caller
    gets.
    """
    head, rows = table("what happened")
    assert set(head[1].split()) == RetryPolicy().methods
    (cells,) = [cells for cells in rows if cells[0].startswith(row)]
    said = cells[column].partition(":")[0]
    for step in HAPPENED[row]:
        sent, ended = attempts(step, **request_)
        if said == "again":
            assert sent == 4, step
        else:
            assert (sent, ended) == (1, said), step


def test_the_table_has_no_other_rows():
    _, rows = table("what happened")
    assert len(rows) == len(HAPPENED)
    assert {int(status) for status in rows[0][0].split(", ")} == RetryPolicy().statuses


def test_a_body_that_cannot_be_read_again_is_handed_over():
    for step, ended in ((503, "returned"), ("read_error", "raised")):
        assert attempts(step, method="PUT", content=iter([b"once"])) == (1, ended)


def test_the_budget_has_the_numbers_that_are_told():
    budget = RetryBudget()
    assert (
        f"A bucket starts with {budget.burst:g} tokens. Each call adds {budget.ratio:g}, each second\n"
        f"adds {budget.floor_per_second:g}, a retry takes 1, and one that the server itself scheduled takes"
        f" {budget.hinted_cost:g}."
    ) in README
    assert budget.scope == "origin"


@pytest.mark.parametrize(("headers", "times"), [({}, 1), ({"Retry-After": "1"}, 4)])
def test_retries_stay_below_the_share_of_the_first_screen(headers, times):
    """1,000 calls in one instant of an outage: 7 tokens and a tenth each, 107 retries at 1; at a
    quarter 428.
    """

    class Instant(FakeClock):
        def sleep(self, seconds):
            """Nothing comes back with time where none passes."""

    sent = []

    def down(request):
        sent.append(request)
        return httpx.Response(503, headers=headers)

    transport = forbear.httpx.RetryTransport(httpx.MockTransport(down), clock=Instant())
    with httpx.Client(transport=transport) as client:
        for _ in range(1000):
            client.get(ORDERS)
    assert 105 * times <= len(sent) - 1000 <= 107 * times
    words = "a tenth of your traffic plus one a second, per server, or four times that where the server itself says"
    assert words in " ".join(README.split())


def test_the_fleet_budget_has_the_numbers_that_are_told():
    fleet = RedisBudget("redis://localhost", name="orders")
    assert (
        f"retries ≤ {fleet.ratio:g} × calls + {fleet.floor_per_second:g} a second + a burst of {fleet.burst:g}."
        in README
    )
    assert f"waits longer than {fleet.connect_timeout + fleet.command_timeout:g} s for it" in README


def test_the_strategy_is_the_one_that_is_tested():
    tested = (ROOT / "tests" / "core" / "test_strategy_example.py").read_text(encoding="utf-8")
    (strategy,) = [text for _, text, _ in blocks("python") if "class TwoRetriesPerMinute" in text]
    (shown,) = re.findall(r"^class .*?(?=\n\n\n\w)", strategy, re.MULTILINE | re.DOTALL)
    assert f"\n\n\n{shown}\n\n\n" in tested


def numbers_aside(text):
    """A line without the figures that differ from run to run."""
    return re.sub(r"\d+\.\d+ s", "0 s", " ".join(text.split()))


def test_the_demo_prints_what_is_shown():
    out = io.StringIO()
    assert run(out, callers=[HttpxCaller("httpx")], scenes=SCENES[:4]) == 0
    (shown,) = [text for _, text, _ in blocks("text") if "The server executes it" in text]
    printed = numbers_aside(out.getvalue())
    for part in shown.split("\n\n"):
        assert numbers_aside(part) in printed


def test_the_note_on_an_exception_is_as_shown(wire, clock):
    (shown,) = [
        text
        for heading, text, _ in blocks("text")
        if heading == "Seeing it" and "forbear: " in text
    ]
    with httpx.Client(transport=forbear.httpx.RetryTransport(httpx.HTTPTransport())) as client:
        with pytest.raises(httpx.ReadError) as caught:
            client.post(ORDERS)
    (note,) = caught.value.__notes__
    assert numbers_aside(re.sub(r" in 0 s", " in 0.0 s", note)) in numbers_aside(shown)


# Commands that the README shows with what they print, and what is fed to them.
SHA256 = "c5164514fc81e85f5378da810f56af0c6a8d439b4cf0051c73df8e0215c8058d"  # of any 20 MB
SESSIONS = [
    ("$ forbear explain --max-attempts 3 --base 0.5 --jitter full --slo 6 --attempt-timeout 1", ""),
    (
        "$ curl -sI https://api.example.com/orders | forbear parse -",
        "HTTP/2 429\r\nretry-after: 16\r\nretry-after-ms: 15500\r\n\r\n",
    ),
]


@pytest.mark.parametrize(("line", "fed"), SESSIONS)
def test_a_session_prints_what_is_shown(line, fed, monkeypatch, capsys):
    """Part by part: the README leaves out some lines between them."""
    shown = README.partition(f"{line}\n```\n\n```text\n")[2].partition("```")[0]
    monkeypatch.setattr("sys.stdin", io.StringIO(fed))
    words = shlex.split(line.partition("forbear ")[2])
    assert command(words) == 0
    printed = capsys.readouterr().out
    assert len(shown.split("\n\n")) == 2
    for part in shown.strip().split("\n\n"):
        assert part in printed


def test_the_commands_are_those_that_ci_runs():
    """`.ci/run` takes the first and the last from here; each stands once, alone on its line."""
    commands = [line for _, text, _ in blocks("console") for line in text.splitlines()]
    assert commands == [
        "$ pip install '.[httpx,httpx2,requests,urllib3]' && forbear demo",
        "$ forbear simulate metastable --policies none,full,full+budget,forbear --plot storm.png",
        *(line for line, _ in SESSIONS),
        f"$ forbear get https://example.com/big.iso -o big.iso --sha256 {SHA256}",
        "$ pip install -e '.[dev]' && pytest --cov --cov-fail-under=95",
    ]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in ci


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_a_link_into_the_repository_leads_somewhere(target):
    assert (ROOT / target).exists()


HEADINGS = [line.lstrip("#").strip() for line in README.splitlines() if line.startswith("#")]


@pytest.mark.parametrize("anchor", sorted(set(re.findall(r"\]\(#([^)]+)\)", README))))
def test_a_link_within_the_page_leads_to_a_heading(anchor):
    """As GitHub names headings: lower case, no punctuation, a hyphen for each space."""
    assert anchor in {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADINGS
    }


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\[read\]\[([^\]]+)\]", README))))
def test_a_source_is_given(name):
    """A claim about another library names a file at a version or commit, and the lines."""
    (target,) = re.findall(rf"^\[{re.escape(name)}\]: (\S+)$", README, re.MULTILINE)
    assert re.fullmatch(
        r"https://github\.com/[\w-]+/[\w-]+/blob/([0-9a-f]{7}|[\d.]+)/\S+\.py#L\d+(-L\d+)?", target
    )


def test_every_section_of_the_first_screen_is_said():
    """The four clients, the way in for SDKs, and what is not there yet before anybody looks for
    it.
    """
    first_screen = README.partition("## ")[0]
    for words in (
        "httpx2",
        "openai",
        "requests",
        "urllib3",
        "github.Github(retry=Retry())",
        "aiohttp is not in 0.1",
    ):
        assert words in first_screen
    four = [text for heading, text, _ in blocks("python") if heading == "forbear"]
    imports = [
        "from forbear.httpx import",
        "from forbear.httpx2 import",
        "from forbear.requests import",
    ]
    imports.append("from forbear.urllib3 import")
    assert len(four) == len(imports)
    for text, line in zip(four, imports, strict=True):
        assert line in text
        assert len(text.splitlines()) <= 8


def test_the_question_of_all_questions_is_answered_early():
    """Within two screens, with the way to the table that proves it."""
    question = README.index("**Will this double-charge my customer?**")
    assert README.count("\n", 0, question) < 80
    answer = README[question:].partition("\n\n")[0]
    assert "(#what-is-retried-and-for-how-long)" in answer
    assert "(#posts-and-idempotency-keys)" in answer


def test_every_sdk_of_the_table_is_tested():
    """Its row is backed by a file in tests/sdk, and every such file has a row."""
    _, rows = table("SDK")
    named = {re.sub(r" \d.*", "", cells[0]).lower().replace("-", "_") for cells in rows}
    assert named == {
        path.stem.removeprefix("test_") for path in (ROOT / "tests" / "sdk").glob("test_*.py")
    }


def test_the_tuning_table_names_what_ships():
    """Alerts and recorded series stand in the rules; metrics in the table that both exporters are
    made from.
    """
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
