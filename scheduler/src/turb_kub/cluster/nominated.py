"""Pods that wait for the room which was made for them on a node: `status.nominatedNodeName`.

A scheduler that evicts pods for another one names there the node on which it did. Until the pod is bound, nothing but
this keeps others from taking the room.
"""

from collections.abc import Iterable

from turb_kub.cluster.tables import discard
from turb_kub.objects.pod import Pod


class NominatedPods:
    """Unbound pods of any scheduler that are nominated to a node, by uid and by node."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Pod] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    @property
    def nodes(self) -> Iterable[str]:
        """Names of nodes to which any pod is nominated; some may not be there."""
        return self._by_node.keys()

    def get(self, uid: str) -> Pod | None:
        return self._by_uid.get(uid)

    def uids(self) -> set[str]:
        return set(self._by_uid)

    def put(self, pod: Pod) -> None:
        """Take a pod, or its new state. Raises `ValueError` for one that is not nominated."""
        if not pod.nominated_node:
            raise ValueError(f"pod {pod.key} is not nominated to a node")
        self.remove(pod.uid)
        self._by_uid[pod.uid] = pod
        self._by_node.setdefault(pod.nominated_node, {})[pod.uid] = pod

    def remove(self, uid: str) -> Pod | None:
        """Forget a pod; return it where it was known."""
        pod = self._by_uid.pop(uid, None)
        if pod is not None:
            discard(self._by_node, pod.nominated_node, uid)
        return pod

    def before(self, pod: Pod, node_name: str) -> list[Pod]:
        """Pods nominated to a node that this pod has to leave room for: of equal or higher priority, and not itself."""
        there = self._by_node.get(node_name, {})
        return [one for uid, one in there.items() if one.priority >= pod.priority and uid != pod.uid]
