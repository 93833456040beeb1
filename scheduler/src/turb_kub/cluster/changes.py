"""What happened to the cluster that could let a waiting pod in, until the queue's wake-ups take it.

The cluster notes it where it happens, so that no caller can forget to: whatever adds a node, changes one or frees room
on one ends up here. It holds what changed rather than events: a node that changed a hundred times is one slot.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from turb_kub.objects.pod import Pod


class Changes:
    """Attributes:
    slots: nodes that came, changed or hold less than before, by slot.
    everywhere: whether something changed that any node's verdict may hang on.
    domains: whether a node came, went or got other labels or taints, and so other nodes may have other neighbours.
    """

    __slots__ = ("_left", "_moved", "domains", "everywhere", "slots")

    def __init__(self) -> None:
        self.slots: set[int] = set()
        self.everywhere = False
        self.domains = False
        self._moved: dict[tuple[str, int], Pod] = {}
        self._left: dict[tuple[str, int], Pod] = {}

    def __bool__(self) -> bool:
        return self.everywhere or self.domains or bool(self.slots) or bool(self._moved)

    @property
    def only_moves(self) -> bool:
        """Whether all that happened is that pods came to nodes, or are others than before, and no room was freed."""
        return not (self.everywhere or self.domains or self.slots)

    @property
    def moved(self) -> Iterable[Pod]:
        """Pods that came to a node, left one or were relabelled: one for each namespace and set of labels."""
        return self._moved.values()

    @property
    def left(self) -> Iterable[Pod]:
        """Those of `moved` that left a node, or are as they were before they were relabelled."""
        return self._left.values()

    def note_move(self, pod: Pod, sign: int) -> None:
        """Take note of a pod that comes (+1) or goes (-1); one that is another than before does both."""
        # Labels are shared between pods; this pod holds them, so that no others can take their identity.
        key = pod.namespace, id(pod.labels)
        self._moved[key] = pod
        if sign < 0:
            self._left[key] = pod

    @contextmanager
    def unnoted(self) -> Iterator[None]:
        """Note nothing of what the block does: it is to undo it all."""
        noted = self.take()
        try:
            yield
        finally:
            for name in self.__slots__:
                setattr(self, name, getattr(noted, name))

    def take(self) -> "Changes":
        """Return what has been noted and begin anew."""
        taken = Changes()
        for name in self.__slots__:
            new, old = getattr(taken, name), getattr(self, name)
            setattr(taken, name, old)
            setattr(self, name, new)
        return taken
