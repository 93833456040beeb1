"""The PersistentVolumeClaims that a pod uses.

A volume names its claim, or is a generic ephemeral one whose claim is `<pod>-<volume>`, made by a controller and owned
by the pod (kubernetes.io, "Ephemeral Volumes"). Nearly all pods use none.
"""

from functools import lru_cache

import msgspec

from turb_kub.objects.wire import PodSpec


class ClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A claim in the pod's namespace, by name."""

    name: str
    #: Whether it must be owned by the pod.
    ephemeral: bool = False


def claims_of(pod_name: str, spec: PodSpec) -> tuple[ClaimUse, ...]:
    """Return the claims of a pod in the order of its volumes, each once."""
    uses: dict[str, ClaimUse] = {}
    for volume in spec.volumes or ():
        if volume.persistentVolumeClaim is not None:
            use = ClaimUse(volume.persistentVolumeClaim.claimName)
        elif volume.ephemeral is not None:
            use = ClaimUse(f"{pod_name}-{volume.name}", ephemeral=True)
        else:
            continue
        uses.setdefault(use.name, use)
    return _shared(tuple(uses.values())) if uses else ()


@lru_cache(maxsize=4096)
def _shared(uses: tuple[ClaimUse, ...]) -> tuple[ClaimUse, ...]:
    return uses
