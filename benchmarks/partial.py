"""Partial failures and outages on real sockets: how many calls succeed, and how long callers wait.

    python benchmarks/partial.py [--only NAME,…] [--callers NAME,…] [--contenders NAME,…]
                                 [--runs N] [--jobs N] [--rate N] [--seconds N] [--outage N]
                                 [--quick] [--json]

An nginx of its own stands before asyncio upstreams that respond after 20 ms; ``max_fails=0`` and
``proxy_next_upstream off``, so nginx itself neither avoids an upstream nor tries another. Each
measurement has its own nginx, upstreams and process, starts cold, and sends GETs in an open loop,
at random instants that are the same for all:

    third-…, tenth-…  one of three or of ten upstreams responds 503 or 500, refuses or hangs; random
                      (in-turn: round robin, as nginx does unless told otherwise)
    half-…            one of two on 503; random, or in turn: every other attempt fails
    gone-N            nginx is killed for N seconds; only calls begun meanwhile count
    limit-503         30 calls/s against limit_req of 20/s and a burst of ten, nodelay, without hint
    limit-429         the same, as 429 with Retry-After: 1; …-unhinted: as 429 without
    reload, kill      SIGHUP every 2 s; SIGKILL and a new start every 3 s
    killed            SIGKILL every 2 s, and a new start 0.3 s later
    hundred-…         100 calls one after the other against limit_req of 2/s: 429 or 503, no hint
    ten-…             ten calls one after the other to a server that refuses, or responds 503
    service           gunicorn with 8 threads; one route of it calls a backend through requests, 10
                      calls/s, the other (40/s) does not; then the backend is down

The callers are async clients, and pools of 8 threads. A call that finds no free thread waits for
one. Latency counts from the instant at which the schedule begins the call, and includes failures;
"own" counts from the instant at which a thread does. "first 15 s" and "later" are success, too.
Further calls are begun for 10 s after those that count, because held calls wait for what becomes of
them. What no thread has begun then, or no task has finished 30 s later, is a failure. A request of
``service`` fails after 2 s.

The peers have four attempts, the statuses of forbear, and waits of 0.5, 1 and 2 s in the mean
(urllib3: 0, 1 and 2 s). What is not installed is left out. Figures are medians of the runs. On a
machine that is busy with other things ``bare`` takes more than 0.02 s in the mean, and so do all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from _senders import (
    CALLERS,
    THREADS,
    Call,
    Caller,
    aattempted,
    aiohttp_sender,
    arrivals,
    attempted,
    contenders_of,
    in_tasks,
    in_threads,
    requests_sender,
)  # fmt: skip

HERE = Path(__file__).parent
if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(HERE.parent / "src"))

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
CONFIGURATION = """
daemon off; master_process {master}; worker_processes 1;
pid {home}/nginx.pid; error_log {home}/error.log crit;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home};
    uwsgi_temp_path {home}; scgi_temp_path {home};
    limit_req_zone $server_port zone=all:1m rate=20r/s;
    limit_req_zone $server_port zone=slow:1m rate=2r/s;
    upstream replicas {{ {replicas} }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location @throttled {{ add_header Retry-After 1 always; return 429; }}
        location / {{ {location} proxy_next_upstream off; proxy_pass http://replicas; }}
    }}
}}
"""
LIMIT = "limit_req zone=all burst=10 nodelay;"
AS_429 = "limit_req_status 429;"
SERVICE = 0.02  # seconds until a good response
UP = 5.0  # seconds before an outage
COLD = 15.0  # seconds in which a process learns what a server is like
TAIL = 10.0  # seconds for which calls are begun that do not count
BRIDGED = 10.0  # seconds at the beginning of an outage that forbear may bridge
ROUTES = {"other": 40.0, "backend": 10.0}  # calls a second to each route of the service
ROUTE_TIMEOUT = 2.0  # seconds
QUICK = ("httpx async", "requests")
USUAL = (*QUICK, "aiohttp", "httpx")
Figures = dict[str, float]


class Scenario(NamedTuple):
    """What the callers meet.

    Attributes:
        upstreams: What each of them does: a status, "refused" or "hang".
        balancing: A directive of nginx; round robin without one.
        location: Further directives of nginx.
        rate: Calls a second.
        timeout: Seconds of each attempt.
        down: Seconds for which nginx is gone, once. 0: never.
        every: Seconds between signals to nginx. 0: none. A killed nginx is started at once.
        sends: The signal.
        back_after: Seconds until a killed nginx is started again.
        calls: So many, one after the other, in place of an open loop; through nginx only if it
            limits them.
        service: The caller is a web service, and its callers are watched.
    """

    upstreams: tuple[str, ...] = ("200",)
    balancing: str = ""
    location: str = ""
    rate: float = 50.0
    timeout: float = 5.0
    down: float = 0.0
    every: float = 0.0
    sends: signal.Signals = signal.SIGKILL
    back_after: float = 0.0
    calls: int = 0
    service: bool = False
    seed: int = 0  # of the arrivals, which are the same for all contenders of a run


def one_of(count: int, bad: str, **options: Any) -> Scenario:
    return Scenario((bad, *["200"] * (count - 1)), "random;", **options)


SCENARIOS = {
    "third-503": one_of(3, "503"),
    "third-503-in-turn": Scenario(("503", "200", "200")),
    "third-500": one_of(3, "500"),
    "third-refused": one_of(3, "refused"),
    "tenth-503": one_of(10, "503"),
    "third-hang": one_of(3, "hang", timeout=1.0),
    "tenth-hang": one_of(10, "hang", timeout=1.0),
    "half-503": one_of(2, "503"),
    "half-503-in-turn": Scenario(("503", "200")),
    "gone-1": Scenario(down=1.0),
    "gone-3": Scenario(down=3.0),
    "gone-8": Scenario(down=8.0),
    "limit-503": Scenario(location=LIMIT, rate=30.0),
    "limit-429": Scenario(location=LIMIT + AS_429 + "error_page 429 = @throttled;", rate=30.0),
    "limit-429-unhinted": Scenario(location=LIMIT + AS_429, rate=30.0),
    "reload": Scenario(every=2.0, sends=signal.SIGHUP),
    "kill": Scenario(every=3.0),
    "killed": Scenario(every=2.0, back_after=0.3),
    "hundred-429": Scenario(location="limit_req zone=slow;" + AS_429, calls=100),
    "hundred-503": Scenario(location="limit_req zone=slow;", calls=100),
    "ten-refused": Scenario(("refused",), calls=10),
    "ten-503": Scenario(("503",), calls=10),
    "service": Scenario(down=30.0, service=True),
}


# The servers.


def free_port() -> int:
    """Below those of outgoing connections, one of which might take it while nginx is gone."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def serve(wire: Any, upstreams: tuple[str, ...]) -> None:
    """All upstreams, in a process of their own."""

    async def run() -> None:
        sockets = [socket.socket() for _ in upstreams]
        servers = []
        for what, one in zip(upstreams, sockets, strict=True):
            one.bind(("127.0.0.1", 0))
            if what != "refused":  # which does not listen
                servers.append(await asyncio.start_server(responder(what), sock=one, backlog=1024))
        wire.send([one.getsockname()[1] for one in sockets])
        await asyncio.sleep(86_400)

    asyncio.run(run())


def responder(what: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    response = f"HTTP/1.1 {what} -\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if what == "hang":
                await reader.read()  # until nginx closes the connection
            elif what == "200":
                await asyncio.sleep(SERVICE)
            writer.write(response)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return respond


class Nginx:
    """The server under test, on a port of its own."""

    def __init__(self, home: str, scenario: Scenario, ports: list[int]) -> None:
        self.port = free_port()
        replicas = "".join(f" server 127.0.0.1:{port} max_fails=0;" for port in ports)
        configuration = CONFIGURATION.format(
            home=home,
            port=self.port,
            # A reload needs a master; killed, it would leave its worker behind.
            master="on" if scenario.sends == signal.SIGHUP else "off",
            replicas=scenario.balancing + replicas,
            location=scenario.location,
        )
        path = Path(home, "nginx.conf")
        path.write_text(configuration, encoding="utf-8")
        self._command = [str(NGINX), "-p", home, "-e", f"{home}/error.log", "-c", str(path)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        wait_for_port(self.port)

    def send(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)
        if sent != signal.SIGHUP:
            self._process.wait(10)

    def stop(self) -> None:
        self.send(signal.SIGTERM)


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 10.0
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


def service(who: str, backend: str) -> Any:
    """The WSGI application that gunicorn imports."""
    send = requests_sender(who, backend, SCENARIOS["service"].timeout)

    def application(environ: dict[str, Any], start: Any) -> list[bytes]:
        good = True
        if environ["PATH_INFO"] == "/other":
            time.sleep(SERVICE)
        else:
            good = attempted(send)
        start("200 OK" if good else "502 Bad Gateway", [("Content-Length", "0")])
        return []

    return application


def send_all(wire: Any, name: str, who: str, url: str, scenario: Scenario, seconds: float) -> None:
    """One caller, in a process of its own: an instant comes, and its calls go back."""
    logging.disable()
    caller, rate = CALLERS[name], scenario.rate
    if caller.is_async or scenario.service:
        found = asyncio.run(asend_all(wire, caller, who, url, scenario, seconds))
    else:
        send = caller.sender(who, url, scenario.timeout)
        wire.send(None)
        began = wire.recv()
        if scenario.calls:
            began = time.monotonic()
            goods = [attempted(send) for _ in range(scenario.calls)]
            seconds = time.monotonic() - began
            found = [(0.0, seconds, seconds, good) for good in goods]
        else:
            found = in_threads(send, began, arrivals(rate, seconds, scenario.seed))
    wire.send(found)
    os._exit(0)  # an interpreter that ends would warn of the clients that were not closed


async def asend_all(
    wire: Any, caller: Caller, who: str, url: str, scenario: Scenario, seconds: float
) -> list[Call]:
    if scenario.service:
        routes = [
            (aiohttp_sender("bare", f"{url}{route}", ROUTE_TIMEOUT), rate)
            for route, rate in ROUTES.items()
        ]
    else:
        routes = [(caller.sender(who, url, scenario.timeout), scenario.rate)]
    wire.send(None)
    began = wire.recv()
    if scenario.calls:
        ((send, _),) = routes
        began = time.monotonic()
        goods = [await aattempted(send) for _ in range(scenario.calls)]
        took = time.monotonic() - began
        return [(0.0, took, took, good) for good in goods]
    loops = [in_tasks(send, began, arrivals(rate, seconds, scenario.seed)) for send, rate in routes]
    found, *_ = await asyncio.gather(*loops)
    return found


# The measurements.


def measure(name: str, caller: str, who: str, args: argparse.Namespace, seed: int) -> Figures:
    """One contender in one scenario, with servers of its own."""
    scenario: Scenario = args.scenarios[name]._replace(seed=seed)
    seconds = args.seconds
    if scenario.down:
        seconds = UP + scenario.down
    # Not forked: other threads of this process are measuring too.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as opened:

        def started(target: Any, *given: Any) -> Any:
            here, there = context.Pipe()
            process = context.Process(target=target, args=(there, *given), daemon=True)
            process.start()
            opened.callback(process.kill)
            there.close()
            return here

        ports = started(serve, scenario.upstreams).recv()
        nginx = Nginx(opened.enter_context(tempfile.TemporaryDirectory()), scenario, ports)
        opened.callback(nginx.stop)
        is_direct = scenario.calls and not scenario.location
        url = f"http://127.0.0.1:{ports[0] if is_direct else nginx.port}/"
        if scenario.service:
            url = opened.enter_context(gunicorn(who, url))
        wire = started(send_all, caller, who, url, scenario, seconds + TAIL)
        wire.recv()
        began = time.monotonic() + 0.1
        wire.send(began)
        window = disturb(nginx, scenario, began, seconds + TAIL) or (0.0, seconds)
        calls = wire.recv()
    return figures(scenario, calls, window)


@contextmanager
def gunicorn(who: str, backend: str) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}"]
    command += ["--threads", str(THREADS), "--log-level", "critical", "--graceful-timeout", "1"]
    command += ["--chdir", str(HERE), f"partial:service({who!r}, {backend!r})"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(30)


def disturb(
    nginx: Nginx, scenario: Scenario, began: float, seconds: float
) -> tuple[float, float] | None:
    """What happens to nginx, and from when to when it was gone if that lasted."""
    if scenario.down:
        time.sleep(began + UP - time.monotonic())
        nginx.send(signal.SIGKILL)
        gone_at = time.monotonic()
        time.sleep(scenario.down)
        nginx.start()
        return gone_at - began, time.monotonic() - began
    while scenario.every and time.monotonic() + scenario.every < began + seconds:
        time.sleep(scenario.every)
        nginx.send(scenario.sends)
        if scenario.sends == signal.SIGKILL:
            time.sleep(scenario.back_after)
            nginx.start()
    return None


def figures(scenario: Scenario, calls: list[Call], window: tuple[float, float]) -> Figures:
    if scenario.calls:
        good = mean(good for *_, good in calls)
        return {"success %": 100 * good, "seconds in all": calls[0][1]}
    if scenario.service:
        later = UP + min(BRIDGED, scenario.down / 2)
        before, first, rest = (
            sum(good for at, _, _, good in calls if begins <= at < ends) / (ends - begins)
            for begins, ends in ((1.0, UP), (UP, later), (later, UP + scenario.down))
        )
        usual = {"usual /s": before, "first /s": first, "then /s": rest}
        return {**usual, "then %": 100 * rest / before}
    begins, ends = window
    chosen = [(seconds, own, good) for at, seconds, own, good in calls if begins <= at < ends]
    found = {"success %": 100 * mean(good for _, _, good in chosen)}
    if ends > COLD and not scenario.down:
        first = [good for at, *_, good in calls if at < COLD]
        later = [good for at, *_, good in calls if COLD <= at < ends]
        found |= {"first 15 s %": 100 * mean(first), "later %": 100 * mean(later)}
    for name, place in (("", 0), ("own ", 1)):
        waits = sorted(one[place] for one in chosen)
        found[f"{name}mean s"] = mean(waits)
        for hundredth in (95, 99):
            found[f"{name}p{hundredth} s"] = waits[hundredth * len(waits) // 100]
    return found


def main() -> None:
    args = arguments()
    load = os.getloadavg()
    rows = [
        (name, caller, who)
        for name, scenario in args.scenarios.items()
        for caller in (("requests",) if scenario.service else args.callers)
        for who in contenders_of(CALLERS[caller])
        if who in (args.contenders or [who])
        if not scenario.service or find_spec("gunicorn") is not None
    ]
    measured: dict[tuple[str, str, str], list[Figures]] = {row: [] for row in rows}
    with ThreadPoolExecutor(args.jobs) as pool:
        # A run of all after another: contenders have the same neighbours, and the same arrivals.
        wanted = [(row, seed) for seed in range(args.runs) for row in rows]
        results = pool.map(lambda one: measure(*one[0], args, one[1]), wanted)
        for (row, _), one in zip(wanted, results, strict=True):
            measured[row].append(one)
    report: dict[str, dict[str, dict[str, Figures]]] = {}
    for (name, caller, who), runs in measured.items():
        medians = {figure: median(run[figure] for run in runs) for figure in runs[0]}
        report.setdefault(name, {}).setdefault(caller, {})[who] = medians
    if args.json:
        print(json.dumps({"load": [load, os.getloadavg()], "scenarios": report}))
    else:
        show(report)
        ends = f"{load[0]:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
        print(f"\nLoad of the machine, {os.cpu_count()} cores: {ends}")
        found: Any = find_spec("forbear")
        print(f"forbear of {Path(found.origin).parent}")


def show(report: dict[str, dict[str, dict[str, Figures]]]) -> None:
    from _tables import table

    for name, callers in report.items():
        lines: list[list[str]] = []
        for caller, contenders in callers.items():
            for who, row in contenders.items():
                head = tuple(row)
                cells = (
                    f"{value:.{2 if key.endswith(' s') else 1}f}" for key, value in row.items()
                )
                lines.append([f"{caller}: {who}", *cells])
        print(table(name, ("caller: contender", *head), lines), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument

    def names(text: str) -> list[str]:
        return [name.strip() for name in text.split(",")]

    add("--only", type=names, help=f"of: {', '.join(SCENARIOS)}")
    add("--callers", type=names, help=f"of: {', '.join(CALLERS)}")
    add("--contenders", type=names, help="bare, forbear, gate=None, or a peer")
    add("--runs", type=int, help="whose medians are shown (3)")
    add("--jobs", type=int, default=4, help="measurements beside each other (4)")
    add("--rate", type=float, help="calls a second (as the scenario says)")
    add("--seconds", type=float, help="for which calls are begun (15)")
    add("--outage", type=float, help="seconds, in the scenario service (30)")
    add("--quick", action="store_true", help="5 s, one run, httpx async and requests")
    add("--json", action="store_true", help="print JSON instead of tables")
    args = parser.parse_args()
    quick = args.quick
    args.callers = args.callers or (QUICK if quick else USUAL)
    args.runs = args.runs or (1 if quick else 3)
    args.seconds = args.seconds or (5.0 if quick else 15.0)
    unknown = {*(args.only or ())} - {*SCENARIOS} | {*args.callers} - {*CALLERS}
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    if NGINX is None:
        parser.error("nginx is not installed")
    args.scenarios = {name: SCENARIOS[name] for name in args.only or SCENARIOS}
    if args.rate:
        limited = {name for name, one in args.scenarios.items() if "limit_req" in one.location}
        args.scenarios |= {
            name: one._replace(rate=args.rate)
            for name, one in args.scenarios.items()
            if name not in limited
        }
    if "service" in args.scenarios:
        outage = args.outage or (15.0 if quick else SCENARIOS["service"].down)
        args.scenarios["service"] = SCENARIOS["service"]._replace(down=outage)
    return args


if __name__ == "__main__":
    main()
