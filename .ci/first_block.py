"""Run the first Python block of a page against a server that answers 503 first.

    python -I .ci/first_block.py README.md

So a release can be tried where nothing is installed but forbear and a client.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from forbear.testing import FaultServer, fast


def main(page: str) -> None:
    text = Path(page).read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None, f"{page} has no Python block"
    with FaultServer() as server, fast():
        server.script("/orders", 503, 200)
        names: dict[str, object] = {}
        exec(block[1].replace("https://api.example.com", server.url), names)
        sent = len(server.requests("/orders"))
    assert sent == 2, f"{sent} requests arrived"
    version = sys.version.partition(" ")[0]
    print(f"the first block of {page} runs on Python {version}: a 503, then a 200")


main(sys.argv[1])
