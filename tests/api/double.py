"""A stand-in for the API server that misbehaves on request.

It keeps nodes, pods and events with one resourceVersion counter, lists and watches them, binds with the preconditions
and the answers that a real kube-apiserver 1.36 gives, and lets a test put faults in its way. What real servers do is
tested against a real one (tests/api/test_real_server.py); this is for what a real one does only on bad days.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web

Object = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
#: Where each kind is listed, in all namespaces.
PATHS = {
    "nodes": "/api/v1",
    "namespaces": "/api/v1",
    "pods": "/api/v1",
    "persistentvolumes": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "storageclasses": "/apis/storage.k8s.io/v1",
    "csinodes": "/apis/storage.k8s.io/v1",
    "volumeattachments": "/apis/storage.k8s.io/v1",
    "csidrivers": "/apis/storage.k8s.io/v1",
    "csistoragecapacities": "/apis/storage.k8s.io/v1",
}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
KINDS = tuple(PATHS)
NAMESPACED = {"pods", "persistentvolumeclaims", "csistoragecapacities"}


def status(code: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": message or reason}
    return web.json_response(body, status=code, headers=headers)


def answers(code: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> Fault:
    """A fault: this answer in the place of the true one."""

    async def fault(_: web.Request) -> web.StreamResponse:
        return status(code, reason, message, headers)

    return fault


def cuts_off() -> Fault:
    """A fault: the connection is closed without an answer, and nothing is done."""

    async def fault(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    return fault


def says(body: bytes, code: int = 200) -> Fault:
    """A fault: this body, JSON or not."""

    async def fault(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=code, content_type="application/json")

    return fault


def redirects() -> Fault:
    """A fault: the way to itself."""

    async def fault(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": str(request.url)})

    return fault


def passes() -> Fault:
    """No fault: the true answer."""

    async def fault(_: web.Request) -> None:
        return None

    return fault


def hangs() -> Fault:
    """A fault: the connection stays open and nothing is ever answered, nor done."""

    async def fault(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()  # cancelled when the client leaves
        return web.Response()

    return fault


def streams(*chunks: bytes, end: str = "close") -> Fault:
    """A fault of a watch: these bytes, and then the end: "close" it in order, "cut" the connection, or "stall"."""

    async def fault(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if end == "cut" and request.transport is not None:
            request.transport.abort()
        if end == "stall":
            await asyncio.Event().wait()
        return response

    return fault


class ApiDouble:
    """The server. `url` once started; `requests` counts what was asked, by verb and resource."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[tuple[str, str], Object]] = {kind: {} for kind in KINDS}
        self.history: dict[str, list[tuple[int, str, Object]]] = {kind: [] for kind in KINDS}
        self.events: list[Object] = []
        self.patches: list[Object] = []
        #: By namespace and name.
        self.leases: dict[tuple[str, str], Object] = {}
        self.requests: dict[tuple[str, str], int] = defaultdict(int)
        self.tokens: set[str] | None = None
        self.url = ""
        self._faults: dict[tuple[str, str], deque[Fault]] = defaultdict(deque)
        #: Older versions than this can't be watched from (they were compacted away).
        self._oldest = 0
        self._streams: dict[str, set[asyncio.Queue[bytes | None]]] = {kind: set() for kind in KINDS}
        #: How many of the next bindings are carried out and then not answered.
        self.lose_bind_answers = 0
        #: Kinds whose watches are told nothing, as if all that they have to say were late.
        self.muted: set[str] = set()
        #: Bytes in which a watch is written; 0: whole lines.
        self.piece = 0
        self.compresses = False
        #: The most connections that were open at once: in all, and those that had carried a watch.
        self.most_open = self.most_watching = 0
        self._watching: set[Any] = set()
        self._server: web.Server | None = None

    # What a test does

    def fault(self, verb: str, resource: str, *faults: Fault) -> None:
        """Meet the next requests of this kind with these faults, one each."""
        self._faults[verb, resource].extend(faults)

    @property
    def faults_left(self) -> int:
        return sum(len(faults) for faults in self._faults.values())

    def faults_left_for(self, verb: str, resource: str) -> int:
        return len(self._faults[verb, resource])

    def clear_faults(self) -> None:
        self._faults.clear()

    def put(self, kind: str, item: Object) -> Object:
        """Create or update an object and tell the watches."""
        self.version += 1
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        known = self.objects[kind].get(key)
        same = known is not None and known["metadata"].get("uid") == item["metadata"].get("uid")
        stored: Object = json.loads(json.dumps(item))
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind][key] = stored
        self._tell(kind, "MODIFIED" if same else "ADDED", stored)
        return stored

    def put_lease(self, lease: Object) -> Object:
        """Create or update a Lease, whoever held it."""
        self.version += 1
        stored: Object = json.loads(json.dumps(lease))
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.leases[stored["metadata"]["namespace"], stored["metadata"]["name"]] = stored
        return stored

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        self.version += 1
        gone = self.objects[kind].pop((namespace if kind in NAMESPACED else "", name))
        # What the history tells of the object's life before stays as it was.
        gone = gone | {"metadata": gone["metadata"] | {"resourceVersion": str(self.version)}}
        self._tell(kind, "DELETED", gone)

    def replace_unseen(self, kind: str, item: Object) -> None:
        """Change the truth without telling any watch, as when events are lost."""
        self.version += 1
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        self.objects[kind][key] = item | {"metadata": item["metadata"] | {"resourceVersion": str(self.version)}}

    def pod(self, name: str, namespace: str = "default") -> Object:
        return self.objects["pods"][namespace, name]

    def node_of(self, name: str) -> str | None:
        found: str | None = self.pod(name)["spec"].get("nodeName")
        return found

    def say(self, kind: str, line: bytes) -> None:
        """Send a raw line on every watch of a kind."""
        for stream in self._streams[kind]:
            stream.put_nowait(line)

    def close_watches(self, kind: str) -> None:
        self.say(kind, b"")

    def compact(self) -> None:
        """Forget the history: watches from versions before now answer 410."""
        self._oldest = self.version

    def bookmark(self, kind: str) -> None:
        """Tell the watches of a kind which version they have seen, as the API server does once a minute."""
        mark = {"metadata": {"resourceVersion": str(self.version), "creationTimestamp": None}, "spec": {}, "status": {}}
        self.say(kind, _line("BOOKMARK", mark))

    def forget_history(self) -> None:
        """As `compact`, and free what the history holds."""
        self.compact()
        for told in self.history.values():
            told.clear()

    def forget_all(self) -> None:
        """Empty the server: nothing is there any more, and all watches are too old to be told."""
        # Beyond the versions that objects bring along (`wire_pod`).
        self.version += 1_000_000
        for known in self.objects.values():
            known.clear()
        self.events.clear()
        self.patches.clear()
        self.forget_history()
        for kind in KINDS:
            self.close_watches(kind)

    def watchers(self, kind: str) -> int:
        return len(self._streams[kind])

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._server.connections) if self._server is not None else 0

    # The server

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["ApiDouble"]:
        application = web.Application()
        pods = "/api/v1/namespaces/{namespace}/pods/{name}"
        # No middleware: aiohttp keeps what has one, this double with all its objects, in a cache of the process.
        for verb, path, handle in (
            *(("GET", f"{PATHS[kind]}/{kind}", self._collection(kind)) for kind in KINDS),
            ("GET", pods, self._get_pod),
            ("PATCH", "/api/v1/{kind:persistentvolumes}/{name}", self._merge),
            ("PATCH", "/api/v1/namespaces/{namespace}/{kind:persistentvolumeclaims}/{name}", self._merge),
            ("POST", f"{pods}/binding", self._bind),
            ("PATCH", f"{pods}/status", self._patch_status),
            ("POST", "/apis/events.k8s.io/v1/namespaces/{namespace}/events", self._post_event),
            ("POST", LEASES, self._create_lease),
            ("GET", f"{LEASES}/{{name}}", self._get_lease),
            ("PUT", f"{LEASES}/{{name}}", self._put_lease),
            ("*", "/{path:.*}", _not_found),
        ):
            application.router.add_route(verb, path, partial(self._handle, handle))
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        self._server = runner.server
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            for kind in KINDS:
                self.close_watches(kind)
            await runner.cleanup()

    async def _handle(self, handle: Handler, request: web.Request) -> web.StreamResponse:
        verb, resource = request.method, _resource(request)
        if request.query.get("watch"):
            verb = "WATCH"
        self.requests[verb, resource] += 1
        self._count(request, watches=verb == "WATCH")
        if self.tokens is not None and request.headers.get("Authorization", "") not in self.tokens:
            return status(401, "Unauthorized")
        faults = self._faults[verb, resource]
        if faults:
            answer = await faults.popleft()(request)
            if answer is not None:
                return answer
        response: web.StreamResponse = await handle(request)
        if self.compresses and not response.prepared:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    def _count(self, request: web.Request, *, watches: bool) -> None:
        assert self._server is not None
        if watches:
            self._watching.add(request.protocol)
        # One that its client has left counts no more, even where that is not yet noticed.
        now = {one for one in self._server.connections if one.transport and not one.transport.is_closing()}
        self._watching &= now
        self.most_open = max(self.most_open, len(now))
        self.most_watching = max(self.most_watching, len(self._watching))

    def _collection(self, kind: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.query.get("watch"):
                return await self._watch(kind, request)
            items = [item for item in self.objects[kind].values() if _selected(item, request)]
            limit = int(request.query.get("limit", str(len(items))))
            start = int(request.query.get("continue", "0"))
            meta: Object = {"resourceVersion": str(self.version)}
            if start + limit < len(items):
                meta["continue"] = str(start + limit)
            return web.json_response({"kind": "List", "metadata": meta, "items": items[start : start + limit]})

        return handle

    async def _watch(self, kind: str, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self._oldest:
            return status(410, "Expired", "too old resource version")
        response = web.StreamResponse()
        await response.prepare(request)
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, kind_of_event, item in self.history[kind]:
            if version > since:
                stream.put_nowait(_line(kind_of_event, item))
        self._streams[kind].add(stream)
        try:
            while line := await stream.get():
                size = self.piece or len(line)
                for start in range(0, len(line), size):
                    await response.write(line[start : start + size])
        finally:
            self._streams[kind].discard(stream)
        return response

    def _tell(self, kind: str, kind_of_event: str, item: Object) -> None:
        self.history[kind].append((self.version, kind_of_event, item))
        if kind not in self.muted:
            self.say(kind, _line(kind_of_event, item))

    async def _get_pod(self, request: web.Request) -> web.StreamResponse:
        found = self.objects["pods"].get((request.match_info["namespace"], request.match_info["name"]))
        return status(404, "NotFound") if found is None else web.json_response(found)

    async def _bind(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        found = self.objects["pods"].get((request.match_info["namespace"], name))
        if found is None:
            return status(404, "NotFound")
        binding = await request.json()
        meta, asked = found["metadata"], binding["metadata"]
        refusal = ""
        if asked["uid"] != meta["uid"]:
            refusal = f"Precondition failed: UID in precondition: {asked['uid']}, UID in object meta: {meta['uid']}"
        elif asked["resourceVersion"] != meta["resourceVersion"]:
            refusal = (
                f"Precondition failed: ResourceVersion in precondition: {asked['resourceVersion']}, "
                f"ResourceVersion in object meta: {meta['resourceVersion']}"
            )
        elif meta.get("deletionTimestamp"):
            refusal = f"pod {name} is being deleted, cannot be assigned to a host"
        elif found["spec"].get("nodeName"):
            refusal = f'pod {name} is already assigned to node "{found["spec"]["nodeName"]}"'
        elif found["spec"].get("schedulingGates"):
            refusal = f"pod {name} has non-empty .spec.schedulingGates"
        if refusal:
            return status(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": {refusal}')
        bound = json.loads(json.dumps(found))
        bound["spec"]["nodeName"] = binding["target"]["name"]
        self.put("pods", bound)
        if self.lose_bind_answers:
            self.lose_bind_answers -= 1
            return await cuts_off()(request) or web.Response()
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _patch_status(self, request: web.Request) -> web.StreamResponse:
        found = self.objects["pods"].get((request.match_info["namespace"], request.match_info["name"]))
        if found is None:
            return status(404, "NotFound")
        patch = json.loads(await request.read())
        if patch["metadata"]["uid"] != found["metadata"]["uid"]:
            return status(422, "Invalid", "metadata.uid: field is immutable")
        self.patches.append(patch)
        patched = json.loads(json.dumps(found))
        others = [c for c in patched["status"].get("conditions", []) if c["type"] != "PodScheduled"]
        patched["status"]["conditions"] = others + patch["status"]["conditions"]
        return web.json_response(self.put("pods", patched))

    async def _merge(self, request: web.Request) -> web.StreamResponse:
        """A JSON merge patch; uid and resourceVersion in it are preconditions."""
        kind, name = request.match_info["kind"], request.match_info["name"]
        found = self.objects[kind].get((request.match_info.get("namespace", ""), name))
        if found is None:
            return status(404, "NotFound")
        patch = json.loads(await request.read())
        asked, meta = patch["metadata"], found["metadata"]
        if asked.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
            return status(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}"')
        if asked.get("uid", meta["uid"]) != meta["uid"]:
            return status(422, "Invalid", "metadata.uid: field is immutable")
        return web.json_response(self.put(kind, _merged(found, patch)))

    async def _create_lease(self, request: web.Request) -> web.StreamResponse:
        lease = await request.json()
        key = (request.match_info["namespace"], lease["metadata"]["name"])
        if key in self.leases:
            return status(409, "AlreadyExists")
        lease["metadata"]["uid"] = f"lease-{self.version}"
        return web.json_response(self.put_lease(lease), status=201)

    async def _get_lease(self, request: web.Request) -> web.StreamResponse:
        found = self.leases.get((request.match_info["namespace"], request.match_info["name"]))
        return status(404, "NotFound") if found is None else web.json_response(found)

    async def _put_lease(self, request: web.Request) -> web.StreamResponse:
        found = self.leases.get((request.match_info["namespace"], request.match_info["name"]))
        if found is None:
            return status(404, "NotFound")
        lease = await request.json()
        if any(lease["metadata"][name] != found["metadata"][name] for name in ("uid", "resourceVersion")):
            return status(409, "Conflict", "the object has been modified")
        return web.json_response(self.put_lease(lease))

    async def _post_event(self, request: web.Request) -> web.StreamResponse:
        event = await request.json()
        self.events.append(event)
        return web.json_response(event, status=201)


async def _not_found(_: web.Request) -> web.StreamResponse:
    return status(404, "NotFound")


def _selected(item: Object, request: web.Request) -> bool:
    """Whether an object meets the request's field selector, of which this knows the fields that are asked for."""
    meta, spec, status_of = item["metadata"], item.get("spec", {}), item.get("status", {})
    fields = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "status.phase": status_of.get("phase", ""),
    }
    for term in filter(None, request.query.get("fieldSelector", "").split(",")):
        key, _, value = term.partition("=")
        if (fields[key.rstrip("!")] == value) == key.endswith("!"):
            return False
    return True


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, inner in patch.items():
        if inner is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), inner)
    return merged


def _line(kind_of_event: str, item: Object) -> bytes:
    return json.dumps({"type": kind_of_event, "object": item}).encode() + b"\n"


def _resource(request: web.Request) -> str:
    parts = request.path.strip("/").split("/")
    if "events" in parts:
        return "events"
    if "leases" in parts:
        return "leases"
    if "pods" in parts:
        rest = parts[parts.index("pods") + 2 :]
        if len(parts) > parts.index("pods") + 1 and not rest:
            return "pods/one"
        return "/".join(["pods", *rest])
    if "persistentvolumeclaims" in parts:
        return "persistentvolumeclaims"
    if "persistentvolumes" in parts:
        return "persistentvolumes"
    return parts[-1]
