"""Late: how ``forbear.deadline`` ends a body that is streamed through requests. Floor: acts.

A socket says it to urllib3, which passes it on as its own error for a read timeout, and requests as
a ConnectionError. Only the response can say DeadlineExceeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

from .urllib3_errors import tree

if TYPE_CHECKING:
    from ..core.call import Call

__all__ = ["Late", "bounded"]


class Late(TimeoutError):
    """The deadline ended a body. ``exceeded`` cannot be raised at once: it is an OSError too."""

    def __init__(self, exceeded: Exception) -> None:
        super().__init__("the time for reading is over")
        self.exceeded = exceeded


class BoundedResponse(requests.Response):
    """A streamed response that raises DeadlineExceeded where the deadline ends its body."""

    def iter_content(self, *arguments: Any, **named: Any) -> Any:
        return until_late(super().iter_content(*arguments, **named))


def until_late(pieces: Any) -> Any:
    try:
        yield from pieces
    except requests.ConnectionError as error:
        for each in tree(error):
            if isinstance(each, Late):
                raise each.exceeded from error
        raise


def bounded(call: Call, response: Any) -> Any:
    """Return a response in place of requests' own if its caller streams it under a deadline."""
    view: Any = call.request
    if (
        type(response) is not requests.Response
        or not view.streams
        or call.context is None
        or not call.context.has_deadline()
    ):
        return response
    stand_in = BoundedResponse()
    vars(stand_in).update(vars(response))
    return stand_in
