"""Names: what to write instead of a wrong client or a wrong name; loaded with the first of them."""

from __future__ import annotations

import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module

from ..core.checks import shown
from ..core.migration import translated
from ..engine.frames import warn

# What makes the clients of a library retry, and what it takes.
WAYS_IN = {
    "httpx": ("wrap", "an httpx.Client or AsyncClient"),
    "httpx2": ("wrap", "an httpx2.Client or AsyncClient"),
    "aiohttp": ("wrap", "an aiohttp.ClientSession"),
    "requests": ("mount", "a requests.Session"),
    "urllib3": ("RetryPoolManager", ""),
}
CLIENTS = ("Client", "Session", "PoolManager")  # as other libraries name clients that retry
# There is none for what went wrong in the end, as other libraries have it.
OF_ERRORS = (
    "errors stay your client's own, such as httpx.ConnectError, with the attempts in"
    " forbear.record_of(error)"
)


def wrong_client(function: str, client: object) -> str:
    """Say what a function takes, and which one takes this client."""
    _, library, name = function.split(".")
    text = f"{name} takes {WAYS_IN[library][1]}, got {shown(client)}"
    for cls in type(client).__mro__:
        other = cls.__module__.partition(".")[0]
        if other in WAYS_IN and other != library:
            return f"{text}: use forbear.{other}.{WAYS_IN[other][0]}"
    return text


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
    top, _, library = module.partition(".")
    for place in (module, top, f"{top}.strategies", f"{top}.events"):
        for near in get_close_matches(name, import_module(place).__all__, 1, 0.85):
            return f"write {place}.{near}"
    if name == "Retry":
        return "write forbear.RetryPolicy"
    if name.endswith(("Error", "Exception")):
        return OF_ERRORS
    if name.startswith(("wrap", "mount", "retry", "Retry", "AsyncRetry")) or name.endswith(CLIENTS):
        libraries = [library] if library in WAYS_IN else WAYS_IN
        return f"write {' or '.join(f'{top}.{one}.{WAYS_IN[one][0]}' for one in libraries)}"
    return ""


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
