"""How many CSI volumes are attached to each node that limits them, or will be once its pods have started.

Counted as kube-scheduler does (NodeVolumeLimits): volumes that the node's pods use, each once, and those that a
VolumeAttachment says are attached besides. A node's volumes are kept until its pods, a claim of theirs, or what is
attached to it changes.
"""

from collections.abc import Callable, Collection

from turb_kub.cluster.tables import discard
from turb_kub.objects.pod import Pod
from turb_kub.objects.storage import Attachment, Key, NodeDrivers

#: A volume as its driver knows it.
Handle = str
#: Driver and handle of what a claim (by namespace and name) has or will have attached; None where nothing is.
OfClaim = Callable[[str, str], tuple[str, Handle] | None]
OfVolume = Callable[[str], tuple[str, Handle] | None]


class Attachments:
    """Attached volumes by node.

    Args:
        of_claim: what a claim has attached.
        of_volume: what a volume is to its driver, by name; None where no CSI driver made it.
    """

    def __init__(self, of_claim: OfClaim, of_volume: OfVolume) -> None:
        self._of_claim = of_claim
        self._of_volume = of_volume
        #: Limits by driver and node.
        self._limits: dict[str, dict[str, int]] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._attached: dict[str, dict[str, Attachment]] = {}
        #: Nodes to which a volume is attached, by the volume's name and then the attachment's.
        self._attached_to: dict[str, dict[str, str]] = {}
        #: Nodes whose pods use a claim, with how many do.
        self._nodes_of: dict[Key, dict[str, int]] = {}
        #: By node and driver: what its pods use, and how many volumes are attached besides. Made when asked for.
        self._kept: dict[str, dict[str, tuple[frozenset[Handle], int]]] = {}

    def limits_of(self, driver: str) -> Collection[tuple[str, int]]:
        """The nodes that limit the volumes of a driver, by name, each with its limit."""
        return self._limits.get(driver, {}).items()

    def on(self, node_name: str, driver: str) -> tuple[frozenset[Handle], int]:
        """The volumes of a driver that a node's pods use, and how many are attached besides."""
        found = self._kept.get(node_name)
        if found is None:
            found = self._kept[node_name] = self._count(node_name)
        return found.get(driver, (frozenset(), 0))

    def limit(self, drivers: NodeDrivers) -> None:
        """Take what a node limits."""
        for driver, count in drivers.limits:
            self._limits.setdefault(driver, {})[drivers.name] = count

    def unlimit(self, drivers: NodeDrivers) -> None:
        """Undo `limit`."""
        for driver, _ in drivers.limits:
            discard(self._limits, driver, drivers.name)

    def attach(self, attachment: Attachment) -> None:
        self._attached.setdefault(attachment.node_name, {})[attachment.name] = attachment
        self._attached_to.setdefault(attachment.volume_name, {})[attachment.name] = attachment.node_name
        self._kept.pop(attachment.node_name, None)

    def detach(self, attachment: Attachment) -> None:
        """Undo `attach`."""
        discard(self._attached, attachment.node_name, attachment.name)
        discard(self._attached_to, attachment.volume_name, attachment.name)
        self._kept.pop(attachment.node_name, None)

    def use(self, pod: Pod) -> None:
        """Take a pod with claims onto its node."""
        self._pods.setdefault(pod.node_name, {})[pod.uid] = pod
        for use in pod.claims:
            nodes = self._nodes_of.setdefault((pod.namespace, use.name), {})
            nodes[pod.node_name] = nodes.get(pod.node_name, 0) + 1
        self._kept.pop(pod.node_name, None)

    def leave(self, pod: Pod) -> None:
        """Undo `use`."""
        discard(self._pods, pod.node_name, pod.uid)
        for use in pod.claims:
            key = (pod.namespace, use.name)
            nodes = self._nodes_of[key]
            nodes[pod.node_name] -= 1
            if not nodes[pod.node_name]:
                discard(self._nodes_of, key, pod.node_name)
        self._kept.pop(pod.node_name, None)

    def claim_changed(self, key: Key) -> None:
        """Count afresh where pods use a claim."""
        for node_name in self._nodes_of.get(key, ()):
            self._kept.pop(node_name, None)

    def volume_changed(self, name: str) -> None:
        """Count afresh where a volume is attached."""
        for node_name in self._attached_to.get(name, {}).values():
            self._kept.pop(node_name, None)

    def all_changed(self) -> None:
        """Count afresh everywhere."""
        self._kept.clear()

    def _count(self, node_name: str) -> dict[str, tuple[frozenset[Handle], int]]:
        used: dict[str, set[Handle]] = {}
        for pod in self._pods.get(node_name, {}).values():
            for use in pod.claims:
                found = self._of_claim(pod.namespace, use.name)
                if found is not None:
                    used.setdefault(found[0], set()).add(found[1])
        besides: dict[str, set[Handle]] = {}
        for attachment in self._attached.get(node_name, {}).values():
            found = self._of_volume(attachment.volume_name)
            if found is not None and found[1] not in used.get(attachment.driver, ()):
                besides.setdefault(attachment.driver, set()).add(found[1])
        return {
            driver: (frozenset(used.get(driver, ())), len(besides.get(driver, ())))
            for driver in used.keys() | besides.keys()
        }
