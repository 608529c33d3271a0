"""Trail: the notes that a call takes as it goes. Floor: decides."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .outcome import Failure
    from .verdict import Reason

__all__ = ["Trail"]


class Trail:
    """The notes that a call takes, from which its record is made when someone asks.

    Taking notes costs a tenth of making the record, and hardly anyone looks.
    """

    __slots__ = (
        "broke_at",
        "elapsed",
        "entries",
        "method",
        "origin",
        "reason",
        "refused_delay",
        "resumed",
        "sent_before",
    )

    def __init__(self, method: str, origin: str) -> None:
        self.method = method
        self.origin = origin
        self.sent_before = 0  # retries that earlier hops of a redirected call used
        # Status, failure, seconds, delay after it, who chose that; and the origin, if it is not the
        # call's own.
        self.entries: list[
            tuple[int | None, Failure | None, float, float | None, str | None, str | None]
        ] = []
        self.elapsed: float | None = None
        self.reason: Reason | None = None
        self.refused_delay: float | None = None
        self.broke_at: int | None = None  # where the break of a body is noted that was handed over
        self.resumed: tuple[int, ...] = ()  # positions at which the body was gone on with

    def kind_of_last(self) -> str | None:
        """What was noted last: "first", "retry", "failover" (to another origin than the one
        before), "resume".

        None for one that was told of as accepted before its body broke.
        """
        return self._kind(len(self.entries) - 1, self.entries[-1][5])

    def kind_of_next(self, origin: str) -> str | None:
        """The same of one that was sent to ``origin`` and is not noted yet."""
        return self._kind(len(self.entries), None if origin == self.origin else origin)

    def _kind(self, place: int, origin: str | None) -> str | None:
        if self.broke_at is not None:
            return "resume" if place > self.broke_at else None
        if place == 0:
            return "first"
        return "retry" if self.entries[place - 1][5] == origin else "failover"

    def waited(self) -> float:
        return sum(entry[3] or 0.0 for entry in self.entries)

    def __repr__(self) -> str:
        story = [
            str(failure.status or failure.error) if failure else status
            for status, failure, *_ in self.entries
        ]
        return f"<Trail {self.method} {self.origin} {story}>"
