"""The servers of the tests of the wire: one that misbehaves, and a real one with the scheduler's own identity on it."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from turb_kub.api.client import STRATEGIC_MERGE, Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.errors import ApiError

from tests.ansible.conftest import BUILDING, ROOT, Workshop
from tests.api.disks import Disks
from tests.api.double import ApiDouble
from tests.api.running import until
from tests.unit.objects import wire_node

NAMESPACE = "kube-system"
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings",
}


class Admin:
    """The administrator of the cluster: makes objects, looks at them, waits for them."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, verb: str, path: str, body: Any = None, **query: str) -> Any:
        content_type = STRATEGIC_MERGE if verb == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        answer = await self.client.request(verb, path, resource="", query=query, body=data, content_type=content_type)
        return json.loads(answer)

    async def create_pod(self, name: str, **memory: Any) -> Any:
        requests = {"requests": memory.pop("requests")} if "requests" in memory else {}
        spec = {
            "schedulerName": "turb-kub",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "app", "image": "x", "resources": requests}],
        } | memory
        return await self.call("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})

    async def pod(self, name: str) -> Any:
        return await self.call("GET", f"/api/v1/namespaces/default/pods/{name}")

    async def delete_pod(self, name: str) -> None:
        await self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds="0")

    async def pods(self) -> list[Any]:
        found: list[Any] = (await self.call("GET", "/api/v1/namespaces/default/pods"))["items"]
        return found

    async def events_of(self, pod: Any) -> list[Any]:
        items = (await self.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
        return [item for item in items if item["regarding"].get("uid") == pod["metadata"]["uid"]]

    async def seen(self, look: Any) -> Any:
        """Ask again until the coroutine function's answer is true; return it."""
        answer: Any = None

        async def ask() -> Any:
            nonlocal answer
            answer = await look()
            return answer

        return await until(ask)


@pytest.fixture
async def double() -> AsyncIterator[ApiDouble]:
    """A server that misbehaves on request, with node-1 and node-2, 16 GiB each."""
    async with ApiDouble().serve() as served:
        for name in ("node-1", "node-2"):
            served.put("nodes", wire_node(name))
        yield served


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A cluster of the kwok provider without the scheduler; its nodes are node-1 and node-2, 16 GiB each."""
    workshop = Workshop(tmp_path_factory.mktemp("api"), "turb-kub-test-api")
    try:
        played = workshop.play("up.yml", patience=BUILDING)
        assert played.code == 0, played.output
        yield workshop
    finally:
        workshop.play("down.yml")


@pytest.fixture
async def admin(control_plane: Workshop) -> AsyncIterator[Admin]:
    """The administrator. Whatever pods and extra nodes the test made are gone after it."""
    credentials = await load_credentials(str(control_plane.work / "kubeconfig"), None)
    async with Client(credentials) as client:
        found = Admin(client)
        yield found
        for pod in await found.pods():
            await found.delete_pod(pod["metadata"]["name"])
        for node in (await found.call("GET", "/api/v1/nodes"))["items"]:
            name = node["metadata"]["name"]
            if name not in {"node-1", "node-2"}:
                await found.call("DELETE", f"/api/v1/nodes/{name}")
            elif node["spec"].get("unschedulable"):
                await found.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": False}})


@pytest.fixture
async def disks(admin: Admin) -> AsyncIterator[Disks]:
    """Makes claims, volumes and classes; those and the pods that used them are gone after the test."""
    made = Disks(admin)
    yield made
    for pod in await admin.pods():
        await admin.delete_pod(pod["metadata"]["name"])
    await made.remove()


def rbac_objects() -> list[dict[str, Any]]:
    """ServiceAccount, roles and bindings, from the very template that role scheduler deploys."""
    template = (ROOT / "roles/scheduler/templates/rbac.yaml.j2").read_text()
    text = jinja2.Template(template).render(scheduler_name="turb-kub", scheduler_namespace=NAMESPACE)
    return [item for item in yaml.safe_load_all(text) if item]


@pytest.fixture
async def identity(admin: Admin, control_plane: Workshop, tmp_path: Path) -> Path:
    """A kubeconfig with the ServiceAccount's own token in a file."""
    for item in rbac_objects():
        try:
            await admin.call("POST", _PATHS[item["kind"]], item)
        except ApiError as error:
            if error.status != 409:
                raise
    request = {"spec": {"expirationSeconds": 3600}}
    token = await admin.call("POST", f"{_PATHS['ServiceAccount']}/turb-kub/token", request)
    (tmp_path / "token").write_text(token["status"]["token"])
    config = yaml.safe_load((control_plane.work / "kubeconfig").read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"tokenFile": "token"}}]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    return tmp_path / "kubeconfig"


def bare_node(name: str, **how: Any) -> dict[str, Any]:
    """A node as `wire_node` makes it, fit to be created."""
    made = wire_node(name, **how)
    meta = {key: made["metadata"][key] for key in ("name", "labels", "annotations")}
    return {"metadata": meta, "spec": made["spec"], "status": made["status"]}
