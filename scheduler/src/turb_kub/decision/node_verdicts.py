"""The verdicts of the node filters and the preferences, kept for each set of constraints.

Both are made again only for nodes that changed.

A memo, not state: dropping it changes no answer.
"""

from collections import OrderedDict
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from turb_kub.cluster.cluster import Cluster, Int64s
from turb_kub.decision.filters import NODE_FILTERS
from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.node import Node

Codes = npt.NDArray[np.int8]
#: The code of a slot whose node no filter refuses; others are 1 + the place in `NODE_FILTERS` of the one that does.
PASSES = 0
EMPTY_SLOT = -1
_KEPT = 512
#: Larger than any sum of weights (a pod's terms weigh at most 100 each).
_TAINT = 2**32


class _Verdicts:
    """One set of constraints against every node."""

    def __init__(self) -> None:
        self.codes: Codes = np.zeros(0, dtype=np.int8)
        #: What speaks against a node that is feasible; all 0 where there is no preference at all.
        self.misgivings: Int64s = np.zeros(0, dtype=np.int64)
        self.prefers = False
        self.position = -1

    def refresh(self, cluster: Cluster, constraints: NodeConstraints) -> Codes:
        changed, self.position = cluster.changes_since(self.position)
        if len(self.codes) < cluster.size:
            longer = np.full(max(cluster.size, 2 * len(self.codes)), EMPTY_SLOT, dtype=np.int8)
            longer[: len(self.codes)] = self.codes
            self.misgivings = np.concatenate([self.misgivings, np.zeros(len(longer) - len(self.codes), dtype=np.int64)])
            self.codes = longer
        for slot in range(cluster.size) if changed is None else changed:
            node = cluster.nodes[slot]
            self.codes[slot] = EMPTY_SLOT if node is None else _code(node, constraints)
            self.misgivings[slot] = 0 if node is None else _misgiving(node, constraints)
        if changed is None or changed:
            self.prefers = bool(self.misgivings[: cluster.size].any())
        return self.codes[: cluster.size]


_memos: "WeakKeyDictionary[Cluster, OrderedDict[NodeConstraints, _Verdicts]]" = WeakKeyDictionary()


def node_verdicts(cluster: Cluster, constraints: NodeConstraints) -> Codes:
    """Return, for each slot, the code of the node filter that refuses it, `PASSES` or `EMPTY_SLOT`. Read only."""
    return _verdicts(cluster, constraints).refresh(cluster, constraints)


def node_misgivings(cluster: Cluster, constraints: NodeConstraints) -> Int64s | None:
    """Return, for each slot, what makes others preferable, the less the better; None where nothing does. Read only.

    First counts how many PreferNoSchedule taints are not tolerated, then how little preferred node affinity matches.
    """
    verdicts = _verdicts(cluster, constraints)
    verdicts.refresh(cluster, constraints)
    return verdicts.misgivings[: cluster.size] if verdicts.prefers else None


def _verdicts(cluster: Cluster, constraints: NodeConstraints) -> _Verdicts:
    memo = _memos.setdefault(cluster, OrderedDict())
    verdicts = memo.get(constraints)
    if verdicts is None:
        verdicts = memo[constraints] = _Verdicts()
        if len(memo) > _KEPT:
            memo.popitem(last=False)
    else:
        memo.move_to_end(constraints)
    return verdicts


def _code(node: Node, constraints: NodeConstraints) -> int:
    for place, node_filter in enumerate(NODE_FILTERS, start=1):
        if node_filter.refuses(node, constraints):
            return place
    return PASSES


def _misgiving(node: Node, constraints: NodeConstraints) -> int:
    untolerated = sum(not constraints.tolerates(taint) for taint in node.soft_taints)
    return untolerated * _TAINT - constraints.preference_for(node.name, node.labels)
