"""Part: a file while it is being fetched. Floor: acts.

``FILE.part`` holds the octets so far, ``FILE.part.of`` a hash of the URL and the validator to ask
for the rest with, if there is one. Both are gone when the download is complete and has its name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ...core.headers.ranges import Download

__all__ = ["Part"]


class Part:
    """The beginning of one file; no other run can open it meanwhile, except on Windows."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.place = path.with_name(path.name + ".part")
        self._notes = path.with_name(path.name + ".part.of")
        self._url = hashlib.sha256(url.encode()).hexdigest()
        self.download: Download | None = None  # how to ask for the rest; None: fetch it anew
        with ExitStack() as stack:
            self._file = stack.enter_context(open(self.place, "a+b", opener=carefully))
            if os.name == "posix" and not self._is_locked():
                raise OSError(errno.EBUSY, "another run is writing it", str(self.place))
            self.size = self._file.tell()  # octets that are there
            found = validator = ""
            with suppress(OSError, ValueError), open(self._notes, "rb", opener=carefully) as notes:
                found, validator = notes.read().decode("ascii").splitlines()
            if self.size and len(found) != len(self._url):
                raise OSError(errno.EEXIST, "not from an earlier run; remove it", str(self.place))
            if self.size and found == self._url and validator:
                self.download = Download(0, None, None, validator, "")
            stack.pop_all()

    def begin(self, download: Download | None) -> None:
        """Begin anew; ``download`` tells later runs how to ask for the rest."""
        self._file.truncate(0)
        self.size = 0
        # Decoded octets have other places than those on the wire.
        self.download = None if download is None or download.coding else download
        validator = "" if self.download is None else self.download.validator
        self._notes.unlink(missing_ok=True)
        with self._notes.open("x", encoding="ascii") as notes:  # a new file: it is no link
            notes.write(f"{self._url}\n{validator}\n")

    def write(self, octets: bytes) -> None:
        self._file.write(octets)
        self.size += len(octets)

    def digest(self) -> Any:
        """The SHA-256 of the octets that are there, as an object that takes more of them."""
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256")

    def complete(self) -> None:
        """Give the file its name; another file of that name is replaced."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if os.name != "posix":
            self._file.close()  # Windows renames no open file
        self.place.replace(self.path)
        self._notes.unlink(missing_ok=True)
        self._file.close()

    def leave(self) -> bool:
        """Keep the octets if another run can go on with them, else remove them; were they kept?"""
        with suppress(OSError):  # of a full disk, which was told already
            self._file.close()
        if self.size and self.download is not None:
            return True
        self.place.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)
        return False

    def _is_locked(self) -> bool:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking the other run may have given the file its name.
            return os.path.samestat(os.fstat(self._file.fileno()), self.place.lstat())
        except OSError as error:  # some file systems have no locks
            return error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


def carefully(path: str, flags: int) -> int:
    """Open a plain file: no link is followed, and no pipe waited for."""
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    opened = os.open(path, flags | careful, 0o666)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise OSError(errno.EINVAL, "it is no plain file", path)
