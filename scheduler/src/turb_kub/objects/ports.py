"""The host ports a pod claims on its node.

Containers and sidecars claim them for as long as the pod runs; other init containers do not (kube-scheduler's
NodePorts). An address of 0.0.0.0, or none, stands for all of the node's.
"""

from functools import lru_cache

import msgspec

from turb_kub.objects.wire import PodSpec

ALL_ADDRESSES = "0.0.0.0"


class HostPort(msgspec.Struct, frozen=True, gc=False, order=True):
    port: int
    protocol: str = "TCP"
    address: str = ALL_ADDRESSES

    def collides(self, other: "HostPort") -> bool:
        """Tell whether both can't be had on one node."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.address == other.address or ALL_ADDRESSES in (self.address, other.address)

    def __str__(self) -> str:
        where = "" if self.address == ALL_ADDRESSES else f"{self.address}:"
        return f"{where}{self.port}/{self.protocol}"


def host_ports_of(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports that a pod spec claims, each once."""
    lasting = [container for container in spec.initContainers or () if container.restartPolicy == "Always"]
    claimed = {
        HostPort(port.hostPort, port.protocol or "TCP", port.hostIP or ALL_ADDRESSES)
        for container in (*lasting, *(spec.containers or ()))
        for port in container.ports or ()
        if port.hostPort
    }
    return _shared(tuple(sorted(claimed))) if claimed else ()


@lru_cache(maxsize=4096)
def _shared(ports: tuple[HostPort, ...]) -> tuple[HostPort, ...]:
    return ports
