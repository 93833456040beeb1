"""Keeps pods off nodes that cannot be counted on: malformed themselves, or holding a pod that is.

What such a pod takes of its node is not known, so any pod beside it could be one too many. Ours: kube-scheduler leaves
out an object that it cannot decode.
"""

from collections.abc import Iterable

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.objects.pod import Pod

NAME = "NodeClosed"
REASON = "node(s) were malformed or held a malformed pod"


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    slots = [slot for name in cluster.closed_nodes if (slot := cluster.slot(name)) is not None]
    if not slots:
        return None
    refused: Bools = np.zeros(cluster.size, dtype=np.bool_)
    refused[slots] = True
    return refused


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    return [Refusal(NAME, REASON, refused)]


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    return tuple(cluster.why_closed(cluster.node_at(slot).name))


FILTER = PodFilter(NAME, _refused, _reasons, _details)
