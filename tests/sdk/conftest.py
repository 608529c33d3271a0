"""What the tests of the SDKs share, and which of them run where.

They run where they are named: ``python tests/sdk/run.py`` does, in environments of its own, and
``pytest tests/sdk`` runs those whose SDKs are installed.
"""

from __future__ import annotations

import importlib.util
import inspect
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import forbear

# file -> the packages it imports
NEEDS = {
    "test_openai.py": ("openai", "httpx"),
    "test_anthropic.py": ("anthropic",),
    "test_stripe.py": ("stripe", "requests", "httpx"),
    "test_pygithub.py": ("github", "requests"),
    "test_kubernetes.py": ("kubernetes", "urllib3"),
    "test_elasticsearch.py": ("elasticsearch", "requests"),
    "test_google_auth.py": ("google.auth", "requests"),
    "test_huggingface_hub.py": ("huggingface_hub",),
    "test_twilio.py": ("twilio", "requests"),
    "test_google_genai.py": ("google.genai", "httpx2"),
    "test_mcp.py": ("mcp", "httpx2"),
    "test_pydantic_ai.py": ("pydantic_ai", "httpx2"),
}


def is_missing(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:  # the package that it is in
        return True


collect_ignore = [file for file, packages in NEEDS.items() if any(map(is_missing, packages))]


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


def attempts_of(outcome: Any) -> int | None:
    """How many attempts forbear tells of; None where it sent nothing, or no trace of it is left."""
    record = forbear.record_of(outcome)
    return None if record is None else len(record.attempts)


@pytest.fixture
def without_waiting(monkeypatch):
    """A function that lets the SDK's own loop wait in no time; returns the seconds it would have
    waited.

    Takes whatever holds ``time`` or ``anyio`` by name: the SDK's module, or an object of it.
    """

    def replace(holder: Any) -> list[float]:
        waits: list[float] = []

        async def asleep(seconds: float) -> None:
            waits.append(seconds)

        for name, sleep in (("time", waits.append), ("anyio", asleep)):
            if hasattr(holder, name):
                standing = SimpleNamespace(**{**vars(getattr(holder, name)), "sleep": sleep})
                monkeypatch.setattr(holder, name, standing)
        return waits

    return replace


class Flavour:
    """Synchronous, or asynchronous on one of two event loops."""

    def __init__(self, backend: str | None) -> None:
        self.backend = backend
        self.is_async = backend is not None

    def outcome(self, call: Any, close: Any) -> Any:
        """What the call returns or raises; then its client is closed. What is awaitable is
        awaited.
        """
        if self.backend is None:
            try:
                return call()
            except Exception as error:
                return error
            finally:
                close()

        async def run() -> Any:
            try:
                return await awaited(call())
            except Exception as error:
                return error
            finally:
                await awaited(close())

        return anyio.run(run, backend=self.backend)


async def awaited(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that ask for a flavour run without an event loop and on asyncio, those marked ``smoke``
    on trio too.
    """
    if "flavour" in metafunc.fixturenames:
        is_smoke = any(metafunc.definition.iter_markers("smoke"))
        names = ("sync", "asyncio", "trio")[: 3 if is_smoke else 2]
        flavours = [Flavour(None if name == "sync" else name) for name in names]
        metafunc.parametrize("flavour", flavours, ids=names)
