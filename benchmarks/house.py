"""House: how large the source is, how it is built, and how far one retried call travels through it.

    python benchmarks/house.py            # print the figures
    python benchmarks/house.py --check    # 1 if a figure is above its bound

The source is counted with ``ast``, a call with ``sys.setprofile``: one GET that gets 503 and then
200 from a server on loopback, as the functions of forbear that run, the files that they are in, and
how often a call goes from one file to another.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import forbear
from forbear.testing import FaultServer

ROOT = Path(forbear.__file__).parent
TESTS = Path(__file__).parents[1] / "tests"
# Ours, for things that have a name in the field (CONTRIBUTING: "How the code reads").
DIALECT = (
    r"octets?|colours?|told|moved|unwell|beside|hears?|heard|take up|taken up|mend(s|ed)?|punctual|"
    r"hurried|opinion|floor:"
)
# What stands; each may only fall. The goals are those of a house that one person reads in a day.
BOUNDS = {  # name: (bound, goal)
    "files": (95, 95),
    # The types of the port, the limits and the events cost 800, the usual retry and its speed 190.
    # Streams of events cost 1,300: the parser and the vendors' rows 500, each library 100 to 280.
    # Concurrency and pacing cost 1,350: 800 in their files, 150 for the quotas of good responses,
    # 200 in the adapters, which have to see a body's end. What adversarial servers then found wrong
    # with both cost 110 in src, and their tests 400.
    "lines": (29_589, 22_500),
    "lines without cli and testing": (26_277, 18_500),
    "longest file": (635, 600),
    "lines of tests": (45_240, 38_000),
    "uses of Any": (270, 300),
    "classes deeper than two": (6, 6),
    "private modules with __all__": (0, 0),
    "words of a dialect": (10, 20),
    "httpx": ((43, 16, 39), (45, 10, 26)),
    "httpx async": ((62, 16, 51), (60, 11, 34)),
    "requests": ((78, 16, 53), (60, 12, 34)),
    "urllib3": ((88, 16, 60), (60, 12, 34)),
    "aiohttp": ((46, 15, 40), (50, 11, 28)),
}
PUBLIC = re.compile(
    r"(aiohttp|asgi|errors|httpx2?|idempotency|pytest_plugin|redis|requests|urllib3|wsgi)\.py"
    r"|(.*/)?__init__\.py|telemetry/(otel|prometheus)\.py"
)


def source() -> dict[str, int]:
    """Figures of the source."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(ROOT.rglob("*.py"))
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    sizes = {name: text.count("\n") for name, text in texts.items()}
    trunk = [name for name in texts if not name.startswith(("cli/", "testing/"))]
    return {
        "files": len(texts),
        "lines": sum(sizes.values()),
        "lines without cli and testing": sum(sizes[name] for name in trunk),
        "longest file": max(sizes.values()),
        "lines of tests": sum(
            path.read_text(encoding="utf-8").count("\n") for path in TESTS.rglob("*.py")
        ),
        "uses of Any": sum(
            isinstance(node, ast.Name) and node.id == "Any"
            for name in trunk
            for node in ast.walk(trees[name])
        ),
        "classes deeper than two": len(deep_classes(list(trees.values()))),
        "private modules with __all__": sum(
            not PUBLIC.fullmatch(name)
            and any(isinstance(n, ast.Name) and n.id == "__all__" for n in ast.walk(tree))
            for name, tree in trees.items()
        ),
        "words of a dialect": sum(
            len(re.findall(rf"\b({DIALECT})\b", text, re.IGNORECASE)) for text in texts.values()
        ),
    }


def deep_classes(trees: list[ast.Module]) -> list[str]:
    """Names of classes with more than two levels of our own above each other."""
    bases = {
        node.name: [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def depth(name: str, seen: frozenset[str] = frozenset()) -> int:
        if name not in bases or name in seen:  # a library's; or one of the same name as its base
            return 0
        return 1 + max((depth(base, seen | {name}) for base in bases[name]), default=0)

    return sorted(name for name in bases if depth(name) > 2)


def travelled(send: Callable[[], Any]) -> tuple[int, int, int]:
    """Functions of forbear in one call, their files, and changes from one file to another."""
    entered: list[str] = []

    def profile(frame: Any, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(ROOT)) and f"{ROOT}/testing" not in file:
            entered.append(file)

    sys.setprofile(profile)
    try:
        send()
    finally:
        sys.setprofile(None)
    changes = sum(first != second for first, second in pairwise(entered))
    return len(entered), len(set(entered)), changes


def calls() -> dict[str, tuple[int, int, int]]:
    """What a GET that gets 503 and then 200 travels, by client; each has sent one before."""
    import httpx
    import requests

    import forbear.aiohttp
    import forbear.httpx
    import forbear.requests
    import forbear.urllib3

    # The wait is what it is by default, but nobody waits for it.
    options: dict[str, Any] = {"random": lambda: 0.0}
    found = {}
    with FaultServer() as server:

        def twice(send: Callable[[], Any]) -> tuple[int, int, int]:
            for _ in range(2):
                server.script("/", "503", "200")
                travel = travelled(send)
            return travel

        with httpx.Client(transport=forbear.httpx.RetryTransport(**options)) as client:
            found["httpx"] = twice(lambda: client.get(server.url))
        with requests.Session() as session:
            forbear.requests.mount(session, **options)
            found["requests"] = twice(lambda: session.get(server.url))
        pool = forbear.urllib3.RetryPoolManager(**options)
        found["urllib3"] = twice(lambda: pool.request("GET", server.url))
        pool.clear()

        with asyncio.Runner() as runner:
            transport = forbear.httpx.AsyncRetryTransport(**options)
            async_client = httpx.AsyncClient(transport=transport)
            found["httpx async"] = twice(lambda: runner.run(async_client.get(server.url)))
            runner.run(async_client.aclose())

            async def opened() -> Any:
                import aiohttp

                return aiohttp.ClientSession(
                    middlewares=[forbear.aiohttp.RetryMiddleware(**options)]
                )

            async def get(session: Any) -> None:
                async with session.get(server.url) as response:
                    await response.read()

            aiohttp_session = runner.run(opened())
            found["aiohttp"] = twice(lambda: runner.run(get(aiohttp_session)))
            runner.run(aiohttp_session.close())
    return found


def above(found: int | tuple[int, ...], bound: int | tuple[int, ...]) -> bool:
    if isinstance(found, int) or isinstance(bound, int):
        return found > bound  # type: ignore[operator]
    return any(one > most for one, most in zip(found, bound, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="1 if a figure is above its bound")
    check = parser.parse_args().check
    found: dict[str, Any] = {**source(), **calls()}
    too_high = [name for name, (bound, _) in BOUNDS.items() if above(found[name], bound)]
    width = max(map(len, BOUNDS))
    print(f"{'':{width}} {'found':>15} {'bound':>15} {'goal':>15}")
    for name, (bound, goal) in BOUNDS.items():
        cells = [
            " / ".join(map(str, one)) if isinstance(one, tuple) else f"{one:,}"
            for one in (found[name], bound, goal)
        ]
        print(f"{name:{width}} {cells[0]:>15} {cells[1]:>15} {cells[2]:>15}")
    print(f"above the bound: {', '.join(too_high)}" if too_high else "no figure is above its bound")
    return bool(check and too_high)


if __name__ == "__main__":
    sys.exit(main())
