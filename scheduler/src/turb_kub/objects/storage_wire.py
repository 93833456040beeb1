"""The parts of storage objects' JSON that turb-kub reads, as msgspec structs. See `wire`; decoded by `storage`."""

import msgspec

from turb_kub.objects.wire import LabelSelector, NodeSelector, ObjectMeta, Quantities, Wire

#: Volume plugins of old: their field in a PersistentVolume, their provisioner, and the CSI driver in their place.
_MIGRATED = (
    ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("portworxVolume", "kubernetes.io/portworx-volume", "pxd.portworx.com"),
)
#: The driver by provisioner.
MIGRATED_PROVISIONERS = {provisioner: driver for _, provisioner, driver in _MIGRATED}


class VolumeResources(Wire):
    requests: Quantities | None = None


class ClaimSpec(Wire):
    storageClassName: str | None = None
    volumeName: str | None = None
    volumeMode: str | None = None
    volumeAttributesClassName: str | None = None
    accessModes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: VolumeResources | None = None


class Phase(Wire):
    phase: str | None = None


class WireClaim(Wire):
    metadata: ObjectMeta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: Phase = msgspec.field(default_factory=Phase)


class Reference(Wire):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Wire):
    required: NodeSelector | None = None


class CsiSource(Wire):
    driver: str = ""
    volumeHandle: str = ""


class VolumeSpec(Wire):
    storageClassName: str | None = None
    volumeMode: str | None = None
    volumeAttributesClassName: str | None = None
    accessModes: list[str] | None = None
    capacity: Quantities | None = None
    claimRef: Reference | None = None
    nodeAffinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    awsElasticBlockStore: Wire | None = None
    azureDisk: Wire | None = None
    cinder: Wire | None = None
    gcePersistentDisk: Wire | None = None
    portworxVolume: Wire | None = None

    @property
    def driver(self) -> str:
        """The CSI driver that attaches it; "" where none does."""
        if self.csi is not None:
            return self.csi.driver
        return next((driver for field, _, driver in _MIGRATED if getattr(self, field) is not None), "")


class WireVolume(Wire):
    metadata: ObjectMeta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: Phase = msgspec.field(default_factory=Phase)


class TopologyRequirement(Wire):
    key: str
    values: list[str] | None = None


class TopologyTerm(Wire):
    matchLabelExpressions: list[TopologyRequirement] | None = None


class WireClass(Wire):
    metadata: ObjectMeta
    provisioner: str = ""
    volumeBindingMode: str | None = None
    allowedTopologies: list[TopologyTerm] | None = None


class AttachLimit(Wire):
    count: int | None = None


class NodeDriver(Wire):
    name: str = ""
    allocatable: AttachLimit | None = None


class NodeDriversSpec(Wire):
    drivers: list[NodeDriver] | None = None


class WireNodeDrivers(Wire):
    metadata: ObjectMeta
    spec: NodeDriversSpec = msgspec.field(default_factory=NodeDriversSpec)


class AttachmentSource(Wire):
    persistentVolumeName: str | None = None


class AttachmentSpec(Wire):
    attacher: str = ""
    nodeName: str = ""
    source: AttachmentSource = msgspec.field(default_factory=AttachmentSource)


class WireAttachment(Wire):
    metadata: ObjectMeta
    spec: AttachmentSpec = msgspec.field(default_factory=AttachmentSpec)


class DriverSpec(Wire):
    storageCapacity: bool | None = None


class WireDriver(Wire):
    metadata: ObjectMeta
    spec: DriverSpec = msgspec.field(default_factory=DriverSpec)


class WireCapacity(Wire):
    metadata: ObjectMeta
    storageClassName: str = ""
    capacity: str | int | float | None = None
    maximumVolumeSize: str | int | float | None = None
    nodeTopology: LabelSelector | None = None
