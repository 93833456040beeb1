"""How many pods of other schedulers each node holds: where there are any, somebody else may be filling it right now.

Static pods and pods of a DaemonSet do not count. Every node has some, and they say nothing of who else places pods.
"""

from collections import Counter

from turb_kub.objects.pod import Pod


class ForeignPods:
    """Pods of other schedulers on the nodes, by node name.

    Args:
        scheduler_name: whose pods are ours.
    """

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        self._on: Counter[str] = Counter()
        #: Uids of those that wait for a node and may get one at any moment.
        self.waiting: set[str] = set()

    def on(self, node_name: str) -> int:
        return self._on[node_name]

    def take(self, pod: Pod) -> None:
        """Count a pod on its node."""
        if self._counts(pod):
            self._on[pod.node_name] += 1

    def release(self, pod: Pod) -> None:
        """Count it no more."""
        if self._counts(pod):
            self._on[pod.node_name] -= 1
            if not self._on[pod.node_name]:
                del self._on[pod.node_name]

    def _counts(self, pod: Pod) -> bool:
        return pod.scheduler_name != self._scheduler_name and not pod.of_every_node
