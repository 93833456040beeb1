"""Which host ports are taken, by port number: few pods claim any, so those that do find their rivals at once."""

from collections import Counter
from collections.abc import Iterator

from turb_kub.cluster.tables import discard
from turb_kub.objects.pod import Pod
from turb_kub.objects.ports import HostPort


class TakenPorts:
    """Host ports of the pods that the nodes hold or are about to hold."""

    def __init__(self) -> None:
        self._by_port: dict[int, dict[str, Counter[HostPort]]] = {}

    def on(self, port: int) -> Iterator[tuple[str, list[HostPort]]]:
        """Names of nodes where a port of that number is taken, each with what exactly is."""
        for node_name, taken in self._by_port.get(port, {}).items():
            yield node_name, list(taken)

    def take(self, pod: Pod) -> None:
        """Count a pod's ports on its node. Two pods may hold the same one: nobody asked us about the second."""
        for port in pod.host_ports:
            self._by_port.setdefault(port.port, {}).setdefault(pod.node_name, Counter())[port] += 1

    def release(self, pod: Pod) -> None:
        """Count them no more."""
        for port in pod.host_ports:
            nodes = self._by_port[port.port]
            nodes[pod.node_name][port] -= 1
            if not nodes[pod.node_name][port]:
                discard(nodes, pod.node_name, port)
            if not nodes:
                del self._by_port[port.port]

    def __len__(self) -> int:
        return sum(len(taken) for nodes in self._by_port.values() for taken in nodes.values())
