"""What happened lately, for readers that come back for what is new: each keeps a position of its own."""

from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class Journal(Generic[Entry]):
    """Entries, oldest first; of old ones only how many there were."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._dropped = 0

    def add(self, entry: Entry, most: int) -> None:
        """Add an entry. Where there are more than `most`, the older half is dropped."""
        self._entries.append(entry)
        if len(self._entries) > most:
            drop = len(self._entries) // 2
            del self._entries[:drop]
            self._dropped += drop

    def since(self, position: int) -> tuple[list[Entry] | None, int]:
        """Return the entries since a position, and the position now. A reader starts at position -1.

        None in the place of the entries says that the position is too old: anything may have happened.
        """
        now = self._dropped + len(self._entries)
        if position < self._dropped:
            return None, now
        return self._entries[position - self._dropped :], now
