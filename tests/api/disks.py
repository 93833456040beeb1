"""Claims, volumes and classes on a real control plane."""

from typing import Any

from turb_kub.api.errors import ApiError

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


class Disks:
    """Makes storage objects, and remembers their paths."""

    def __init__(self, admin: Any) -> None:
        self.admin = admin
        self.paths: list[str] = []

    async def _make(self, path: str, name: str, body: dict[str, Any]) -> Any:
        made = await self.admin.call("POST", path, {"metadata": {"name": name}} | body)
        self.paths.append(f"{path}/{name}")
        return made

    async def storage_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner") -> Any:
        body = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        return await self._make(CLASSES, name, body)

    async def volume(self, name: str, node: str, storage_class: str = "local", storage: str = "1Gi") -> Any:
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
        spec = {
            "capacity": {"storage": storage},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "local": {"path": "/x"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }
        await self._make(VOLUMES, name, {"spec": spec})

        async def available() -> Any:
            found = await self.admin.call("GET", f"{VOLUMES}/{name}")
            return found if found["status"].get("phase") == "Available" else None

        return await self.admin.seen(available)

    async def claim(self, name: str, storage_class: str = "local", storage: str = "1Gi") -> Any:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": storage}},
        }
        return await self._make(CLAIMS, name, {"spec": spec})

    async def read_claim(self, name: str) -> Any:
        return await self.admin.call("GET", f"{CLAIMS}/{name}")

    async def read_volume(self, name: str) -> Any:
        return await self.admin.call("GET", f"{VOLUMES}/{name}")

    async def remove(self) -> None:
        """Remove what was made, and wait until it is gone. Pods that use it must be gone already."""
        for path in reversed(self.paths):
            await self.admin.call("DELETE", path)
        for path in self.paths:

            async def gone(path: str = path) -> bool:
                try:
                    await self.admin.call("GET", path)
                except ApiError as error:
                    return error.status == 404
                return False

            await self.admin.seen(gone)
