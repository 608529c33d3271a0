"""A clock whose waits are not only waited: something happens, or they are interrupted."""

from forbear.testing import FakeClock


class Meanwhile(FakeClock):
    """Calls a function when the time of each wait has passed, sync or async."""

    def __init__(self, happens):
        super().__init__()
        self._happens = happens

    def sleep(self, seconds):
        super().sleep(seconds)
        self._happens(self)


class Interrupted(FakeClock):
    """Raises at the beginning of a wait: at each, or only at the one of this number, from 0."""

    def __init__(self, error=KeyboardInterrupt, *, at=None):
        super().__init__()
        self._error, self._at = error, at

    def sleep(self, seconds):
        if self._at in (None, len(self.sleeps)):
            if self._at is not None:
                self._at = -1
            raise self._error
        super().sleep(seconds)
