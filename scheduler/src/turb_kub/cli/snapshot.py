"""The cluster at one moment, for commands that look at it from outside: read from the API server, or from a file."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from turb_kub.api.client import REQUEST_TIMEOUT, Client
from turb_kub.api.errors import ApiError
from turb_kub.api.events import DECISION_ANNOTATION
from turb_kub.api.lists import pages
from turb_kub.api.storage import STORAGE_KINDS
from turb_kub.cli.errors import CommandError
from turb_kub.cli.kubectl import COMMAND
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.cluster.volumes import Volumes
from turb_kub.decision.report import Report, decode_report
from turb_kub.objects.malformed import MALFORMED, remains_of
from turb_kub.objects.node import decode_node
from turb_kub.objects.pod import TERMINAL_PHASES, Pod, decode_pod, shared_labels
from turb_kub.objects.storage import Claim, StorageClass, Volume
from turb_kub.objects.wire import Decoder, Identified, ObjectMeta, Wire

#: Kinds of which every cluster with volumes or neighbours has some: where a file has none, they were left out of it.
_ALWAYS_THERE = {"Namespace": "namespaces", "CSINode": "csinodes"}
_STORAGE = {kind.kind: kind for kind in STORAGE_KINDS}
_identities = Decoder(Identified)


class Referred(Wire):
    uid: str = ""


class WireEvent(Wire):
    """What is read of an event, core/v1 or events.k8s.io/v1."""

    metadata: ObjectMeta
    involvedObject: Referred | None = None
    regarding: Referred | None = None


_events = Decoder(WireEvent)


class Snapshot(msgspec.Struct):
    """Nodes and placed pods as a cluster; every pod; the last decision recorded for each, by uid."""

    cluster: Cluster
    pods: list[Pod] = []
    decisions: dict[str, Report] = {}
    #: Objects that could not be understood, each with why.
    set_aside: list[str] = []
    #: Kinds that seem to be left out of the file, by kubectl's name for them.
    left_out: list[str] = []

    def add(self, kind: str, item: msgspec.Raw | bytes) -> None:
        """Take one object; kinds other than Node, Namespace, Pod, Event and those of storage are nothing to us."""
        try:
            match kind:
                case "Node":
                    self.cluster.set_node(decode_node(item))
                case "Pod":
                    self._add_pod(decode_pod(item, keep_demands=True))
                case "Namespace":
                    meta = _identities.decode(item).metadata
                    self.cluster.set_namespace(meta.name, shared_labels(meta.labels))
                case "Event":
                    self._add_event(_events.decode(item))
                case _ if kind in _STORAGE:
                    self.cluster.volumes.put(_STORAGE[kind].decode(item))
        except MALFORMED as error:
            remains = remains_of(item)
            self.set_aside.append(f"{kind.lower()} {remains.key}: {error}")
            if kind == "Pod" and remains.node_name and remains.phase not in TERMINAL_PHASES:
                self.cluster.close_node(remains.node_name, remains.ident, remains.uncounted)

    def _add_pod(self, pod: Pod) -> None:
        self.pods.append(pod)
        if pod.node_name:
            self.cluster.set_pod(pod)
        elif pod.reserves:
            self.cluster.nominate(pod)

    def _add_event(self, event: WireEvent) -> None:
        report = decode_report((event.metadata.annotations or {}).get(DECISION_ANNOTATION, ""))
        about = event.involvedObject or event.regarding
        if report is None or about is None:
            return
        # A pod is scheduled once, and that is the last word; of failures any says what the verdict was.
        known = self.decisions.get(about.uid)
        if known is None or known.node is None:
            self.decisions[about.uid] = report


async def take_snapshot(client: Client, accounting: Accounting) -> Snapshot:
    """Read nodes, namespaces, pods, storage and our events. Raises `ApiError` or `Unreachable`.

    Storage that may not be read is left out, and said to be where a pod claims volumes.
    """
    snapshot = Snapshot(Cluster(accounting))
    ours = {"fieldSelector": f"reportingComponent={accounting.scheduler_name}"}
    for kind, path, query in (
        ("Node", "/api/v1/nodes", {}),
        ("Namespace", "/api/v1/namespaces", {}),
        ("Pod", "/api/v1/pods", {}),
        ("Event", "/api/v1/events", ours),
    ):
        for item in await _list(client, path, f"{kind.lower()}s", query):
            snapshot.add(kind, item)
    for storage in STORAGE_KINDS:
        try:
            items = await _list(client, storage.path, storage.resource, {})
        except ApiError as error:
            if error.status not in {403, 404}:
                raise
            snapshot.cluster.volumes.unread[storage.resource] = "the API server does not list them"
            continue
        for item in items:
            snapshot.add(storage.kind, item)
    return snapshot


def read_snapshot(path: str, accounting: Accounting) -> Snapshot:
    """Read the output of `COMMAND` (or the same as yaml), or an export of kwokctl.

    Raises:
        CommandError: the file cannot be read, or holds no node.
    """
    snapshot = Snapshot(Cluster(accounting))
    kinds = set()
    for item in _documents(path):
        for found in item.get("items", [item]) if str(item.get("kind", "")).endswith("List") else [item]:
            if isinstance(found, Mapping):
                kinds.add(str(found.get("kind", "")))
                snapshot.add(str(found.get("kind", "")), json.dumps(_identified(found), default=str).encode())
    if not snapshot.cluster.node_count:
        raise CommandError(
            f"{path} holds no node: write it with {COMMAND}, or kwokctl snapshot export",
            2,
        )
    _note_what_is_missing(snapshot.cluster.volumes)
    snapshot.left_out = [name for kind, name in _ALWAYS_THERE.items() if kind not in kinds]
    return snapshot


def _identified(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give an object that was written by hand the uid that the API server would have given it."""
    meta = item.get("metadata")
    if not isinstance(meta, Mapping) or meta.get("uid"):
        return item
    return {**item, "metadata": {**meta, "uid": f"{meta.get('namespace', '')}/{meta.get('name', '')}"}}


def _note_what_is_missing(volumes: Volumes) -> None:
    """Tell kinds of storage that were left out of a file from objects that do not exist."""
    claims = [claim for key in volumes.keys(Claim) if (claim := volumes.claim(*key)) is not None]
    left_out = {
        "persistentvolumeclaims": not claims,
        "persistentvolumes": any(claim.volume_name for claim in claims) and not volumes.keys(Volume),
        "storageclasses": any(claim.storage_class and not claim.bound for claim in claims)
        and not volumes.keys(StorageClass),
    }
    volumes.unread |= {resource: "not in the file" for resource, missing in left_out.items() if missing}


def _documents(path: str) -> Iterable[Mapping[str, Any]]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        # JSON is YAML as well, but the reader of YAML takes minutes for what the one of JSON reads at once.
        documents = [json.loads(text)] if text.lstrip().startswith("{") else list(yaml.safe_load_all(text))
    except OSError as error:
        raise CommandError(f"{path} could not be read: {error.strerror or error}", 2) from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise CommandError(f"{path} is neither JSON nor YAML: {' '.join(str(error).split())}", 2) from error
    return [document for document in documents if isinstance(document, Mapping)]


async def _list(client: Client, path: str, resource: str, query: Mapping[str, str]) -> list[msgspec.Raw]:
    # A person waits for this, so no longer than for any other request.
    read = pages(client, path, resource=resource, query=query, timeout=REQUEST_TIMEOUT)
    return [item async for page in read for item in page.items or ()]
