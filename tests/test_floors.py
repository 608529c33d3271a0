"""The house: three floors, and every import points down.

Walks the syntax trees of the installed package, imports inside functions included; only what stands
under ``if TYPE_CHECKING`` is not run and does not count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forbear

ROOT = Path(forbear.__file__).parent

# A module may import what has a lower number, and its neighbours as long as nothing goes round.
HEIGHTS = {
    "forbear.errors": 0,
    "forbear.core": 1,
    "forbear.shared": 2,
    "forbear.drive": 3,
    "forbear.sending.clock": 3,
    "forbear.sending.context": 3,
    "forbear.idempotency": 3,
    "forbear.telemetry": 3,
    "forbear._rehearsal": 3,
    "forbear._*": 4,  # what all adapters share
    "forbear._*_family": 5,  # what those of one family share
    "forbear.httpx": 6,
    "forbear.httpx2": 6,
    "forbear.redis": 6,
    "forbear.requests": 6,
    "forbear.urllib3": 6,
    "forbear.asgi": 6,
    "forbear.wsgi": 6,
    "forbear.testing": 7,
    "forbear.tools.simulation": 7,
    "forbear.pytest_plugin": 8,
    "forbear.tools.cli": 8,
    "forbear.__main__": 9,
    "forbear": 10,
}
FLOORS = {"forbear.core": "decides", "forbear.shared": "remembers"}  # all else acts

# A module that imports a third-party package is named after it. These are not, and say why here:
ELSEWHERE = {
    # One asynchronous sleep for asyncio and trio; httpx needs anyio anyway.
    "forbear.sending.clock": {"anyio"},
    # What makes it a plugin of pytest; loaded by pytest only.
    "forbear.pytest_plugin": {"pytest"},
    "forbear.testing.clock": {"anyio"},
    # A renewal in a thread, for both event loops, cut at the deadline.
    "forbear.drive": {"anyio"},
    # The cut behind a deadline, which only anyio's cancel scope can make on both event loops.
    "forbear.adapters": {"anyio"},
    # requests is a face of urllib3, and hands its classes through.
    "forbear.requests": {"urllib3"},
    # It builds what requests and urllib3 would raise and answer.
    "forbear.testing.scripted": {"requests", "urllib3"},
    # Pictures, and nothing else of the simulation, need it; the file is named after what it does.
    "forbear.tools.simulation.plot": {"matplotlib"},
    # The listeners that count and trace are named as their users call what they are for.
    "forbear.telemetry.prometheus": {"prometheus_client"},
    "forbear.telemetry.otel": {"opentelemetry"},
    # Tables on a terminal; the file is named after what all commands print through.
    "forbear.tools.cli.page": {"rich"},
    "forbear.tools.cli.progress": {"rich"},
    # contact= is checked by email-validator, an extra of its own.
    "forbear._retrying": {"email_validator"},
}

# What would make a decision depend on more than its arguments.
IMPURE = {
    "asyncio", "concurrent", "contextvars", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "queue",
    "random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid", "warnings", "zoneinfo", "_thread",
}  # fmt: skip
ALLOWED = {
    # A plain lock without the cost of importing threading, and its renewal after a fork.
    "forbear.shared.locks": {"_thread", "os"},
    # The default of ``random=`` for who builds a strategy by hand; everything else is passed in.
    "forbear.shared.aws": {"random"},
    "forbear.shared.standard": {"random"},
}
IMPURE_CALLS = {
    "sleep", "asleep", "monotonic", "monotonic_ns", "time", "time_ns", "perf_counter", "utcnow", "today",
    "open", "print", "input", "eval", "exec", "getenv", "urandom", "getLogger", "uuid4",
}  # fmt: skip


def name_of(path: Path) -> str:
    parts = ["forbear", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that is run, which leaves out what only type checkers read."""
    yield node
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and is_type_checking(node.test):
        children = list(node.orelse)
    for child in children:
        yield from run_nodes(child)


def imported_by(name: str) -> set[str]:
    """Full names of the modules that a module imports, anywhere in it."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in run_nodes(TREES[name]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in MODULES else base)
    return found


IMPORTS = {name: imported_by(name) for name in MODULES}


def inside(name: str) -> set[str]:
    return {imported for imported in IMPORTS[name] if imported.partition(".")[0] == "forbear"}


def outside(name: str) -> set[str]:
    return {imported.partition(".")[0] for imported in IMPORTS[name]} - {"forbear", "__future__"}


def place(name: str) -> str:
    """The line of HEIGHTS that a module comes under."""
    top = ".".join(name.split(".")[:2])
    if top.startswith("forbear._") and top not in HEIGHTS:
        return "forbear._*_family" if top.endswith("_family") else "forbear._*"
    return top


def height(name: str) -> int:
    return HEIGHTS[place(name)]


def floor(name: str) -> str:
    return next(
        (floor for top, floor in FLOORS.items() if name == top or name.startswith(f"{top}.")),
        "acts",
    )


LOWER = [name for name in MODULES if floor(name) != "acts"]
CORE = [name for name in MODULES if floor(name) == "decides"]


# --- the walk itself --------------------------------------------------------------------------


def test_the_walk_sees_imports() -> None:
    """A walk that found nothing would find no fault either."""
    assert {"core.call", "core.policy", "shared.budget", "drive", "httpx", "httpx2"} <= {
        name.partition(".")[2] for name in MODULES
    }
    assert "forbear.core.headers.hints" in IMPORTS["forbear.core.call"]
    assert "forbear.errors" in IMPORTS["forbear.httpx"]  # from . import errors
    assert "forbear.adapters.httpx_transport" in IMPORTS["forbear.httpx"]
    assert "forbear.policy_tools.presets" in IMPORTS["forbear.core.policy"]  # inside a function
    assert "forbear.core.policy" not in IMPORTS["forbear.core.call"]  # for type checkers only
    assert "anyio" in IMPORTS["forbear.sending.clock"]


def test_every_module_has_its_place() -> None:
    """A new module is given a place before it is given a name."""
    for name in MODULES:
        assert place(name) in HEIGHTS, f"say in HEIGHTS how high {place(name)} stands"


# --- the rules --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_down(name: str) -> None:
    """httpx → family → drive → shared → core → errors, and never up."""
    above = {imported for imported in inside(name) if height(imported) > height(name)}
    assert not above, f"{name} imports {above} from a floor above"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_nothing_inside_imports_the_lazy_front_door(name: str) -> None:
    """``from forbear import …`` inside would load what ``import forbear`` puts off."""
    if height(name) < HEIGHTS["forbear.testing"]:
        assert "forbear" not in inside(name)


def test_imports_do_not_go_round() -> None:
    """No cycle, also none that an import inside a function hides."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name in done:
            return
        for imported in sorted(inside(name) & set(MODULES)):
            if not name.startswith(f"{imported}."):  # a package is there before its modules
                visit(imported, (*path, name))
        done.add(name)

    for name in MODULES:
        visit(name, ())
    assert done == set(MODULES)


@pytest.mark.parametrize("name", LOWER)
def test_core_and_shared_import_only_the_standard_library(name: str) -> None:
    assert outside(name) <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", LOWER)
def test_core_and_shared_import_nothing_impure(name: str) -> None:
    """No clock, no randomness, no I/O, no lock, no event loop; the two exceptions are told
    above.
    """
    assert outside(name) & IMPURE <= ALLOWED.get(name, set())


def test_the_exceptions_are_in_use() -> None:
    for top, allowed in [*ALLOWED.items(), *ELSEWHERE.items()]:
        used = [outside(name) for name in MODULES if name == top or name.startswith(f"{top}.")]
        if used:
            assert allowed <= set().union(*used), top


@pytest.mark.parametrize("name", LOWER)
def test_core_and_shared_read_no_clock_and_do_not_sleep(name: str) -> None:
    """``now`` comes in as an argument."""
    called = {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in run_nodes(TREES[name])
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    }
    assert not called & IMPURE_CALLS


@pytest.mark.parametrize("name", LOWER)
def test_a_decision_is_never_async(name: str) -> None:
    coloured = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not [node for node in ast.walk(TREES[name]) if isinstance(node, coloured)]


@pytest.mark.parametrize("name", CORE)
def test_core_holds_no_lock(name: str) -> None:
    assert not [node for node in run_nodes(TREES[name]) if isinstance(node, ast.With)]


@pytest.mark.parametrize("name", [name for name in MODULES if floor(name) == "acts"])
def test_a_module_that_plugs_into_a_package_is_named_after_it(name: str) -> None:
    """So that what is needed to use it can be read off its name."""
    third_party = outside(name) - set(sys.stdlib_module_names)
    named_after = {part.removeprefix("_").removesuffix("_family") for part in name.split(".")[1:]}
    allowed = ELSEWHERE.get(name, set()) | ELSEWHERE.get(name.rpartition(".")[0], set())
    assert third_party <= named_after | allowed


@pytest.mark.parametrize(
    "name", [name for name in MODULES if height(name) < HEIGHTS["forbear.testing"]]
)
def test_only_the_clock_reads_time_and_sleeps(name: str) -> None:
    """Everything that acts is given a clock, so that a FakeClock makes all of it instant."""
    if name == "forbear.sending.clock":
        return
    assert "time" not in outside(name)
    asked = [
        node.func.value
        for node in run_nodes(TREES[name])
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("sleep", "asleep", "monotonic")
    ]
    names = {node.attr if isinstance(node, ast.Attribute) else ast.unparse(node) for node in asked}
    assert names <= {"clock", "_clock", "sleeper", "_sleeper", "SYSTEM_CLOCK"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_says_which_floor_it_is_on(name: str) -> None:
    """The first thing a reader learns of a file."""
    text = ast.get_docstring(TREES[name])
    assert text, f"{name} has no docstring"
    said = re.search(r"Floor: (\w+)", text)
    if said is not None:
        assert said[1] == floor(name)
    else:
        assert MODULES[name].name == "__init__.py" or name == "forbear.errors"
