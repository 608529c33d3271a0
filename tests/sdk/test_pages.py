"""The pages of the documentation about SDKs: their blocks run, and their tests pass.

Each page needs its SDK; the pages of those that are not installed here are left to run.py.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "guides" / "sdks"
PACKAGE = {  # that a page needs, where it has another name
    "pygithub": "github", "google-auth": "google.auth", "huggingface-hub": "huggingface_hub",
    "google-genai": "google.genai", "pydantic-ai": "pydantic_ai",
}  # fmt: skip


def is_here(page: str) -> bool:
    try:
        return importlib.util.find_spec(PACKAGE.get(page, page)) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def uses_httpx2() -> bool:
    """Pages show the newest releases, which build on httpx2."""
    return importlib.util.find_spec("httpx2") is not None


HERE = [
    path.stem
    for path in sorted(PAGES.glob("*.md"))
    if path.stem != "index" and is_here(path.stem) and uses_httpx2()
]


@pytest.mark.parametrize("page", HERE)
def test_a_page_runs(page, run_readme_tests):
    """In one file, with all that stands above the test; without a server for what is only built."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    tests = [block for block in found if re.search(r"^def test_", block, re.MULTILINE)]
    assert len(tests) == 1
    run_readme_tests(["\n".join(found)], 1)
