"""What ``import forbear`` and its adapters load, and what they say when a library is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import forbear

SOURCE = str(Path(forbear.__file__).parents[1])

# Names that ``import forbear`` has no use for: each costs milliseconds.
COSTLY = {
    "asyncio",
    "logging",
    "dataclasses",
    "inspect",
    "re",
    "random",
    "typing",
    "ssl",
    "socket",
    "threading",
    "email",
}


def run(code: str, *flags: str) -> str:
    """Run code in a fresh interpreter and return what it printed."""
    code = f"import sys; sys.path.insert(0, {SOURCE!r})\n{code}"
    done = subprocess.run(
        [sys.executable, *flags, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded_by(statement: str, *flags: str) -> set[str]:
    """The modules that a statement loads, beyond what the interpreter had."""
    code = f"before = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    return set(run(code, *flags).split())


def is_foreign(module: str) -> bool:
    return module.partition(".")[0] not in {*sys.stdlib_module_names, "forbear"}


# --- import forbear ---------------------------------------------------------------------------


def test_import_forbear_loads_itself_and_nothing_else() -> None:
    """In a bare interpreter, without site-packages: no third-party module, and hardly anything at
    all.
    """
    assert loaded_by("import forbear", "-I", "-S") <= {"forbear", "__future__"}


def test_import_forbear_loads_nothing_costly() -> None:
    """The same where everything is installed."""
    loaded = loaded_by("import forbear")
    assert not {module for module in loaded if is_foreign(module)}
    assert not loaded & COSTLY


@pytest.mark.parametrize("name", forbear.__all__)
def test_every_public_name_works_without_any_third_party_package(name: str) -> None:
    loaded = loaded_by(f"import forbear; forbear.{name}", "-I", "-S")
    assert not {module for module in loaded if is_foreign(module)}


def test_names_are_resolved_once() -> None:
    code = "import forbear; one = forbear.RetryPolicy; print('RetryPolicy' in vars(forbear), one is forbear.RetryPolicy)"
    assert run(code, "-I", "-S") == "True True"


def test_from_forbear_import_star_gives_the_public_names() -> None:
    names = run(
        "from forbear import *; print(*sorted(n for n in dir() if n[0] != '_' and n != 'sys'))",
        "-I",
        "-S",
    )
    assert names.split() == sorted(forbear.__all__)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'forbear' has no attribute 'Retry'"):
        _ = forbear.Retry  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'Retry'"):
        exec("from forbear import Retry")


def test_dir_lists_names_before_they_are_used() -> None:
    names = run("import forbear; print(*dir(forbear))", "-I", "-S").split()
    assert set(forbear.__all__) <= set(names)


@pytest.mark.parametrize(
    "module",
    [
        "core.call",
        "shared.standard",
        "shared.budget",
        "shared.lease",
        "core.hints",
        "idempotency",
        "context",
        "testing",
        "asgi",
        "wsgi",
        "simulation",
    ],
)
def test_the_lower_floors_work_in_a_bare_interpreter(module: str) -> None:
    loaded = loaded_by(f"import forbear.{module}", "-I", "-S")
    assert not {module for module in loaded if is_foreign(module)}


# --- adapters ---------------------------------------------------------------------------------

BLOCKER = """
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def without(*packages: str) -> str:
    return BLOCKER.format(blocked=set(packages))


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_an_adapter_without_its_library_names_the_extra(library: str) -> None:
    """Read as the whole traceback: what is missing, and what to type."""
    code = (
        without(library)
        + f"""
try:
    import forbear.{library}
except ImportError as error:
    print(error)
    print(error.__suppress_context__)
"""
    )
    assert run(code) == f"forbear.{library} needs {library}: pip install 'forbear[{library}]'\nTrue"


def test_the_fleet_budget_without_redis_names_the_extra() -> None:
    code = (
        without("redis")
        + """
try:
    import forbear.redis
except ImportError as error:
    print(error)
    print(error.__suppress_context__)
"""
    )
    assert run(code) == "forbear.redis needs redis: pip install 'forbear[redis]'\nTrue"


@pytest.mark.parametrize(("library", "other"), [("httpx", "httpx2"), ("httpx2", "httpx")])
def test_an_adapter_does_not_need_the_other_library(library: str, other: str) -> None:
    code = (
        without(other, other.replace("httpx", "httpcore"), "requests", "urllib3")
        + f"""
import {library}
from forbear.{library} import RetryTransport
from forbear.testing import ScriptedTransport
with {library}.Client(transport=RetryTransport(ScriptedTransport([200]))) as client:
    print(client.get("http://a.example/").status_code)
print("{other}" in sys.modules)
"""
    )
    assert run(code) == "200\nFalse"


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_an_adapter_brings_at_most_three_dataclasses(library: str) -> None:
    """A frozen one costs half a millisecond at import."""
    code = f"""
import {library}, dataclasses
made = []
original = dataclasses._process_class
def counted(cls, *args, **kwargs):
    made.append(cls.__qualname__)
    return original(cls, *args, **kwargs)
dataclasses._process_class = counted
import forbear.{library}
print(*sorted(made))
"""
    made = run(code).split()
    assert len(made) <= 3, made


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_an_adapter_loads_nothing_third_party_but_its_library(library: str) -> None:
    loaded = loaded_by(f"import {library}\nbefore = set(sys.modules)\nimport forbear.{library}")
    assert not {module for module in loaded if is_foreign(module)}
    assert not loaded & {"dns", "uuid", "ipaddress", "email_validator", "trio"}


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_importing_logs_and_configures_nothing(library: str) -> None:
    """No handler is installed, no level set, nothing written."""
    code = f"""
import logging
before = (list(logging.root.handlers), logging.root.level)
import forbear.{library}
log = logging.getLogger("forbear")
print((list(logging.root.handlers), logging.root.level) == before, log.handlers, log.level, log.propagate)
"""
    assert run(code) == "True [] 0 True"


def test_contact_without_email_validator_names_the_extra() -> None:
    code = (
        without("email_validator")
        + """
from forbear.httpx import RetryTransport
try:
    RetryTransport(contact="ops@example.com")
except ImportError as error:
    print(error)
"""
    )
    assert run(code) == "contact= needs email-validator: pip install 'forbear[contact]'"
