"""``forbear demo``: real clients against a server that misbehaves on purpose, on loopback. Floor:
acts.

Plays the scenes one after the other, all callers of a scene at the same time, and prints a table
for each. What the library logs meanwhile is kept, to show that it holds no secrets, and not
printed.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TextIO

from ...testing.server import FaultServer
from .callers import Answer, Caller, installed
from .page import GREEN, RED, Page
from .scenes import SCENES, SECRET, Scene, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

WIDTHS = (12, 26, 6, 6, 39)  # of a table's columns; with the mark and its spaces 100 in all
GONE_WITHIN = 1.0  # seconds for the server to notice that a client has closed


def run(
    out: TextIO, *, callers: Sequence[Caller] | None = None, scenes: Sequence[Scene] = SCENES
) -> int:
    """Play the scenes, print what they show, return the exit status.

    Args:
        out: Where to print; coloured if it is a terminal and NO_COLOR is not set.
        callers: Who sends; None: every installed client.
        scenes: What to play.
    """
    page = Report(out)
    if callers is None:
        callers = installed()
    if not callers:
        page.line(
            "forbear demo needs httpx, httpx2, requests or urllib3 to send requests with; none is installed:"
        )
        page.line()
        page.line("    pip install 'forbear[httpx,httpx2,requests,urllib3]'")
        return 2
    server = FaultServer()
    try:
        server.start()
    except OSError as error:
        page.line(f"forbear demo cannot start its server on 127.0.0.1: {error.strerror or error}")
        return 2
    started_at = time.monotonic()
    told = Told()
    try:
        page.intro(server, callers)
        with told:
            checks = [check for scene in scenes for check in play(page, server, scene, callers)]
        checks += closing(page, server, told)
    finally:
        server.stop()
    page.summary(checks, time.monotonic() - started_at)
    return 0 if all(checks) else 1


def play(page: Report, server: FaultServer, scene: Scene, callers: Sequence[Caller]) -> list[bool]:
    """Play one scene with all callers at once; say for each whether all claims held."""
    page.scene(scene)
    order = scene.order._replace(
        headers={**scene.order.headers, "Authorization": f"Bearer {SECRET}"}
    )

    paths = {
        caller: f"/{SECRET}/{page.scenes}/{caller.label.replace(' ', '-')}" for caller in callers
    }

    def send(caller: Caller) -> list[Answer]:
        server.script(paths[caller], *scene.steps)
        return caller.call(f"{server.url}{paths[caller]}?token={SECRET}", order)

    checks = []
    with ThreadPoolExecutor(len(callers)) as pool:
        for caller, answers in zip(callers, pool.map(send, callers), strict=True):
            seen = scene.judge(caller, answers, server.requests(paths[caller]))
            page.row(
                (caller.label, seen.server, waited(answers), took(answers), outcome(answers)),
                seen.broken,
            )
            checks.append(not seen.broken)
    return checks


def closing(page: Report, server: FaultServer, told: Told) -> list[bool]:
    """What must be true once all clients are closed."""
    until = time.monotonic() + GONE_WITHIN
    while server.open_connections and time.monotonic() < until:
        time.sleep(0.01)
    left = server.open_connections
    leaks = sum(SECRET in line for line in told.lines)
    page.heading("Afterwards")
    page.check(
        f"P6: nothing leaks: {server.connections} connections were opened, {left} are still open",
        not left,
    )
    page.check(
        f"P10: nothing secret is logged: {len(told.lines)} log records, {leaks} with a path, query or header in them",
        not leaks,
    )
    return [not left, not leaks]


class Told(logging.Handler):
    """Keeps what the library logs inside a ``with`` block, at every level, instead of letting it be
    printed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._logger = logging.getLogger("forbear")

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.__dict__}")

    def __enter__(self) -> None:
        logger = self._logger
        self._before = logger.level, logger.propagate
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            return  # the process ends; calls that are cut off now shall not print over its last line
        logger = self._logger
        logger.removeHandler(self)
        level, logger.propagate = self._before
        logger.setLevel(level)


class Report(Page):
    """What the scenes show, as rows of fixed columns: they are printed as they come."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._good, self._bad = "✓", "✗"
        try:
            (self._good + self._bad).encode(out.encoding or "utf-8")
        except UnicodeEncodeError:
            self._good, self._bad = "ok", "NO"
        self.scenes = 0

    def intro(self, server: FaultServer, callers: Sequence[Caller]) -> None:
        *names, last = dict.fromkeys(caller.version for caller in callers)
        by = f"{', '.join(names)} and {last}" if names else last
        self.line(f"A server on this machine ({server.url}) misbehaves on purpose.")
        self.line("It is sent real requests, through forbear, by")
        self.line(f"{by}.")
        self.line("Waits that no server asked for are a tenth of what is usual.")
        self.line(
            "waited: between attempts; took: the whole call, from the request to what the caller got."
        )

    def scene(self, scene: Scene) -> None:
        self.scenes += 1
        self.heading(f"{self.scenes}. {scene.title}")
        self.line(f"   {scene.promise}")
        self.line(f"   The server {scene.fault}.")
        self.line(f"   {columns(('client', 'server saw', 'waited', 'took', 'caller got'))}")

    def row(self, cells: Sequence[str], broken: Sequence[str]) -> None:
        self.line(f"{self._mark(not broken)} {columns(cells)}")
        for claim in broken:
            self.line(f"     {self.painted(claim, RED)}")

    def check(self, text: str, holds: bool) -> None:
        self.line(f"{self._mark(holds)} {text}")

    def summary(self, checks: Sequence[bool], seconds: float) -> None:
        self.line()
        failed = len(checks) - sum(checks)
        if failed:
            self.line(
                self.painted(f"{failed} of {len(checks)} checks failed, in {seconds:.1f} s.", RED)
            )
        else:
            self.line(self.painted(f"All {len(checks)} checks held, in {seconds:.1f} s.", GREEN))

    def _mark(self, holds: bool) -> str:
        """Two columns, in the indent of what is marked."""
        return (
            self.painted(f"{self._good:>2}", GREEN)
            if holds
            else self.painted(f"{self._bad:>2}", RED)
        )


def columns(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def waited(answers: list[Answer]) -> str:
    waits = [wait for answer in answers for wait in answer.record.waits]
    return f"{sum(waits):.2f} s" if waits else "-"


def took(answers: list[Answer]) -> str:
    return f"{sum(answer.elapsed for answer in answers):.2f} s"


def outcome(answers: list[Answer]) -> str:
    answer = answers[0]
    text = shown(answer.error or answer.status)
    if len(answers) > 1:
        return f"{len(answers)} times {text}"
    reason = answer.record.reason
    return text if reason is None else f"{text} ({reason.value})"
