"""Asking: ``retry_if`` and vendors' words, before an answer is judged. Floor: acts.

A change in one colour belongs in the other. Whatever is asked is shown a *peek*, a copy of the
answer whose body is read when it is looked at.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.headers.vendors import vendor_hint
from .backstop import BACKSTOP
from .copying import CopyingPort
from .errors import CutOff
from .looking import DRAIN_SECONDS

if TYPE_CHECKING:
    from ..core.call import Call
    from .backstop import Backstop

__all__ = ["AsyncAsking", "SyncAsking"]


class Asking(CopyingPort):
    """The part that both colours share. Each library adds what stands first here."""

    peek_of: Any  # (request, response, deadline_at, ahead): the copy
    status_of: Any  # (response)

    def ask(self, request: Any, response: Any, deadline_at: float, ahead: Any) -> Any:
        """Ask ``retry_if``; return the question, with its answer or what is to be awaited for it.

        Args:
            request: As it was sent.
            response: The answer to it.
            deadline_at: Until when its body may be read.
            ahead: What came of reading it ahead.
        """
        peek = self.peek_of(request, response, deadline_at, ahead)
        try:
            peek.answer = self.retry_if(peek.shown())
        except Exception as error:
            peek.error = error
        return self.answered(peek)

    def answered(self, peek: Any) -> Any:
        """Let what ``retry_if`` answered be its word, if it is one."""
        if isinstance(peek.ahead, Exception):  # it read a body that broke
            peek.answer = None
        elif peek.error is not None:
            self.tell.hook_failed("retry_if", peek.error)
            peek.answer = None
        else:
            peek.answer = self.word(peek.answer)
        return peek

    def peek_at(self, call: Call, response: Any) -> Any:
        """Make what reads the body of a failed answer, for no longer than it would be drained."""
        sent = self.sent_request(call)
        peek = self.peek_of(sent, response, call.deadline_at, call.ahead)
        peek.patience = DRAIN_SECONDS
        return peek

    def hear(self, call: Call, peek: Any, body: bytes) -> None:
        """Note the word of a vendor in a body, which is empty if it was not to be had."""
        self.note_ahead(call, peek.ahead)
        response, vendors = peek.response, call.policy.vendors
        kind = response.headers.get("Content-Type")
        call.word = vendor_hint(vendors, self.status_of(response), kind, body)


class SyncAsking(Asking):
    """The part of a synchronous port that looks at answers."""

    def look(self, call: Call, response: Any) -> Any:
        """Let ``retry_if`` look at an answer, and see what a vendor says in its body."""
        if self.is_asked(call):
            sent = self.sent_request(call)
            call.opinion = self.ask(sent, response, call.deadline_at, call.ahead)
        if call.opinion is not None:
            self.note_ahead(call, call.opinion.ahead)
            call.opinion = call.opinion.answer
        if self.is_spoken(call, self.status_of(response)):
            peek, body = self.peek_at(call, response), b""
            with suppress(Exception):  # too long, too slow, broken, or not decoded
                body = peek.shown().read()
            self.hear(call, peek, body)
        return response


class AsyncAsking(Asking):
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
        if outcome is response and self.is_spoken(call, self.status_of(response)):
            peek, body = self.peek_at(call, response), b""
            with suppress(Exception):  # too long, too slow, broken, or not decoded
                body = await peek.decoded()
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
            await self.let_go(peek.response)
            raise

    async def _await_answer(self, peek: Any) -> None:
        try:
            if hasattr(peek.answer, "__await__"):
                peek.answer = await peek.answer
        except Exception as error:
            peek.answer, peek.error = None, error
