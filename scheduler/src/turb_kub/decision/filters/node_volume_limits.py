"""Keeps pods off nodes to which as many volumes of a CSI driver are attached as the driver states it can.

Source: kubernetes.io, "Node-specific Volume Limits" (CSINode `allocatable.count`). A node that states none has none.
"""

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, one_reason
from turb_kub.objects.pod import Pod

NAME = "NodeVolumeLimits"
EXCEEDED = "node(s) exceed max volume count"


def _wanted(cluster: Cluster, pod: Pod) -> dict[str, set[str]]:
    """Handles of the pod's volumes, by driver."""
    wanted: dict[str, set[str]] = {}
    for use in pod.claims:
        found = cluster.volumes.attached_for(pod.namespace, use.name)
        if found is not None:
            wanted.setdefault(found[0], set()).add(found[1])
    return wanted


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not pod.claims:
        return None
    attachments = cluster.volumes.attachments
    slots = []
    for driver, handles in _wanted(cluster, pod).items():
        for name, limit in attachments.limits_of(driver):
            slot = cluster.slot(name)
            if slot is not None:
                used, besides = attachments.on(name, driver)
                new = len(handles - used)
                if new and len(used) + besides + new > limit:
                    slots.append(slot)
    return cluster.mask(slots) if slots else None


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    name = cluster.node_at(slot).name
    found = []
    for driver, handles in _wanted(cluster, pod).items():
        used, besides = cluster.volumes.attachments.on(name, driver)
        limit, new = dict(cluster.volumes.attachments.limits_of(driver)).get(name), len(handles - used)
        if limit is not None and new and len(used) + besides + new > limit:
            found.append(f"{len(used) + besides} volumes of {driver} attached + {new} asked > limit of {limit}")
    return tuple(found)


FILTER = PodFilter(NAME, _refused, one_reason(NAME, EXCEEDED), _details)
