"""The two writes by which a scheduler has a claim bound, as the PersistentVolume controller and provisioners expect.

Both carry the object's uid and resourceVersion, so that the API server refuses them where it has changed since it was
decided on (`ApiError.object_is_another`).
"""

from typing import Any
from urllib.parse import quote

import msgspec

from turb_kub.api.client import STRATEGIC_MERGE, Client
from turb_kub.api.errors import Unreachable
from turb_kub.objects.pod import resource_version
from turb_kub.objects.storage import SELECTED_NODE, Claim, Volume
from turb_kub.objects.wire import Decoder, Identified

#: On a volume: its claim was chosen for it, not named by a person, so that it is free again when the claim goes.
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"

_identities = Decoder(Identified)


async def keep_volume(client: Client, volume: Volume, claim: Claim) -> int:
    """Keep an available volume for a claim; the PersistentVolume controller then binds the two.

    Returns the volume's new resourceVersion. Raises `ApiError` or `Unreachable`.
    """
    meta = _preconditions(volume.uid, volume.version)
    if volume.claim is None:
        meta["annotations"] = {_BOUND_BY_CONTROLLER: "yes"}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": str(claim.version),
    }
    path = f"/api/v1/persistentvolumes/{quote(volume.name)}"
    return await _patch(client, path, "persistentvolumes", {"metadata": meta, "spec": {"claimRef": reference}})


async def select_node(client: Client, claim: Claim, node_name: str) -> int:
    """Have the claim's volume made for a node.

    Returns the claim's new resourceVersion. Raises `ApiError` or `Unreachable`.
    """
    meta = _preconditions(claim.uid, claim.version) | {"annotations": {SELECTED_NODE: node_name}}
    path = f"/api/v1/namespaces/{quote(claim.namespace)}/persistentvolumeclaims/{quote(claim.name)}"
    return await _patch(client, path, "persistentvolumeclaims", {"metadata": meta})


def _preconditions(uid: str, version: int) -> dict[str, Any]:
    return {"uid": uid, "resourceVersion": str(version)}


async def _patch(client: Client, path: str, resource: str, patch: dict[str, Any]) -> int:
    content = await client.request(
        "PATCH", path, resource=resource, body=msgspec.json.encode(patch), content_type=STRATEGIC_MERGE
    )
    try:
        return resource_version(_identities.decode(content).metadata.resourceVersion)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"the answer to a patch cannot be read: {error}") from error
