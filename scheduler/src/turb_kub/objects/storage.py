"""Claims, volumes, and what makes, limits and counts them; as little of each as decisions need.

Shapes: kubernetes.io/docs/reference/kubernetes-api (PersistentVolumeClaim v1, PersistentVolume v1, StorageClass v1,
CSINode v1, CSIDriver v1, CSIStorageCapacity v1).
"""

import math
from fractions import Fraction
from functools import lru_cache

import msgspec

from turb_kub.objects.constraints import Term, terms_of
from turb_kub.objects.pod import resource_version
from turb_kub.objects.quantity import parse_quantity
from turb_kub.objects.selectors import Expression, Selector, selector_of
from turb_kub.objects.storage_wire import (
    MIGRATED_PROVISIONERS,
    WireAttachment,
    WireCapacity,
    WireClaim,
    WireClass,
    WireDriver,
    WireNodeDrivers,
    WireVolume,
)
from turb_kub.objects.wire import Decoder, Quantities

#: The node for which a provisioner is to make the volume; it takes the annotation off where it can't.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: On a claim: the PersistentVolume controller has finished binding it.
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: Older name of storageClassName; wins over it where both are there.
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
#: Provisioner of classes whose volumes people make by hand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
AVAILABLE = "Available"
_claims = Decoder(WireClaim)
_volumes = Decoder(WireVolume)
_classes = Decoder(WireClass)
_nodes = Decoder(WireNodeDrivers)
_attachments = Decoder(WireAttachment)
_drivers = Decoder(WireDriver)
_capacities = Decoder(WireCapacity)

#: Bytes, exactly; whole ones as int, which is quicker to compare.
Amount = int | Fraction
#: Namespace ("" where there is none) and name.
Key = tuple[str, str]


class ClaimRef(msgspec.Struct, frozen=True, gc=False):
    """The claim that a volume is bound to, or kept for; `uid` is "" where a person named it."""

    namespace: str
    name: str
    uid: str = ""

    def means(self, claim: "Claim") -> bool:
        """Tell whether it is this claim (component-helpers `IsVolumeBoundToClaim`)."""
        return (self.namespace, self.name) == (claim.namespace, claim.name) and self.uid in {"", claim.uid}


class _Named(msgspec.Struct, gc=False):
    """An object without a namespace."""

    name: str

    @property
    def key(self) -> Key:
        return "", self.name


class _Namespaced(msgspec.Struct, gc=False):
    namespace: str
    name: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class Claim(_Namespaced, gc=False):
    """A PersistentVolumeClaim."""

    uid: str
    version: int
    #: "" where it has none.
    storage_class: str = ""
    volume_name: str = ""
    bind_completed: bool = False
    lost: bool = False
    deleting: bool = False
    #: None where no node was selected.
    selected_node: str | None = None
    #: None where it asks for no amount.
    requested: Amount | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    #: What a volume's labels must meet; None where it states none.
    selector: Selector | None = None
    attributes_class: str = ""
    #: uid of the object that controls it, "" where there is none.
    owner: str = ""

    @property
    def bound(self) -> bool:
        """Whether the PersistentVolume controller has bound it for good."""
        return bool(self.volume_name) and self.bind_completed


class Volume(_Named, gc=False):
    """A PersistentVolume."""

    uid: str
    version: int
    storage_class: str = ""
    capacity: Amount = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    phase: str = ""
    deleting: bool = False
    claim: ClaimRef | None = None
    labels: dict[str, str] = {}
    #: Terms of its required node affinity, any of which suffices; None where any node will do.
    node_terms: tuple[Term, ...] | None = None
    #: The CSI driver that attaches it; "" where none does.
    driver: str = ""
    #: What the driver calls it; "" of a volume of an old plugin, which its driver calls by a name that is made up.
    handle: str = ""
    attributes_class: str = ""


class StorageClass(_Named, gc=False):
    version: int
    provisioner: str = ""
    #: Whether volumes wait for the first pod that uses them (volumeBindingMode: WaitForFirstConsumer).
    waits: bool = False
    #: For which nodes volumes can be made: those that match any of these; None: for all.
    node_terms: tuple[Term, ...] | None = None

    @property
    def provisions(self) -> bool:
        """Whether a volume can be made on demand."""
        return self.provisioner not in {"", NO_PROVISIONER}

    @property
    def driver(self) -> str:
        """The CSI driver of the volumes it makes, if the provisioner is one."""
        return MIGRATED_PROVISIONERS.get(self.provisioner, self.provisioner)


class NodeDrivers(_Named, gc=False):
    """A CSINode: how many volumes may be attached to the node of that name, by driver; of drivers that state it."""

    version: int
    limits: tuple[tuple[str, int], ...] = ()


class Attachment(_Named, gc=False):
    """A VolumeAttachment: a volume that is attached to a node, or is to be."""

    version: int
    driver: str = ""
    node_name: str = ""
    #: "" where it is none of a PersistentVolume.
    volume_name: str = ""


class StorageDriver(_Named, gc=False):
    """A CSIDriver."""

    version: int
    #: Whether it says, in CSIStorageCapacity objects, where how much can be made.
    tracks_capacity: bool = False


class StorageCapacity(_Namespaced, gc=False):
    """A CSIStorageCapacity: the largest volume of a class that can be made for some nodes."""

    version: int
    storage_class: str = ""
    #: Bytes; None where nothing is known.
    largest: int | None = None
    #: Which nodes reach that storage: those that match any of these; None: all.
    node_terms: tuple[Term, ...] | None = ()


StorageObject = Claim | Volume | StorageClass | NodeDrivers | Attachment | StorageDriver | StorageCapacity


def decode_claim(data: bytes | str | msgspec.Raw) -> Claim:
    """Decode a PersistentVolumeClaim. Raises `msgspec.MsgspecError` or `QuantityError`, as all decoders here."""
    wire = _claims.decode(data)
    meta, spec, annotations = wire.metadata, wire.spec, wire.metadata.annotations or {}
    requests = spec.resources.requests if spec.resources else None
    return Claim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=resource_version(meta.resourceVersion),
        storage_class=annotations.get(_BETA_CLASS, spec.storageClassName or ""),
        volume_name=spec.volumeName or "",
        bind_completed=_BIND_COMPLETED in annotations,
        lost=wire.status.phase == "Lost",
        deleting=meta.deletionTimestamp is not None,
        selected_node=annotations.get(SELECTED_NODE),
        requested=_amount(requests, "storage"),
        access_modes=tuple(spec.accessModes or ()),
        volume_mode=spec.volumeMode or "Filesystem",
        selector=selector_of(spec.selector),
        attributes_class=spec.volumeAttributesClassName or "",
        owner=next((owner.uid for owner in meta.ownerReferences or () if owner.controller), ""),
    )


def decode_volume(data: bytes | str | msgspec.Raw) -> Volume:
    """Decode a PersistentVolume."""
    wire = _volumes.decode(data)
    meta, spec, reference = wire.metadata, wire.spec, wire.spec.claimRef
    required = spec.nodeAffinity.required if spec.nodeAffinity else None
    return Volume(
        name=meta.name,
        uid=meta.uid,
        version=resource_version(meta.resourceVersion),
        storage_class=(meta.annotations or {}).get(_BETA_CLASS, spec.storageClassName or ""),
        capacity=_amount(spec.capacity, "storage") or 0,
        access_modes=tuple(spec.accessModes or ()),
        volume_mode=spec.volumeMode or "Filesystem",
        phase=wire.status.phase or "",
        deleting=meta.deletionTimestamp is not None,
        claim=None if reference is None else ClaimRef(reference.namespace, reference.name, reference.uid),
        labels=meta.labels or {},
        node_terms=None if required is None else _shared(terms_of(required)),
        driver=spec.driver,
        handle=spec.csi.volumeHandle if spec.csi is not None else "",
        attributes_class=spec.volumeAttributesClassName or "",
    )


def decode_class(data: bytes | str | msgspec.Raw) -> StorageClass:
    """Decode a StorageClass."""
    wire = _classes.decode(data)
    return StorageClass(
        name=wire.metadata.name,
        version=resource_version(wire.metadata.resourceVersion),
        provisioner=wire.provisioner,
        waits=wire.volumeBindingMode == "WaitForFirstConsumer",
        node_terms=tuple(
            Term(
                tuple(Expression(one.key, "In", tuple(one.values or ())) for one in term.matchLabelExpressions or ()),
                (),
            )
            for term in wire.allowedTopologies
        )
        if wire.allowedTopologies
        else None,
    )


def decode_node_drivers(data: bytes | str | msgspec.Raw) -> NodeDrivers:
    """Decode a CSINode."""
    wire = _nodes.decode(data)
    return NodeDrivers(
        name=wire.metadata.name,
        version=resource_version(wire.metadata.resourceVersion),
        limits=tuple(
            sorted(
                (driver.name, driver.allocatable.count)
                for driver in wire.spec.drivers or ()
                if driver.allocatable is not None and driver.allocatable.count is not None
            )
        ),
    )


def decode_attachment(data: bytes | str | msgspec.Raw) -> Attachment:
    """Decode a VolumeAttachment."""
    wire = _attachments.decode(data)
    return Attachment(
        name=wire.metadata.name,
        version=resource_version(wire.metadata.resourceVersion),
        driver=wire.spec.attacher,
        node_name=wire.spec.nodeName,
        volume_name=wire.spec.source.persistentVolumeName or "",
    )


def decode_driver(data: bytes | str | msgspec.Raw) -> StorageDriver:
    """Decode a CSIDriver."""
    wire = _drivers.decode(data)
    version = resource_version(wire.metadata.resourceVersion)
    return StorageDriver(wire.metadata.name, version, bool(wire.spec.storageCapacity))


def decode_capacity(data: bytes | str | msgspec.Raw) -> StorageCapacity:
    """Decode a CSIStorageCapacity."""
    wire = _capacities.decode(data)
    topology = selector_of(wire.nodeTopology)
    stated = wire.capacity if wire.maximumVolumeSize is None else wire.maximumVolumeSize
    return StorageCapacity(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        version=resource_version(wire.metadata.resourceVersion),
        storage_class=wire.storageClassName,
        largest=None if stated is None else math.ceil(parse_quantity(stated)),
        # A selector that is there and empty matches everything; one that is not there, nothing.
        node_terms=() if topology is None else (Term(topology.expressions, ()),) if topology.expressions else None,
    )


def _amount(quantities: Quantities | None, name: str) -> Amount | None:
    text = (quantities or {}).get(name)
    if text is None:
        return None
    value = parse_quantity(text)
    return value.numerator if value.denominator == 1 else value


@lru_cache(maxsize=16384)
def _shared(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return terms
