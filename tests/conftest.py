"""What all tests share: the fixtures of forbear's own plugin, and a way to run tests that are
shown.

The plugin is off in this suite (pyproject.toml): pytest loads plugins before coverage is measured,
and what is loaded then, forbear's front door too, would seem to be tested by nobody.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import forbear
from forbear.pytest_plugin import forbear_clock, forbear_events, forbear_fast, forbear_server

__all__ = ["forbear_clock", "forbear_events", "forbear_fast", "forbear_server"]

# Installed, pytest finds the plugin; on the path only, it has to be named.
NAMED = () if entry_points(group="pytest11", name="forbear") else ("-p", "forbear.pytest_plugin")


def pytest_collection_finish():
    """Let the garbage collector look no more at what is there now.

    That is some hundred megabytes of tests; each look at all of it takes half a second. Hypothesis
    registers sources of randomness when it is loaded, and wants to see who holds them.
    """
    with suppress(ImportError):
        import hypothesis  # noqa: F401
    gc.collect()
    gc.freeze()


@pytest.fixture
def run_readme_tests(tmp_path):
    """Runs files of tests by themselves, as somebody would who has pasted them."""

    def run(sources: list[str], passed: int) -> None:
        for number, source in enumerate(sources):
            (tmp_path / f"test_pasted_{number}.py").write_text(source, encoding="utf-8")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
        }
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path),
                *("-p", "no:cacheprovider", *NAMED, tmp_path),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(Path(forbear.__file__).parent.parent)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{passed} passed" in done.stdout

    return run
