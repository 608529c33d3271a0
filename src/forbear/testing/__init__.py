"""The test kit: retries that take no time, a faulting server, a clock, scripted answers.

It loads no HTTP library that a test does not use itself.
"""

from __future__ import annotations

from .clock import FakeClock
from .events import record
from .everywhere import disabled, fast
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
