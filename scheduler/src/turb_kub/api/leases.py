"""The calls on a Lease (coordination.k8s.io/v1), by which replicas agree on one that is active.

A write names the resourceVersion that was read, so that of two writers one is refused (409). What others keep in the
object (labels, annotations, fields of the spec that are not ours) stays as it is.
"""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from turb_kub.api.client import Client, Pool
from turb_kub.api.errors import ApiError, Unreachable

RESOURCE = "leases"
#: What this process may hold on to of a Lease that nobody holds any more: a second, as client-go writes it.
RELEASED = 1


class Lease(msgspec.Struct, frozen=True):
    """A Lease as it was read. What is not there, or not of its type, is as if it had not been written."""

    #: The object as it came, for the next write.
    wire: dict[str, Any]

    @property
    def holder(self) -> str:
        """Who holds it; "" where nobody does."""
        return _text(self._spec.get("holderIdentity"))

    @property
    def duration(self) -> float | None:
        """Seconds for which it holds without being renewed; None where it does not say."""
        value = self._spec.get("leaseDurationSeconds")
        return float(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    @property
    def acquired(self) -> str:
        return _text(self._spec.get("acquireTime"))

    @property
    def transitions(self) -> int:
        value = self._spec.get("leaseTransitions")
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0

    @property
    def state(self) -> tuple[Any, ...]:
        """What a renewal changes. Other writes (a label, say) are none: they must not keep a dead holder alive."""
        meta = self.wire["metadata"]
        names = ("holderIdentity", "renewTime", "acquireTime", "leaseTransitions", "leaseDurationSeconds")
        return (_text(meta.get("uid")), *(repr(self._spec.get(name)) for name in names))

    @property
    def _spec(self) -> dict[str, Any]:
        spec = self.wire.get("spec")
        return spec if isinstance(spec, dict) else {}


async def read_lease(client: Client, namespace: str, name: str, timeout: float) -> Lease | None:
    """Return the Lease; None where there is none of that name. Raises `ApiError` or `Unreachable`."""
    try:
        content = await _request(client, "GET", f"{_path(namespace)}/{quote(name, safe='')}", timeout)
    except ApiError as error:
        # The API server names its reason; what else answers 404 knows nothing of the Lease.
        if error.status == 404 and error.reason == "NotFound":
            return None
        raise
    return _decoded(content)


async def create_lease(
    client: Client, namespace: str, name: str, holder: str, duration: int, now: datetime, timeout: float
) -> Lease:
    """Create the Lease as its holder. Raises `ApiError` (409: there is one by now) or `Unreachable`."""
    wire = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "acquireTime": micro_time(now),
            "renewTime": micro_time(now),
            "leaseTransitions": 0,
        },
    }
    return _decoded(await _request(client, "POST", _path(namespace), timeout, wire))


async def write_lease(
    client: Client, namespace: str, name: str, lease: Lease, holder: str, duration: int, now: datetime, timeout: float
) -> Lease:
    """Take, renew or (holder "") give up a Lease that is still as it was read.

    Raises `ApiError` (409: it has changed; 404: it is gone) or `Unreachable`.
    """
    time = micro_time(now)
    spec = dict(lease._spec) | {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": time}
    if holder != lease.holder or not lease.acquired:
        spec["acquireTime"] = time
        # Counted when it is taken, not when it is given up, as client-go does.
        spec["leaseTransitions"] = lease.transitions + (1 if holder else 0)
    wire = dict(lease.wire) | {"spec": spec}
    return _decoded(await _request(client, "PUT", f"{_path(namespace)}/{quote(name, safe='')}", timeout, wire))


def micro_time(now: datetime) -> str:
    """Return a time (UTC) as the API server takes it: with six digits of a second, no fewer, even where all are 0."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _request(client: Client, verb: str, path: str, timeout: float, wire: dict[str, Any] | None = None) -> bytes:
    body = None if wire is None else msgspec.json.encode(wire)
    # A connection of its own: a renewal must not wait for one behind bindings that hang.
    return await client.request(verb, path, resource=RESOURCE, body=body, timeout=timeout, pool=Pool.WATCHES)


def _decoded(content: bytes) -> Lease:
    try:
        wire = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise Unreachable(f"the answer is no Lease: {error}") from error
    meta = wire.get("metadata") if isinstance(wire, dict) else None
    if not isinstance(meta, dict) or not _text(meta.get("resourceVersion")):
        # Written back without a resourceVersion it would overwrite whatever is there.
        raise Unreachable("the answer is no Lease: it has no resourceVersion")
    return Lease(wire)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
