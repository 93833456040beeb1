"""An API server in memory, and a network between it and the scheduler that delays, loses and repeats.

The answers are those of a real kube-apiserver 1.36 (docs: the table in `turb_kub.api.pods`); the scheduler's own client
is replaced, nothing above it. The server audits every binding as it takes effect, against the truth.
"""

import asyncio
import json
import random
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from enum import Enum, auto
from typing import Any

from turb_kub.api.client import Pool
from turb_kub.api.errors import ApiError, Expired, Unreachable
from turb_kub.decision.decide import without_numbers
from turb_kub.loop.scheduler import Scheduler
from turb_kub.objects.pod import decode_pod
from turb_kub.queue.signature import asks

from tests.simulation.virtual_time import VirtualLoop

Object = dict[str, Any]
MI = 2**20
#: How long after the client has given up on it a request may still take effect.
LATE = 0.1
_CUT = Unreachable("connection lost")


class Fate(Enum):
    """What becomes of one request."""

    ANSWERED = auto()
    #: Takes effect and is answered only after seconds.
    SLOW = auto()
    #: Never arrives; the client waits for its time-out, or learns at once.
    LOST = auto()
    CUT_OFF = auto()
    #: Takes effect, and its answer never arrives.
    UNANSWERED = auto()
    #: The client learns that the connection is gone, and the request takes effect after that.
    LATE = auto()
    #: As late as can be: takes effect when the client has just given up waiting.
    AT_THE_END = auto()
    FAILS_BEFORE = auto()
    FAILS_AFTER = auto()
    THROTTLED = auto()
    FORBIDDEN = auto()


class Call:
    """One request under way."""

    def __init__(
        self,
        client: "SimulatedClient",
        verb: str,
        path: str,
        resource: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
    ) -> None:
        self.client = client
        self.verb = verb
        self.path = path
        self.resource = resource
        self.query = query or {}
        self.body = json.loads(body) if body else {}
        self.answer: asyncio.Future[bytes] = client.loop.create_future()
        self.fate = Fate.ANSWERED
        self.arrived = False
        self.result: bytes | ApiError = b""
        #: The server's version when it was sent.
        self.sent_at = client.server.version
        #: The version up to which the sender had heard of everything when it sent this.
        self.known = min(client.server.heard(kind, version) for kind, version in client.known.items())
        #: What the pod asked, as far as the sender knew.
        self.asked: Any = None


class SimulatedClient:
    """In the place of `turb_kub.api.client.Client`: one process's connection. `known` is what its watches delivered.

    Args:
        loop: of the process, where it has one of its own.
    """

    def __init__(self, server: "SimulatedServer", loop: VirtualLoop | None = None) -> None:
        self.server = server
        self.loop = loop or server.loop
        self.streams: dict[str, Stream] = {}
        server.clients.append(self)
        #: Kinds whose watches of this process alone are told nothing.
        self.held: set[str] = set()
        #: While this is so, nothing of it arrives; or nothing for these resources.
        self.cut_off = False
        self.cut_off_from: set[str] = set()
        self.known = {"nodes": 0, "pods": 0}
        self.scheduler: Scheduler | None = None
        self.dead = False

    async def request(
        self,
        verb: str,
        path: str,
        *,
        resource: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 15.0,
        pool: Pool | None = None,
        **_: Any,
    ) -> bytes:
        call = Call(self, verb, path, resource, query, body)
        if resource == "pods/binding" and self.scheduler is not None:
            pod = self.scheduler.queue.get(call.body["metadata"]["uid"])
            call.asked = None if pod is None else asks(pod)
        self.server.send(call, timeout)
        try:
            content = await call.answer
        finally:
            self.server.under_way.pop(id(call), None)
        if resource in self.known and pool is Pool.WATCHES:
            self.known[resource] = int(json.loads(content)["metadata"]["resourceVersion"])
        return content

    async def lines(self, path: str, *, resource: str, query: Mapping[str, str], **_: Any) -> AsyncIterator[bytes]:
        self.server.requests["WATCH", resource] += 1
        stream = Stream(int(query["resourceVersion"]))
        if stream.position < self.server.oldest.get(resource, 0):
            raise Expired("too old resource version")
        self.streams[resource] = self.server.streams[resource] = stream
        history = self.server.history.get(resource, [])
        while True:
            if stream.end is not None:
                await stream.end()
                return
            line = None if resource in self.server.held | self.held else stream.next(history)
            if line is None:
                stream.more.clear()
                await stream.more.wait()
                continue
            self.known[resource] = max(self.known[resource], stream.position)
            yield line


class Stream:
    """A watch. `end` is set to end it, and may raise."""

    def __init__(self, since: int) -> None:
        self.position = since
        self.more = asyncio.Event()
        self.end: Callable[[], Any] | None = None
        self._again: deque[bytes] = deque()
        self._last = b""

    def next(self, history: list[tuple[int, bytes]]) -> bytes | None:
        if self._again:
            return self._again.popleft()
        later = bisect_right(history, self.position, key=lambda told: told[0])
        if later == len(history):
            return None
        self.position, self._last = history[later]
        return self._last

    def repeat(self) -> None:
        if self._last:
            self._again.append(self._last)
            self.more.set()


class SimulatedServer:
    """The truth. `violations` collects what a scheduler must never do."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.random = random.Random(0)
        self.version = 100
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.history: dict[str, list[tuple[int, bytes]]] = {"nodes": [], "pods": []}
        self.oldest = {"nodes": 0, "pods": 0}
        self.held: set[str] = set()
        #: The last watch of each kind, whoever's; and each client's own are with it.
        self.streams: dict[str, Stream] = {}
        self.clients: list[SimulatedClient] = []
        self.fates: dict[str, deque[Fate]] = {}
        self.under_way: dict[int, Call] = {}
        #: Requests that are still to take effect, whether or not their sender waits for the answer.
        self.coming: list[Call] = []
        self.violations: list[str] = []
        #: How many were sent, by verb (or "WATCH") and resource.
        self.requests: Counter[tuple[str, str]] = Counter()
        #: When somebody else last made a node harder to fit on, by name.
        self.harder_at: dict[str, int] = {}
        self.bound_by_us: list[str] = []
        self.events: dict[str, Object] = {}
        #: Pods whose verdict may be written again, and since which version: somebody changed them, or an answer went
        #: astray.
        self.verdict_unsure: dict[str, int] = {}

    # What the world does

    def put(self, kind: str, item: Object) -> None:
        """Create an object or take its new state, and tell the watches."""
        known = self._kept(kind).get(item["metadata"]["name"])
        self.version += 1
        stored = item | {"metadata": item["metadata"] | {"resourceVersion": str(self.version)}}
        self._kept(kind)[item["metadata"]["name"]] = stored
        self._tell(kind, "ADDED" if known is None else "MODIFIED", stored)

    def change_pod(self, name: str, spec: Object, **meta: Any) -> None:
        pod = self.pods[name]
        self.put("pods", pod | {"metadata": pod["metadata"] | meta, "spec": pod["spec"] | spec})
        self.verdict_unsure[pod["metadata"]["uid"]] = self.version

    def delete(self, kind: str, name: str) -> None:
        self.version += 1
        gone = self._kept(kind).pop(name)
        self._tell(kind, "DELETED", gone | {"metadata": gone["metadata"] | {"resourceVersion": str(self.version)}})

    def harder(self, node_name: str) -> None:
        """Take note that with the last change somebody else took room or favour from a node."""
        self.harder_at[node_name] = self.version

    def compact(self, kind: str) -> None:
        """Forget the history: a watch that begins before now is too old."""
        self.oldest[kind] = self.version

    def settle_calls(self, *, carried_out: bool) -> None:
        """Decide about all requests that have not arrived, as when the process that sent them is gone.

        None takes effect later: to start a process anew takes longer than a request can be late.
        """
        for call in list(self.coming):
            if carried_out:
                self._arrive(call)
            call.arrived = True
        self.coming.clear()
        self.under_way.clear()

    def heard(self, kind: str, version: int) -> int:
        """Up to which version all has been heard by whoever has heard the watch of a kind up to this one."""
        history = self.history[kind]
        return version if history and history[-1][0] > version else self.version

    def waiting(self) -> list[Object]:
        """Pods of ours that wait for a node and may have one."""
        return [
            pod
            for pod in self.pods.values()
            if pod["spec"]["schedulerName"] == "turb-kub"
            and not pod["spec"].get("nodeName")
            and not pod["metadata"].get("deletionTimestamp")
            and pod["status"]["phase"] == "Pending"
        ]

    def placed(self) -> list[Object]:
        return [
            pod
            for pod in self.pods.values()
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in {"Succeeded", "Failed"}
        ]

    # The network

    def send(self, call: Call, timeout: float) -> None:
        if call.client.dead:
            return
        self.requests[call.verb, call.resource] += 1
        self.under_way[id(call)] = call
        fates = self.fates.get(call.resource)
        if call.client.cut_off or call.resource in call.client.cut_off_from:
            call.fate = Fate.CUT_OFF
        elif fates:
            call.fate = fates.popleft()
        there, back = self.random.choice((0.001, 0.004, 0.02)), self.random.choice((0.001, 0.003, 0.02))
        # When it takes effect; when the client hears of it, and what: None, what the server answered.
        arrives: float | None
        arrives, heard, answer = {
            Fate.ANSWERED: (there, there + back, None),
            Fate.SLOW: (2.0, 4.0, None),
            Fate.LOST: (None, timeout, _CUT),
            Fate.CUT_OFF: (None, there, _CUT),
            Fate.UNANSWERED: (there, timeout, _CUT),
            Fate.AT_THE_END: (timeout + LATE * self.random.random(), timeout, _CUT),
            Fate.LATE: (there + LATE * self.random.random(), there, _CUT),
            Fate.FAILS_BEFORE: (None, there, ApiError(500, "InternalError", "etcd is away")),
            Fate.FAILS_AFTER: (there, there + back, ApiError(500, "InternalError", "etcd timed out")),
            Fate.THROTTLED: (None, there, ApiError(429, "TooManyRequests", "slowly", 1.0)),
            Fate.FORBIDDEN: (None, there, ApiError(403, "Forbidden", "no")),
        }[call.fate]
        if arrives is not None:
            self.coming.append(call)
            self.loop.call_later(arrives, self._arrive, call)
        self.loop.call_later(heard, self._answer, call, answer)

    def _arrive(self, call: Call) -> None:
        if call.arrived:
            return
        call.arrived = True
        self.coming.remove(call)
        try:
            call.result = json.dumps(self._carry_out(call)).encode()
        except ApiError as error:
            call.result = error

    def _answer(self, call: Call, answer: Exception | None) -> None:
        result = call.result if answer is None else answer
        if call.answer.done():
            return
        if isinstance(result, Exception):
            call.answer.set_exception(result)
        else:
            call.answer.set_result(result)

    # The server

    def _carry_out(self, call: Call) -> Object:
        match call.verb, call.resource:
            case "GET", "nodes":
                return self._list(self.nodes)
            case "GET", "pods":
                return self._list(self._selected(call)) if call.path == "/api/v1/pods" else self._pod(call)
            case "POST", "pods/binding":
                return self._bind(call)
            case "PATCH", "pods/status":
                return self._patch(call)
            case "POST", "events":
                if call.body["metadata"]["name"] in self.events:
                    raise ApiError(409, "AlreadyExists", "there is one of that name")
                self.events[call.body["metadata"]["name"]] = call.body
                return call.body
            case "GET", _:
                return self._list({})  # of claims, namespaces and so on there are none
        raise AssertionError(f"{call.verb} {call.resource} is not simulated")

    def _list(self, items: Mapping[str, Object]) -> Object:
        return {"metadata": {"resourceVersion": str(self.version)}, "items": list(items.values())}

    def _selected(self, call: Call) -> dict[str, Object]:
        selector = call.query.get("fieldSelector")
        if selector is None:
            return self.pods
        node_name = selector.removeprefix("spec.nodeName=").split(",")[0]
        return {pod["metadata"]["name"]: pod for pod in self.placed() if pod["spec"]["nodeName"] == node_name}

    def _pod(self, call: Call) -> Object:
        name = call.path.split("/")[6]
        if name not in self.pods:
            raise ApiError(404, "NotFound", "no such pod")
        return self.pods[name]

    def _bind(self, call: Call) -> Object:
        pod = self._pod(call)
        meta, asked, node_name = pod["metadata"], call.body["metadata"], call.body["target"]["name"]
        for field in ("uid", "resourceVersion"):
            if asked.get(field, meta[field]) != meta[field]:
                raise ApiError(409, "Conflict", f"Precondition failed: {field}")
        if meta.get("deletionTimestamp"):
            raise ApiError(409, "Conflict", "is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise ApiError(409, "Conflict", "is already assigned to node")
        if pod["spec"].get("schedulingGates"):
            raise ApiError(409, "Conflict", "has non-empty .spec.schedulingGates")
        self._audit(call, pod, node_name)
        self.bound_by_us.append(meta["uid"])
        conditions = [{"type": "PodScheduled", "status": "True"}]
        bound = {"spec": pod["spec"] | {"nodeName": node_name}, "status": pod["status"] | {"conditions": conditions}}
        self.put("pods", pod | bound)
        return {"kind": "Status", "status": "Success"}

    def _patch(self, call: Call) -> Object:
        pod = self._pod(call)
        uid = pod["metadata"]["uid"]
        if call.body["metadata"]["uid"] != uid:
            raise ApiError(422, "Invalid", "metadata.uid: field is immutable")
        conditions = call.body["status"]["conditions"]
        before = pod["status"].get("conditions")
        # One that arrives late may come after the one that was sent in its place.
        sure = call.fate is Fate.ANSWERED and uid not in self.verdict_unsure
        if before and sure and _verdict(before) == _verdict(conditions):
            self.violations.append(f"the same verdict was written twice: {_verdict(conditions)}")
        self.put("pods", pod | {"status": pod["status"] | {"conditions": conditions}})
        if call.fate is not Fate.ANSWERED:
            self.verdict_unsure[uid] = self.version
        elif call.sent_at >= self.verdict_unsure.get(uid, 0):
            # The verdict is on what the pod asks now, and its sender will know that it was written.
            self.verdict_unsure.pop(uid, None)
        return self.pods[pod["metadata"]["name"]]

    def _audit(self, call: Call, pod: Object, node_name: str) -> None:
        name = pod["metadata"]["name"]
        if call.asked is not None and call.asked != asks(decode_pod(json.dumps(pod))):
            self.violations.append(f"{name} was bound by a decision on what it no longer asks")
        if self.harder_at.get(node_name, 0) > call.known:
            return  # it could not know
        for refusal in self.refusals(pod, node_name):
            self.violations.append(f"{name} was bound to {node_name} although {refusal}")

    def refusals(self, pod: Object, node_name: str) -> list[str]:
        """Say what speaks against a node, by arithmetic of its own: memory, slots, cordon, readiness, labels."""
        node = self.nodes.get(node_name)
        if node is None:
            return ["there is no such node"]
        here = [other for other in self.placed() if other["spec"]["nodeName"] == node_name]
        requested, slots = sum(memory_of(other) for other in here), int(node["status"]["allocatable"]["pods"])
        wrong = []
        if memory_of(pod) and requested + memory_of(pod) > ceiling_of(node):
            wrong.append(f"{requested} + {memory_of(pod)} MiB are more than {ceiling_of(node)}")
        if len(here) + 1 > slots:
            wrong.append(f"it has {slots} slots")
        if node["spec"]["unschedulable"]:
            wrong.append("it is cordoned")
        if node["status"]["conditions"][0]["status"] != "True":
            wrong.append("it is not ready")
        labels = node["metadata"]["labels"]
        if any(labels.get(key) != value for key, value in pod["spec"].get("nodeSelector", {}).items()):
            wrong.append("its labels do not match")
        return wrong

    def _kept(self, kind: str) -> dict[str, Object]:
        return self.nodes if kind == "nodes" else self.pods

    def _tell(self, kind: str, what: str, item: Object) -> None:
        line = json.dumps({"type": what, "object": item}).encode()
        self.history[kind].append((self.version, line))
        self.wake(kind)

    def wake(self, kind: str) -> None:
        """Have the watches of a kind look for what there is to tell."""
        for client in self.clients:
            if kind in client.streams:
                client.streams[kind].more.set()


def memory_of(pod: Object) -> int:
    """MiB that a pod requests."""
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return int(requests.get("memory", "0Mi").removesuffix("Mi"))


def ceiling_of(node: Object) -> int:
    """MiB that pods may request on a node."""
    allocatable = int(node["status"]["allocatable"]["memory"].removesuffix("Mi"))
    limit = node["metadata"]["annotations"].get("turb-kub.io/node-mem-limit-mb")
    return allocatable if limit is None else min(allocatable, int(limit))


def _verdict(conditions: list[Object]) -> tuple[str, str, str]:
    one = conditions[0]
    return one["status"], one.get("reason", ""), without_numbers(one.get("message", ""))
