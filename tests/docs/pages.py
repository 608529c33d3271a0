"""Pages: README and documentation as tests read them."""

import ast
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
for path in sorted(DOCS.rglob("*.md")):
    PAGES[path.relative_to(DOCS).as_posix()] = path.read_text(encoding="utf-8")
EVERYTHING = "\n".join(PAGES.values())


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    text: str
    line: int  # of the page, where the text begins


def blocks(page: str, language: str = "") -> list[Block]:
    """The blocks of a page, of one language or of all; also those inside tabs."""
    text = PAGES[page]
    found = re.finditer(r"^( *)```(\w+)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(one[2], textwrap.dedent(one[3]), text.count("\n", 0, one.start(3)) + 1)
        for one in found
        if language in ("", one[2])
    ]


def is_test(block: Block) -> bool:
    return bool(re.search(r"^def test_", block.text, re.MULTILINE))


def packages_of(source: str) -> set[str]:
    """The packages that a source imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def table(page: str, first_cell: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the tables whose first head cell is this, each a list of cells."""
    found = []
    is_here = False
    for line in PAGES[page].splitlines():
        is_here = line.startswith("|") and (is_here or line.startswith(f"| {first_cell} |"))
        if is_here:
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))])
    head = found[0]
    return head, [cells for cells in found if cells != head and not cells[0].startswith("---")]


def section(page: str, heading: str) -> str:
    """The text under a heading of the second level."""
    return PAGES[page].partition(f"## {heading}\n")[2].partition("\n## ")[0]
