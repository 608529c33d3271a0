"""What ``import forbear`` and its adapters load, and what they say when a library is missing."""

import sys
from pathlib import Path

import pytest

import forbear
from forbear.engine import settings

from .processes import loaded_by, python

BARE = ("-I", "-S")  # without site-packages
FLOORS = ("core", "limits", "engine", "addons")
CLIENTS = ("httpx", "httpx2", "aiohttp", "requests", "urllib3", "redis")
EXTRAS = {  # modules that need a library: the library, the extra
    "telemetry.otel": ("opentelemetry-api", "otel"),
    "telemetry.prometheus": ("prometheus_client", "prometheus"),
} | {name: (name, name) for name in CLIENTS}
# Standard modules that ``import forbear`` has no use for: each costs milliseconds.
COSTLY = {"asyncio", "logging", "dataclasses", "inspect", "re", "random", "typing", "ssl", "socket"}
COSTLY |= {"threading", "email"}
# traceback loads the last of them from Python 3.15 on, which does not list it.
OWN = {*sys.stdlib_module_names, "forbear", "_missing_stdlib_info"}


def foreign(modules):
    return {name for name in modules if name.partition(".")[0] not in OWN}


def test_import_forbear_loads_itself_and_nothing_else():
    """In a bare interpreter; and nothing costly where everything is installed."""
    assert loaded_by("import forbear", *BARE) <= {"forbear", "__future__"}
    loaded = loaded_by("import forbear")
    assert not foreign(loaded)
    assert not loaded & COSTLY


def test_every_public_name_works_without_any_third_party_package():
    names = f"import forbear\nfor name in {forbear.__all__}: getattr(forbear, name)"
    assert not foreign(loaded_by(names, *BARE))


@pytest.mark.slow
def test_the_modules_are_attributes_of_forbear():
    """``import forbear`` and ``forbear.httpx.wrap`` is what people write first."""
    code = """import forbear, sys
before = [name for name in sys.modules if name.startswith("forbear.")]
print(before, forbear.httpx.wrap.__module__, forbear.requests.mount.__module__)
print(forbear.testing.fast.__module__, forbear.urllib3.Retry.__name__, forbear.redis.RedisBudget.__name__)"""
    told = "[] forbear.httpx forbear.requests\nforbear.testing.clock Retry RedisBudget"
    assert python(code) == told


def test_from_forbear_import_star_gives_the_public_names():
    code = "from forbear import *; print(*sorted(n for n in dir() if n[0] != '_' and n != 'sys'))"
    assert python(code, *BARE).split() == sorted(forbear.__all__)


def test_what_needs_no_client_works_in_a_bare_interpreter():
    """The lower floors, the middleware, the testing tools and what the command explains."""
    root = Path(forbear.__file__).parent.parent
    lower = [path for top in FLOORS for path in (root / "forbear" / top).rglob("*.py")]
    modules = [".".join(path.relative_to(root).with_suffix("").parts) for path in lower]
    assert len(modules) > 20
    modules += [f"forbear.{name}" for name in ("idempotency", "asgi", "wsgi", "testing")]
    modules += ["forbear.telemetry.metrics", "forbear.cli.explain"]
    code = "\n".join(f"import {name.removesuffix('.__init__')}" for name in modules)
    assert not foreign(loaded_by(code, *BARE))


def to_install(extra):
    """The package is on no index: what works in a checkout, and no name that others may publish."""
    return f"pip install '.[{extra}]' in a checkout of forbear"


def without(*packages):
    return f"""
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def test_an_adapter_without_its_library_names_the_extra():
    """Also as an attribute of forbear; and who lists those imports none."""
    code = without(*(library.removesuffix("-api") for library, _ in EXTRAS.values()))
    code += f"""
import importlib, inspect, forbear
inspect.getmembers(forbear)
for module in {list(EXTRAS)}:
    try:
        importlib.import_module("forbear." + module)
    except ImportError as error:
        print(error, error.__suppress_context__)
try:
    forbear.requests
except ImportError as error:
    print(error)
"""
    needed = [
        f"forbear.{module} needs {library}: {to_install(extra)} True"
        for module, (library, extra) in EXTRAS.items()
    ]
    needed.append(f"forbear.requests needs requests: {to_install('requests')}")
    assert python(code).splitlines() == needed


@pytest.mark.parametrize(("library", "other"), [("httpx", "httpx2"), ("httpx2", "httpx")])
def test_an_adapter_does_not_need_the_other_library(library, other):
    code = without(other, other.replace("httpx", "httpcore"), "requests", "urllib3")
    code += f"""
import {library}
from forbear.{library} import RetryTransport
from forbear.testing import ScriptedTransport
with {library}.Client(transport=RetryTransport(ScriptedTransport([200]))) as client:
    print(client.get("http://a.example/").status_code)
print("{other}" in sys.modules)
"""
    assert python(code) == "200\nFalse"


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_importing_an_adapter_loads_little_and_configures_nothing(library):
    """Nothing third-party but its library, few dataclasses, of which each costs; and no handler."""
    code = f"""
import {library}, dataclasses, logging
made = []
original = dataclasses._process_class
def counted(cls, *args, **kwargs):
    made.append(cls.__qualname__)
    return original(cls, *args, **kwargs)
dataclasses._process_class = counted
root = (list(logging.root.handlers), logging.root.level)
before = set(sys.modules)
import forbear.{library}
log = logging.getLogger("forbear")
print(made)
print((list(logging.root.handlers), logging.root.level) == root, log.handlers, log.level, log.propagate)
print(*sorted(set(sys.modules) - before))
"""
    made, configured, loaded = python(code).splitlines()
    assert made.count(",") < 5, made
    assert configured == "True [] 0 True"
    assert not foreign(set(loaded.split()))
    assert not set(loaded.split()) & {"dns", "uuid", "ipaddress", "email_validator", "trio"}


def test_an_option_loads_no_feature_but_its_own():
    """Whoever names a client lets in no more than who does not, but for the checks."""
    features = {f"forbear.{module}" for module in settings.ADDONS.values()}
    make = "RetryTransport(name='orders', clock=SystemClock(), on_event=[], resume=False, {})"
    imports = "from forbear.httpx import RetryTransport\n"
    imports += "from forbear.engine.clock import SystemClock"
    assert not loaded_by(make.format(""), after=imports) & features
    own = loaded_by(make.format("pacing=forbear.Pacing()"), after=f"{imports}\nimport forbear")
    assert own & features == {"forbear.addons.pacing"}


def test_contact_without_email_validator_names_the_extra(monkeypatch):
    from forbear.httpx import RetryTransport

    monkeypatch.setitem(sys.modules, "email_validator", None)
    with pytest.raises(ImportError) as caught:
        RetryTransport(contact="ops@example.com")
    assert str(caught.value) == f"contact= needs email-validator: {to_install('contact')}"
