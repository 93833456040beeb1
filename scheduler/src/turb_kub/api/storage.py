"""The kinds of storage objects: where the API server lists them, and how each is decoded."""

from collections.abc import Callable

import msgspec

from turb_kub.objects.storage import (
    Attachment,
    Claim,
    NodeDrivers,
    StorageCapacity,
    StorageClass,
    StorageDriver,
    StorageObject,
    Volume,
    decode_attachment,
    decode_capacity,
    decode_claim,
    decode_class,
    decode_driver,
    decode_node_drivers,
    decode_volume,
)


class StorageKind(msgspec.Struct, frozen=True):
    """One kind.

    Attributes:
        kind: its name in manifests.
        resource: its name in URLs and RBAC.
        path: of the list in all namespaces.
    """

    kind: str
    resource: str
    path: str
    type: type[StorageObject]
    decode: Callable[[bytes | str | msgspec.Raw], StorageObject]


_STORAGE = "/apis/storage.k8s.io/v1"
STORAGE_KINDS = (
    StorageKind("StorageClass", "storageclasses", f"{_STORAGE}/storageclasses", StorageClass, decode_class),
    StorageKind("PersistentVolume", "persistentvolumes", "/api/v1/persistentvolumes", Volume, decode_volume),
    StorageKind(
        "PersistentVolumeClaim", "persistentvolumeclaims", "/api/v1/persistentvolumeclaims", Claim, decode_claim
    ),
    StorageKind("CSINode", "csinodes", f"{_STORAGE}/csinodes", NodeDrivers, decode_node_drivers),
    StorageKind(
        "VolumeAttachment", "volumeattachments", f"{_STORAGE}/volumeattachments", Attachment, decode_attachment
    ),
    StorageKind("CSIDriver", "csidrivers", f"{_STORAGE}/csidrivers", StorageDriver, decode_driver),
    StorageKind(
        "CSIStorageCapacity",
        "csistoragecapacities",
        f"{_STORAGE}/csistoragecapacities",
        StorageCapacity,
        decode_capacity,
    ),
)
