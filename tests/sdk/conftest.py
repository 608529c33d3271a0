"""What the tests of the SDKs share; ``pytest tests/sdk`` runs those whose SDKs are installed."""

import importlib.util
import inspect
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

import forbear

# Of a file of tests, or of a page, that is not named after it.
PACKAGE = {"pygithub": "github", "google_auth": "google.auth", "google_genai": "google.genai"}


def is_here(name):
    """Is the SDK of this file, or page, installed?"""
    name = name.removeprefix("test_").replace("-", "_")
    try:
        return importlib.util.find_spec(PACKAGE.get(name, name)) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


FILES = {path.name: path.stem for path in Path(__file__).parent.glob("test_*.py")}
del FILES["test_pages.py"]
collect_ignore = [file for file, name in FILES.items() if not is_here(name)]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    """Loopback is reached directly."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def ungated(quick):
    """The same, and no call is held: for tests that count attempts or look at each wait."""
    return {**quick, "gate": None}


def plugged(alone, settings, off):
    """Run a test without forbear, with it too, and as recommended: attempts multiply (forbear sends
    5 times by default) unless the SDK's own loop is off.
    """
    cases = {
        "alone": (False, settings, alone),
        "both": (True, settings, alone * 5),
        "off": (True, off, 5),
    }
    named = "is_plugged", "settings", "attempts"
    return pytest.mark.parametrize(named, cases.values(), ids=cases)


WAITS = [0.025, 0.75, 1.5, 3.0]  # of forbear, after 4 of each 5 attempts


def attempts_of(outcome):
    """How many attempts forbear tells of; None where it sent nothing, or no trace of it is left."""
    record = forbear.record_of(outcome)
    return None if record is None else len(record.attempts)


@pytest.fixture
def without_waiting(monkeypatch):
    """A function that lets the SDK's own loop wait in no time, in what holds ``time`` or ``anyio``
    by name: its module, or an object of it. Returns the seconds it would have waited.
    """

    def replace(holder):
        waits = []

        async def asleep(seconds):
            waits.append(seconds)

        for name, sleep in (("time", waits.append), ("anyio", asleep)):
            if hasattr(holder, name):
                standing = SimpleNamespace(**{**vars(getattr(holder, name)), "sleep": sleep})
                monkeypatch.setattr(holder, name, standing)
        return waits

    return replace


class Flavour:
    """Synchronous, or asynchronous on one of two event loops."""

    def __init__(self, backend):
        self.backend = backend
        self.is_async = backend is not None

    def outcome(self, call, close):
        """What the call returns or raises; then its client is closed. Awaits what is awaitable."""

        async def run():
            try:
                return await awaited(call())
            except Exception as error:
                return error
            finally:
                await awaited(close())

        return anyio.run(run, backend=self.backend) if self.is_async else run_at_once(run())


async def awaited(found):
    return await found if inspect.isawaitable(found) else found


def run_at_once(coroutine):
    """The result of a coroutine in which nothing suspends."""
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


def pytest_generate_tests(metafunc):
    """Run tests that ask for a flavour sync and on asyncio, those marked ``smoke`` on trio too."""
    if "flavour" in metafunc.fixturenames:
        is_smoke = any(metafunc.definition.iter_markers("smoke"))
        names = ("sync", "asyncio", "trio")[: 3 if is_smoke else 2]
        flavours = [Flavour(None if name == "sync" else name) for name in names]
        metafunc.parametrize("flavour", flavours, ids=names)
