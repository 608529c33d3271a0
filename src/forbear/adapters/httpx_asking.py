"""Asking, in the httpx family: ``retry_if`` and vendors' words, before judging. Floor: acts.

A change in one colour belongs in the other. What ``retry_if`` is shown is in httpx_looking.py.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ..sending.backstop import BACKSTOP
from ..sending.errors import CutOff
from .httpx_port import HttpxPort

if TYPE_CHECKING:
    from ..core.call import Call
    from ..sending.backstop import Backstop

__all__ = ["AsyncAsking", "SyncAsking"]


class SyncAsking(HttpxPort):
    """The part of a synchronous port that looks at answers."""

    def look(self, call: Call, response: Any) -> Any:
        """Let ``retry_if`` look at an answer, and see what a vendor says in its body."""
        if self.is_asked(call):
            sent = self.sent_request(call)
            call.opinion = self.ask(sent, response, call.deadline_at, call.ahead)
        if call.opinion is not None:
            self.note_ahead(call, call.opinion.ahead)
            call.opinion = call.opinion.answer
        if self.is_spoken(call, response.status_code):
            peek, body = self.peek_at(call, response), b""
            with suppress(Exception):  # too long, too slow, broken, or not decoded
                body = peek.shown().read()
            self.hear(call, peek, body)
        return response


class AsyncAsking(HttpxPort):
    """The part of an asynchronous port that looks at answers."""

    backstop: Backstop

    async def _ask_about(self, call: Call, response: Any) -> Any:
        """Let ``retry_if`` look at an answer; CutOff in its place if the deadline ends that."""
        if self.is_asked(call):
            sent = self.sent_request(call)
            call.opinion = self.ask(sent, response, call.deadline_at, call.ahead)
        peek = call.opinion
        if peek is None:
            return response
        if call.deadline_at == inf:
            await self._hear(peek)
        else:
            seconds, is_over = call.deadline_at - self.clock.monotonic(), True
            with self.backstop.after(seconds + BACKSTOP):
                await self._hear(peek)
                is_over = False
            if is_over:
                return CutOff()
        self.note_ahead(call, peek.ahead)
        call.opinion = peek.answer
        return response

    async def look(self, call: Call, response: Any) -> Any:
        """Let ``retry_if`` look at an answer, and see what a vendor says in its body."""
        outcome = await self._ask_about(call, response)
        if outcome is response and self.is_spoken(call, response.status_code):
            peek, body = self.peek_at(call, response), b""
            with suppress(Exception):  # too long, too slow, broken, or not decoded
                await peek.read()
                body = peek.shown().read()
            self.hear(call, peek, body)
        return outcome

    def answered(self, peek: Any) -> Any:
        is_open = peek.is_wanted or hasattr(peek.answer, "__await__")
        return peek if is_open else super().answered(peek)

    async def _hear(self, peek: Any) -> None:
        """Await the answer of ``retry_if``, or the body that it looked at."""
        try:
            await self._await_answer(peek)
            if peek.is_wanted:
                peek.is_wanted, peek.error = False, None
                try:
                    await peek.read()
                    peek.answer = self.retry_if(peek.shown())
                except Exception as error:
                    peek.error = error
                await self._await_answer(peek)
            super().answered(peek)
        except BaseException:
            import anyio

            with anyio.CancelScope(shield=True):
                await peek.response.stream.aclose()
            raise

    async def _await_answer(self, peek: Any) -> None:
        try:
            if hasattr(peek.answer, "__await__"):
                peek.answer = await peek.answer
        except Exception as error:
            peek.answer, peek.error = None, error
