"""Add-ons can be deleted, and shared code does not name them."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import forbear
from forbear.addons.options import FamilyOptions, Options
from forbear.engine.settings import ADDONS, DEFAULTS

from .processes import python

ROOT = Path(forbear.__file__).parent
# What a feature of ``addons/`` is called, but not the errors and reasons of any limit or plug-in,
# the header of the draft, and what urllib3, httpx-retries and asyncio call their own.
NAMES = re.compile(
    r"breaker|circuit(?!_?open_?error)|budget|cooldown|pacing|paced|concurren"
    r"|\bslot(?!s=)|hedg|(?<!backoff_)strateg(?!y.failed)|\borigins\b(?! must)|\bresum(?!e_(parser|reading))"
    r"|event_streams|idempotency(?!-key)|contact|announce|incoming|retry_if|before_attempt|stop_outer",
    re.IGNORECASE,
)
# Lines of code that name one, in what all calls share. The numbers may only fall.
STILL_NAMED = {
    "engine/settings.py": 17,  # the one table of options, and which of them a policy's vendors need
    "core/outcome.py": 3,  # members of Reason, a closed set
    "adapters/urllib3/retry.py": 4,  # has no gate, so a budget of its own instead
    "adapters/names.py": 1,  # forbear.strategies, where a wrong name may be of
}


@pytest.mark.slow
@pytest.mark.parametrize("option", [option for option in ADDONS if option != "gate"])
def test_without_an_add_on_everything_else_works(option):
    """Its file and its line of the table deleted: all clients send, retry, refuse and give up."""
    here = str(Path(__file__).parent)
    code = f"sys.path.append({here!r})\nfrom taken_out import main\nmain({option!r})"
    assert python(code) == ""


def test_shared_code_names_no_add_on_but_in_the_table():
    found = Counter(
        path.relative_to(ROOT).as_posix()
        for folder in ("core", "engine", "limits", "adapters")
        for path in (ROOT / folder).rglob("*.py")
        for line in code_of(path.read_text(encoding="utf-8"))
        if NAMES.search(line)
    )
    assert not found - Counter(STILL_NAMED), "further lines name one"


def test_every_option_is_explained():
    """To type checkers and ``help()``; tests/docs holds the page to the same names."""
    assert {*Options.__annotations__, *FamilyOptions.__annotations__} == {*DEFAULTS, "prefetch"}


def code_of(text):
    """The lines of a module without comments and docstrings."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return lines
