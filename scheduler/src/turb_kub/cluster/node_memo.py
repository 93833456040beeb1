"""A number for each node, made from the node alone and made again only when the node changes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from turb_kub.objects.node import Node

if TYPE_CHECKING:
    from turb_kub.cluster.cluster import Cluster


class NodeMemo:
    """One number a slot. A memo, not state: dropping it changes no answer.

    Attributes:
        any: whether any number, those of empty slots included, is other than 0.
    """

    def __init__(self, of: Callable[[Node], int], *, empty: int, dtype: type[np.generic]) -> None:
        """Take the function that makes the number, the number of an empty slot, and the array's type."""
        self._of = of
        self._empty = empty
        self._numbers: npt.NDArray[Any] = np.zeros(0, dtype=dtype)
        self._position = -1
        self.any = False

    def numbers(self, cluster: "Cluster") -> npt.NDArray[Any]:
        """Return the number of each slot's node. Read only."""
        changed, self._position = cluster.changes_since(self._position)
        size = cluster.size
        if len(self._numbers) < size:
            more = max(size, 2 * len(self._numbers)) - len(self._numbers)
            self._numbers = np.pad(self._numbers, (0, more), constant_values=self._empty)
        for slot in range(size) if changed is None else changed:
            node = cluster.nodes[slot]
            self._numbers[slot] = self._empty if node is None else self._of(node)
        if changed is None or changed:
            self.any = bool(self._numbers[:size].any())
        return self._numbers[:size]
