"""site.yml on a cluster of its own: set up once for all tests of this file, torn down after the last."""

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import ROOT, Played, Workshop, processes_of
from tests.ansible.playing import free_port, play

pytestmark = pytest.mark.cluster

#: Where least requested memory puts them: stated by hand, as in the role.
TABLE = {"pod1": "node-1", "pod2": "node-2", "pod3": "node-1"}
#: Another limit than the first one, under which the three pods still fit.
LIMIT = {"NODE_MEM_LIMIT_MB": "1600"}


class Site:
    """A cluster that site.yml set up."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.scheduler = workshop.work / "scheduler"
        # A copy, so that the source can change, and does so only when a test says so.
        self.source = workshop.folder / "source"
        shutil.copytree(ROOT / "scheduler", self.source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        workshop.defaults |= {"scheduler_http_port": free_port(), "image_context_dir": str(self.source)}
        self.first = self.play("site.yml")
        assert self.first.code == 0, self.first.output
        self.record: dict[str, Any] = json.loads((workshop.work / "record.json").read_text())

    def play(self, playbook: str, *arguments: str, env: dict[str, str] | None = None, **more: Any) -> Played:
        return play(self.workshop, playbook, *arguments, env=env, **more)

    def kubectl(self, *arguments: str, kubeconfig: Path | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.record["kubectl"], f"--kubeconfig={kubeconfig or self.workshop.work / 'kubeconfig'}", *arguments],
            env={"HOME": str(self.workshop.folder / "kubectl")},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", "-o", "json", *arguments).stdout)

    def nodes_of_pods(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self.get("pods", "-A")["items"]}

    def pid(self) -> int:
        return int((self.scheduler / "turb-kub.pid").read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, programs: dict[str, str]) -> Iterator[Site]:
    workshop = Workshop(tmp_path_factory.mktemp("site"), "turb-kub-test-site")
    try:
        yield Site(workshop)
    finally:
        if workshop.work.exists():  # unless the last test has done it
            play(workshop, "playbooks/teardown.yml")


def test_the_pods_are_placed_and_explained(site: Site) -> None:
    assert site.nodes_of_pods() == TABLE
    placed = site.first.answer("Judge where they are")["placed"]
    assert [(pod["name"], pod["node"], pod["request_mib"], pod["evidence"]) for pod in placed] == [
        ("pod1", "node-1", 768, "event of turb-kub"),
        ("pod2", "node-2", 1024, "event of turb-kub"),
        ("pod3", "node-1", 768, "event of turb-kub"),
    ]
    shown = site.first.answer("Show where each pod is and why")["msg"]
    for name, node in TABLE.items():
        assert any(name in line and node in line for line in shown.splitlines()), shown


def test_everything_lies_in_the_work_folder_and_is_the_users_alone(site: Site) -> None:
    assert list(site.workshop.home.iterdir()) == []  # no ~/.kube, for one
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.scheduler.iterdir()}
    assert modes.pop("token") == modes.pop("kubeconfig") == modes.pop("config.yaml") == 0o600
    assert set(modes) == {"turb-kub.pid", "turb-kub.log", "process.json"}
    assert stat.S_IMODE(site.scheduler.stat().st_mode) == 0o700


def test_the_scheduler_has_an_identity_of_its_own_with_the_rights_it_needs(site: Site) -> None:
    kubeconfig = site.scheduler / "kubeconfig"
    who = site.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig)
    assert json.loads(who.stdout)["status"]["userInfo"]["username"] == "system:serviceaccount:kube-system:turb-kub"
    rules = site.get("clusterrole", "turb-kub")["rules"]
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in rules] == [
        ([""], ["nodes", "namespaces", "pods"], ["list", "watch"]),
        ([""], ["persistentvolumeclaims", "persistentvolumes"], ["list", "watch", "patch"]),
        (
            ["storage.k8s.io"],
            ["storageclasses", "csinodes", "volumeattachments", "csidrivers", "csistoragecapacities"],
            ["list", "watch"],
        ),
        ([""], ["pods"], ["get"]),
        ([""], ["pods/binding"], ["create"]),
        ([""], ["pods/status"], ["patch"]),
        (["events.k8s.io"], ["events"], ["create"]),
    ]
    rules = site.get("role", "turb-kub", "-n", "kube-system")["rules"]
    assert [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (["leases"], None, ["create"]),
        (["leases"], ["turb-kub"], ["get", "update"]),
    ]
    assert site.kubectl("get", "pods", "-A", kubeconfig=kubeconfig).returncode == 0
    refused = site.kubectl("get", "secrets", "-A", kubeconfig=kubeconfig)
    assert 'User "system:serviceaccount:kube-system:turb-kub" cannot list resource "secrets"' in refused.stderr


def test_a_redeploy_restarts_the_scheduler_and_says_why(site: Site) -> None:
    before = site.pid()
    # The demo's pods may be gone by then: what they once were is not what a redeploy is judged by.
    assert site.kubectl("delete", "pod", "pod3", "--now").returncode == 0
    (site.source / "src/turb_kub/new.py").write_text("")
    played = site.play("playbooks/redeploy.yml", env=LIMIT)
    assert played.code == 0, played.output
    assert played.changes() == [
        "scheduler : Write its settings",
        "scheduler : Start it, or leave it alone when nothing changed",
    ]
    started = played.answer("Start it, or leave it alone when nothing changed")
    assert started["reason"] == "settings, source changed"
    assert site.pid() == started["pid"] != before
    assert "1600Mi" in played.answer("Show where each pod is and why")["msg"]
    assert site.nodes_of_pods() == {"pod1": TABLE["pod1"], "pod2": TABLE["pod2"]}


def test_a_pod_on_another_node_than_the_table_says_fails_with_names_and_numbers(site: Site) -> None:
    assert site.kubectl("delete", "pods", "--all", "--now").returncode == 0
    table = {"kwok": TABLE | {"pod2": "node-1"}}
    played = site.play("site.yml", "--tags", "workload", env=LIMIT, workload_expected_nodes=table)
    assert played.code != 0
    assert played.failure == (
        "The placement is not as it should be: pod2 (1024 MiB) is on node-2, expected on node-1 (node-1 1536 of 1600"
        " MiB, node-2 1024 of 1600 MiB)."
    )
    assert site.nodes_of_pods() == TABLE


def manifests(folder: Path, name: str, memory: str) -> dict[str, Any]:
    """Variables for a workload of one pod."""
    folder.mkdir()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "pause", "image": "pause", "resources": {"requests": {"memory": memory}}}]},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(pod))
    return {"workload_manifests_dir": str(folder), "workload_pods": [name], "workload_wait_timeout": 1}


@pytest.fixture(scope="module")
def outcomes(site: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """Plays on the running cluster that do not get in each other's way, run at the same time."""
    folder = tmp_path_factory.mktemp("manifests")
    plays: dict[str, tuple[list[str], dict[str, Any]]] = {
        "dry run": (["--check", "--diff"], {}),
        "redeploy of nothing new": (["--tags", "redeploy"], {}),
        "pod that fits nowhere": (["--tags", "workload"], manifests(folder / "big", "big", "1500Mi")),
        "pod with other values": (["--tags", "workload"], manifests(folder / "other", "pod1", "512Mi")),
        "bad Deployment": (["--tags", "scheduler"], {"_scheduler_memory_limit": "lots"}),
    }
    before = site.pid()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {
            name: pool.submit(site.play, "site.yml", *arguments, env=LIMIT, **variables)
            for name, (arguments, variables) in plays.items()
        }
    assert site.pid() == before
    return {name: future.result() for name, future in futures.items()}


def test_a_dry_run_on_a_running_cluster_finds_nothing_to_do_and_shows_no_secret(
    site: Site, outcomes: dict[str, Played]
) -> None:
    played = outcomes["dry run"]
    assert (played.code, played.changes()) == (0, []), played.output
    token = (site.scheduler / "token").read_text()
    assert token.count(".") == 2
    for output in (site.first.output, played.output):
        assert token not in output


def test_a_redeploy_of_nothing_new_changes_nothing(outcomes: dict[str, Played]) -> None:
    played = outcomes["redeploy of nothing new"]
    assert (played.code, played.changes()) == (0, []), played.output


def test_a_pod_that_fits_nowhere_fails_with_names_and_numbers(outcomes: dict[str, Played]) -> None:
    assert outcomes["pod that fits nowhere"].failure.startswith(
        "The placement is not as it should be: big (1500 MiB) is on no node (node-1 1536 of 1600 MiB, node-2 1024 of"
        " 1600 MiB): 0/2 nodes are available"
    )


def test_a_pod_that_is_there_with_other_values_is_named(outcomes: dict[str, Played]) -> None:
    assert outcomes["pod with other values"].failure.startswith(
        "pod1 is there already with other values than its manifest states, and those can't be changed in a pod: delete"
        " it with `kubectl delete pod pod1 --namespace=default` and try again. The API server says:"
    )


def test_a_deployment_that_the_api_server_rejects_fails_with_its_reason(outcomes: dict[str, Played]) -> None:
    assert "quantities must match the regular expression" in outcomes["bad Deployment"].failure


def test_a_teardown_leaves_nothing(site: Site) -> None:
    played = site.play("playbooks/teardown.yml")
    assert played.code == 0, played.output
    assert processes_of(site.workshop.work) == {}
    left = {path.name for path in site.workshop.folder.iterdir()}
    assert left <= {"ansible", "home", "state", "source", "kubectl"}
    for folder in ("state", "home", "ansible/tmp"):
        assert list((site.workshop.folder / folder).rglob("*")) == []
