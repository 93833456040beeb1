"""Which nodes are avoided for which pods, because the kubelet there has just turned one like them away.

Without a clock: whoever starts a cool-down ends it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from turb_kub.objects.pod import Shape

_NONE: Mapping[str, str] = MappingProxyType({})


class CoolingNodes:
    """Cool-downs in force, by the shape of the pods that they hold for."""

    def __init__(self) -> None:
        self._by_shape: dict[Shape, dict[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_shape)

    def start(self, shape: Shape, node_name: str, reason: str) -> None:
        """Avoid a node for pods of this shape. `reason` is the kubelet's."""
        self._by_shape.setdefault(shape, {})[node_name] = reason

    def end(self, shape: Shape, node_name: str) -> None:
        nodes = self._by_shape.get(shape, {})
        nodes.pop(node_name, None)
        if not nodes:
            self._by_shape.pop(shape, None)

    def nodes(self, shape: Shape) -> Mapping[str, str]:
        """Names of the nodes to avoid, each with the kubelet's reason."""
        return self._by_shape.get(shape, _NONE)
