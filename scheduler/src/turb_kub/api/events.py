"""Events about pods, with kube-scheduler's reasons, actions and texts (events.k8s.io/v1)."""

import secrets
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError
from turb_kub.objects.pod import Pod

#: JSON of the decision behind the event, numbers and all.
DECISION_ANNOTATION = "turb-kub.io/decision"
#: The API server refuses longer notes.
LONGEST_NOTE = 1024
_CUT = " ..."
# A name has at most 253 characters, and the suffix takes some.
_LONGEST_NAME = 230


class PodEvent(msgspec.Struct, frozen=True):
    """One event. Its suffix makes its name, so that one posted again after a lost answer is not there twice."""

    pod: Pod
    type: str
    reason: str
    action: str
    note: str
    #: JSON for the annotation; "" for none.
    decision: str = ""
    suffix: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))


def scheduled(pod: Pod, node_name: str, decision: str) -> PodEvent:
    """A pod has found its node."""
    return PodEvent(pod, "Normal", "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node_name}", decision)


def failed(pod: Pod, note: str, decision: str = "") -> PodEvent:
    """A pod has found none, or could not be bound."""
    return PodEvent(pod, "Warning", "FailedScheduling", "Scheduling", note, decision)


def rejected(pod: Pod, note: str) -> PodEvent:
    """The kubelet has turned a pod away."""
    return PodEvent(pod, "Warning", "KubeletRejected", "CoolingDown", note)


async def post_event(client: Client, event: PodEvent, *, controller: str, instance: str) -> None:
    """Write one event. Raises `ApiError` or `Unreachable`; whether that matters is the caller's to say."""
    pod = event.pod
    try:
        await client.request(
            "POST",
            f"/apis/events.k8s.io/v1/namespaces/{quote(pod.namespace, safe='')}/events",
            resource="events",
            body=msgspec.json.encode(event_body(event, datetime.now(UTC), controller=controller, instance=instance)),
        )
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def event_body(event: PodEvent, now: datetime, *, controller: str, instance: str) -> dict[str, Any]:
    """Return the Event object. `reportingInstance` is at most 128 characters long by the API's rule."""
    pod = event.pod
    note = event.note
    if len(note.encode()) > LONGEST_NOTE:
        note = note.encode()[: LONGEST_NOTE - len(_CUT)].decode(errors="ignore") + _CUT
    metadata: dict[str, Any] = {
        "name": f"{pod.name[:_LONGEST_NAME].rstrip('.-')}.{event.suffix}",
        "namespace": pod.namespace,
    }
    if event.decision:
        metadata["annotations"] = {DECISION_ANNOTATION: event.decision}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": metadata,
        # The API server takes six digits of a second, no fewer, even where they are all 0.
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": event.type,
        "reason": event.reason,
        "action": event.action,
        "note": note,
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "resourceVersion": str(pod.resource_version),
        },
    }
