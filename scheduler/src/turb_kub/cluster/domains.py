"""Topology domains: which nodes have the same value of a label."""

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from turb_kub.cluster.node_memo import NodeMemo
from turb_kub.objects.node import Node

if TYPE_CHECKING:
    from turb_kub.cluster.cluster import Cluster

#: For each slot the number of its domain.
Numbers = npt.NDArray[np.intp]
#: The number of a slot without a node, or whose node lacks the label.
NOWHERE = -1
_KEPT = 64


class _Domains:
    """The domains of one topology key, numbered in the order in which they were met."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._by_value: dict[str, int] = {}
        self._memo = NodeMemo(self._number, empty=NOWHERE, dtype=np.intp)

    def numbers(self, cluster: "Cluster") -> tuple[Numbers, int]:
        return self._memo.numbers(cluster), len(self._by_value)

    def _number(self, node: Node) -> int:
        value = node.labels.get(self._key)
        return NOWHERE if value is None else self._by_value.setdefault(value, len(self._by_value))


class Topology:
    """The domains of the topology keys that pods have asked about. A memo of the nodes' labels."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[str, _Domains] = OrderedDict()

    def domains(self, cluster: "Cluster", key: str) -> tuple[Numbers, int]:
        """Return for each slot the number of its domain, `NOWHERE` for one without, and how many numbers there are.

        The numbers go from 0 up; one may have no node left.
        """
        numbers, count = self._of(key).numbers(cluster)
        if count > 2 * cluster.size + 64:
            # Most of them are of nodes that are gone.
            del self._by_key[key]
            numbers, count = self._of(key).numbers(cluster)
        return numbers, count

    def _of(self, key: str) -> _Domains:
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = _Domains(key)
            if len(self._by_key) > _KEPT:
                self._by_key.popitem(last=False)
        else:
            self._by_key.move_to_end(key)
        return found
