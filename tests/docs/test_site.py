"""The site as it would be published: Zensical builds it, every link leads somewhere, search finds.

Zensical refuses missing pages, anchors, snippets and names; other links are followed here.
"""

import fcntl
import html
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

import pytest
import yaml

from ..real.conftest import binary
from .pages import DOCS, ROOT

MOST_PAGES = 75  # of the navigation

# What people type into the search, by the page that answers it: words of the field, of users who
# tried tasks from the pages and found another page, or none, and of public threads.
ANSWERED = {
    "guides/rate-limits/": "rate limit, per tenant",
    "how/waits/": (
        "exponential backoff, jitter, 429, thundering herd, stale connection, retry after, "
        "max_attempts, server disconnected, RemoteProtocolError, keep-alive"
    ),
    "how/hold-and-release/": "retry storm, load balancer",
    "how/deadlines/": "timeout",
    "guides/keys/": "idempotency key, idempotency, POST that got a 429",
    "guides/breaker/": "circuit breaker",
    "guides/testing/": "test without sleeping, test suite slow",
    "guides/sdks/openai/": "openai",
    "troubleshooting/": "why was it not retried, turn off, turn off retries, disable",
    "guides/httpx/": "proxy, async, trio, httpx-aiohttp",
    "guides/fleet/": "redis",
    "guides/metrics/": "opentelemetry, prometheus",
    "recipes/error-in-200/": "retry_if",
    "recipes/polling/": "retry until job is done",
    "guides/several-servers/": "failover",
    "recipes/token-refresh/": "sigv4",
    "recipes/frameworks/": "lambda, airflow, starlette",
    "recipes/webhooks/": "webhook",
    "recipes/overload/": "overload",
    "guides/downloads-and-uploads/": "progress bar",
    "guides/observing/": "callback, structlog",
    "what-you-let-in/": "private names, double charge",
    "recipes/many-urls/": "many urls, gather, parallel, thread pool, per host",
}
FIRST = {query: page for page, queries in ANSWERED.items() for query in queries.split(", ")}

# The search of the site is a worker of its browser; Node runs the very file that was built.
ASK = """
const fs = require("fs"), path = require("path"), site = process.argv[1];
const folder = path.join(site, "assets", "javascripts", "workers");
let heard;
globalThis.self = { postMessage: (message) => heard(message) };
require(path.join(folder, fs.readdirSync(folder).find((name) => name.startsWith("search."))));
const ask = (data) => new Promise((resolve) => { heard = resolve; self.onmessage({ data }); });
(async () => {
  const index = JSON.parse(fs.readFileSync(path.join(site, "search.json")));
  await ask({ type: 0, data: index });
  const found = {};
  for (const input of process.argv.slice(2)) {
    const { data } = await ask({ type: 2, data: { input } });
    found[input] = data.items.map((item) => index.items[item.id].location);
  }
  console.log(JSON.stringify(found));
})();
"""


class Links(HTMLParser):
    """The targets and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and tag in ("a", "img", "link", "script") and value:
                self.targets.append(value)
            if name == "id" and value:
                self.anchors.add(value)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built once a run: by the first worker that asks, while the others wait."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which all workers share
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder /= "site"
        if not (folder / "site").exists():
            build(folder)
    return folder / "site"


def build(folder):
    """From a copy: Zensical leaves a cache beside what it reads."""
    shutil.copytree(DOCS, folder / "docs")
    for name in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    (folder / "src").symlink_to(ROOT / "src")
    run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder)


def run(command, **options):
    """What it prints, and it succeeds."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.release
def test_every_link_leads_somewhere(site):
    pages = {
        path.parent.relative_to(site).as_posix(): Links(path) for path in site.rglob("index.html")
    }
    broken = []
    for page, links in pages.items():
        base = "/" if page == "." else f"/{page}/"
        for target in links.targets:
            if re.match(r"[a-z]+:", target):
                continue
            path, anchor = urldefrag(unquote(urljoin(base, target)))
            there = site / path.lstrip("/")
            is_there = (there / "index.html" if there.is_dir() else there).is_file()
            of = pages.get(path.strip("/") or ".")
            if not is_there or (anchor and of and anchor not in of.anchors | {"__skip"}):
                broken.append((page, target))
    assert len(pages) > 60
    assert broken == []


@pytest.mark.release
@pytest.mark.parametrize(("page", "shown"), [
    ("policy", "max_attempts: int = 5"), ("policy", "cap: float = 30.0"),
    ("policy", "hinted_statuses: AbstractSet[int] = frozenset()"),
    ("limits", "failure_rate: float | None = 0.5"), ("strategies", "capacity: float = 500"),
    ("clients", "policy: RetryPolicy | None = None"),
])  # fmt: skip
def test_the_reference_shows_types_and_defaults(site, page, shown):
    """Also where a decorator makes the constructor."""
    text = (site / "reference" / page / "index.html").read_text(encoding="utf-8")
    plain = " ".join(html.unescape(re.sub("<[^>]+>", "", text)).split())
    assert shown in plain


@pytest.mark.release
def test_nothing_is_fetched_from_elsewhere(site):
    """No font, script or picture: a reader's browser asks this site only."""
    text = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="https?://[^"]+', text) == []


@pytest.mark.release
def test_search_finds_the_right_page_first(site):
    found = json.loads(run([binary("node"), "-e", ASK, site, *FIRST]))
    first = {query: (hits or [""])[0].partition("#")[0] for query, hits in found.items()}
    assert first == FIRST
    assert not [hit for hits in found.values() for hit in hits if hit.startswith("changelog/")]


def entries(navigation):
    for entry in navigation:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from entries(value) if isinstance(value, list) else [value]


def test_the_navigation_is_short_and_leads_to_every_page():
    """So each page has a menu, and a way on."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = list(entries(yaml.safe_load(text)["nav"]))
    assert len(named) == len(set(named)) <= MOST_PAGES
    assert set(named) == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
