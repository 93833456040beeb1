"""A pod, as little of it as decisions need."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import msgspec

from turb_kub.objects.affinity import NO_AFFINITY, PodAffinity, affinity_of, standing
from turb_kub.objects.claims import ClaimUse, claims_of
from turb_kub.objects.constraints import NO_CONSTRAINTS, NodeConstraints, constraints_of
from turb_kub.objects.malformed import LONGEST_NAME, MalformedError, checked_name
from turb_kub.objects.ports import HostPort, host_ports_of
from turb_kub.objects.rejection import Rejection, rejection_of
from turb_kub.objects.requests import Requests, effective_requests
from turb_kub.objects.spread import Spread, spread_of
from turb_kub.objects.wire import Decoder, ObjectMeta, PodSpec, WirePod

MEMORY = "memory"
#: Characters of a condition's message that are kept to compare the next one with; the API's own limit for messages.
_LONGEST_MESSAGE = 32768
#: On the pod that a kubelet shows for a static one.
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
#: Bytes. The API server stores objects of some MB at most; what is kept of a pod must have a bound too.
LONGEST_SPEC = 4 * 2**20
#: Phases in which a pod holds nothing any more (kubernetes.io, "Pod Lifecycle").
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

#: All that a node by itself looks at: to a kubelet two pods of one shape are the same.
Shape = tuple[Requests, NodeConstraints, tuple[HostPort, ...]]

NO_LABELS: Mapping[str, str] = MappingProxyType({})

_pods = Decoder(WirePod)
_specs = Decoder(PodSpec)


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What the PodScheduled condition last said."""

    status: str
    reason: str
    message: str


class Pod(msgspec.Struct, gc=False):
    """One pod. What many pods have alike (labels, requests, constraints and so on) is one object that they share."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    node_name: str
    scheduler_name: str
    phase: str
    priority: int
    created: str
    deleting: bool
    requests: Requests
    labels: Mapping[str, str] = NO_LABELS
    constraints: NodeConstraints = NO_CONSTRAINTS
    #: Of a placed pod only what still matters: whom it keeps away.
    affinity: PodAffinity = NO_AFFINITY
    spread: Spread = ()
    gates: tuple[str, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    #: PersistentVolumeClaims that it uses.
    claims: tuple[ClaimUse, ...] = ()
    #: The PodScheduled condition, where there is one.
    verdict: Verdict | None = None
    #: The spec as JSON; only of an unbound pod, and only until the table of fields has been asked about it.
    raw_spec: bytes | None = None
    #: What that table said: paths of unsupported and of unknown fields.
    fields: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    #: Why the kubelet turned the pod away, where it did.
    rejection: Rejection | None = None
    #: Whether it is a static pod or one of a DaemonSet: such pods stand on every node, whoever else places pods there.
    of_every_node: bool = False
    #: Where room was made for it by whoever schedules it; "" where none was.
    nominated_node: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, the way people name a pod."""
        return f"{self.namespace}/{self.name}"

    @property
    def memory(self) -> int:
        """Bytes of memory the pod requests; 0 where it states none."""
        return self.amount(MEMORY)

    @property
    def shape(self) -> Shape:
        """What the pod asks of a node by itself; of a bound pod known only where the kubelet turned it away."""
        return self.requests, self.constraints, self.host_ports

    @property
    def reserves(self) -> bool:
        """Whether it waits for room that was made for it."""
        return bool(self.nominated_node) and not (self.node_name or self.deleting or self.terminal)

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL_PHASES

    def amount(self, resource: str) -> int:
        for name, amount in self.requests:
            if name == resource:
                return amount
        return 0


def decode_pod(data: bytes | str | msgspec.Raw, *, keep_demands: bool = False) -> Pod:
    """Decode a pod.

    Args:
        keep_demands: keep the constraints and the raw spec of a bound pod too; only an explanation needs them.

    Raises:
        msgspec.MsgspecError: no JSON, or not a pod's shape.
        QuantityError: a quantity in it is malformed.
        MalformedError: it has no name or uid, or one that is none.
    """
    wire = _pods.decode(data)
    if len(wire.spec) > LONGEST_SPEC:
        raise MalformedError(f"its spec is longer than {LONGEST_SPEC >> 20} MiB")
    spec = _specs.decode(wire.spec)
    meta, status = wire.metadata, wire.status
    waits = keep_demands or not spec.nodeName
    rejection = rejection_of(status)
    labels = shared_labels(meta.labels)
    affinity = affinity_of(spec, meta.namespace)
    if not meta.name or not meta.uid:
        raise MalformedError("it has no name or no uid")
    return Pod(
        uid=checked_name(meta.uid, "its uid"),
        namespace=_shared(checked_name(meta.namespace, "its namespace")),
        name=checked_name(meta.name, "its name"),
        resource_version=resource_version(meta.resourceVersion),
        node_name=_shared(checked_name(spec.nodeName, "its node's name")),
        scheduler_name=_shared(checked_name(spec.schedulerName, "its schedulerName")),
        phase=_shared(checked_name(status.phase, "its phase")),
        priority=spec.priority or 0,
        created=checked_name(meta.creationTimestamp or "", "its creationTimestamp"),
        deleting=meta.deletionTimestamp is not None,
        requests=_shared_requests(effective_requests(spec, status)),
        constraints=constraints_of(spec) if waits or rejection else NO_CONSTRAINTS,
        labels=labels,
        affinity=affinity if waits else standing(affinity),
        spread=spread_of(spec, labels) if waits else (),
        host_ports=host_ports_of(spec),
        claims=claims_of(meta.name, spec),
        gates=tuple(gate.name for gate in spec.schedulingGates or ()),
        verdict=_verdict(wire),
        raw_spec=bytes(wire.spec) if waits else None,
        rejection=rejection,
        of_every_node=_is_of_every_node(meta),
        nominated_node="" if spec.nodeName else _shared(status.nominatedNodeName or ""),
    )


def resource_version(text: str) -> int:
    """Return a resourceVersion as the integer it is (KEP-5504 makes the order of two a promise); 0 if it is none."""
    # The length first: Python refuses to make a number of thousands of digits.
    return int(text) if len(text) <= 20 and text.isascii() and text.isdecimal() else 0


def _verdict(wire: WirePod) -> Verdict | None:
    for condition in wire.status.conditions or ():
        if condition.type == "PodScheduled":
            message = (condition.message or "")[:_LONGEST_MESSAGE]
            return Verdict(condition.status, (condition.reason or "")[:LONGEST_NAME], message)
    return None


def _is_of_every_node(meta: ObjectMeta) -> bool:
    if MIRROR_ANNOTATION in (meta.annotations or {}):
        return True
    return any(owner.kind == "DaemonSet" and owner.controller for owner in meta.ownerReferences or ())


def shared_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return labels equal to these; equal ones are one object. Read only."""
    return _shared_labels(tuple(sorted(labels.items()))) if labels else NO_LABELS


@lru_cache(maxsize=16384)
def _shared_labels(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(items)


@lru_cache(maxsize=16384)
def _shared(text: str) -> str:
    return text


@lru_cache(maxsize=16384)
def _shared_requests(requests: Requests) -> Requests:
    return requests
