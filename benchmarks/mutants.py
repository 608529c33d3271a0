"""Mutants: how many small faults that are put into the source do the tests find?

    python -m benchmarks.mutants --files limits/health.py --count 20 --seed 1
    python -m benchmarks.mutants --files core limits --tests tests/core tests/limits
    python -m benchmarks.mutants --files limits --write  # keep the figures in benchmarks/mutants.md
    python -m benchmarks.mutants --count 2 --check       # 1 if fewer are found than is kept there

A mutant is the source with one small change (``Mutator.mutate``). It is found if a test fails, and
fails again, or if the tests hang or cannot be imported. One that survives is printed: either it is
equivalent, or nobody tests what it broke. The first run, of all tests, maps the lines that each
executes (Python 3.12), so that a mutant meets only those that execute its statement, the quickest
first, for ``CAP`` seconds. ``--map FILE`` keeps the map for further runs. Not in it are tests that
run forbear in another process, or meet a line by a cache that an earlier test has filled.

The source stays as it is: pytest loads this module as a plugin, which changes what Python compiles.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = Path("src", "forbear")
KEPT = ROOT / "benchmarks" / "mutants.md"
TESTS = [f"tests/{name}" for name in ("core", "limits", "property", "telemetry", "adapters")]
TESTS.append("tests/test_messages.py")  # what checks of arguments say
CAP = 30.0  # seconds of tests that a mutant meets, by the map
HANG = 30  # seconds after which one test counts as hanging
ROW = re.compile(r"^\| (\S+\.py) \| (\d+) of (\d+) \|.*$", re.MULTILINE)

# What no caller sees: messages, logs, types.
UNSEEN = {"__repr__", "__str__", "TYPE_CHECKING", "__all__", "__slots__", "__match_args__"}
UNSEEN |= {"Protocol", "overload"}
UNSEEN_CALLS = {"debug", "info", "warning", "error", "exception", "log", "warn", "cast", "TypeVar"}
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "exc", "cause", "type_params"}
SKIPPED_NODES = (ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)

WEAKER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
FLIPPED = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.Is: ast.IsNot}
FLIPPED |= {ast.In: ast.NotIn}
FLIPPED |= {second: first for first, second in FLIPPED.items()}
OTHER = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OTHER |= {ast.And: ast.Or, ast.Or: ast.And}
OPERATORS = (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.IfExp)
TYPED = {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "map", "filter"}


@dataclass
class Mutant:
    file: str  # below SOURCE
    line: int
    start: int  # of the bytes that ``text`` replaces
    end: int
    text: str
    change: str
    lines: range  # of the statement: a test that executes one of these may find it


def mutants_of(file: str) -> Iterator[Mutant]:
    source = (ROOT / SOURCE / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, new, is_operand, lines in walk(ast.parse(source), None, False, range(len(starts))):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = new if isinstance(new, str) else ast.unparse(new)
        if is_operand and isinstance(new, OPERATORS):
            text = f"({text})"
        before = " ".join(source[start:end].decode().split())
        change = f"{before[:90]}  ->  {text[:90]}"
        yield Mutant(file, node.lineno, start, end, text, change, lines)


def walk(node: Any, function: Any, is_operand: bool, lines: range) -> Iterator[tuple[Any, ...]]:
    """All changes below a node: what is replaced, by what, is it an operand, the statement's lines.

    ``function`` is the one around it; what is outside of all is executed by no test, but by all.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function, lines = node, range(node.lineno, node.end_lineno + 1)
    elif isinstance(node, ast.stmt) and function:
        body = getattr(node, "body", None)  # with a body, its head only
        lines = range(node.lineno, body[0].lineno if body else node.end_lineno + 1)
    if is_unseen(node):
        return
    for part, new in changes(node, function):
        yield part, new, is_operand and part is node, lines
    for name, value in ast.iter_fields(node):
        if name not in SKIPPED_FIELDS:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, function, isinstance(node, ast.expr), lines)


def is_unseen(node: Any) -> bool:
    names = {getattr(node, "name", ""), name_of(getattr(node, "test", None))}
    for field in ("decorator_list", "bases", "targets"):
        names.update(map(name_of, getattr(node, field, ())))
    call = node.value if isinstance(node, ast.Expr) else node
    is_call = isinstance(call, ast.Call) and name_of(call.func) in UNSEEN_CALLS
    return isinstance(node, SKIPPED_NODES) or is_call or not UNSEEN.isdisjoint(names)


def name_of(node: Any) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def changes(node: Any, function: Any) -> Iterator[tuple[Any, ast.AST | str]]:
    """What a node could be as well: the part that is replaced, and by what."""

    def changed(**fields: Any) -> ast.AST:
        new = copy.copy(node)
        vars(new).update(fields)
        return new

    match node:
        case ast.Compare(ops=ops):
            for n, operator in enumerate(ops):
                for table in (WEAKER, FLIPPED):
                    if other := table.get(type(operator)):
                        yield node, changed(ops=[*ops[:n], other(), *ops[n + 1 :]])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, operand
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op):
            if isinstance(node, ast.BoolOp) or (type(op) in OTHER and not has_text(node)):
                yield node, changed(op=OTHER[type(op)]())
                if isinstance(node, ast.AugAssign):
                    yield node, "pass"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, str(value + 1)
        case ast.Constant(value=float() as value):
            yield node, repr(value * 2 or 1.0)
        case ast.ExceptHandler(type=ast.expr() as caught):
            if name_of(caught) not in {"Exception", "BaseException"}:
                yield caught, "Exception"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            yield node, changed(func=ast.Name("max" if name == "min" else "min"))
        case ast.Call(args=[(ast.Name() | ast.Attribute()) as one, two, *rest]):
            if isinstance(two, ast.Name | ast.Attribute) and name_of(node.func) not in TYPED:
                yield node, changed(args=[two, one, *rest])
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            for result in ("True", "False") if name_of(function.returns) == "bool" else ("None",):
                yield value, result
        case ast.Assign(targets=targets):
            if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
                yield node, "pass"
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) | (
            ast.Raise() | ast.Continue() | ast.Break()
        ):
            yield node, "pass"
    keywords = node.keywords if isinstance(node, ast.Call) else ()
    if keywords and keywords[-1].arg not in {None, "stacklevel"}:
        yield node, changed(keywords=keywords[:-1])
    is_if = isinstance(node, ast.If | ast.IfExp)
    for test in [node.test] if is_if else getattr(node, "ifs", ()):
        if not isinstance(test, (*OPERATORS, ast.Constant)):
            yield test, f"not ({ast.unparse(test)})"


def has_text(node: ast.AST) -> bool:
    parts = [part for part in ast.walk(node) if isinstance(part, ast.JoinedStr | ast.Constant)]
    return any(isinstance(getattr(part, "value", ""), str | bytes) for part in parts)


# Runs.


def finds(mutant: Mutant, known: dict[str, Any], work: Path) -> bool:
    by_line, seconds = known["lines"].get(mutant.file, {}), known["seconds"]
    names = {name for line in mutant.lines for name in by_line.get(str(line), ())}
    tests, left = [], CAP
    for name in sorted(names, key=lambda name: (seconds[name], name)):
        left -= seconds[name]
        if left >= 0:
            tests.append(name)
    failed = first_failure(mutant, tests, work)
    while failed and first_failure(mutant, [failed], work) == "":  # a flaky test
        tests.remove(failed)
        failed = first_failure(mutant, tests, work)
    if failed == "":
        where = f"{mutant.file}:{mutant.line}"
        print(f"survived  {where}  {mutant.change}  [{len(tests)} tests]", flush=True)
    return failed != ""


def first_failure(mutant: Mutant, tests: list[str], work: Path) -> str | None:
    """The first test that fails; "" if none does; None: they hang, or cannot be imported."""
    if not tests:
        return ""
    job = work / f"{id(mutant)}.json"
    job.write_text(json.dumps({**vars(mutant), "tests": tests}, default=str))
    failed = job.with_suffix(".failed")
    failed.write_text("")
    flags = f"-x -o faulthandler_timeout={HANG} -o faulthandler_exit_on_timeout=true".split()
    paths = dict.fromkeys(test.partition("::")[0] for test in tests)
    code = pytest(*flags, *paths, longest=10 * CAP, MUTANTS_JOB=str(job))
    return "" if code in (0, 5) else failed.read_text() or None  # 5: no test was left


def pytest(*arguments: str, longest: float | None = None, **variables: str) -> int:
    """Run pytest with this plugin; return its exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    with subprocess.Popen(
        [*command, "-p", "benchmarks.mutants", *arguments],
        cwd=ROOT, env={**os.environ, **variables, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            return process.wait(longest)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            with suppress(ProcessLookupError):  # all of the session, so what tests have started too
                os.killpg(process.pid, signal.SIGKILL)


def map_of(tests: list[str], work: Path) -> dict[str, Any]:
    """Which tests pass, in how many seconds, and which lines they execute."""
    print(f"mapping {' '.join(tests)} …", flush=True)
    pytest("-n", "4", "-m", "not release", *tests, MUTANTS_MAP=str(work / "map"))
    seconds: dict[str, float] = {}
    lines: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in work.glob("map.gw*"):
        for test, (took, executed) in json.loads(path.read_text()).items():
            seconds[test] = took
            for file, numbers in executed.items():
                for number in numbers:
                    lines[file][str(number)].append(test)
    if not seconds:
        sys.exit("no test has passed")
    print(f"{len(seconds)} tests", flush=True)
    return {"seconds": seconds, "lines": lines}


# The part that pytest loads, by -p benchmarks.mutants.


class Job:
    """Loads a mutant, runs the tests that it is given, in their order, and notes one that fails."""

    def __init__(self, path: Path) -> None:
        self.failed = path.with_suffix(".failed")
        self.mutant = json.loads(path.read_text())
        self.order = {name: n for n, name in enumerate(self.mutant["tests"])}
        self.file = ROOT / SOURCE / self.mutant["file"]
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *rest: Any) -> Any:
        path = ROOT / "src" / name.replace(".", "/")
        if self.file in (path.with_suffix(".py"), path / "__init__.py"):
            return spec_from_file_location(name, self.file, loader=self)
        return None

    def create_module(self, spec: Any) -> None: ...

    def exec_module(self, module: Any) -> None:
        source, mutant = self.file.read_bytes(), self.mutant
        text = source[: mutant["start"]] + mutant["text"].encode() + source[mutant["end"] :]
        exec(compile(text, self.file, "exec", dont_inherit=True), vars(module))

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.order]
        items.sort(key=lambda item: self.order[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.write_text(report.nodeid)


class Recorder:
    """Notes which lines of the source each test executes that passes."""

    def __init__(self) -> None:
        self.root = f"{ROOT / SOURCE}/"
        self.found: dict[str, tuple[float, dict[str, set[int]]]] = {}
        self.lines: dict[str, set[int]] = {}
        self.took, self.has_failed, events = 0.0, False, sys.monitoring.events
        sys.monitoring.use_tool_id(4, "mutants")
        sys.monitoring.register_callback(4, events.PY_START, self.start)
        sys.monitoring.register_callback(4, events.LINE, self.line)
        sys.monitoring.set_events(4, events.PY_START)

    def start(self, code: Any, offset: int) -> object:
        if code.co_filename.startswith(self.root):
            sys.monitoring.set_local_events(4, code, sys.monitoring.events.LINE)
        return sys.monitoring.DISABLE  # until the next test begins

    def line(self, code: Any, line: int) -> object:
        self.lines.setdefault(code.co_filename.removeprefix(self.root), set()).add(line)
        return sys.monitoring.DISABLE

    def pytest_runtest_logstart(self) -> None:
        self.lines, self.took, self.has_failed = {}, 0.0, False
        sys.monitoring.restart_events()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.took += report.duration
        self.has_failed |= not report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if not self.has_failed:
            self.found[nodeid] = (round(self.took, 4), self.lines)

    def pytest_sessionfinish(self) -> None:
        for event in (sys.monitoring.events.PY_START, sys.monitoring.events.LINE):
            sys.monitoring.register_callback(4, event, None)  # nothing is there at exit to call
        path = f"{os.environ['MUTANTS_MAP']}.{os.environ['PYTEST_XDIST_WORKER']}"
        Path(path).write_text(json.dumps(self.found, default=sorted))


# Before forbear is imported.
JOB = Job(Path(os.environ["MUTANTS_JOB"])) if "MUTANTS_JOB" in os.environ else None


def pytest_configure(config: Any) -> None:
    if JOB:
        config.pluginmanager.register(JOB)
    elif "PYTEST_XDIST_WORKER" in os.environ:
        config.pluginmanager.register(Recorder())


# Figures.


def interval(found: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval around a share, in percent."""
    p, z = found / total, 1.96
    middle, half = p + z * z / 2 / total, z * (p * (1 - p) / total + (z / 2 / total) ** 2) ** 0.5
    low, high = ((middle + side) / (1 + z * z / total) for side in (-half, half))
    return 100 * low, 100 * high


def row(name: str, found: int, total: int) -> str:
    low, high = interval(found, total)
    return f"| {name} | {found} of {total} | {100 * found / total:.0f} | {low:.0f}–{high:.0f} |"


def kept() -> dict[str, tuple[int, int]]:
    rows = ROW.finditer(KEPT.read_text(encoding="utf-8"))
    return {one[1]: (int(one[2]), int(one[3])) for one in rows}


def write(figures: dict[str, tuple[int, int]]) -> None:
    """Put these rows in place of those of the same files."""
    text = KEPT.read_text(encoding="utf-8")
    rows = {**kept(), **figures}
    table = "\n".join(row(name, *rows[name]) for name in sorted(rows))
    head, rule, _ = text.partition("| --- | --- | --- | --- |\n")
    total = row("all", sum(one for one, _ in rows.values()), sum(one for _, one in rows.values()))
    KEPT.write_text(f"{head}{rule}{table}\n{total}\n", encoding="utf-8")


def files_of(names: list[str]) -> Iterator[str]:
    for name in names:
        place = ROOT / SOURCE / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            yield path.relative_to(ROOT / SOURCE).as_posix()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--files", nargs="*", help="files or folders below src/forbear; if none, those of the page")
    add("--count", type=int, default=15, help="mutants of each file, fewer are among more; 0: all")
    add("--seed", type=int, default=1)
    add("--tests", nargs="*", default=TESTS, help="what pytest runs")
    add("--map", type=Path, help="where the map is, or is to be kept")
    add("--write", action="store_true", help="keep the figures")
    add("--check", action="store_true", help="fail if clearly fewer are found than is kept")
    options = parser.parse_args()
    mutants: list[Mutant] = []
    for file in files_of(options.files or list(kept())):
        of_file = list(mutants_of(file))
        random.Random(f"{options.seed} {file}").shuffle(of_file)
        mutants += of_file[: options.count or None]
    if not mutants:
        parser.error(f"no mutants in {options.files}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as work, ThreadPoolExecutor(2) as pool:
        kept_map = options.map or Path(work, "map.json")
        if not kept_map.exists():
            kept_map.write_text(json.dumps(map_of(options.tests, Path(work))))
        known = json.loads(kept_map.read_text())
        found = list(pool.map(lambda mutant: finds(mutant, known, Path(work)), mutants))
    by_file: dict[str, list[bool]] = defaultdict(list)
    for mutant, is_found in zip(mutants, found, strict=True):
        by_file[mutant.file].append(is_found)
    for file, outcomes in by_file.items():
        print(row(file, sum(outcomes), len(outcomes)))
    print(row("all", sum(found), len(found)))
    if options.write:
        write({file: (sum(outcomes), len(outcomes)) for file, outcomes in by_file.items()})
    if options.check:
        before = kept()
        wanted = sum(before[file][0] / before[file][1] * len(by_file[file]) for file in by_file)
        if interval(sum(found), len(found))[1] < 100 * wanted / len(found):
            print(f"by what is kept, {wanted:.0f} should be found")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
