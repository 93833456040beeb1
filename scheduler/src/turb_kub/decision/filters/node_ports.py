"""Keeps pods off nodes where a host port that they claim is taken.

Source: kubernetes.io, "Configuration Best Practices" (hostPort: each <hostIP, hostPort, protocol> is unique on a node).
"""

from collections.abc import Iterable

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.objects.pod import Pod

NAME = "NodePorts"
REASON = "node(s) didn't have free ports for the requested pod ports"


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not pod.host_ports:
        return None
    refused: Bools = np.zeros(cluster.size, dtype=np.bool_)
    for wanted in pod.host_ports:
        for node_name, taken in cluster.ports.on(wanted.port):
            slot = cluster.slot(node_name)
            if slot is not None and any(wanted.collides(other) for other in taken):
                refused[slot] = True
    return refused


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    return [Refusal(NAME, REASON, refused)]


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    name = cluster.node_at(slot).name
    taken = [
        str(wanted)
        for wanted in pod.host_ports
        for node_name, others in cluster.ports.on(wanted.port)
        if node_name == name and any(wanted.collides(other) for other in others)
    ]
    return (f"host port {', '.join(taken)} is taken",)


FILTER = PodFilter(NAME, _refused, _reasons, _details)
