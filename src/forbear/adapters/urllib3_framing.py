"""Framing: where in a chunked body a reader stands, from the bytes that it was given. Floor: acts.

http.client and urllib3 take the framing apart themselves (RFC 9112 section 7.1), each in its own
way; whoever goes on with a broken body has to know what they expect next, and make it: how the rest
comes is another thing.
"""

from __future__ import annotations

__all__ = ["Framing"]

MOST_DIGITS = 16  # of a chunk's size


class Framing:
    """Fed with all bytes of a body as it came, in order.

    Attributes:
        left: Bytes of content that are to come in this chunk; 0 outside of one.
        is_over: The last chunk has come; only trailers follow, and hardly anyone sends them.
        is_broken: It is no chunked body.
    """

    __slots__ = ("_is_after", "_line", "is_broken", "is_over", "left")

    def __init__(self) -> None:
        self.left = 0
        self.is_over = self.is_broken = False
        self._line = b""  # as far as it has come: a size, or the end of a chunk
        self._is_after = False  # a chunk's content has come, and the end of its line has not

    @property
    def is_at_size(self) -> bool:
        """The next thing is the size of a chunk."""
        return not (self.left or self._is_after or self.is_over or self.is_broken)

    def content_of(self, found: bytes) -> int:
        """Count the bytes of content in what was given."""
        content, at, end = 0, 0, len(found)
        while at < end and not (self.is_over or self.is_broken):
            if self.left:
                taken = min(self.left, end - at)
                content += taken
                at += taken
                self.left -= taken
                self._is_after = not self.left
            else:
                newline = found.find(b"\n", at) + 1 or end
                self._line += found[at:newline]
                at = newline
                if self._line.endswith(b"\n"):
                    self._take_line(self._line.rstrip(b"\r\n"))
                    self._line = b""
        return content

    def made(self, content: bytes) -> bytes:
        """The framing that a reader expects next, around the content that comes next; none: there
        is no more.
        """
        if self._is_after:
            return b"\r\n"[len(self._line) :]
        if self.is_over:
            return b"\r\n"
        return b"%x\r\n%b\r\n" % (len(content), content) if content else b"0\r\n\r\n"

    def _take_line(self, line: bytes) -> None:
        if self._is_after:
            self._is_after = False
            self.is_broken = bool(line)
            return
        digits = line.partition(b";")[0].strip()
        try:
            self.left = int(digits, 16) if len(digits) <= MOST_DIGITS else -1
        except ValueError:
            self.left = -1
        self.is_over = self.left == 0
        if self.left < 0:
            self.left, self.is_broken = 0, True
