"""The filters, one module each, in kube-scheduler's order.

A node is refused by the first filter that refuses it, as kube-scheduler does, so that counts in a message add up the
same way. A filter's name is the one of kube-scheduler's plugin of the same job; its reason text likewise, so that
dashboards and alerts on them keep working. `NodeReady` and `NodeMemoryLimit` are ours.

Filters that look at the node's own properties and the pod's constraints alone stand in `NODE_FILTERS`: their verdicts
are kept and made again only for a node that changed. `node_resources` looks at what is free and runs every time.
"""

from turb_kub.decision.filters import node_affinity, node_ready, node_unschedulable, taint_toleration
from turb_kub.decision.filters.base import NodeFilter

NODE_FILTERS: tuple[NodeFilter, ...] = (
    node_unschedulable.FILTER,
    taint_toleration.FILTER,
    node_ready.FILTER,
    node_affinity.FILTER,
)

__all__ = ["NODE_FILTERS", "NodeFilter"]
