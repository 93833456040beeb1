"""What happened to the cluster that could let a waiting pod in, until the queue's wake-ups take it.

The cluster notes it where it happens, so that no caller can forget to: whatever adds a node, changes one or frees room
on one ends up here. It holds nodes rather than events: one that changed a hundred times is one slot.
"""


class Changes:
    """Attributes:
    slots: nodes that came, changed or hold less than before, by slot.
    everywhere: whether something changed that any node's verdict may hang on.
    """

    __slots__ = ("everywhere", "slots")

    def __init__(self) -> None:
        self.slots: set[int] = set()
        self.everywhere = False

    def __bool__(self) -> bool:
        return self.everywhere or bool(self.slots)

    def take(self) -> "Changes":
        """Return what has been noted and begin anew."""
        taken = Changes()
        taken.slots, self.slots = self.slots, taken.slots
        taken.everywhere, self.everywhere = self.everywhere, False
        return taken
