"""Hedging: sends first attempts over the httpx family, and may hedge them. Floor: acts.

``Hedging`` stands in the place of the inner transport for first attempts, where ``hedge`` is given.
A call that is not hedged needs no task of its own. When a second attempt may be sent (``Hedge``,
shared/hedge.py) is asked in ``Hedging.refuses``; httpx_race.py carries it out.

``_max_connections`` and ``_requests`` of httpcore's pool are read: a second attempt never queues.
"""

from __future__ import annotations

from asyncio import _get_running_loop, current_task
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.headers.keys import KEY_LINES
from ..core.record import SETTING
from ..sending import context as tests
from ..sending.backstop import Alarms, TrioAlarms, current_trio_token
from ..sending.context import CURRENT
from ..shared.hedge import MOST_TIMES
from .httpx_race import TASKS_HIDE_CONTEXT, Race
from .httpx_request import HOP, origin_of_url

if TYPE_CHECKING:
    from ..core.call import Call
    from ..shared.hedge import Hedge, Times

__all__ = ["Hedging"]


class Hedging:
    """Sends first attempts, and second ones beside them."""

    def __init__(self, port: Any, hedge: Hedge) -> None:
        self.port, self.hedge, self.inner = port, hedge, port.inner
        self.clock = port.clock
        self.alarms, self.trio_alarms = Alarms(self._now), TrioAlarms(self._now)
        port.sends_alike = False  # a retry is not sent as the second attempt was
        self._byte_stream, self._methods = port.byte_stream, hedge.methods
        self._known: dict[tuple[str, str, int | None, str], Times] = {}

    def _now(self) -> float:
        return self.clock.monotonic()  # type: ignore[no-any-return]  # a test may replace it

    async def handle_async_request(self, request: Any) -> Any:
        """Send a first attempt.

        Raises:
            Raced: A second attempt was sent too; the exception has what came of both.
        """
        method = request.method
        if type(request.stream) is not self._byte_stream or not (
            method in self._methods or (self.hedge.keyed and self.port.view_of(request).keyed)
        ):
            return await self.inner.handle_async_request(request)
        url = request.url._uri_reference
        where = url.scheme, url.host, url.port, method
        times = self._known.get(where) or self._times(where, request)
        now = self.clock.monotonic
        started_at = now()
        if times.delay == inf:
            response = await self.inner.handle_async_request(request)
            if response.status_code < 400:
                ended_at = now()
                times.learn(ended_at - started_at, ended_at)
            return response
        race = Race()  # a constructor with arguments would take a tenth of a microsecond more
        race.hedging, race.request, race.times = self, request, times
        race.started_at = started_at
        race.at = rings_at = started_at + times.delay
        loop: Any = _get_running_loop()
        race.task = None if loop is None else current_task(loop)
        if race.task is not None:
            alarms: Alarms = self.alarms
            sending = self.inner.handle_async_request(request)
            if TASKS_HIDE_CONTEXT:
                race.context = copy_context()
        else:  # trio, perhaps as a guest of a loop
            alarms, loop = self.trio_alarms, current_trio_token()
            sending = race.send_in_scope()
        if rings_at < alarms.rings_at or loop is not alarms.loop:
            alarms.prepare(loop, rings_at)
        alarms.alarms[race] = None
        try:
            response = await sending
        except BaseException as error:
            alarms.alarms.pop(race, None)
            if race.at != rings_at:  # it has rung
                await race.end(error)
            race.task = None  # which holds what is raised in it
            raise
        alarms.alarms.pop(race, None)
        if race.at != rings_at:
            await race.end(response)
        elif response.status_code < 400:
            ended_at = now()
            times.learn(ended_at - started_at, ended_at)
        return response

    def _times(self, where: tuple[str, str, int | None, str], request: Any) -> Times:
        if len(self._known) >= MOST_TIMES:
            self._known = {}
        times = self._known[where] = self.hedge.times(origin_of_url(request.url), request.method)
        return times

    def call_of(self, race: Race) -> Call:
        """Make the questions that a decision asks, about a call that has sent its first attempt."""
        port, request, started_at = self.port, race.request, race.started_at
        scope = race.context.get(CURRENT)
        if tests.everywhere is not None:
            scope = tests.with_everywhere(scope)
        call: Call = port.call_of(request, None, started_at, scope)
        policy, call.deadline_at = port.resolve(scope, request.extensions.get(SETTING), started_at)
        port.follow(call, policy)
        if scope is not None:
            call.most_attempts = min(call.most_attempts, scope.most_attempts)
            if scope.sends_once():
                call.most_attempts = 1
        hop = request.extensions.get(HOP)
        call.attempts = 1 if hop is None else 1 + hop.retries_used
        return call

    def refuses(self, call: Call, times: Times) -> str | None:
        """Say why no second attempt may be sent now; None: it may, and is paid for."""
        now, limits = self.clock.monotonic(), self.port.limits
        if call.attempts >= call.most_attempts:
            return "attempts-exhausted"
        if now >= call.deadline_at:
            return "deadline"
        if times.is_strained:
            return "origin-strained"
        if is_full(self.inner):
            return "local-saturation"
        refusal: str | None = limits.refuses_hedge(call, now)
        if refusal is not None:
            return refusal
        if not times.spend():
            return "hedge-budget"
        if not limits.pays_hedge(call, now):
            times.give_back()
            return "budget-exhausted"
        return None

    def give_back(self, call: Call, times: Times) -> None:
        """Give back the price of a second attempt that was not sent after all."""
        times.give_back()
        self.port.limits.leave(call, self.clock.monotonic())

    async def second_request(self, race: Race) -> Any:
        """Make the copy that is sent as the second attempt."""
        port, call = self.port, race.call
        request = port.copied(race.request, ())
        if not self.hedge.keyed:
            for name in KEY_LINES | port.settings.key_names:
                request.headers.pop(name, None)
        if call.origin != call.sent_to:
            request = port.aimed(request, call.origin)
        if port.before_attempt is not None:
            answer = port.before_attempt(request, call.attempts + 1)
            if hasattr(answer, "__await__"):
                await answer
        return request


def is_full(inner: Any) -> bool:
    """Would a second attempt wait for a connection of the pool?"""
    pool: Any = getattr(inner, "_pool", None)
    try:
        if any(request.is_queued() for request in pool._requests):
            return True
        connections = pool._connections
        return len(connections) >= pool._max_connections and not any(
            connection.is_available() for connection in connections
        )
    except AttributeError:  # a transport without such a pool
        return False
