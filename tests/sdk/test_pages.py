"""The pages about SDKs that are installed: their blocks run, and their tests pass."""

import importlib.util
import re
from pathlib import Path

import pytest

from .conftest import is_here

PAGES = Path(__file__).parents[2] / "docs" / "guides" / "sdks"
HERE = [path.stem for path in sorted(PAGES.glob("*.md")) if is_here(path.stem)]
if importlib.util.find_spec("httpx2") is None:  # pages show the newest releases, which build on it
    HERE = []


@pytest.mark.parametrize("page", HERE)
def test_a_page_runs(page, run_readme_tests):
    """In one file, with all that stands above the test; without a server for what is only built."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    tests = [block for block in found if re.search(r"^def test_", block, re.MULTILINE)]
    assert len(tests) == 1
    run_readme_tests(["\n".join(found)], 1)
