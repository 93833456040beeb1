"""Which volume an unbound claim would take on each node, or whether one can be made for it there.

The rules are those of the PersistentVolume controller and of kube-scheduler's VolumeBinding (component-helpers
`FindMatchingVolume`): a volume that is kept for the claim, else the smallest available one of its class that has the
capacity, the access modes, the volume mode and the labels that the claim asks for and whose node affinity takes the
node; else, with a class that has a provisioner, one is made where the class's allowedTopologies take the node.
"""

import math

import msgspec
import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.cluster.volumes import VolumePlan
from turb_kub.decision.node_slots import matches, slot_lookup, slots_matching
from turb_kub.objects.node import Node
from turb_kub.objects.pod import Pod
from turb_kub.objects.storage import AVAILABLE, Amount, Claim, StorageClass, Volume


class Match(msgspec.Struct):
    """One claim against all nodes.

    Attributes:
        volumes: the volume it would take, by slot.
        makeable: for each slot, whether a volume can be made for its node, room left aside.
        roomy: for each slot, whether there is room for it; None where nobody says.
    """

    claim: Claim
    volumes: dict[int, Volume]
    makeable: Bools
    roomy: Bools | None

    @property
    def unmatched(self) -> Bools:
        """The slots where a volume would have to be made."""
        unmatched: Bools = np.ones(len(self.makeable), dtype=np.bool_)
        unmatched[list(self.volumes)] = False
        return unmatched


def bound_claims(cluster: Cluster, pod: Pod) -> list[Claim]:
    """Return the pod's claims that are bound for good. Those that do not exist are left out."""
    return [claim for claim in _claims(cluster, pod) if claim.bound]


def waiting_claims(cluster: Cluster, pod: Pod) -> list[Claim]:
    """Return the pod's unbound claims that wait for their first consumer, those of smallest request first."""
    waiting = [claim for claim in _claims(cluster, pod) if not claim.bound and class_of(cluster, claim) is not None]
    return sorted(waiting, key=lambda claim: claim.requested or 0)


def class_of(cluster: Cluster, claim: Claim) -> StorageClass | None:
    """Return the class of an unbound claim that waits for its first consumer; None of one that does not.

    A claim that names its volume does not wait, whatever its class says.
    """
    found = cluster.volumes.storage_class(claim.storage_class)
    return found if found is not None and found.waits and not claim.volume_name else None


def match_claims(cluster: Cluster, claims: list[Claim]) -> list[Match]:
    """Match claims that wait against every node, no volume taken twice on one node."""
    found: list[Match] = []
    slots_of = slot_lookup(cluster)
    for claim in claims:
        volumes: dict[int, Volume] = {}
        for volume in _candidates(cluster, claim, len(found)):
            if len(volumes) == cluster.node_count:
                break
            for slot in slots_of(volume.node_terms).tolist():
                if slot not in volumes and not (found and _is_taken(found, slot, volume)):
                    volumes[slot] = volume
        found.append(Match(claim, volumes, _makeable(cluster, claim), _roomy(cluster, claim)))
    return found


def plan_volumes(cluster: Cluster, pod: Pod, node_name: str) -> VolumePlan | None:
    """Return what is to be done about a pod's claims before it can be bound to a node; None where all are bound.

    The node must be one that the filters pass.
    """
    claims = waiting_claims(cluster, pod)
    if not claims:
        return None
    node = cluster.node(node_name)
    bindings: list[tuple[Volume, Claim]] = []
    provisions: list[Claim] = []
    for claim in claims:
        taken = [volume for volume, _ in bindings]
        candidates = _candidates(cluster, claim, len(bindings), node)
        volume = next((volume for volume in candidates if volume not in taken), None)
        if volume is None:
            provisions.append(claim)
        else:
            bindings.append((volume, claim))
    return VolumePlan(node_name, tuple(bindings), tuple(provisions))


def _claims(cluster: Cluster, pod: Pod) -> list[Claim]:
    found = (cluster.volumes.claim(pod.namespace, use.name) for use in pod.claims)
    return [claim for claim in found if claim is not None]


def _is_taken(found: list[Match], slot: int, volume: Volume) -> bool:
    return any(other.volumes.get(slot) is volume for other in found)


def _candidates(cluster: Cluster, claim: Claim, others: int, node: Node | None = None) -> list[Volume]:
    """Return the volumes that a claim may take, best first, as far as they could ever be chosen.

    Args:
        others: how many claims of the pod choose before this one; of volumes for the same nodes only one more than
            that can matter.
        node: leave out what its node affinity keeps from this node; None: nothing is left out for that.
    """
    volumes = cluster.volumes
    if volumes.selected_node(claim) is not None:
        return []
    fitting: list[Volume] = []
    requested = claim.requested or 0
    for volume in volumes.volumes_of(claim.storage_class):
        reference = volumes.claim_of(volume)
        if reference is not None and not reference.means(claim):
            continue
        if volume.capacity < requested or volume.volume_mode != claim.volume_mode:
            continue
        if volume.attributes_class != claim.attributes_class or volume.deleting:
            continue
        if reference is not None:
            # Kept for this very claim: no other volume will do.
            return [volume] if node is None or matches(node, volume.node_terms) else []
        if volume.phase == AVAILABLE and (node is None or matches(node, volume.node_terms)) and _suits(volume, claim):
            fitting.append(volume)
    fitting.sort(key=_by_size)
    chosen: list[Volume] = []
    counts: dict[object, int] = {}
    for volume in fitting:
        count = counts[volume.node_terms] = counts.get(volume.node_terms, 0) + 1
        if count <= others + 1:
            chosen.append(volume)
    return chosen


def _by_size(volume: Volume) -> tuple[Amount, str]:
    return volume.capacity, volume.name


def _suits(volume: Volume, claim: Claim) -> bool:
    if not set(claim.access_modes) <= set(volume.access_modes):
        return False
    return claim.selector is None or claim.selector.matches(volume.labels)


def _makeable(cluster: Cluster, claim: Claim) -> Bools:
    found = class_of(cluster, claim)
    if found is None or not found.provisions:
        return np.zeros(cluster.size, dtype=np.bool_)
    makeable = cluster.mask(slots_matching(cluster, found.node_terms))
    selected = cluster.volumes.selected_node(claim)
    if selected is not None:
        slot = cluster.slot(selected)
        elsewhere = np.arange(cluster.size) != (-1 if slot is None else slot)
        makeable[elsewhere] = False
    return makeable


def _roomy(cluster: Cluster, claim: Claim) -> Bools | None:
    found = class_of(cluster, claim)
    if found is None or claim.requested is None or not cluster.volumes.tracks_capacity(found.provisioner):
        return None
    roomy: Bools = np.zeros(cluster.size, dtype=np.bool_)
    for capacity in cluster.volumes.capacities_of(found.name):
        if capacity.largest is not None and capacity.largest >= math.ceil(claim.requested):
            roomy[slots_matching(cluster, capacity.node_terms)] = True
    return roomy
