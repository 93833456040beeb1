"""kube-scheduler as an oracle: which nodes it would place a pod on, for any number of pods against one cluster.

kube-scheduler says where it puts a pod, not where it could. So it is given one HTTP extender, which this module serves:
kube-scheduler calls it with the names of the nodes that passed all of its plugins. The names are noted, and the answer
is that none of them will do. So nothing is ever bound, and the next pod meets the same cluster. A pod that no node
passes never reaches the extender; kube-scheduler says so in the pod's condition.

How it is known that kube-scheduler has seen the whole cluster, whose kinds of objects reach it by watches of their own:
within one kind, a watch delivers changes in their order. After everything else is written, one more object of each
kind is: a node, a namespace's label, a placed pod, a class, a claim and its volume. A pod, the canary, then asks for a
node that only exists when all of these are known: that node by its label, near that placed pod in a namespace of that
label, with that claim, and another one of that class. Once the extender is asked about the canary, all that was written
before those objects is known too, deletions of the last case included. Only then are the questions created.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError
from turb_kub.decision.explain import Explanation, explain
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.scheduler import Scheduler
from turb_kub.objects.pod import decode_pod
from turb_kub.settings import Settings

from tests.api.conftest import Admin
from tests.api.running import PATIENCE, until
from tests.cluster.control_plane import ControlPlane, Process
from tests.cluster.generator import NAMESPACES, PROVISIONER, REQUIRED, RUNTIMES, SCHEDULER, Case, Stated, Wire

NODES, PODS, CLAIMS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/persistentvolumeclaims"
VOLUMES, CLASSES = "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
CANARY = "canary"
#: Requests to the API server at once.
AT_ONCE = 8
#: Seconds after which another canary is sent: not every change of these kinds makes kube-scheduler try a pod again.
NEXT_CANARY = 0.25


class Extender(ThreadingHTTPServer):
    """Notes which nodes kube-scheduler asks about.

    Attributes:
        asked: names of nodes by the pod's uid.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: dict[str, frozenset[str]] = {}
        super().__init__(("127.0.0.1", 0), _Filter)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Filter(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Else the second packet of each answer waits 40 ms for the first to be acknowledged.
    disable_nagle_algorithm = True
    server: Extender

    def do_POST(self) -> None:
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = arguments["NodeNames"]
        self.server.asked[arguments["Pod"]["metadata"]["uid"]] = frozenset(names)
        body = json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only asked")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@dataclass(frozen=True)
class Answer:
    """The nodes that kube-scheduler would place a pod on; where there are none, what the pod's condition says."""

    nodes: frozenset[str]
    message: str = ""


@contextmanager
def oracle(bare: ControlPlane) -> Iterator["Oracle"]:
    """kube-scheduler on a bare control plane, to be asked."""
    extender = Extender()
    thread = threading.Thread(target=extender.serve_forever, daemon=True)
    thread.start()
    try:
        with bare.kube_scheduler(
            percentageOfNodesToScore=100,
            podInitialBackoffSeconds=1,
            podMaxBackoffSeconds=1,
            extenders=[
                {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "30s"}
            ],
            profiles=[
                {
                    "schedulerName": SCHEDULER,
                    # Preemption nominates nodes, and a pod with a nominated node is not asked about the others. No pod
                    # here has a resource claim, yet every message would end in what there is to do about them.
                    "plugins": {
                        "multiPoint": {"disabled": [{"name": "DefaultPreemption"}, {"name": "DynamicResources"}]}
                    },
                }
            ],
        ) as process:
            yield Oracle(extender, process)
    finally:
        extender.shutdown()
        extender.server_close()
        thread.join()


class Oracle:
    """Asks kube-scheduler."""

    def __init__(self, extender: Extender, process: Process) -> None:
        self._extender = extender
        self._process = process
        self._canaries = 0

    async def ask(self, stage: "Stage", pods: Sequence[Wire]) -> dict[str, Answer]:
        """Return what it says of each pod, by the pod's name.

        The cluster must be written; the pods are created by this. They stay, unbound.
        """
        await self._let_it_see(stage)
        made = await stage.each(stage.create(PODS, pod) for pod in pods)
        uids = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in made}
        refused: dict[str, str] = {}

        async def answered() -> bool:
            self._process.check()
            if not uids.keys() - self._extender.asked.keys():
                return True
            # The condition is written after the extender was asked, if it was.
            for pod in await stage.items(PODS):
                for one in pod["status"].get("conditions", ()):
                    if one["type"] == "PodScheduled" and one["status"] == "False":
                        refused[pod["metadata"]["uid"]] = one.get("message", "")
            return not uids.keys() - self._extender.asked.keys() - refused.keys()

        await until(answered, patience=2 * PATIENCE)
        asked = self._extender.asked
        return {
            name: Answer(asked[uid]) if uid in asked else Answer(frozenset(), refused[uid])
            for uid, name in uids.items()
        }

    async def _let_it_see(self, stage: "Stage") -> None:
        """Wait until kube-scheduler has seen all that was written (see above)."""
        self._canaries += 1
        mark = f"{CANARY}-{self._canaries}"
        await stage.write_last(mark)
        uids: set[str] = set()

        def seen() -> bool:
            self._process.check()
            return bool(uids & self._extender.asked.keys())

        deadline = asyncio.get_running_loop().time() + 2 * PATIENCE
        while not seen():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"kube-scheduler never saw the whole cluster: {self._process.tail()}")
            uids.add((await stage.create(PODS, _canary(mark, len(uids))))["metadata"]["uid"])
            try:
                await until(seen, patience=NEXT_CANARY)
            except AssertionError:
                continue


def _canary(mark: str, number: int) -> Wire:
    term = {
        "topologyKey": CANARY,
        "labelSelector": {"matchLabels": {CANARY: mark}},
        "namespaceSelector": {"matchLabels": {CANARY: mark}},
    }
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{mark}-{name}"}} for name in ("bound", "waiting")
    ]
    return {
        "metadata": {"name": f"{mark}-{number}", "namespace": CANARY},
        "spec": {
            "schedulerName": SCHEDULER,
            "containers": [{"name": "app", "image": "x"}],
            "nodeSelector": {CANARY: mark},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAffinity": {REQUIRED: [term]}},
            "volumes": volumes,
        },
    }


class Stage:
    """Writes cases to the API server, and takes them away again."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def each(self, calls: "Iterator[Awaitable[Any]] | Sequence[Awaitable[Any]]") -> list[Any]:
        """Do some at once; return their answers in order."""

        async def one(call: Awaitable[Any]) -> Any:
            async with self._slots:
                return await call

        return await asyncio.gather(*(one(call) for call in calls))

    async def items(self, path: str) -> list[Wire]:
        found: list[Wire] = (await self.admin.call("GET", path))["items"]
        return found

    async def create(self, path: str, body: Wire) -> Wire:
        made: Wire = await self.admin.call("POST", _within(path, body), body)
        return made

    async def state(self, path: str, made: Stated) -> Wire:
        """Create an object, give it its status, and begin to delete it."""
        body = await self.create(path, made.body)
        place = f"{_within(path, made.body)}/{made.body['metadata']['name']}"
        if made.status is not None:
            body = await self.admin.call("PATCH", f"{place}/status", {"status": made.status})
        if made.deleting:
            await self.admin.call("DELETE", place)
        return body

    async def prepare(self) -> None:
        """Make what all cases share, namespaces and RuntimeClasses, where it is not there yet."""
        wanted: list[tuple[str, Wire]] = [
            ("/api/v1/namespaces", {"metadata": {"name": name}}) for name in (*NAMESPACES, CANARY)
        ]
        wanted += [
            (RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": name, **RUNTIMES[name]}) for name in RUNTIMES
        ]
        for path, body in wanted:
            try:
                await self.create(path, body)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    async def write(self, case: Case) -> None:
        """Make a case's cluster; not its questions."""
        await self.each(
            [
                *(self._label(name, labels) for name, labels in case.namespaces.items()),
                *(self.create(NODES, node) for node in case.nodes),
                *(self.create(CLASSES, body) for body in case.classes),
                *(self.state(CLAIMS, claim) for claim in case.claims),
            ]
        )
        uids = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one["metadata"]["uid"]
            for one in (await self.items(CLAIMS) if case.claims else ())
        }
        for volume in case.volumes:
            claim = volume.body["spec"].get("claimRef")
            if claim is not None and (volume.status or {}).get("phase") == "Bound":
                claim["uid"] = uids[claim["namespace"], claim["name"]]
        await self.each(
            [
                *(self.state(VOLUMES, volume) for volume in case.volumes),
                *(self.state(PODS, pod) for pod in case.pods),
            ]
        )

    async def write_last(self, mark: str) -> None:
        """Write the last object of each kind (see the module's beginning)."""
        labels = {CANARY: mark}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [_expression(mark)]}]}}
        sizes = {"cpu": "1", "memory": "1Gi", "pods": "10"}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        await self.each(
            [
                self.create(
                    NODES,
                    {
                        "metadata": {"name": mark, "labels": labels},
                        "spec": {"taints": [{"key": CANARY, "effect": "NoSchedule"}]},
                        "status": {"allocatable": sizes, "conditions": [{"type": "Ready", "status": "True"}]},
                    },
                ),
                self._label(CANARY, labels),
                self.create(
                    PODS,
                    {
                        "metadata": {"name": f"{mark}-placed", "namespace": CANARY, "labels": labels},
                        "spec": {"nodeName": mark, "containers": [{"name": "app", "image": "x"}]},
                    },
                ),
                self.create(
                    CLASSES,
                    {
                        "metadata": {"name": mark},
                        "provisioner": PROVISIONER,
                        "volumeBindingMode": "WaitForFirstConsumer",
                    },
                ),
                self.create(
                    VOLUMES,
                    {
                        "metadata": {"name": mark},
                        "spec": {
                            "capacity": {"storage": "1Gi"},
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": mark,
                            "nodeAffinity": affinity,
                            "claimRef": {"namespace": CANARY, "name": f"{mark}-bound"},
                            "nfs": {"server": "x", "path": "/"},
                        },
                    },
                ),
            ]
        )
        # One after the other: the second is the last claim, and needs the class.
        for name, more in (("bound", {"volumeName": mark}), ("waiting", {})):
            meta = {"name": f"{mark}-{name}", "namespace": CANARY, "annotations": bound if more else {}}
            await self.create(CLAIMS, {"metadata": meta, "spec": claim | {"storageClassName": mark} | more})

    async def clear(self) -> None:
        """Take away what the cases have made."""
        for claim in await self.items(CLAIMS):
            if claim["metadata"].get("finalizers"):
                place = f"{_within(CLAIMS, claim)}/{claim['metadata']['name']}"
                await self.admin.call("PATCH", place, {"metadata": {"finalizers": None}})
        paths = [
            _within(path, {"metadata": {"namespace": name}})
            for path in (PODS, CLAIMS)
            for name in (*NAMESPACES, CANARY)
        ]
        deletions = [
            self.admin.call("DELETE", path, gracePeriodSeconds="0") for path in (*paths, NODES, VOLUMES, CLASSES)
        ]
        await self.each(deletions)

    async def _label(self, namespace: str, labels: Mapping[str, str]) -> None:
        path = f"/api/v1/namespaces/{namespace}"
        # Sent as a whole, so that labels of the last case go.
        body = await self.admin.call("GET", path)
        body["metadata"]["labels"] = dict(labels)
        await self.admin.call("PUT", path, body)


def _expression(mark: str) -> Wire:
    return {"key": CANARY, "operator": "In", "values": [mark]}


def _within(path: str, body: Wire) -> str:
    namespace = body["metadata"].get("namespace")
    if namespace is None:
        return path
    start, _, plural = path.rpartition("/")
    return f"{start}/namespaces/{namespace}/{plural}"


async def our_answers(client: Client, names: Sequence[str]) -> dict[str, Explanation]:
    """What turb-kub says of the pods of these names, from what the API server has now.

    The cluster is filled by all that the scheduling loop fills it with: its own reflectors, until each has listed.
    """
    metrics = Metrics(SCHEDULER)
    policy = LeastRequestedMemory()
    scheduler = Scheduler(client, Settings(scheduler_name=SCHEDULER), policy, metrics)
    # The loop itself is not run: it would bind.
    tasks = [asyncio.create_task(reflector.run()) for reflector in scheduler.reflectors]
    try:
        await until(lambda: scheduler.synced)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    listed = json.loads(await client.request("GET", PODS, resource="pods"))["items"]
    pods = {pod["metadata"]["name"]: decode_pod(json.dumps(pod)) for pod in listed}
    return {name: explain(scheduler.cluster, pods[name], policy) for name in names}


def feasible(explanation: Explanation) -> frozenset[str]:
    """The nodes that turb-kub would place the pod on."""
    if explanation.decision.pod_refusal is not None:
        return frozenset()
    return frozenset(node.name for node in explanation.nodes if not node.refusals)
