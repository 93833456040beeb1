"""Claims, volumes and classes by name, and what pods that are being bound have chosen among them.

Works without I/O and without a clock. What the API server says is kept as it says it; a choice that it has not
confirmed is a reservation of the pod that made it, laid over that by `claim_of` and `selected_node`, so that two pods
don't take one volume.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from turb_kub.cluster.attachments import Attachments
from turb_kub.cluster.changes import Changes
from turb_kub.cluster.tables import discard
from turb_kub.objects.pod import Pod
from turb_kub.objects.storage import (
    Attachment,
    Claim,
    ClaimRef,
    Key,
    NodeDrivers,
    StorageCapacity,
    StorageClass,
    StorageDriver,
    StorageObject,
    Volume,
)


class VolumePlan(msgspec.Struct, frozen=True):
    """What is to be done about a pod's unbound claims once it goes to a node."""

    node: str
    #: Volumes that exist, each with the claim that takes it.
    bindings: tuple[tuple[Volume, Claim], ...] = ()
    #: Claims whose volume is to be made.
    provisions: tuple[Claim, ...] = ()


class Volumes:
    """The storage objects of the cluster.

    Whatever may let a waiting pod in is noted in the `changes` of the cluster.

    Attributes:
        unread: resources that could not be read, each with why; nothing can be said then of a pod that claims volumes.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self.unread: dict[str, str] = {}
        self._objects: dict[type[StorageObject], dict[Key, Any]] = {
            kind: {} for kind in (Claim, Volume, StorageClass, NodeDrivers, Attachment, StorageDriver, StorageCapacity)
        }
        self._by_class: dict[str, dict[str, Volume]] = {}
        #: Claims by the volume that they name.
        self._naming: dict[str, dict[Key, Claim]] = {}
        #: Volumes on nodes that limit them.
        self.attachments = Attachments(self.attached_for, self._made_by)
        #: How many placed pods use a claim by its name, by namespace and name.
        self._users: Counter[Key] = Counter()
        self._plans: dict[str, VolumePlan] = {}
        #: Claims for which a volume is reserved, by the volume's name and the pod's uid; likewise nodes by claim.
        self._reserved: dict[str, dict[str, ClaimRef]] = {}
        self._selected: dict[Key, dict[str, str]] = {}

    # What the API server says

    def put(self, item: StorageObject) -> bool:
        """Add an object or take its new state. Tells whether a decision could see the difference."""
        known = self._objects[type(item)]
        before = known.get(item.key)
        if before is not None:
            self._take_out(before)
        known[item.key] = item
        self._take_in(item)
        if before is not None and msgspec.structs.replace(before, version=item.version) == item:
            return False
        self._changes.everywhere = True
        return True

    def drop(self, kind: type[StorageObject], key: Key) -> StorageObject | None:
        """Forget an object. Returns its last state; None where it was not there."""
        gone: StorageObject | None = self._objects[kind].pop(key, None)
        if gone is not None:
            self._take_out(gone)
            self._changes.everywhere = True
        return gone

    def now_read(self, resource: str) -> None:
        """Take note that a resource that was `unread` is known."""
        if self.unread.pop(resource, None) is not None:
            self._changes.everywhere = True

    def keys(self, kind: type[StorageObject]) -> list[Key]:
        return list(self._objects[kind])

    def claim(self, namespace: str, name: str) -> Claim | None:
        found: Claim | None = self._objects[Claim].get((namespace, name))
        return found

    def volume(self, name: str) -> Volume | None:
        found: Volume | None = self._objects[Volume].get(("", name))
        return found

    def volumes_of(self, storage_class: str) -> Iterator[Volume]:
        """The volumes of the class of that name."""
        return iter(self._by_class.get(storage_class, {}).values())

    def storage_class(self, name: str) -> StorageClass | None:
        found: StorageClass | None = self._objects[StorageClass].get(("", name))
        return found

    def attached_for(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Driver and handle of what a claim has attached to the node of its pod, or will have; None for nothing.

        Of a volume that is still to be made the claim stands for the handle.
        """
        claim = self.claim(namespace, name)
        if claim is None:
            return None
        volume = self.volume(claim.volume_name) if claim.volume_name else None
        if volume is not None:
            return (volume.driver, volume.handle or f"volume {volume.name}") if volume.driver else None
        found = self.storage_class(claim.storage_class)
        return None if found is None or not found.provisions else (found.driver, f"claim {namespace}/{name}")

    def _made_by(self, volume_name: str) -> tuple[str, str] | None:
        volume = self.volume(volume_name)
        return None if volume is None or not volume.handle else (volume.driver, volume.handle)

    def tracks_capacity(self, driver: str) -> bool:
        """Whether a driver says where how much can be made."""
        found: StorageDriver | None = self._objects[StorageDriver].get(("", driver))
        return found is not None and found.tracks_capacity

    def capacities_of(self, storage_class: str) -> Iterator[StorageCapacity]:
        return (one for one in self._objects[StorageCapacity].values() if one.storage_class == storage_class)

    # What pods use

    def use(self, pod: Pod) -> None:
        """Count the claims of a pod that a node holds or is about to hold."""
        self._users.update(_named(pod))
        self.attachments.use(pod)

    def leave(self, pod: Pod) -> None:
        """Undo `use`."""
        self.attachments.leave(pod)
        for key in _named(pod):
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                self._changes.everywhere = True

    def in_use(self, namespace: str, name: str) -> bool:
        """Whether a placed pod uses the claim. Generic ephemeral ones are left out: each has one pod."""
        return (namespace, name) in self._users

    # What pods have chosen

    def reserve(self, uid: str, plan: VolumePlan) -> None:
        """Keep what a pod has chosen from others until `release`."""
        self.release(uid)
        self._plans[uid] = plan
        for volume, claim in plan.bindings:
            self._reserved.setdefault(volume.name, {})[uid] = ClaimRef(claim.namespace, claim.name, claim.uid)
        for claim in plan.provisions:
            self._selected.setdefault(claim.key, {})[uid] = plan.node

    def release(self, uid: str) -> bool:
        """Let go what a pod has reserved. Tells whether it had reserved anything."""
        plan = self._plans.pop(uid, None)
        if plan is None:
            return False
        for volume, _ in plan.bindings:
            discard(self._reserved, volume.name, uid)
        for claim in plan.provisions:
            discard(self._selected, claim.key, uid)
        self._changes.everywhere = True
        return True

    def claim_of(self, volume: Volume) -> ClaimRef | None:
        """The claim that a volume is bound to or kept for, reservations included."""
        reserved = self._reserved.get(volume.name)
        return volume.claim if reserved is None else next(iter(reserved.values()))

    def selected_node(self, claim: Claim) -> str | None:
        """The node for which the claim's volume is made or to be made, reservations included."""
        selected = self._selected.get(claim.key)
        return claim.selected_node if selected is None else next(iter(selected.values()))

    def _take_in(self, item: StorageObject) -> None:
        match item:
            case Volume():
                self._by_class.setdefault(item.storage_class, {})[item.name] = item
            case Claim():
                self._naming.setdefault(item.volume_name, {})[item.key] = item
            case NodeDrivers():
                self.attachments.limit(item)
            case Attachment():
                self.attachments.attach(item)
        self._count_afresh(item)

    def _take_out(self, item: StorageObject) -> None:
        match item:
            case Volume():
                discard(self._by_class, item.storage_class, item.name)
            case Claim():
                discard(self._naming, item.volume_name, item.key)
            case NodeDrivers():
                self.attachments.unlimit(item)
            case Attachment():
                self.attachments.detach(item)
        self._count_afresh(item)

    def _count_afresh(self, item: StorageObject) -> None:
        """Let go what was counted of attached volumes where an object may change it."""
        match item:
            case Claim():
                self.attachments.claim_changed(item.key)
            case Volume():
                self.attachments.volume_changed(item.name)
                for key in self._naming.get(item.name, ()):
                    self.attachments.claim_changed(key)
            case StorageClass():
                self.attachments.all_changed()


def _named(pod: Pod) -> Iterator[Key]:
    return ((pod.namespace, use.name) for use in pod.claims if not use.ephemeral)
