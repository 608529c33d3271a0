"""Ranges: the part of an answer that a request asks for (RFC 9110 sections 13.1.5 and 14). Floor:
acts.

One range of bytes; a server may answer any other with the whole, and so does this one.
"""

from __future__ import annotations

from dataclasses import replace
from re import fullmatch

from .steps import Step
from .wire import RequestHead

__all__ = ["ranged"]


def ranged(step: Step, head: RequestHead) -> Step:
    """Return the step that answers with the part, or with the whole, and says which content it is
    of.
    """
    fields = {name.lower(): value for name, value in head.headers}
    size = len(step.content)
    step = replace(step, headers=(*step.headers, ("ETag", step.etag), ("Accept-Ranges", "bytes")))
    asked = fullmatch(r"bytes=(\d*)-(\d*)", fields.get("range", ""))
    if (
        asked is None
        or asked[0] == "bytes=-"
        or step.status != 200
        or fields.get("if-range", step.etag) != step.etag
    ):
        return step
    if asked[1]:
        first, last = int(asked[1]), min(int(asked[2] or size), size - 1)
    else:
        first, last = max(0, size - int(asked[2])), size - 1
    if first > last:
        return replace(
            step,
            status=416,
            headers=(*step.headers, ("Content-Range", f"bytes */{size}")),
            content=b"",
        )
    told = ("Content-Range", f"bytes {first}-{last}/{size}")
    return replace(
        step, status=206, headers=(*step.headers, told), content=step.content[first : last + 1]
    )
