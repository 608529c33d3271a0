"""What tests of retrying code need: retries that take no time, a faulting server, a clock, scripted
answers.

Each name is imported from its file on first use, so that a test which only wants ``FakeClock``
loads no socket code, and none of them loads an HTTP library that is not asked for.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .clock import FakeClock
    from .events import record
    from .rehearsing import disabled, fast
    from .schedule import assert_schedule
    from .scripted import ScriptedAdapter, ScriptedTransport
    from .server import FaultServer

__all__ = [
    "FakeClock",
    "FaultServer",
    "ScriptedAdapter",
    "ScriptedTransport",
    "assert_schedule",
    "disabled",
    "fast",
    "record",
]

_HOMES = {
    "FakeClock": "clock",
    "FaultServer": "server",
    "ScriptedAdapter": "scripted",
    "ScriptedTransport": "scripted",
    "assert_schedule": "schedule",
    "disabled": "rehearsing",
    "fast": "rehearsing",
    "record": "events",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = found  # the next look-up does not come here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
