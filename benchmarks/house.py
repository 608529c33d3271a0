"""House: how much of forbear a client loads, since what is loaded is what has to be audited.

    python benchmarks/house.py                  # print the figures
    python benchmarks/house.py --check          # 1 if a figure is above its bound
    python benchmarks/house.py --modules httpx  # print which modules one client loads, and when
    python benchmarks/house.py --page           # write the tables of docs/what-you-let-in.md, and
                                                # what docs/compared.md says of the same

Each client runs in a process of its own, with every option at its default, against a server on
loopback in this one. A code line is a line that is not blank, a comment or part of a docstring.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import json
import logging
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

# Not by importing it, which would be part of what is measured.
ROOT = Path((find_spec("forbear") or sys.exit("forbear is not installed")).origin or "").parent
Send: TypeAlias = Callable[..., object]

# What everybody meets; then what a client may meet, in an order in which each adds to those before.
# name: method, steps of the server, body, headers
USUAL: dict[str, tuple[str, tuple[str, ...], object, dict[str, str]]] = {
    "200": ("GET", ("200",), None, {}),
    "503, then 200": ("GET", ("503", "200"), None, {}),
    "refused, then 200": ("GET", (), None, {}),
}
MET: dict[str, tuple[str, tuple[str, ...], object, dict[str, str]]] = {
    "a large body": ("GET", ("200;body=200000",), None, {}),
    "a redirect": ("GET", ("302;header=Location:/arrived",), None, {}),
    "a streamed upload": ("PUT", ("200",), b"abc", {}),
    "a Retry-After": ("GET", ("503;retry-after=0", "200"), None, {}),
    "a quota header": ("GET", ("429;header=RateLimit:%22a%22%3Br=0%3Bt=0", "200"), None, {}),
    "a key": ("POST", ("503", "200"), None, {"Idempotency-Key": '"8e03978e"'}),
    "a reset": ("GET", ("reset", "200"), None, {}),
    "a small body that breaks": ("GET", ("cut:9", "200"), None, {}),
    "a large body that breaks": (
        "GET", ("reset-body:100000;body=200000;etag=a", "200;body=200000;etag=a"), None, {},
    ),
    "an event stream": ("GET", ("200;header=Content-Type:text/event-stream",), None, {}),
    "giving up, logged": ("GET", ("503;retry-after=3600",), None, {}),
}  # fmt: skip
# What the page calls it: how a client of httpx is given it.
OPTIONS = {
    "any option": "use(name='orders')",
    "`total_timeout`": "use(policy=forbear.RetryPolicy(total_timeout=9.0))",
    "`deadline`, `override`": "forbear.deadline(9.0).__enter__()",
    "`for_vendors`": "use(policy=forbear.RetryPolicy().for_vendors('openai'))",
    "`budget`": "use(budget=forbear.RetryBudget())",
    "`breaker`": "use(breaker=forbear.CircuitBreaker())",
    "`cooldown`": "use(cooldown='all')",
    "`origins`": "use(origins=forbear.Origins([server, server.replace('127.0.0.1', 'localhost')]))",
    "`concurrency`": "use(concurrency=forbear.ConcurrencyLimit())",
    "`pacing`": "use(pacing=forbear.Pacing())",
    "`hedge`": "use(hedge=forbear.Hedge())",
    "`strategy`": "use(strategy=forbear.strategies.AwsStandard())",
    "`idempotency`": "use(idempotency=forbear.IdempotencyKeys())",
    "`retry_if`": "use(retry_if=lambda response: None)",
    "`before_attempt`": "use(before_attempt=lambda request, attempt: None)",
    "`on_event`": "use(on_event=[lambda event: None])",
    "`body_buffer`": "use(body_buffer=1_000)",
    "`event_streams`": "use(event_streams=forbear.EventStreams())",
    "`contact`": "use(contact='ops@example.com')",
    "`announce_attempts`": "use(announce_attempts=True)",
    "`stop_outer_retries`": "use(stop_outer_retries=True)",
    "`forbear.telemetry.prometheus`": "import forbear.telemetry.prometheus",
    "`forbear.redis`": "import forbear.redis",
    "`forbear.asgi`": "import forbear.asgi",
}
PAGE = Path(__file__).parent.parent / "docs" / "what-you-let-in.md"
BEGIN, END = "<!-- made by benchmarks/house.py --page -->", "<!-- end -->"
# Ours, for things that have a name in the field (CONTRIBUTING: "How the code reads").
DIALECT = (
    r"octets?(?!-stream)|colours?|told|moved|unwell|beside|hears?|heard|take up|taken up|"
    r"mend(s|ed)?|punctual|hurried|opinion|floor:"
)
# What stands; each may only fall. A client's are modules and code lines, loaded by what is usual
# and in addition by all that it meets.
BOUNDS: dict[str, tuple[Any, Any]] = {  # name: (bound, goal)
    "httpx": ((34, 3_690), (34, 3_700)),
    "requests": ((33, 3_770), (34, 4_100)),
    "urllib3": ((33, 3_760), (34, 4_000)),
    "aiohttp": ((33, 3_430), (34, 3_600)),
    # A file that was always loaded is now two or three, met one by one.
    "httpx, by all it meets": ((54, 5_420), (48, 5_700)),
    "requests, by all it meets": ((51, 5_500), (48, 6_100)),
    "urllib3, by all it meets": ((51, 5_480), (48, 6_000)),
    "aiohttp, by all it meets": ((50, 5_020), (48, 5_600)),
    "src": (14_600, 15_000),
    "uses of Any": (138, 100),  # add-ons are given responses of any library, and calls of one
    "classes deeper than two": (0, 0),
    "private names": (24, 20),  # of other libraries
    "words of a dialect": (0, 0),
}


# Of one client, in a process of its own.


def httpx_client() -> Send:
    import httpx

    import forbear.httpx

    client = httpx.Client(follow_redirects=True, trust_env=False)
    forbear.httpx.wrap(client)

    def send(method: str, url: str, body: Any, headers: dict[str, str]) -> None:
        client.request(method, url, content=body, headers=headers)

    return send


def requests_client() -> Send:
    import requests

    import forbear.requests

    session = requests.Session()
    session.trust_env = False
    forbear.requests.mount(session)

    def send(method: str, url: str, body: Any, headers: dict[str, str]) -> None:
        session.request(method, url, data=body, headers=headers)

    return send


def urllib3_client() -> Send:
    import forbear.urllib3

    pool = forbear.urllib3.RetryPoolManager()

    def send(method: str, url: str, body: Any, headers: dict[str, str]) -> None:
        pool.request(method, url, body=body, headers=headers)

    return send


def aiohttp_client() -> Send:
    import aiohttp

    import forbear.aiohttp

    runner = asyncio.Runner()
    sessions: list[aiohttp.ClientSession] = []

    async def send(method: str, url: str, body: Any, headers: dict[str, str]) -> None:
        if not sessions:
            session = aiohttp.ClientSession()
            sessions.append(forbear.aiohttp.wrap(session))
        if body is not None:
            body = asynchronous(body)
        async with sessions[0].request(method, url, data=body, headers=headers) as response:
            await response.read()

    async def asynchronous(pieces: Iterator[bytes]) -> Any:
        for piece in pieces:
            yield piece

    return lambda *call: runner.run(send(*call))


CLIENTS = {
    "httpx": httpx_client,
    "requests": requests_client,
    "urllib3": urllib3_client,
    "aiohttp": aiohttp_client,
}


class Unreachable:
    """A port at which connections are refused, until the delay before a retry is drawn."""

    listener = socket.socket()

    @classmethod
    def listen(cls) -> float:
        """Stand in for ``random.random``."""
        if cls.listener.getsockname()[1] and not cls.listener.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        ):
            cls.listener.listen()
            threading.Thread(target=cls.respond, daemon=True).start()
        return 0.0

    @classmethod
    def respond(cls) -> None:
        connection, _ = cls.listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
            )


def load(client: str, server: str) -> dict[str, list[str]]:
    """Send all that is usual and all that is met; return the files that each step has loaded."""
    random.random = Unreachable.listen  # type: ignore[assignment]  # not by an option
    send, known = CLIENTS[client](), set[str]()
    loaded = {}
    for name, (method, steps, body, headers) in {**USUAL, **MET}.items():
        url = f"{server}/{client}/{name}".replace(" ", "_")
        if not steps:
            Unreachable.listener.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{Unreachable.listener.getsockname()[1]}/"
        if name == "giving up, logged":
            logging.basicConfig(level=logging.INFO, stream=io.StringIO())
        send(method, url, None if body is None else iter([body]), headers)
        loaded[name] = sorted(files() - known)
        known |= files()
    return loaded


def files() -> set[str]:
    """Return the files of forbear that this process has loaded."""
    return {
        str(module.__file__)
        for name, module in list(sys.modules.items())
        if f"{name}.".startswith("forbear.")
    }


def load_options(server: str) -> dict[str, list[str]]:
    """Return the files that each option loads beside those of a default client, sync and async."""
    random.random = lambda: 0.0  # type: ignore[assignment]
    send_with({}, f"{server}/options/-")
    asyncio.run(asend_with({}, f"{server}/options/--"))
    known, loaded = files(), {}
    for number, (name, code) in enumerate(OPTIONS.items()):
        reads, writes = os.pipe()
        if os.fork() == 0:
            with open(writes, "w", encoding="utf-8") as pipe:
                json.dump(sorted(files_with(code, server, number) - known), pipe)
            os._exit(0)
        os.close(writes)
        with open(reads, encoding="utf-8") as pipe:
            loaded[name] = json.load(pipe)
        os.wait()
    return loaded


def files_with(code: str, server: str, number: int) -> set[str]:
    """Make a client with an option and a call that is retried; return the files now loaded."""
    import forbear

    options: dict[str, Any] = {}
    exec(code, {"forbear": forbear, "server": server, "use": options.update})
    url = f"{server}/options/{number}"
    if "hedge" in options:
        asyncio.run(asend_with(options, url))
    else:
        send_with(options, url)
    return files()


def send_with(options: dict[str, Any], url: str) -> None:
    import httpx

    import forbear.httpx

    with httpx.Client(trust_env=False) as client:
        forbear.httpx.wrap(client, **options).get(url)


async def asend_with(options: dict[str, Any], url: str) -> None:
    import httpx

    import forbear.httpx

    async with httpx.AsyncClient(trust_env=False) as client:
        await forbear.httpx.wrap(client, **options).get(url)


# Of all of them.


def loads() -> dict[str, dict[str, list[Path]]]:
    """Return the files that each client loads, by what it meets."""
    from forbear.testing import FaultServer

    def loaded_by(client: str) -> dict[str, list[Path]]:
        paths = {
            f"/{client}/{name}".replace(" ", "_"): steps
            for name, (_, steps, *_) in {**USUAL, **MET}.items()
            if steps
        }
        for path, steps in paths.items():
            server.script(path, *steps)
        command = [sys.executable, __file__, "--load", client, server.url]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        for path, steps in paths.items():
            assert len(server.requests(path)) == len(steps), f"{path} was not met"
        files: dict[str, list[str]] = json.loads(done.stdout)
        return {name: list(map(Path, new)) for name, new in files.items()}

    with FaultServer() as server, ThreadPoolExecutor() as threads:
        server.script("/arrived", 200)
        return dict(zip(CLIENTS, threads.map(loaded_by, CLIENTS), strict=True))


def loads_of_options() -> dict[str, list[Path]]:
    """Return the files that each option loads beside those of a default client."""
    from forbear.testing import FaultServer

    with FaultServer() as server:
        for at in ("-", "--", *range(len(OPTIONS))):
            server.script(f"/options/{at}", 503, 200)
        command = [sys.executable, __file__, "--load-options", server.url]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return {name: list(map(Path, found)) for name, found in json.loads(done.stdout).items()}


def page() -> str:
    """Return the tables of docs/what-you-let-in.md, in round figures."""
    rows = ["| client | modules | code lines | with all it meets: modules | code lines |"]
    rows.append("| --- | ---: | ---: | ---: | ---: |")
    for client, loaded in loads().items():
        usual = size_of([path for name in USUAL for path in loaded[name]])
        everything = size_of([path for new in loaded.values() for path in new])
        cells = f"{usual[0]} | {rounded(usual[1])} | {everything[0]} | {rounded(everything[1])}"
        rows.append(f"| {client} | {cells} |")
    rows += ["", "| option | modules | code lines |", "| --- | ---: | ---: |"]
    options = loads_of_options()
    first = options["any option"]
    for option, paths in options.items():
        own = paths if paths is first else [path for path in paths if path not in first]
        modules, lines = size_of(own)
        rows.append(f"| {option} | {modules} | {rounded(lines)} |")
    found = source()
    rows += ["", "| all of it | |", "| --- | ---: |"]
    rows.append(f"| code lines of the package | {rounded(found['src'])} |")
    rows.append(f"| private names of other libraries | {found['private names']} |")
    rows.append("| dependencies | 0 |")
    return "\n".join(rows)


def rounded(lines: int) -> str:
    return f"{round(lines, -2 if lines >= 1_000 else -1):,}"


def code_lines(text: str) -> int:
    """Count the lines that are not blank, a comment or part of a docstring."""
    silent: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            silent.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and line.lstrip()[0] != "#" and number not in silent
        for number, line in enumerate(text.splitlines(), 1)
    )


def size_of(files: list[Path]) -> tuple[int, int]:
    """Return how many modules these are, and their code lines."""
    sizes = [code_lines(path.read_text(encoding="utf-8")) for path in files]
    return len(sizes), sum(sizes)


def source() -> dict[str, int]:
    """Figures of the source."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(ROOT.rglob("*.py"))
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    return {
        "src": sum(map(code_lines, texts.values())),
        "uses of Any": sum(
            isinstance(node, ast.Name) and node.id == "Any"
            for name, tree in trees.items()
            if not name.startswith(("cli/", "testing/"))
            for node in ast.walk(tree)
        ),
        "classes deeper than two": len(deep_classes(list(trees.values()))),
        # tests/test_floors.py compares this list with the code.
        "private names": len(
            re.findall(r"^    _\w+  +\S", texts["adapters/__init__.py"], re.MULTILINE)
        ),
        "words of a dialect": sum(
            len(re.findall(rf"\b({DIALECT})\b", text, re.IGNORECASE)) for text in texts.values()
        ),
    }


def deep_classes(trees: list[ast.Module]) -> list[str]:
    """Names of classes with more than two levels of our own above each other; no protocols."""
    bases = {
        node.name: [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and not any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    }

    def depth(name: str, seen: frozenset[str] = frozenset()) -> int:
        if name not in bases or name in seen:  # a library's; or one of the same name as its base
            return 0
        return 1 + max((depth(base, seen | {name}) for base in bases[name]), default=0)

    return sorted(name for name in bases if depth(name) > 2)


def figures(loaded: dict[str, dict[str, list[Path]]]) -> dict[str, Any]:
    """Return what the bounds hold."""
    found: dict[str, Any] = source()
    for client, files in loaded.items():
        usual = [path for name in USUAL for path in files[name]]
        found[client] = size_of(usual)
        everything = [path for new in files.values() for path in new]
        found[f"{client}, by all it meets"] = size_of(everything)
    return found


def above(found: Any, bound: Any) -> bool:
    if isinstance(found, tuple):
        return any(one > most for one, most in zip(found, bound, strict=True))
    return bool(found > bound)


def print_loads(loaded: dict[str, dict[str, list[Path]]]) -> None:
    print(f"{'modules and code lines loaded':30}" + "".join(f"{name:>14}" for name in loaded))
    for name in (*USUAL, *MET):
        sizes = [size_of(files[name]) for files in loaded.values()]
        cells = "".join(
            f"{number:>5} {lines:>8,}" if number else f"{'-':>14}" for number, lines in sizes
        )
        print(f"{'+ ' if name in MET else ''}{name:{28 if name in MET else 30}}{cells}")


def print_modules(files: dict[str, list[Path]]) -> None:
    for name, new in files.items():
        print(f"{name}: {len(new)} modules")
        for path in new:
            print(f"  {path.relative_to(ROOT.parent)!s:50} {size_of([path])[1]:>6,}")


def shown(figure: Any) -> str:
    return f"{figure[0]} / {figure[1]:,}" if isinstance(figure, tuple) else f"{figure:,}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="1 if a figure is above its bound")
    parser.add_argument("--modules", choices=CLIENTS, help="print the modules of one client")
    parser.add_argument("--page", action="store_true", help=f"write the tables of {PAGE.name}")
    parser.add_argument("--load", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--load-options", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load_options is not None:
        json.dump(load_options(given.load_options), sys.stdout)
        return 0
    if given.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        tables = page()
        PAGE.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}", encoding="utf-8")
        compared = PAGE.with_name("compared.md")
        text = compared.read_text(encoding="utf-8")
        for name in ("code lines", "private names of other libraries"):
            (figure,) = re.findall(rf"^\| {name}(?: of the package)? \| (\S+) \|$", tables, re.M)
            text = re.sub(rf"^(\| {name} \| )[\d,]+", rf"\g<1>{figure}", text, flags=re.M)
        compared.write_text(text, encoding="utf-8")
        return 0
    if given.load is not None:
        json.dump(load(*given.load), sys.stdout)
        return 0
    loaded = loads()
    if given.modules is not None:
        print_modules(loaded[given.modules])
        return 0
    print_loads(loaded)
    found = figures(loaded)
    too_high = [name for name, (bound, _) in BOUNDS.items() if above(found[name], bound)]
    print(f"\n{'':26} {'found':>15} {'bound':>15} {'goal':>15}")
    for name, (bound, goal) in BOUNDS.items():
        print(f"{name:26} {shown(found[name]):>15} {shown(bound):>15} {shown(goal):>15}")
    print(f"above the bound: {', '.join(too_high)}" if too_high else "no figure is above its bound")
    return bool(given.check and too_high)


if __name__ == "__main__":
    sys.exit(main())
