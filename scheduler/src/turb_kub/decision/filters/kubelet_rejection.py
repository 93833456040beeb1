"""Keeps pods off a node whose kubelet has just turned away a pod of the same shape.

A controller makes a rejected pod anew at once, and the node that was best before is best again: without this the two
go on for ever (kubernetes/kubernetes#106419, #38806). What the kubelet knows and the API server does not (a pod that
has finished but not yet let go, labels not yet reported) mends itself in seconds.
"""

from collections.abc import Iterable

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.objects.pod import Pod

NAME = "KubeletRejection"
REASON = "node(s) turned away a pod like this one lately"


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not cluster.cooling:
        return None
    slots = [slot for name in cluster.cooling.nodes(pod.shape) if (slot := cluster.slot(name)) is not None]
    if not slots:
        return None
    refused: Bools = np.zeros(cluster.size, dtype=np.bool_)
    refused[slots] = True
    return refused


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    return [Refusal(NAME, REASON, refused)]


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    reason = cluster.cooling.nodes(pod.shape).get(cluster.node_at(slot).name, "")
    return (f"its kubelet turned away a pod like this one lately: {reason}",)


FILTER = PodFilter(NAME, _refused, _reasons, _details)
