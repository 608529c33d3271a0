"""Interruption: an exception raised at every line that runs, one after the other.

A KeyboardInterrupt comes between any two lines, and so does what a signal handler raises.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["interrupted_at_every_line"]

MOST_LINES = 20_000


class Interrupter:
    """Raises at the n-th line of the files that it watches, once."""

    def __init__(self, at: int, path: str, error: type[BaseException]) -> None:
        self.left = at
        self.path = path
        self.error = error
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.path not in frame.f_code.co_filename:
            return None
        held: set[int] = set()

        def lines(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal held
            if event != "line" or self.where:
                return lines
            number = frame.f_lineno
            text = linecache.getline(frame.f_code.co_filename, number).strip()
            # No signal is looked for at these: a try does nothing, and a with statement is told of
            # again when it ends. To raise there would leave its lock locked.
            if text == "try:":
                return lines
            if text.startswith("with "):
                held ^= {number}
                if number not in held:
                    return lines
            self.left -= 1
            if self.left < 0:
                self.where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{number}"
                raise self.error
            return lines

        return lines


def interrupted_at_every_line(
    operation: Callable[[], object],
    path: str,
    after: Callable[[str], object],
    *,
    error: type[BaseException] = KeyboardInterrupt,
) -> int:
    """Run an operation again and again, raised in at its first line, its second, up to its end.

    Args:
        operation: What is interrupted; begins from the same state each time.
        path: Part of the names of the files whose lines count.
        after: Called after each interruption with the place of it; asserts that all is well.
        error: What is raised.

    Returns:
        How many lines were interrupted.
    """
    for at in range(MOST_LINES):
        interrupter = Interrupter(at, path, error)
        before = sys.gettrace()
        sys.settrace(interrupter)
        try:
            operation()
        except error:
            pass
        finally:
            sys.settrace(before)
        if not interrupter.where:
            return at
        after(interrupter.where)
    raise AssertionError("the operation does not end")
