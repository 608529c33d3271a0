"""Part: a file while it is being fetched. Floor: acts.

``FILE.part`` holds what has come so far, ``FILE.part.json`` whose beginning that is: a hash of the
URL, and the validator to ask for the rest with. Both are gone when the download is complete and has
its name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.headers.ranges import Download, download_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...core.headers.fields import Line

__all__ = ["Part"]

LOCKS = os.name == "posix"  # elsewhere two runs at once may mix what they write
AT_ONCE = 1 << 20  # octets that are read from the disk at a time


class Part:
    """The beginning of one file. Not shared between threads; of two processes the second is
    refused.

    Args:
        path: Of the complete file.
        url: Where it comes from; only a hash of it is kept.

    Attributes:
        size: Octets that are there.
        digest: SHA-256 of them, so far.
    """

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.place = path.with_name(path.name + ".part")
        self._notes = path.with_name(path.name + ".part.json")
        self._url = hashlib.sha256(url.encode()).hexdigest()
        self._file: Any = None
        self._download: Download | None = None
        self.size = 0
        self.digest = hashlib.sha256()

    def pick_up(self) -> Download | None:
        """What an earlier run has begun, if the rest of it can be asked for; None: begin anew.

        Raises:
            OSError: It is there and cannot be read.
        """
        found = self._read_notes()
        if found is None:
            return None
        with suppress(FileNotFoundError), self.place.open("rb") as file:
            while octets := file.read(AT_ONCE):
                self.digest.update(octets)
                self.size += len(octets)
        if self.size == 0 or (found.last is not None and self.size > found.last + 1):
            self._forget()
            return None
        self._download = found
        return found

    def open(self, *, anew: bool, status: int = 200, lines: Iterable[Line] = ()) -> None:
        """Make ready for writing: after what is there, or anew for an answer with these header
        lines.

        Raises:
            OSError: There is no place for it, or another run is writing there.
        """
        if anew:
            self._forget()
        self._file = self.place.open("ab")
        self._lock()
        if anew:
            self._file.truncate(0)
            self._download = download_of("GET", (), status, lines) if status == 200 else None
            self._write_notes()
        elif os.fstat(self._file.fileno()).st_size != self.size:
            raise self._taken()  # since its size was looked at

    def write(self, octets: bytes) -> None:
        self._file.write(octets)
        self.digest.update(octets)
        self.size += len(octets)

    def complete(self) -> None:
        """Give the file its name; what had that name before is replaced."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if not LOCKS:
            self.close()  # Windows renames nothing that is open; elsewhere it is locked until it has its name
        self.place.replace(self.path)
        self._notes.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Never raises: what cannot be written any more is no loss, or ``complete`` has said so."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def discard(self) -> None:
        """It is of no use: remove it."""
        self.close()
        self._forget()
        self.place.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)

    @property
    def is_worth_keeping(self) -> bool:
        """Can another run go on with it?"""
        return self.size > 0 and self._download is not None

    def _lock(self) -> None:
        """Keep other runs out: two that go on with the same beginning would each append the
        rest.
        """
        if not LOCKS:
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._taken() from None
        except OSError:  # a file system without locks
            return
        try:
            is_it = os.path.samestat(os.fstat(self._file.fileno()), self.place.stat())
        except FileNotFoundError:
            is_it = False
        if not is_it:
            raise self._taken()  # the other run has given it its name meanwhile

    def _taken(self) -> OSError:
        return OSError(errno.EBUSY, "another run is writing it", str(self.place))

    def _forget(self) -> None:
        self.size = 0
        self.digest = hashlib.sha256()
        self._download = None

    def _read_notes(self) -> Download | None:
        try:
            notes = json.loads(self._notes.read_text(encoding="utf-8"))
            validator, complete = notes["validator"], notes["complete"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        if notes.get("url") != self._url or not isinstance(validator, str):
            return None
        if complete is not None and (not isinstance(complete, int) or complete < 1):
            return None
        return Download(0, None if complete is None else complete - 1, complete, validator, "")

    def _write_notes(self) -> None:
        download = self._download
        if (
            download is None or download.coding
        ):  # what is written are decoded octets, which have other places
            self._download = None
            self._notes.unlink(missing_ok=True)
            return
        notes = {"url": self._url, "validator": download.validator, "complete": download.complete}
        self._notes.write_text(json.dumps(notes), encoding="utf-8")
