"""The cluster as it is now, read once, for commands that look at it from outside."""

from collections.abc import Mapping

import msgspec

from turb_kub.api.client import Client
from turb_kub.api.events import DECISION_ANNOTATION
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.report import Report, decode_report
from turb_kub.objects.node import decode_node
from turb_kub.objects.pod import Pod, decode_pod
from turb_kub.objects.quantity import QuantityError
from turb_kub.objects.wire import Decoder, ObjectMeta, Wire, WireList

PAGE = "500"
_lists = Decoder(WireList)


class InvolvedObject(Wire):
    uid: str = ""


class WireEvent(Wire):
    """What is read of a core/v1 event."""

    metadata: ObjectMeta
    involvedObject: InvolvedObject = msgspec.field(default_factory=InvolvedObject)
    reason: str = ""


_events = Decoder(WireEvent)


class Snapshot(msgspec.Struct):
    """Nodes and placed pods as a cluster; the pods of one scheduler; the last decision recorded for each, by uid."""

    cluster: Cluster
    pods: list[Pod]
    decisions: dict[str, Report]
    #: Names of objects that could not be understood.
    set_aside: list[str]


async def take_snapshot(client: Client, accounting: Accounting) -> Snapshot:
    """Read nodes, pods and our events. Raises `ApiError` or `Unreachable`."""
    snapshot = Snapshot(Cluster(accounting), [], {}, [])
    for item in await _list(client, "/api/v1/nodes", "nodes"):
        try:
            snapshot.cluster.set_node(decode_node(item))
        except (msgspec.MsgspecError, QuantityError) as error:
            snapshot.set_aside.append(f"a node: {error}")
    for item in await _list(client, "/api/v1/pods", "pods"):
        try:
            pod = decode_pod(item, keep_demands=True)
        except (msgspec.MsgspecError, QuantityError) as error:
            snapshot.set_aside.append(f"a pod: {error}")
            continue
        if pod.node_name:
            snapshot.cluster.set_pod(pod)
        if pod.scheduler_name == accounting.scheduler_name:
            snapshot.pods.append(pod)
    snapshot.pods.sort(key=lambda pod: pod.key)
    ours = {"fieldSelector": f"reportingComponent={accounting.scheduler_name}"}
    for item in await _list(client, "/api/v1/events", "events", ours):
        try:
            event = _events.decode(item)
        except msgspec.MsgspecError:
            continue
        report = decode_report((event.metadata.annotations or {}).get(DECISION_ANNOTATION, ""))
        if report is not None:
            _keep_latest(snapshot.decisions, event, report)
    return snapshot


def _keep_latest(decisions: dict[str, Report], event: WireEvent, report: Report) -> None:
    # A pod is scheduled once, and that is the last word; of failures the list's last is as good as any other.
    known = decisions.get(event.involvedObject.uid)
    if known is None or known.node is None:
        decisions[event.involvedObject.uid] = report


async def _list(client: Client, path: str, resource: str, query: Mapping[str, str] | None = None) -> list[msgspec.Raw]:
    items: list[msgspec.Raw] = []
    page = {"limit": PAGE, **(query or {})}
    while True:
        decoded = _lists.decode(await client.request("GET", path, resource=resource, query=page))
        items += decoded.items or []
        if not decoded.metadata.continue_:
            return items
        page["continue"] = decoded.metadata.continue_
