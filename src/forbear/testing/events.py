"""Events: record() keeps those of calls, to look at them afterwards. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sending.context import Listening

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..core.events import Event

__all__ = ["RecordedEvents", "record"]


class RecordedEvents(Listening):
    """Events in order: of a ``with`` block's calls, or of a transport's as its ``on_event``."""

    def __init__(self) -> None:
        self._kept: list[Event] = []
        super().__init__(self._kept.append)

    def __call__(self, event: Event) -> None:  # type: ignore[override]
        self._kept.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int) -> Event:
        return self._kept[index]

    @property
    def names(self) -> list[str]:
        """The events' names, in order."""
        return [event.name for event in self._kept]

    def named(self, name: str) -> list[Event]:
        """The events of one name, such as "gave_up"; ValueError if there is no such name."""
        from ..core.events import Event

        names = [kind._field_defaults["name"] for kind in Event.__args__]
        if name not in names:  # a typing error would make a test pass for ever
            raise ValueError(f"there is no event {name!r}; they are {', '.join(names)}")
        return [event for event in self._kept if event.name == name]

    def assert_retried(self, times: int, reasons: Sequence[str] | None = None) -> None:
        """Fail unless so many retries were scheduled, for these statuses or exception classes."""
        found = [
            str(getattr(event, "status", None) or getattr(event, "error", None))
            for event in self.named("retry_scheduled")
        ]
        if len(found) != times:
            raise AssertionError(f"expected {times} retries, there were {len(found)}: {found}")
        if reasons is not None and found != list(reasons):
            raise AssertionError(f"expected retries for {list(reasons)}, they were for {found}")

    def assert_no_events(self, name: str) -> None:
        """Fail if there was an event of this name; ValueError if there is no such name."""
        found = self.named(name)
        if found:
            raise AssertionError(f"expected no {name}, got {found}")

    def __repr__(self) -> str:
        return f"<RecordedEvents {self.names}>"


def record() -> RecordedEvents:
    """Return an object that keeps events, to look at them.

    ``with record() as events:`` keeps those of every call made in this context;
    ``on_event=[events]`` keeps those of one transport, from any thread.
    """
    return RecordedEvents()
