"""The parts of the API's JSON that turb-kub reads, as msgspec structs.

Fields not named here are skipped while decoding, which is what keeps a 9 KB pod small and fast. A field that may
be `null` on the wire is optional here. Shapes: kubernetes.io/docs/reference/kubernetes-api (Pod v1, Node v1).
"""

from typing import Any, Generic, TypeVar

import msgspec

type_ = TypeVar("type_")

Quantities = dict[str, str | int | float]


class Wire(msgspec.Struct, gc=False):
    """Base of all wire structs. Names are the API's own; JSON is a tree, so nothing for the garbage collector."""


class OwnerReference(Wire):
    kind: str = ""
    controller: bool | None = None
    uid: str = ""


class ObjectMeta(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = "0"
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None


class Resources(Wire):
    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(Wire):
    hostPort: int = 0
    protocol: str | None = None
    hostIP: str | None = None


class Container(Wire):
    name: str = ""
    ports: list[ContainerPort] | None = None
    resources: Resources | None = None
    restartPolicy: str | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Wire):
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(Wire):
    matchExpressions: list[Requirement] | None = None
    matchFields: list[Requirement] | None = None


class NodeSelector(Wire):
    nodeSelectorTerms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Wire):
    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Wire):
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredSchedulingTerm] | None = None


class LabelSelector(Wire):
    matchLabels: dict[str, str] | None = None
    matchExpressions: list[Requirement] | None = None


class PodAffinityTerm(Wire):
    topologyKey: str = ""
    labelSelector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespaceSelector: LabelSelector | None = None


class WeightedPodAffinityTerm(Wire):
    weight: int = 0
    podAffinityTerm: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(Wire):
    """The shape of podAffinity and of podAntiAffinity."""

    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTerm] | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedPodAffinityTerm] | None = None

    def required(self) -> list[PodAffinityTerm]:
        return self.requiredDuringSchedulingIgnoredDuringExecution or []

    def preferred(self) -> list[WeightedPodAffinityTerm]:
        return self.preferredDuringSchedulingIgnoredDuringExecution or []


class Affinity(Wire):
    nodeAffinity: NodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire):
    topologyKey: str = ""
    maxSkew: int = 1
    whenUnsatisfiable: str = "DoNotSchedule"
    labelSelector: LabelSelector | None = None
    minDomains: int | None = None
    nodeAffinityPolicy: str | None = None
    nodeTaintsPolicy: str | None = None
    matchLabelKeys: list[str] | None = None


class SchedulingGate(Wire):
    name: str = ""


class ClaimSource(Wire):
    claimName: str = ""


class PodVolume(Wire):
    name: str = ""
    persistentVolumeClaim: ClaimSource | None = None
    ephemeral: Wire | None = None


class PodSpec(Wire):
    nodeName: str = ""
    schedulerName: str = ""
    priority: int | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] | None = None
    initContainers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Quantities | None = None
    schedulingGates: list[SchedulingGate] | None = None
    volumes: list[PodVolume] | None = None
    topologySpreadConstraints: list[TopologySpreadConstraint] | None = None


class Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class ContainerStatus(Wire):
    name: str = ""
    resources: Resources | None = None
    allocatedResources: Quantities | None = None


class PodStatus(Wire):
    phase: str = ""
    nominatedNodeName: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[Condition] | None = None
    containerStatuses: list[ContainerStatus] | None = None
    initContainerStatuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocatedResources: Quantities | None = None


class WirePod(Wire):
    """A pod whose spec is kept raw: the field table walks it once more for the pods that wait for us."""

    metadata: ObjectMeta
    spec: msgspec.Raw
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Wire):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(Wire):
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None


class WireNode(Wire):
    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Identified(Wire):
    """Only who an object is: what is still read of one whose other fields are malformed."""

    metadata: ObjectMeta


class ListMeta(Wire):
    resourceVersion: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)


class WireList(Wire):
    """One page of a list, its items undecoded so that one bad item does not spoil the others."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(Wire):
    type: str
    object: msgspec.Raw


class Status(Wire):
    """The API server's answer where something went wrong (meta/v1 Status)."""

    message: str = ""
    reason: str = ""
    code: int = 0


class Decoder(Generic[type_]):
    """A reusable decoder of one struct type; a thin name for `msgspec.json.Decoder` with its type known."""

    def __init__(self, struct: type[type_]) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(struct)

    def decode(self, data: bytes | str | msgspec.Raw) -> type_:
        """Raise `msgspec.MsgspecError` where the data is no JSON or not of the struct's shape."""
        decoded: type_ = self._decoder.decode(data)
        return decoded
