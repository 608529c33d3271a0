"""Elsewhere: an answer of another origin than the request names, and says so. Floor: acts.

A client puts the request that it made on each response; ``response.url``, cookies and error
messages come from there. After a failover that would be the wrong one, and the caller's request is
not ours to change.
"""

from __future__ import annotations

from typing import Any

__all__ = ["answered_by"]

KINDS: dict[type[Any], type[Any]] = {}


def answered_by(response: Any, request: Any) -> None:
    """Make the response keep the request that it answers, whatever a client puts there."""
    response.request = request
    kind = type(response)
    if kind not in KINDS:
        KINDS[kind] = keeping(kind)
    response.__class__ = KINDS[kind]


def keeping(kind: type[Any]) -> type[Any]:
    class Response(kind):  # type: ignore[misc]  # of whichever library
        @property
        def request(self) -> Any:
            return self._request

        @request.setter
        def request(self, request: Any) -> None: ...

        def __reduce__(self) -> tuple[Any, ...]:
            return kind.__new__, (kind,), self.__getstate__()  # a copy goes nowhere any more

    return Response
