"""The calls on one pod: binding, condition, reading it again."""

from datetime import datetime
from enum import Enum, auto
from urllib.parse import quote

import msgspec

from turb_kub.api.client import STRATEGIC_MERGE, Client
from turb_kub.api.errors import ApiError, MalformedPod, Unreachable
from turb_kub.objects.malformed import MALFORMED, remains_of
from turb_kub.objects.pod import Pod, decode_pod
from turb_kub.objects.wire import Decoder, Identified

_identities = Decoder(Identified)


class Answer(Enum):
    """What became of a binding, as far as its answer tells.

    | answer of the API server | here | what to do |
    |---|---|---|
    | 201 | BOUND | wait for the watch |
    | 409 of any kind | UNCERTAIN | read the pod: all conflicts have one reason and differ only in their text |
    | 404 | UNCERTAIN | read the pod: a namespace, a proxy or a server that is starting may be what is not there |
    | 5xx, time-out, connection lost | LOST | read the pod after a moment: it may be bound all the same |
    | 429 | THROTTLED | back off as long as asked |
    | any other | REFUSED | back off, say why |
    """

    BOUND = auto()
    UNCERTAIN = auto()
    LOST = auto()
    THROTTLED = auto()
    REFUSED = auto()


class BindAnswer(msgspec.Struct, frozen=True):
    answer: Answer
    #: The API server's words, or what cut it off; "" where the pod is bound.
    message: str = ""
    retry_after: float = 0.0


async def bind(client: Client, pod: Pod, node_name: str, timeout: float | None = None) -> BindAnswer:
    """Bind a pod to a node, provided that it is still the pod that was decided on (uid and resourceVersion).

    Args:
        timeout: as of `Client.request`. The scheduler's is shorter than a lease could be lost in
            (`turb_kub.loop.election`), so that a late bind never comes from a replica that is no longer active.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": str(pod.resource_version),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }
    try:
        await client.request(
            "POST",
            f"{_path(pod)}/binding",
            resource="pods/binding",
            body=msgspec.json.encode(body),
            timeout=timeout,
        )
    except Unreachable as error:
        return BindAnswer(Answer.LOST, str(error))
    except ApiError as error:
        if error.ambiguous:
            return BindAnswer(Answer.LOST, error.message)
        if error.status in {404, 409}:
            return BindAnswer(Answer.UNCERTAIN, error.message)
        if error.status == 429:
            return BindAnswer(Answer.THROTTLED, error.message, error.retry_after)
        return BindAnswer(Answer.REFUSED, error.message)
    return BindAnswer(Answer.BOUND)


async def read_pod(client: Client, pod: Pod) -> Pod | None:
    """Return the pod as it is now; None where there is none of that name, or only another one.

    Raises:
        ApiError, Unreachable: it could not be read.
        MalformedPod: it could not be understood.
    """
    try:
        content = await client.request("GET", _path(pod), resource="pods")
    except ApiError as error:
        # The API server names its reason; what else answers 404 knows nothing of the pod.
        if error.status == 404 and error.reason == "NotFound":
            return None
        raise
    try:
        current = decode_pod(content)
    except MALFORMED as error:
        remains = remains_of(content)
        if not remains.uid:
            raise Unreachable(f"the answer is no pod: {error}") from error
        if remains.uid != pod.uid:
            return None
        raise MalformedPod(remains, error) from error
    return current if current.uid == pod.uid else None


async def set_unscheduled(client: Client, pod: Pod, reason: str, message: str, now: datetime | None) -> Pod | None:
    """Write the condition PodScheduled=False and return the pod as it is then; None where that cannot be understood.

    The answer's resourceVersion alone would not do: what the pod asks may have changed since it was decided.

    Args:
        reason: "Unschedulable" or "SchedulerError".
        now: when the condition became False; None where it was so before.

    Raises:
        ApiError, Unreachable: it was not, or may not have been, written.
    """
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    if now is not None:
        condition["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    # The uid makes the API server refuse the patch (422) for a pod that was made anew under the same name.
    patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
    content = await client.request(
        "PATCH",
        f"{_path(pod)}/status",
        resource="pods/status",
        body=msgspec.json.encode(patch),
        content_type=STRATEGIC_MERGE,
    )
    try:
        return decode_pod(content)
    except MALFORMED:
        return None


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
