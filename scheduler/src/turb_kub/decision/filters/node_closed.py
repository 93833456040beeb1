"""Keeps pods off nodes that cannot be counted on: malformed themselves, or holding a pod that is.

What such a pod takes of its node is not known, so any pod beside it could be one too many. Ours: kube-scheduler leaves
out an object that it cannot decode.
"""

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, one_reason
from turb_kub.objects.pod import Pod

NAME = "NodeClosed"
REASON = "node(s) were malformed or held a malformed pod"


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    slots = cluster.slots_of(cluster.closed_nodes)
    return cluster.mask(slots) if slots else None


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    return tuple(cluster.why_closed(cluster.node_at(slot).name))


FILTER = PodFilter(NAME, _refused, one_reason(NAME, REASON), _details)
