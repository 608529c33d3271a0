"""Every code block of README and documentation runs, as somebody would who types along.

The blocks of a page share their names, in order. A block with tests is a file of tests: it begins
with all that stands above it on its page.
"""

import gc
import importlib.util
import io
import re
from contextlib import redirect_stdout

import prometheus_client
import pytest

from .pages import PAGES, blocks, is_test, packages_of

# Of packages that only tests/sdk installs; its tests run these pages.
ELSEWHERE = {
    "stripe", "github", "kubernetes", "elasticsearch", "elastic_transport", "google",
    "huggingface_hub", "twilio", "mcp", "pydantic_ai",
}  # fmt: skip


CODE = {page: "".join(block.text for block in blocks(page, "python")) for page in PAGES}


def of_a_program(page):
    return [block for block in blocks(page, "python") if not is_test(block)]


def is_elsewhere(page):
    return bool(packages_of(CODE[page]) & ELSEWHERE)


HERE = [page for page in PAGES if not is_elsewhere(page)]
PROGRAMS = [page for page in HERE if of_a_program(page)]
TESTS = [page for page in HERE if any(is_test(block) for block in blocks(page, "python"))]


# A page leaves its clients open, as one who types along would.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", PROGRAMS)
def test_the_blocks_of_a_page_run(
    page, internet, fails_once, forbear_clock, monkeypatch, caplog, tmp_path
):
    """They print what their comments say, and no function that they give to forbear fails."""
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry())
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.chdir(tmp_path)  # some write files
    fails_once(PAGES[page])
    names = {"__name__": "page"}
    out = io.StringIO()
    for block in of_a_program(page):
        with redirect_stdout(out):
            exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)
    failed = [one for one in caplog.records if vars(one).get("forbear.event") == "hook_failed"]
    assert [one.getMessage() for one in failed] == []
    names.clear()
    gc.collect()  # what the page left open is closed here, and not beside another test
    printed = out.getvalue().splitlines()
    for block in of_a_program(page):
        for told in re.findall(r"print\(.*\)  # (.+)$", block.text, re.MULTILINE):
            assert told in printed, (page, told)


@pytest.mark.slow
def test_the_tests_of_the_pages_pass(run_readme_tests):
    """In a project that has forbear installed and nothing set; each block is a file of its own."""
    sources = []
    for page in TESTS:
        above = []
        for block in blocks(page, "python"):
            if is_test(block):
                sources.append("\n".join([f"# {page}", *above, block.text]))
            else:
                above.append(block.text)
    assert len(sources) >= len(TESTS) > 0
    passed = sum(len(re.findall(r"^def test_", source, re.MULTILINE)) for source in sources)
    run_readme_tests(sources, passed)


def test_every_block_is_run_somewhere():
    """A page whose packages are missing here is one of tests/sdk."""
    for page, code in CODE.items():
        if code and page not in {*PROGRAMS, *TESTS}:
            assert page.startswith("guides/sdks/"), page
    assert importlib.util.find_spec("openai")
    assert {"tutorial.md", "README.md", "guides/sdks/openai.md"} <= {*PROGRAMS, *TESTS}


def test_no_line_of_a_block_is_scrolled():
    lines = [line for text in CODE.values() for line in text.splitlines()]
    assert [line for line in lines if len(line) > 100] == []


def test_clients_are_wrapped():
    """httpx drops proxies, ``verify=`` and ``http2=`` beside a transport; one page says so."""
    by_hand = re.compile(r"transport=(Async)?RetryTransport\(")
    assert [page for page, text in CODE.items() if by_hand.search(text)] == ["guides/httpx.md"]
