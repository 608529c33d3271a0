"""Python programs that run by themselves: what is loaded, forked or patched there stays there."""

import os
import subprocess
import sys
from pathlib import Path

import forbear

SOURCE = str(Path(forbear.__file__).parents[1])


def python(code, *flags, **environment):
    """Run code in a fresh interpreter that finds this forbear; return what it printed."""
    code = f"import sys; sys.path.insert(0, {SOURCE!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", code], check=False, timeout=500,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SOURCE, **environment},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def loaded_by(statement, *flags, after=""):
    """The modules that a statement loads, beyond what the interpreter and ``after`` had."""
    code = f"{after}\nbefore = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    return set(python(code, *flags).split())
