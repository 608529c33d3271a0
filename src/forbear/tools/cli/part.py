"""Part: a file while it is being fetched. Floor: acts.

``FILE.part`` holds the octets so far, ``FILE.part.of`` a hash of the URL and the validator to ask
for the rest with. Both are gone when the download is complete and has its name.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.headers.ranges import Download

__all__ = ["Part"]


class Part:
    """The beginning of one file; no other run can open it meanwhile, except on Windows."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.place = path.with_name(path.name + ".part")
        self._origin = path.with_name(path.name + ".part.of")
        self._url = hashlib.sha256(url.encode()).hexdigest()
        self._file: Any = self.place.open("ab")
        if os.name == "posix" and not self._is_locked():
            self._file.close()
            raise OSError(errno.EBUSY, "another run is writing it", str(self.place))
        self.size: int = self._file.tell()  # octets that are there
        self.download: Download | None = None  # how to ask for the rest; None: fetch it anew
        with suppress(OSError, ValueError):  # there is no earlier run, or no telling whose it was
            found, validator = self._origin.read_text(encoding="ascii").splitlines()
            if found == self._url and self.size:
                self.download = Download(0, None, None, validator, "")

    def begin(self, download: Download | None) -> None:
        """Begin anew; ``download`` tells later runs how to ask for the rest."""
        self._file.truncate(0)
        self.size = 0
        self._origin.unlink(missing_ok=True)
        # Decoded octets have other places than those on the wire.
        self.download = None if download is None or download.coding else download
        if self.download is not None:
            lines = f"{self._url}\n{self.download.validator}\n"
            self._origin.write_text(lines, encoding="ascii")

    def write(self, octets: bytes) -> None:
        self._file.write(octets)
        self.size += len(octets)

    def complete(self) -> None:
        """Give the file its name; another file of that name is replaced."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if os.name != "posix":
            self._file.close()  # Windows renames no open file
        self.place.replace(self.path)
        self._origin.unlink(missing_ok=True)
        self._file.close()

    def leave(self) -> bool:
        """Keep the octets if another run can go on with them, else remove them; were they kept?"""
        with suppress(OSError):  # of a full disk, which was told already
            self._file.close()
        if self.size and self.download is not None:
            return True
        self.place.unlink(missing_ok=True)
        self._origin.unlink(missing_ok=True)
        return False

    def _is_locked(self) -> bool:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking the other run may have given the file its name.
            return os.path.samestat(os.fstat(self._file.fileno()), self.place.stat())
        except OSError as error:  # some file systems have no locks
            return error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
