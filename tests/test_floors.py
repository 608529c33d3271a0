"""The house: four floors, imports that point down, and nobody in another object's private rooms.

Every rule walks the syntax trees of the installed package, what stands under TYPE_CHECKING and
inside functions included, and names each fault by file and line.
"""

import ast
import importlib
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import forbear
import forbear.adapters

ROOT = Path(forbear.__file__).parent

# Lower imports nothing higher; neighbours may import each other as long as nothing goes round.
# The last are __main__ and forbear.
HEIGHTS = [
    ("errors", "core"),
    ("limits", "idempotency", "records"),
    ("engine",),
    ("addons", "events", "telemetry"),
    ("adapters",),
    ("aiohttp", "httpx", "httpx2", "requests", "urllib3", "redis", "asgi", "wsgi", "strategies"),
    ("testing",),
    ("pytest_plugin",),
    ("cli",),
    ("__main__", ""),
]

# A module that imports a third-party package has the package's name in its own, or stands here.
IMPORTERS = {
    "anyio": r"(engine|adapters|testing)\..*|addons\.hedge",  # for asyncio and trio; httpx needs it anyway
    "email_validator": r"addons\.contact",  # contact=
    "yarl": r"adapters\.aiohttp\.port",  # whose URL aiohttp hands through
    "urllib3": r"requests|adapters\.urllib3\.requests|testing\.scripted",  # requests hands its classes through
    "requests": r"testing\.scripted",
    "pytest": r"pytest_plugin",
    "prometheus_client": r"telemetry\.prometheus",
    "opentelemetry": r"telemetry\.otel",
}
# What would make a decision depend on more than its arguments, and who may use it all the same.
IMPURE = (
    "asyncio|concurrent|contextvars|datetime|io|logging|multiprocessing|os|pathlib|queue|random|"
    "secrets|select|selectors|signal|socket|ssl|subprocess|sys|tempfile|threading|time|urllib|uuid|"
    "warnings|zoneinfo|_thread"
)
IMPURE_CALLS = (
    r"(.*\.)?(sleep|asleep|monotonic|monotonic_ns|time|time_ns|perf_counter|utcnow|today|open|"
    "print|input|eval|exec|getenv|urandom|getLogger|uuid4)"
)
ALLOWED = {
    ("limits", "_thread"),  # a plain lock without the cost of importing threading,
    ("limits", "os"),  # and its renewal after a fork
    ("core.environment", "os"),  # reads variables when from_env is called, and then only
    ("core.headers.dates", "datetime"),  # counts days with it; today() is an impure call
    ("addons.aws", "random"),  # the default of random= for who builds a strategy by hand
    ("limits.limits", "random"),
}
# Public, though the name begins with an underscore.
LIBRARIES = r"(aiohttp|httpx2?|httpcore2?|http|requests|urllib3)\b"
DOCUMENTED = {"_asdict", "_replace", "_make", "_fields", "_field_defaults", "_getframe"}

FILES = {}  # by the module's name without "forbear."
for path in sorted(ROOT.rglob("*.py")):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    FILES[name.removesuffix("__init__").rstrip(".")] = path
# Add-ons that act: they send, read bodies, call functions of the user's, or import what checks an
# address.
ACTING = r"addons\.(contact|event_streams|hedge|hooks|concurrency|incoming|inspection|resume)"
PURE = [
    name
    for name in FILES
    if re.match(r"(core|limits|addons|records)\b", name) and not re.fullmatch(ACTING, name)
]
NODES = {}  # of each syntax tree
INSIDE = []  # importer, line, what it imports of forbear
OUTSIDE = []  # and of others


@pytest.fixture(scope="module", autouse=True)
def source():
    """Read it here and not at the import: that happens in every process that collects tests."""
    for name, path in FILES.items():
        NODES[name] = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    for name in FILES:
        for line, full in imported_by(name):
            top, _, rest = full.partition(".")
            found, what = (INSIDE, rest) if top == "forbear" else (OUTSIDE, top)
            found.append((name, line, what))


def imported_by(name):
    """Line and full name of each module that a module imports, anywhere in it."""
    found = set()
    here = ["forbear", *name.split(".")] if name else ["forbear"]
    package = here if FILES[name].name == "__init__.py" else here[:-1]
    for node in NODES[name]:
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add((node.lineno, inner if inner.removeprefix("forbear.") in FILES else base))
    return sorted(found)


def height(name):
    top = name.partition(".")[0]
    return next((number for number, tops in enumerate(HEIGHTS) if top in tops), -1)


def none_of(faults):
    """Fail with a line for each fault: module, line, what is wrong there."""
    told = [f"{FILES[name].relative_to(ROOT.parent)}:{line}: {what}" for name, line, what in faults]
    if told:
        pytest.fail("\n".join([f"{len(told)} faults", *told]), pytrace=False)


@pytest.mark.slow
def test_the_walk_sees_imports():
    """A walk that found nothing would find no fault either."""
    pairs = {(name, imported) for name, _, imported in INSIDE + OUTSIDE}
    assert ("core.call", "core.outcome") in pairs
    assert ("httpx", "errors") in pairs  # from . import errors
    assert ("engine.tasks", "anyio") in pairs  # in a function
    none_of((name, 1, "has no place in HEIGHTS") for name in FILES if height(name) < 0)


def test_imports_point_down():
    none_of(
        (name, line, f"imports {imported or 'forbear'}, which stands higher")
        for name, line, imported in INSIDE
        if height(imported) > height(name)
    )


def test_imports_do_not_go_round():
    """No module reaches itself, not even for types: what a part sees of its port is in engine/port.py."""
    graph = {name: set() for name in FILES}
    for name, _, imported in INSIDE:
        # A package is there before its modules, so that a module may import from its own.
        if not f"{name}.".startswith(f"{imported}."):
            graph[name].add(imported)
    TopologicalSorter(graph).prepare()  # a CycleError names the ring


def test_a_module_that_needs_a_package_is_named_after_it():
    """So that what is needed to use it can be read off its name; core and limits need nothing."""
    none_of(
        (name, line, f"imports {package}")
        for name, line, package in OUTSIDE
        if package
        not in {*sys.stdlib_module_names, "__future__", "_typeshed", *re.split(r"[._]", name)}
        and (name in PURE or not re.fullmatch(IMPORTERS.get(package, ""), name))
    )


def test_core_and_limits_depend_on_their_arguments_alone_and_only_the_clock_sleeps():
    """No clock, randomness, I/O or event loop, nothing asynchronous; and no lock in core."""
    asynchronous = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    none_of(
        (name, line, f"imports {package}")
        for name, line, package in OUTSIDE
        if name in PURE and re.fullmatch(IMPURE, package) and (name, package) not in ALLOWED
    )
    none_of(
        (name, node.lineno, ast.unparse(node).partition("\n")[0])
        for name in PURE
        for node in NODES[name]
        if isinstance(node, asynchronous)
        or (isinstance(node, ast.With) and name.startswith("core"))
        or (isinstance(node, ast.Call) and re.fullmatch(IMPURE_CALLS, ast.unparse(node.func)))
    )
    # Everything else that acts is given a clock, so that a FakeClock makes all of it instant.
    none_of(
        (name, line, "imports time")
        for name, line, package in OUTSIDE
        if package == "time" and name != "engine.clock" and height(name) < height("testing")
    )


PRIVATE = r"_(?!_)|__class__"  # other names with two underscores are the language's
OURS = ("self", "cls", "super()", "type(self)")


def private_names(name):
    """Line, name and text of each `x._name`, of getattr() and its like with such a name, of each
    import of one, and of what changes a class.

    What `self` and `cls` have is left out.
    """
    found = []
    for node in NODES[name]:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in OURS:
            if node.attr != "__class__" or isinstance(node.ctx, ast.Store):
                found.append((node.lineno, node.attr, ast.unparse(node)))
        elif isinstance(node, ast.Call) and re.fullmatch(
            "(get|has|set|del)attr|attrgetter|object.__setattr__", ast.unparse(node.func)
        ):
            named = node.args[-1 if ast.unparse(node.func) == "attrgetter" else 1]
            text = ast.literal_eval(named) if isinstance(named, ast.Constant) else ""
            if ast.unparse(node.args[0]) not in OURS:
                found.append((node.lineno, text, ast.unparse(node)))
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            found += [(node.lineno, alias.name, ast.unparse(node)) for alias in node.names]
    return sorted(hit for hit in found if re.match(PRIVATE, hit[1]) and hit[1] not in DOCUMENTED)


def inherited_private_names():
    """Private names of libraries that classes of ours override, or have from a base."""
    defined, found = set(), set()
    for node in (node for nodes in NODES.values() for node in nodes):
        if isinstance(node, ast.ClassDef):  # __slots__ too
            items = [item for item in node.body if isinstance(item, ast.Assign | ast.AnnAssign)]
            defined.update(re.findall(r"\b_\w+", "\n".join(map(ast.unparse, items))))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in OURS:
            (defined if isinstance(node.ctx, ast.Store) else found).add(node.attr)
    found -= defined
    for name in FILES:
        if re.match(r"(adapters\.|aiohttp|httpx|requests|urllib3)", name):
            for cls in vars(importlib.import_module(f"forbear.{name}")).values():
                if isinstance(cls, type) and cls.__module__ == f"forbear.{name}":
                    ours = [one for one in cls.__mro__ if one.__module__.startswith("forbear")]
                    theirs = [one for one in cls.__mro__ if re.match(LIBRARIES, one.__module__)]
                    names = {each for one in ours for each in vars(one)}
                    found |= {each for each in names if any(hasattr(b, each) for b in theirs)}
    return {each for each in found if re.match("_(?!_|abc_)", each)}


def test_nobody_reads_what_is_private_elsewhere():
    """A private name is for the class that defines it.

    Those of libraries stand in one list, the docstring of forbear.adapters; each is in use, and a
    test names it, so that a new version of a library cannot drop it unnoticed.
    """
    listed = set(re.findall(r"^    (_\w+)  +\S", forbear.adapters.__doc__ or "", re.MULTILINE))
    used = {name: private_names(name) for name in FILES}
    none_of(
        (name, line, text)
        for name, hits in used.items()
        for line, attribute, text in hits
        if attribute not in listed
    )
    assert inherited_private_names() - listed == set(), "not in the list of private names"
    guards = (Path(__file__).parent / "adapters" / "test_private_attributes.py").read_text("utf-8")
    words = set(re.findall(r"\w+", guards))
    assert listed - words == set(), "no test names these"
    texts = [path.read_text("utf-8") for name, path in FILES.items() if name != "adapters"]
    assert listed - set(re.findall(r"\w+", "\n".join(texts))) == set(), "not used"
