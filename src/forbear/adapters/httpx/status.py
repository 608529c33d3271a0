"""Status: the library's own error for a response of the httpx family; loaded with the first."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from httpx import Request, Response


def status_error(module: ModuleType, request: Request, response: Response) -> Exception:
    """The library's own error for a status, with a response that can still be inspected.

    Args:
        module: ``httpx`` or ``httpx2``.
        request: As the client made it.
        response: The response, whose body is bytes if all of it came.
    """
    if type(response.stream) is module.ByteStream:
        with suppress(module.DecodingError):  # the status is the failure
            response.read()
    response.request = request
    try:
        response.raise_for_status()
    except module.HTTPStatusError as error:
        error.__traceback__ = error.__context__ = None
        return error  # type: ignore[no-any-return]
    # ``retry_if`` flagged a status that the library does not take for an error.
    message = f"'{response.status_code}' is a failure to its caller"
    return module.HTTPStatusError(message, request=request, response=response)  # type: ignore[no-any-return]
