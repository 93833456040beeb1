"""Keeps pods off a node whose kubelet has just turned away a pod of the same shape.

A controller makes a rejected pod anew at once, and the node that was best before is best again: without this the two
go on for ever (kubernetes/kubernetes#106419, #38806). What the kubelet knows and the API server does not (a pod that
has finished but not yet let go, labels not yet reported) mends itself in seconds.
"""

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, one_reason
from turb_kub.objects.pod import Pod

NAME = "KubeletRejection"
REASON = "node(s) turned away a pod like this one lately"


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not cluster.cooling:
        return None
    slots = cluster.slots_of(cluster.cooling.nodes(pod.shape))
    return cluster.mask(slots) if slots else None


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    reason = cluster.cooling.nodes(pod.shape).get(cluster.node_at(slot).name, "")
    return (f"its kubelet turned away a pod like this one lately: {reason}",)


FILTER = PodFilter(NAME, _refused, one_reason(NAME, REASON), _details)
