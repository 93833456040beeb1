"""The filters, one module each, in kube-scheduler's order.

A node is refused by the first filter that refuses it, as kube-scheduler does, so that counts in a message add up the
same way. A filter's name is the one of kube-scheduler's plugin of the same job; its reason text likewise, so that
dashboards and alerts on them keep working. `NodeReady`, `NodeClosed`, `KubeletRejection` and `NodeMemoryLimit` are
ours.

Those in `PRE_FILTERS` look at the pod, not at nodes. Those in `NODE_FILTERS` look at the node's own properties and the
pod's constraints alone: their verdicts are kept and made again only for a node that changed. Those in `POD_FILTERS`
look at what the nodes hold and are asked every time.
"""

from turb_kub.decision.filters import (
    kubelet_rejection,
    node_affinity,
    node_closed,
    node_ports,
    node_ready,
    node_resources,
    node_unschedulable,
    node_volume_limits,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
    volumes_known,
)
from turb_kub.decision.filters.base import NodeFilter, PodFilter, PreFilter, Refusal

PRE_FILTERS: tuple[PreFilter, ...] = (
    volumes_known.PRE_FILTER,
    volume_restrictions.PRE_FILTER,
    volume_binding.PRE_FILTER,
    volume_zone.PRE_FILTER,
)

NODE_FILTERS: tuple[NodeFilter, ...] = (
    node_unschedulable.FILTER,
    taint_toleration.FILTER,
    node_ready.FILTER,
    node_affinity.FILTER,
)

POD_FILTERS: tuple[PodFilter, ...] = (
    node_closed.FILTER,
    node_ports.FILTER,
    node_resources.FILTER,
    volume_restrictions.FILTER,
    node_volume_limits.FILTER,
    volume_binding.FILTER,
    volume_zone.FILTER,
    kubelet_rejection.FILTER,
)

__all__ = ["NODE_FILTERS", "POD_FILTERS", "PRE_FILTERS", "NodeFilter", "PodFilter", "PreFilter", "Refusal"]
