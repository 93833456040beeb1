"""The filters that look at more than a node's own properties, in kube-scheduler's order.

A node is refused by the first filter that refuses it, those of `NODE_FILTERS` before these, as kube-scheduler does, so
that counts in a message add up the same way.
"""

from turb_kub.decision.filters import (
    inter_pod_affinity,
    kubelet_rejection,
    node_closed,
    node_ports,
    node_resources,
    node_volume_limits,
    nominated_pods,
    pod_topology_spread,
    shared_nodes,
    volume_binding,
    volume_restrictions,
    volume_zone,
    volumes_known,
)
from turb_kub.decision.filters.base import PodFilter, PreFilter

#: They look at the pod, not at nodes.
PRE_FILTERS: tuple[PreFilter, ...] = (
    volumes_known.PRE_FILTER,
    volume_restrictions.PRE_FILTER,
    volume_binding.PRE_FILTER,
    volume_zone.PRE_FILTER,
)

_KUBE_SCHEDULERS: tuple[PodFilter, ...] = (
    node_ports.FILTER,
    node_resources.FILTER,
    volume_restrictions.FILTER,
    node_volume_limits.FILTER,
    volume_binding.FILTER,
    volume_zone.FILTER,
    pod_topology_spread.FILTER,
    inter_pod_affinity.FILTER,
)

PRE_FILTER_NAMES = frozenset(one.name for one in PRE_FILTERS)

#: They look at what the nodes hold, and are asked for every decision.
POD_FILTERS: tuple[PodFilter, ...] = (
    # kube-scheduler has none like the first and the last two.
    node_closed.FILTER,
    *_KUBE_SCHEDULERS,
    nominated_pods.filter_of(_KUBE_SCHEDULERS),
    kubelet_rejection.FILTER,
    shared_nodes.FILTER,
)
