"""Before a fork with other threads running, what calls load when they first need it is loaded.

The child would wait forever for the lock of an import that another thread had begun.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules


def load_all() -> None:
    """Load every module of the packages of ours that are loaded."""
    ours = [(name, one) for name, one in sys.modules.copy().items() if name.startswith("forbear.")]
    for package, module in ours:
        for found in iter_modules(getattr(module, "__path__", ())):
            with suppress(ImportError):  # of a client's library that is not installed
                import_module(f"{package}.{found.name}")
