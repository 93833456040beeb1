"""The filters, one module each, in kube-scheduler's order.

A node is refused by the first filter that refuses it, as kube-scheduler does, so that counts in a message add up the
same way. A filter's name is the one of kube-scheduler's plugin of the same job; its reason text likewise, so that
dashboards and alerts on them keep working. `NodeReady` and `NodeMemoryLimit` are ours.

Filters that look at the node's own properties and the pod's constraints alone stand in `NODE_FILTERS`: their verdicts
are kept and made again only for a node that changed. Those in `POD_FILTERS` look at what the nodes hold and are asked
every time; `node_resources`, the last, compares amounts.
"""

from turb_kub.decision.filters import node_affinity, node_ports, node_ready, node_unschedulable, taint_toleration
from turb_kub.decision.filters.base import NodeFilter, PodFilter

NODE_FILTERS: tuple[NodeFilter, ...] = (
    node_unschedulable.FILTER,
    taint_toleration.FILTER,
    node_ready.FILTER,
    node_affinity.FILTER,
)

POD_FILTERS: tuple[PodFilter, ...] = (node_ports.FILTER,)

#: All of them in order; a filter's place here, counted from 1, is its code (see `node_verdicts`).
FILTERS: tuple[NodeFilter | PodFilter, ...] = (*NODE_FILTERS, *POD_FILTERS)

__all__ = ["FILTERS", "NODE_FILTERS", "POD_FILTERS", "NodeFilter", "PodFilter"]
