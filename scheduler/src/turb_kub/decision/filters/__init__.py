"""The filters, one module each.

A filter's name is the one of kube-scheduler's plugin of the same job; its reason text likewise, so that dashboards and
alerts on them keep working. `NodeReady`, `NodeClosed`, `KubeletRejection`, `SharedNodes` and
`NodeMemoryLimit` are ours.

Those in `NODE_FILTERS` look at the node's own properties and the pod's constraints alone: their verdicts are kept and
made again only for a node that changed (`node_verdicts`). The others are listed in `pod_filters`.
"""

from turb_kub.decision.filters import node_affinity, node_ready, node_unschedulable, taint_toleration
from turb_kub.decision.filters.base import NodeFilter

#: In kube-scheduler's order.
NODE_FILTERS: tuple[NodeFilter, ...] = (
    node_unschedulable.FILTER,
    taint_toleration.FILTER,
    node_ready.FILTER,
    node_affinity.FILTER,
)
