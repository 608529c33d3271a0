"""Names: what to write instead of a wrong client or a wrong name; loaded with the first of them."""

from __future__ import annotations

import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module

from ..core.checks import shown
from ..core.migration import translated
from ..core.policy import RetryPolicy
from ..engine.frames import warn

TAKES = {
    "forbear.httpx.wrap": "an httpx.Client or AsyncClient",
    "forbear.httpx2.wrap": "an httpx2.Client or AsyncClient",
    "forbear.aiohttp.wrap": "an aiohttp.ClientSession",
    "forbear.requests.mount": "a requests.Session",
}
# By library and class. None of them is imported: an object of theirs has been made already.
RIGHT = {
    **{
        (name, cls): f"forbear.{name}.wrap(client)"
        for name in ("httpx", "httpx2")
        for cls in ("Client", "AsyncClient")
    },
    ("aiohttp", "ClientSession"): "forbear.aiohttp.wrap(session)",
    ("requests", "Session"): "forbear.requests.mount(session)",
    ("urllib3", "PoolManager"): "forbear.urllib3.RetryPoolManager(policy) in its place",
}


def wrong_client(function: str, client: object) -> str:
    """Say what a function takes, and which one takes this client."""
    name = function.rpartition(".")[2]
    text = f"{name} takes {TAKES[function]}, got {shown(client)}"
    if isinstance(client, RetryPolicy):
        return f"{text}: write {name}({'client' if 'httpx' in function else 'session'}, {client!r})"
    right = right_for(client)
    return f"{text}: use {right}" if right else text


def right_for(client: object) -> str:
    for cls in type(client).__mro__:
        right = RIGHT.get((cls.__module__.partition(".")[0], cls.__name__))
        if right:
            return right
    return ""


# A name that is missing, and what has that part in httpx, httpx2, aiohttp, requests and urllib3.
CLIENTS = ("httpx", "httpx2", "aiohttp", "requests", "urllib3")
ROWS = (
    ("wrap mount retry",
        ("wrap(client)", "wrap(client)", "wrap(session)", "mount(session)",
            "RetryPoolManager(policy)")),
    ("RetryTransport AsyncRetryTransport RetryMiddleware RetryAdapter RetryPoolManager RetryClient"
        " RetrySession",
        ("RetryTransport", "RetryTransport", "RetryMiddleware", "RetryAdapter",
            "RetryPoolManager")),
    ("unwrap", ("unwrap(client)", "unwrap(client)", "unwrap(session)", "", "")),
    ("is_wrapped is_mounted",
        ("is_wrapped(client)", "is_wrapped(client)", "is_wrapped(session)", "is_mounted(session)",
            "")),
    ("classify", ("classify",) * 5),
)  # fmt: skip
PARTS = {name: codes for names, codes in ROWS for name in names.split()}
ELSEWHERE = {
    "FakeClock": "forbear.testing.FakeClock",
    "FaultServer": "forbear.testing.FaultServer",
    "RedisBudget": "forbear.redis.RedisBudget",
    "Retry": "forbear.RetryPolicy, or forbear.urllib3.Retry for a library that takes urllib3's",
    "RetryContextMiddleware": "forbear.asgi.RetryContextMiddleware or forbear.wsgi's",
    "RetryProxyManager": "forbear.urllib3.RetryProxyManager",
    "disabled": "forbear.testing.disabled()",
    "fast": "forbear.testing.fast()",
}
# There is none for what went wrong in the end, as other libraries have it.
OF_ERRORS = (
    "errors stay your client's own, such as httpx.ConnectError, with the attempts in"
    " forbear.record_of(error)"
)


def wrong_name(module: str, name: str) -> AttributeError | ImportError:
    """Return the error for a name that ``module`` lacks; to be raised by its ``__getattr__``."""
    right = right_name_for(module, name)
    if right and is_from_import():
        # Python would raise an ImportError of its own here, without the text of an AttributeError.
        return ImportError(f"cannot import name {name!r} from {module!r}: {right}", name=module)
    hint = f": {right}" if right else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def right_name_for(module: str, name: str) -> str:
    """Say what to write; empty if the name is nothing near."""
    if name.startswith("_"):  # Python asks for __path__ in each ``from … import``
        return ""
    top, _, client = module.partition(".")
    codes: dict[str, str] = dict(zip(CLIENTS, PARTS.get(name, ()), strict=False))
    if codes and not client:
        each = ", ".join(f"{top}.{one}.{code}" for one, code in codes.items() if code)
        return f"each client has its own: {each}"
    if codes.get(client):
        return f"write {module}.{codes[client]}"
    if name in ELSEWHERE:
        return f"write {ELSEWHERE[name]}"
    for place in "strategies", "events":
        if name in import_module(f"{top}.{place}").__all__:
            return f"write {top}.{place}.{name}"
    for place in module, top:
        for near in get_close_matches(name, sys.modules[place].__all__, 1, 0.85):
            return f"write {place}.{near}"
    return OF_ERRORS if name.endswith(("Error", "Exception")) else ""


def warn_of_retry(retry: object) -> None:
    """Warn that a Retry of httpx-retries on a request is ignored."""
    code = translated(retry)
    if code:
        # Where a filter makes it an error, it must not cost the caller a response.
        with suppress(Exception):
            warn(f'extensions["retry"] is ignored: write extensions={{"forbear": {code}}}')


def is_from_import() -> bool:
    """Is the name read by ``from … import``? ``hasattr`` and relatives need another error."""
    from opcode import opmap

    frame = sys._getframe(3)  # past wrong_name and __getattr__
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]
