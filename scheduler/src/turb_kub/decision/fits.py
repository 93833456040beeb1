"""`fits`: whether a pod would find a node, the question that wake-ups ask again and again.

The same filters as `decide`, without a ranking and without reasons, and where only some nodes changed without looking
at the others.
"""

from collections.abc import Collection

from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.feasibility import feasible, pod_refusal
from turb_kub.decision.filters import NODE_FILTERS
from turb_kub.decision.pod_filters import POD_FILTERS
from turb_kub.objects.pod import Pod

#: Of so many nodes each is asked by itself; of more the kept verdicts of all nodes are cheaper.
_FEW = 64


def fits(cluster: Cluster, pod: Pod, slots: Collection[int] | None = None) -> bool:
    """Tell whether every filter passes one of the nodes in these slots (None: in any). Changes nothing.

    The table of fields is not asked: its answer never changes.
    """
    if pod_refusal(cluster, pod) is not None:
        return False
    if slots is None:
        return bool(feasible(cluster, pod).any())
    if len(slots) > _FEW:
        return bool(feasible(cluster, pod)[list(slots)].any())
    passed = [slot for slot in slots if _passes_node_filters(cluster, slot, pod)]
    for pod_filter in POD_FILTERS:
        if not passed:
            return False
        refused = pod_filter.refused(cluster, pod)
        if refused is not None:
            passed = [slot for slot in passed if not refused[slot]]
    return bool(passed)


def _passes_node_filters(cluster: Cluster, slot: int, pod: Pod) -> bool:
    node = cluster.nodes[slot]
    return node is not None and not any(one.refuses(node, pod.constraints) for one in NODE_FILTERS)
