"""``forbear demo``: real clients against a server that misbehaves on purpose. Floor: acts.

Plays the scenes one after the other, in the order of the promises and all callers of a scene at the
same time, and prints a table for each. The library's log is kept meanwhile, to show that it holds
no secrets.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

from ...core.checks import to_install
from ...testing.server import FaultServer
from . import complain, teach
from .callers import Answer, Caller, installed
from .scenes import SCENES, SECRET, Scene, judge, shown
from .tables import GREEN, RED, Page

__all__ = ["add_arguments", "run"]

ABOUT = (
    "Start a server on 127.0.0.1 that fails on purpose, send it real requests through the installed"
    " clients (httpx, httpx2, aiohttp, requests, urllib3), and print what it saw, what the clients"
    " waited and which promise that shows. Needs no network; takes about ten seconds, since the"
    " waits are those of the default policy."
)
EXIT = (
    "exit status: 0 all promises held, 1 one did not, 2 no client is installed or no server starts."
)
INTRO = """\
A server on this machine ({}) misbehaves on purpose.
It is sent real requests, through forbear, by
{}.
Policy and waits are the defaults, where a scene names no other policy.
waited: between attempts; took: the whole call, until the caller got something."""
HEADS = ("client", "server saw", "waited", "took", "caller got")
WIDTHS = (12, 26, 6, 6, 39)  # with the mark and its spaces 100 in all
GONE_WITHIN = 1.0  # seconds for the server to notice that a client has closed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command does; it takes nothing."""
    teach(parser, ABOUT, EXIT)


def run(
    out: TextIO,
    options: argparse.Namespace | None = None,
    *,
    callers: Sequence[Caller] | None = None,
    scenes: Sequence[Scene] = SCENES,
) -> int:
    """Play the scenes with these callers, or with every installed client; return the status."""
    callers = installed() if callers is None else callers
    if not callers:
        extras = to_install("httpx,httpx2,aiohttp,requests,urllib3")
        which = "httpx, httpx2, aiohttp, requests or urllib3"
        return complain("demo", f"no {which} is installed: {extras}")
    server, log, report = FaultServer(), Log(), Report(out)
    try:
        server.start()
    except OSError as error:
        return complain("demo", f"no server can be started on 127.0.0.1: {error.strerror or error}")
    began_at = time.monotonic()
    try:
        versions = {caller.family: caller.library.__version__ for caller in callers}
        names = ", ".join(f"{family} {version}" for family, version in versions.items())
        report.line(INTRO.format(server.url, names))
        counted = False
        with log:
            for number, scene in enumerate(scenes, start=1):
                if scene.promise >= "P7" and not counted:
                    counted = count_connections(report, server, "So far")
                report.line(f"\n{number}. {scene.title}\n   {scene.promise}")
                report.line(f"   The server {scene.fault}.\n   {columns(HEADS)}")
                play(report, server, f"/{SECRET}/{number}", scene, callers)
        if not counted:
            count_connections(report, server, "Afterwards")
        leaks = sum(SECRET in line for line in log.lines)
        report.line("\nAfterwards" * counted)
        said = f"P10: nothing secret is logged: {len(log.lines)} log records, {leaks} with a secret"
        report.check(said, not leaks)
    finally:
        server.stop()
    return report.summary(time.monotonic() - began_at)


def play(
    report: Report, server: FaultServer, path: str, scene: Scene, callers: Sequence[Caller]
) -> None:
    """Play one scene with all callers at once."""
    headers = {**scene.order.headers, "Authorization": f"Bearer {SECRET}"}
    order = scene.order._replace(headers=headers)
    paths = [f"{path}/{number}" for number, _ in enumerate(callers)]

    def send(caller: Caller, path: str) -> list[Answer]:
        server.script(path, *scene.steps)
        return caller.call(f"{server.url}{path}?token={SECRET}", order)

    with ThreadPoolExecutor(len(callers)) as pool:
        told = pool.map(send, callers, paths)
        for caller, place, answers in zip(callers, paths, told, strict=True):
            saw, broken = judge(scene, caller, answers, server.requests(place))
            total = max if order.at_once else sum
            waits = [sum(answer.record.waits) for answer in answers]
            waited = f"{total(waits):.2f} s" if any(one.record.waits for one in answers) else "-"
            took = f"{total(answer.elapsed for answer in answers):.2f} s"
            report.row((caller.label, saw, waited, took, outcome(answers)), broken)


def outcome(answers: list[Answer]) -> str:
    text, reason = shown(answers[0]), answers[0].record.reason
    if len(answers) > 1:
        return f"{len(answers)} times {text}"
    return text if reason is None else f"{text} ({reason.value})"


def count_connections(report: Report, server: FaultServer, when: str) -> bool:
    """Check the promise that shows once all clients are closed."""
    until = time.monotonic() + GONE_WITHIN
    while server.open_connections and time.monotonic() < until:
        time.sleep(0.01)
    left, opened = server.open_connections, server.connections
    report.line(f"\n{when}")
    said = f"P6: nothing leaks: {opened} connections were opened, {left} are still open"
    report.check(said, not left)
    return True


class Log(logging.Handler):
    """Keeps what the library logs inside a ``with`` block, instead of letting it be printed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._logger = logging.getLogger("forbear")

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.__dict__}")

    def __enter__(self) -> None:
        self._before = self._logger.level, self._logger.propagate
        self._logger.setLevel(logging.DEBUG)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            return  # calls that are cut off now do not print over the last line
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)


class Report(Page):
    """Rows of fixed columns, which are printed as they come, and a count of the checks."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._checks: list[bool] = []
        is_unicode = (out.encoding or "utf-8").lower().startswith("utf")
        self._marks = " ✓ ✗" if is_unicode else "okNO"

    def row(self, cells: Sequence[str], broken: Sequence[str]) -> None:
        self.check(columns(cells), not broken)
        for claim in broken:
            self.line(f"     {self.painted(claim, RED)}")

    def check(self, text: str, holds: bool) -> None:
        self._checks.append(holds)
        mark = self._marks[:2] if holds else self._marks[2:]
        self.line(f"{self.painted(mark, GREEN if holds else RED)} {text}")

    def summary(self, seconds: float) -> int:
        """Say how many checks held; return the exit status."""
        count, failed = len(self._checks), self._checks.count(False)
        said = f"{failed} of {count} checks failed" if failed else f"All {count} checks held"
        self.line(f"\n{self.painted(f'{said}, in {seconds:.1f} s.', RED if failed else GREEN)}")
        return 1 if failed else 0


def columns(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
