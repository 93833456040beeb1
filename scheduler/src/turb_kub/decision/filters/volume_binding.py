"""Keeps pods off nodes where their claims' volumes can't be had.

Source: kubernetes.io, "Persistent Volumes", "Storage Classes" (volume binding mode, allowed topologies) and "Storage
Capacity". A claim that does not exist, is going, has lost its volume, or should have been bound already and is not,
keeps the pod off every node.
"""

from collections.abc import Iterable

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, PreFilter, Refusal
from turb_kub.decision.node_slots import matches, slots_matching
from turb_kub.decision.volume_matching import Match, bound_claims, class_of, match_claims, waiting_claims
from turb_kub.objects.claims import ClaimUse
from turb_kub.objects.pod import Pod

NAME = "VolumeBinding"
CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NONE_AVAILABLE = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


def _pod_refusal(cluster: Cluster, pod: Pod) -> str | None:
    if not pod.claims:
        return None
    for use in pod.claims:
        refusal = _claim_refusal(cluster, pod, use)
        if refusal is not None:
            return refusal
    for use in pod.claims:
        claim = cluster.volumes.claim(pod.namespace, use.name)
        if claim is not None and not claim.bound and class_of(cluster, claim) is None:
            return UNBOUND
    return None


def _claim_refusal(cluster: Cluster, pod: Pod, use: ClaimUse) -> str | None:
    claim = cluster.volumes.claim(pod.namespace, use.name)
    if claim is None:
        if use.ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return f'persistentvolumeclaim "{use.name}" not found'
    if claim.lost:
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.volume_name}"'
    if claim.deleting:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    if use.ephemeral and claim.owner != pod.uid:
        return f"PVC {pod.namespace}/{use.name} was not created for pod {pod.key} (pod is not owner)"
    return None


class _Refused:
    """For each slot, whether one of the four reasons speaks against it."""

    def __init__(self, cluster: Cluster, pod: Pod) -> None:
        self.conflict, self.none_available, self.no_room, self.no_volume = (
            np.zeros(cluster.size, dtype=np.bool_) for _ in range(4)
        )
        for claim in bound_claims(cluster, pod):
            volume = cluster.volumes.volume(claim.volume_name)
            if volume is None:
                self.no_volume[:] = True
            elif volume.node_terms is not None:
                self.conflict |= ~cluster.mask(slots_matching(cluster, volume.node_terms))
        for match in match_claims(cluster, waiting_claims(cluster, pod)):
            unmatched = match.unmatched
            self.none_available |= unmatched & ~match.makeable
            if match.roomy is not None:
                self.no_room |= unmatched & match.makeable & ~match.roomy

    def any(self) -> Bools:
        return self.conflict | self.none_available | self.no_room | self.no_volume


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    return _Refused(cluster, pod).any() if pod.claims else None


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    found = _Refused(cluster, pod)
    return [
        Refusal(NAME, reason, refused & slots)
        for reason, slots in (
            (CONFLICT, found.conflict),
            (NONE_AVAILABLE, found.none_available),
            (NO_ROOM, found.no_room),
            (NO_VOLUME, found.no_volume),
        )
    ]


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    found = []
    node = cluster.node_at(slot)
    for claim in bound_claims(cluster, pod):
        volume = cluster.volumes.volume(claim.volume_name)
        if volume is None:
            found.append(f"claim {claim.name}: there is no volume {claim.volume_name}")
        elif not matches(node, volume.node_terms):
            found.append(f"claim {claim.name}: the node affinity of volume {volume.name} leaves the node out")
    for match in match_claims(cluster, waiting_claims(cluster, pod)):
        text = _unmatched(cluster, match, slot)
        if text:
            found.append(f"claim {match.claim.name}: {text}")
    return tuple(found)


def _unmatched(cluster: Cluster, match: Match, slot: int) -> str:
    """Say why a claim gets no volume on the node in a slot; "" where it does."""
    if slot in match.volumes:
        return ""
    selected = cluster.volumes.selected_node(match.claim)
    if selected is not None and cluster.slot(selected) != slot:
        return f"its volume is to be made for node {selected}"
    if not match.makeable[slot]:
        found = class_of(cluster, match.claim)
        if found is not None and found.provisions:
            return f"no available volume fits, and class {found.name} makes none for the node"
        return f"no available volume of class {match.claim.storage_class} fits, and none is made on demand"
    if match.roomy is not None and not match.roomy[slot]:
        return "there is not enough storage to make its volume for the node"
    return ""


PRE_FILTER = PreFilter(NAME, _pod_refusal)
FILTER = PodFilter(NAME, _refused, _reasons, _details)
