"""What a pod's constraints make of each node, kept for each set of constraints and made again for nodes that change.

A memo, not state: dropping it changes no answer.
"""

from collections import OrderedDict
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from turb_kub.cluster.cluster import Bools, Cluster, Int64s
from turb_kub.cluster.node_memo import NodeMemo
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

    def __init__(self, constraints: NodeConstraints) -> None:
        self.codes = NodeMemo(partial(_code, constraints), empty=EMPTY_SLOT, dtype=np.int8)
        self.misgivings = NodeMemo(partial(_misgiving, constraints), empty=0, dtype=np.int64)
        self.admitted = NodeMemo(partial(_admits, constraints), empty=0, dtype=np.bool_)
        self.tolerated = NodeMemo(partial(_tolerates, constraints), empty=0, dtype=np.bool_)


_memos: "WeakKeyDictionary[Cluster, OrderedDict[NodeConstraints, _Verdicts]]" = WeakKeyDictionary()


def node_verdicts(cluster: Cluster, constraints: NodeConstraints) -> Codes:
    """Return, for each slot, the code of the node filter that refuses it, `PASSES` or `EMPTY_SLOT`. Read only."""
    return _verdicts(cluster, constraints).codes.numbers(cluster)


def node_misgivings(cluster: Cluster, constraints: NodeConstraints) -> Int64s | None:
    """Return, for each slot, what makes others preferable, the less the better; None where nothing does. Read only.

    First counts how many PreferNoSchedule taints are not tolerated, then how little preferred node affinity matches.
    """
    memo = _verdicts(cluster, constraints).misgivings
    misgivings = memo.numbers(cluster)
    return misgivings if memo.any else None


def admitted_nodes(cluster: Cluster, constraints: NodeConstraints) -> Bools:
    """Return, for each slot, whether nodeSelector and required node affinity admit its node. Read only."""
    return _verdicts(cluster, constraints).admitted.numbers(cluster)


def tolerated_nodes(cluster: Cluster, constraints: NodeConstraints) -> Bools:
    """Return, for each slot, whether all NoSchedule and NoExecute taints of its node are tolerated. Read only."""
    return _verdicts(cluster, constraints).tolerated.numbers(cluster)


def _verdicts(cluster: Cluster, constraints: NodeConstraints) -> _Verdicts:
    memo = _memos.setdefault(cluster, OrderedDict())
    verdicts = memo.get(constraints)
    if verdicts is None:
        verdicts = memo[constraints] = _Verdicts(constraints)
        if len(memo) > _KEPT:
            memo.popitem(last=False)
    else:
        memo.move_to_end(constraints)
    return verdicts


def _code(constraints: NodeConstraints, node: Node) -> int:
    for place, node_filter in enumerate(NODE_FILTERS, start=1):
        if node_filter.refuses(node, constraints):
            return place
    return PASSES


def _misgiving(constraints: NodeConstraints, node: Node) -> int:
    untolerated = sum(not constraints.tolerates(taint) for taint in node.soft_taints)
    return untolerated * _TAINT - constraints.preference_for(node.name, node.labels)


def _admits(constraints: NodeConstraints, node: Node) -> int:
    return constraints.matches_affinity(node.name, node.labels)


def _tolerates(constraints: NodeConstraints, node: Node) -> int:
    return all(constraints.tolerates(taint) for taint in node.taints)
