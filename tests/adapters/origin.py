"""An origin of one representation, over a real socket, whose every answer is scripted to the byte.

FaultServer answers every request as its step says; here an answer depends on the range that was
asked for, and what matters is how it lies about it.
"""

import re
import time

from ..sockets import Listening, end_by_reset, head_from

__all__ = ["Answer", "Origin"]

RANGE = re.compile(rb"\r\nrange: bytes=(\d*)-(\d*)\r\n", re.IGNORECASE)


class Answer:
    """How one request is answered; honest and whole unless told otherwise.

    Args:
        cut: Bytes of the body that are sent, framing included; negative: from its end. None: all.
        head_cut: Bytes of the head that are sent, before the end.
        rst: It ends with a reset, after what was sent has arrived; else with a FIN.
        stall: It does not end: nothing comes any more.
        drip: Seconds between the bytes of the body.
        status: In place of 200 or 206.
        chunked: In chunks, of 1,000 bytes each.
        ranges: False: a Range is not looked at.
        lines: Header lines that replace those of the same names; None: left out.
        content: In place of the origin's.
        rest: Answers in its place if a range is asked for.
    """

    def __init__(
        self, cut=None, *, head_cut=None, rst=False, stall=False, drip=0.0, status=None, chunked=False, ranges=True,
        lines=(), content=None, rest=None,
    ):  # fmt: skip
        self.cut, self.head_cut, self.rst, self.stall, self.drip = cut, head_cut, rst, stall, drip
        self.status, self.chunked, self.ranges = status, chunked, ranges
        self.lines, self.content, self.rest = dict(lines), content, rest

    def __repr__(self):
        return f"Answer({', '.join(f'{name}={value!r}' for name, value in vars(self).items() if value)})"

    def made(self, request, content, coding):
        content = self.content if self.content is not None else content
        total = len(content)
        asked = RANGE.search(request) if self.ranges else None
        lines = {"ETag": '"v1"', "Content-Type": "text/plain"}
        if coding:
            lines["Content-Encoding"] = coding
        status, part = 200, content
        if asked:
            first, last = int(asked[1]), min(int(asked[2] or total - 1), total - 1)
            if first >= total:
                status, part, lines["Content-Range"] = 416, b"", f"bytes */{total}"
            else:
                status, part = 206, content[first : last + 1]
                lines["Content-Range"] = f"bytes {first}-{last}/{total}"
        status = self.status or status
        body = part
        if self.chunked:
            lines["Transfer-Encoding"] = "chunked"
            pieces = [part[at : at + 1000] for at in range(0, len(part), 1000)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
        else:
            lines["Content-Length"] = str(len(part))
        lines = {
            name: value for name, value in {**lines, **self.lines}.items() if value is not None
        }
        head = f"HTTP/1.1 {status} Made\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return (head + "\r\n").encode(), body


class Origin(Listening):
    """Serves what is scripted; the last answer repeats.

    Attributes:
        requests: Heads as they arrived.
        furthest: So many bytes of the content have been sent, from its beginning.
    """

    def __init__(self, content, answers, *, coding=None):
        self.content, self.coding = content, coding
        self._answers = list(answers)
        self.requests, self.furthest = [], 0
        super().__init__()

    @property
    def ranges(self):
        """Of the requests in order: what was asked for, and with which validator."""
        found = []
        for head in self.requests:
            lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
            lines = {name.lower(): value for name, value in lines.items()}
            found.append((lines.get("range"), lines.get("if-range")))
        return found

    def serve(self, sock, number):
        while (request := head_from(sock)) and self._exchange(sock, request):
            pass

    def _exchange(self, sock, request):
        with self.lock:
            self.requests.append(request)
            answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        asked = RANGE.search(request)
        if asked and answer.rest is not None:
            answer = answer.rest
        head, body = answer.made(request, self.content, self.coding)
        if answer.head_cut is not None:
            sock.sendall(head[: answer.head_cut])
            return self._end(sock, answer)
        sent = body if answer.cut is None else body[: answer.cut]
        if head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")):
            place = int(asked[1]) if b" 206 " in head[:13] else 0
            self.furthest = max(self.furthest, place + len(sent))
        if answer.drip:
            sock.sendall(head)
            for at in range(len(sent)):
                sock.sendall(sent[at : at + 1])
                time.sleep(answer.drip)
        else:
            sock.sendall(head + sent)
        if answer.stall:
            return bool(sock.recv(1))  # until the other side leaves
        if answer.cut is None and not answer.rst:
            return True
        return self._end(sock, answer)

    def _end(self, sock, answer):
        if answer.rst:
            time.sleep(0.01)  # a reset discards what is not delivered
            end_by_reset(sock)
        return False
