"""Keeps pods off nodes where a host port that they claim is taken.

Source: kubernetes.io, "Configuration Best Practices" (hostPort: each <hostIP, hostPort, protocol> is unique on a node).
"""

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, one_reason
from turb_kub.objects.pod import Pod

NAME = "NodePorts"
REASON = "node(s) didn't have free ports for the requested pod ports"


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not pod.host_ports:
        return None
    colliding = (
        node_name
        for wanted in pod.host_ports
        for node_name, taken in cluster.ports.on(wanted.port)
        if any(wanted.collides(other) for other in taken)
    )
    return cluster.mask(cluster.slots_of(colliding))


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    name = cluster.node_at(slot).name
    taken = [
        str(wanted)
        for wanted in pod.host_ports
        for node_name, others in cluster.ports.on(wanted.port)
        if node_name == name and any(wanted.collides(other) for other in others)
    ]
    return (f"host port {', '.join(taken)} is taken",)


FILTER = PodFilter(NAME, _refused, one_reason(NAME, REASON), _details)
