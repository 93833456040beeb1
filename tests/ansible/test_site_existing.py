"""site.yml on a cluster that is not ours: a kwok control plane that another work folder owns.

Its nodes run what is bound to them, but nothing binds the Deployment's pods and no image is ever pulled: `Helper` is
there in place of the default scheduler, and of a kubelet that does not have an image.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import config

from tests.ansible.conftest import ROOT, Played, Workshop
from tests.ansible.playing import free_port, play

pytestmark = pytest.mark.cluster

IMAGE = "registry.example.com/turb-kub:1"
#: The helper's kubelet has no image of this tag.
LOST_IMAGE = "registry.example.com/turb-kub:lost"
NOT_THERE = f'Back-off pulling image "{LOST_IMAGE}"'
#: Where least requested memory puts them, with the scheduler's own replicas of 96 MiB on each node.
TABLE = {"pod1": "node-1", "pod2": "node-2", "pod3": "node-1"}
LABELS = "app.kubernetes.io/name=turb-kub,app.kubernetes.io/instance=turb-kub"
KINDS = (
    "deployments,replicasets,configmaps,poddisruptionbudgets,serviceaccounts,roles,rolebindings,clusterroles,"
    "clusterrolebindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings"
)


class Helper(threading.Thread):
    """Binds pods of the default scheduler to the emptier node; those with the lost image never come to run."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(daemon=True)
        self.client = config.new_client_from_config(str(kubeconfig))
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            for pod in self.ask("GET", "pods")["items"]:
                if not pod["spec"].get("nodeName") and pod["spec"]["schedulerName"] == "default-scheduler":
                    self.bind(pod["metadata"]["name"], lost=pod["spec"]["containers"][0]["image"] == LOST_IMAGE)

    def bind(self, name: str, lost: bool) -> None:
        if lost:
            waiting = {"reason": "ImagePullBackOff", "message": NOT_THERE}
            status = {"name": "scheduler", "ready": False, "restartCount": 0, "image": LOST_IMAGE, "imageID": ""}
            # kwok leaves a pod alone that has an address.
            address = {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}
            body = {"status": address | {"containerStatuses": [status | {"state": {"waiting": waiting}}]}}
            self.ask("PATCH", f"pods/{name}/status", body)
        taken = [pod["spec"].get("nodeName") for pod in self.ask("GET", "pods")["items"]]
        target = {"kind": "Node", "name": min(("node-1", "node-2"), key=taken.count)}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.ask("POST", f"pods/{name}/binding", binding)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The API server's answer about something in kube-system."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = self.client.param_serialize(
            method,
            f"/api/v1/namespaces/kube-system/{path}",
            body=body,
            header_params={"Content-Type": kind, "Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        return json.loads(self.client.call_api(*request).read())


class Their:
    """The cluster that is there before, and the work folder with which site.yml is played on it."""

    def __init__(self, folder: Path) -> None:
        self.host = Workshop(folder / "host", "turb-kub-test-host")
        made = self.host.play("up.yml")
        assert made.code == 0, made.output
        self.kubeconfig = self.host.work / "kubeconfig"
        self.kubectl_program = json.loads((self.host.work / "record.json").read_text())["kubectl"]
        self.workshop = Workshop(folder / "ours", "turb-kub-test-existing")
        self.workshop.defaults |= {
            "cluster_provider": "existing",
            "cluster_existing_kubeconfig": str(self.kubeconfig),
            "cluster_existing_context": self.host.name,
            "image_existing_reference": IMAGE,
            "scheduler_image_pull_secrets": ["registry"],
            # Not the one on PATH, which may be any vendor's.
            "cluster_programs": {"kubectl": self.kubectl_program},
        }

    def play(self, playbook: str, *arguments: str, env: dict[str, str] | None = None, **more: Any) -> Played:
        return play(self.workshop, playbook, *arguments, env=env, **more)

    def kubectl(self, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.kubectl_program, f"--kubeconfig={self.kubeconfig}", *arguments],
            env={"HOME": str(self.host.folder / "kubectl"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            **more,
        )

    def apply(self, *objects: dict[str, Any]) -> None:
        answer = self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
        assert answer.returncode == 0, answer.stderr

    def get(self, *arguments: str) -> Any:
        answer = self.kubectl("get", "-o", "json", *arguments)
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def ours(self) -> set[str]:
        """Kinds and names of all that is ours on the cluster."""
        items = self.get(KINDS, "-A", "-l", LABELS)["items"]
        return {f"{item['kind']} {item['metadata']['name']}" for item in items}

    def deployment(self) -> Any:
        return self.get("deployment", "turb-kub", "-n", "kube-system")

    def config_maps(self) -> set[str]:
        """The versions' settings that are kept."""
        items = self.get("configmaps", "-n", "kube-system", "-l", LABELS)["items"]
        return {item["metadata"]["name"] for item in items}


def settings_of(deployment: dict[str, Any]) -> str:
    """The ConfigMap that a Deployment's pods mount."""
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    return str(next(volume["configMap"]["name"] for volume in volumes if "configMap" in volume))


@pytest.fixture(scope="module")
def their(tmp_path_factory: pytest.TempPathFactory, programs: dict[str, str]) -> Iterator[Their]:
    folder = tmp_path_factory.mktemp("their")
    host = Workshop(folder / "unused", "turb-kub-test-host")
    host.work = folder / "host/state/turb-kub/turb-kub-test-host"
    host.defaults["cluster_work_dir"] = str(host.work)
    scheduler = helper = None
    try:
        their = Their(folder)
        helper = Helper(their.kubeconfig)
        helper.start()
        # Stands in for what the Deployment's replicas would do: no pod runs anything here.
        scheduler = subprocess.Popen(
            [
                str(Path(sys.executable).parent / "turb-kub"),
                *("run", "--kubeconfig", str(their.kubeconfig), "--http-port", str(free_port())),
                *("--node-mem-limit-mb", "2048"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        yield their
    finally:
        if helper is not None:
            helper.ended.set()
            helper.join()
        if scheduler is not None:
            scheduler.terminate()
            scheduler.wait(30)
        host.play("down.yml")


def account(their: Their, name: str) -> Path:
    """A kubeconfig of a ServiceAccount that may look at everything and change nothing."""
    their.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    )
    kubeconfig = yaml.safe_load(their.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": their.kubectl("create", "token", name).stdout.strip()}
    file = their.host.folder / f"{name}.kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig))
    return file


def test_a_user_with_too_few_rights_gets_the_list_before_anything_is_done(their: Their) -> None:
    viewer = account(their, "viewer")
    played = their.play("site.yml", cluster_existing_kubeconfig=str(viewer))
    assert played.code != 0
    start, end = "The user of context turb-kub-test-existing lacks rights that this needs: ", ". Nothing was changed on"
    assert played.failure.startswith(start), played.output
    denied = played.failure.removeprefix(start).split(end)[0].split("; ")
    assert "create, patch, delete configmaps in kube-system" in denied
    assert "get, list, create, patch, delete clusterroles.rbac.authorization.k8s.io" in denied
    assert "give away: create pods/binding" in denied
    # What `view` gives is not missing, and a role may be given by who has it.
    assert not [each for each in denied if each.endswith((" replicasets.apps in kube-system", ": get pods"))]
    assert their.ours() == set()


@pytest.fixture(scope="module")
def first(their: Their) -> Played:
    """The set-up, with what others have on the cluster noted before."""
    their.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "theirs",
                "namespace": "kube-system",
                "labels": {"app.kubernetes.io/name": "turb-kub", "app.kubernetes.io/instance": "another"},
            },
        }
    )
    played = their.play("site.yml", scheduler_opt_in=True)
    assert played.code == 0, played.output
    return played


def test_the_set_up_leaves_the_users_kubeconfig_alone_and_takes_one_context(their: Their, first: Played) -> None:
    copy = their.workshop.work / "kubeconfig"
    assert copy.stat().st_mode & 0o777 == 0o600
    ours, theirs = yaml.safe_load(copy.read_text()), yaml.safe_load(their.kubeconfig.read_text())
    assert [context["name"] for context in ours["contexts"]] == [their.workshop.name]
    assert [context["name"] for context in theirs["contexts"]] == [their.host.name]
    assert ours["users"][0]["user"].keys() == {"client-certificate-data", "client-key-data"}
    assert ours["users"][0]["user"]["client-key-data"] not in first.output
    assert list(their.workshop.home.iterdir()) == []


def test_the_deployment_runs_and_the_pods_are_placed(their: Their, first: Played) -> None:
    deployment = their.deployment()
    assert (deployment["status"]["updatedReplicas"], deployment["status"]["availableReplicas"]) == (2, 2)
    pod = deployment["spec"]["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["containers"][0]["imagePullPolicy"]) == (IMAGE, "IfNotPresent")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    pods = their.get("pods", "-n", "default")["items"]
    assert {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods} == TABLE
    assert their.config_maps() == {settings_of(deployment)}


def test_the_status_shows_the_replicas_which_one_is_active_and_their_ceiling(their: Their, first: Played) -> None:
    their.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "turb-kub", "namespace": "kube-system"},
            "spec": {"holderIdentity": "turb-kub-abc_123", "leaseDurationSeconds": 15},
        }
    )
    temporary = their.workshop.folder / "of status"
    temporary.mkdir()

    def look(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts/cluster.py"), *arguments],
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(their.workshop.home),
                "TMPDIR": str(temporary),
                "TURB_KUB_WORK_DIR": str(their.workshop.work),
            },
            capture_output=True,
            text=True,
        ).stdout

    shown = look("status")
    assert shown.splitlines()[0] == f"2 of 2 replicas ready, turb-kub-abc is active; image {IMAGE}"
    assert "2048Mi" in shown
    # By the limit of the replicas, which no flag and no variable here says.
    assert "2048Mi" in look("explain", "default/pod1")
    # The client writes keys into files: none may stay.
    assert not list(temporary.iterdir())


def test_a_second_run_changes_nothing(their: Their, first: Played) -> None:
    # Without the knobs that named the cluster: the record says which it is.
    again = their.play("site.yml", scheduler_opt_in=True, cluster_existing_kubeconfig="", cluster_existing_context="")
    assert (again.code, again.changes()) == (0, []), again.output


def test_manifests_for_kubectl_are_what_the_role_applied(their: Their, first: Played) -> None:
    folder = their.workshop.folder / "manifests"
    played = their.play("playbooks/manifests.yml", scheduler_manifests_dir=str(folder), scheduler_opt_in=True)
    assert played.code == 0, played.output
    documents = [each for file in sorted(folder.iterdir()) for each in yaml.safe_load_all(file.read_text())]
    written = {f"{each['kind']} {each['metadata']['name']}" for each in documents}
    # ReplicaSets are the Deployment's own doing.
    assert written == {each for each in their.ours() if not each.startswith("ReplicaSet ")}
    difference = their.kubectl("diff", "--server-side", "--field-manager=turb-kub", "-f", str(folder))
    assert (difference.returncode, difference.stdout) == (0, ""), difference.stdout + difference.stderr


def pod(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "pause", "image": "pause"}]} | spec,
    }


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def schedulers_in(their: Their, namespace: str) -> dict[str, str]:
    pods = their.get("pods", "-n", namespace)["items"]
    return {each["metadata"]["name"].split("-")[0]: each["spec"]["schedulerName"] for each in pods}


def test_a_labelled_namespace_gives_its_pods_to_the_scheduler(their: Their, first: Played) -> None:
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "opted-in"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "agent", "image": "agent"}]},
            },
        },
    }
    their.apply(namespace("opted-in", **{"turb-kub.io/schedule": "enabled"}), namespace("others"))
    their.apply(
        pod("plain", "opted-in"),
        pod("choosy", "opted-in", schedulerName="their-scheduler"),
        pod("settled", "opted-in", nodeName="node-1"),
        pod("plain", "others"),
        daemons,
    )
    waited = their.kubectl("wait", "--for=create", "pod", "-l", "app=agent", "-n", "opted-in", "--timeout=30s")
    assert waited.returncode == 0, waited.stderr
    assert schedulers_in(their, "opted-in") == {
        "plain": "turb-kub",
        "choosy": "their-scheduler",
        "settled": "default-scheduler",
        "agent": "default-scheduler",
    }
    assert schedulers_in(their, "others") == {"plain": "default-scheduler"}


def test_a_version_that_does_not_come_up_is_rolled_back(their: Their, first: Played) -> None:
    before = their.deployment()
    # Another limit as well: image and settings go back together.
    limit = {"NODE_MEM_LIMIT_MB": "1900"}
    played = their.play("playbooks/redeploy.yml", env=limit, image_existing_reference=LOST_IMAGE)
    assert played.code != 0
    lost = next(each for each in played.failure.split() if each.startswith("turb-kub-")).rstrip(":")
    assert played.failure == (
        f"The scheduler {LOST_IMAGE} does not come up: pod {lost}: container scheduler: ImagePullBackOff: {NOT_THERE}."
        f" {IMAGE} was brought back and runs."
    )
    after = their.deployment()
    assert after["spec"]["template"] == before["spec"]["template"]
    assert (after["status"]["updatedReplicas"], after["status"]["availableReplicas"]) == (2, 2)
    assert settings_of(before) in their.config_maps()


def test_another_limit_rolls_and_keeps_the_settings_before_for_the_way_back(their: Their, first: Played) -> None:
    before = their.deployment()
    places = their.get("pods", "-n", "default")["items"]
    assert len(their.config_maps()) == 2  # the version that failed left its own
    played = their.play("playbooks/redeploy.yml", env={"NODE_MEM_LIMIT_MB": "1800"})
    assert played.code == 0, played.output
    after = their.deployment()
    assert after["status"]["observedGeneration"] > before["status"]["observedGeneration"]
    assert settings_of(after) != settings_of(before)
    assert their.config_maps() == {settings_of(before), settings_of(after)}
    # Bound pods stay the same ones, and the knob is off again, so there is no policy any more.
    uids = [each["metadata"]["uid"] for each in places]
    assert [each["metadata"]["uid"] for each in their.get("pods", "-n", "default")["items"]] == uids
    assert [each for each in their.ours() if "Admission" in each] == []


def test_a_teardown_removes_what_is_ours_and_nothing_else(their: Their, first: Played) -> None:
    # With other names than those that it was made with: what was made is known.
    played = their.play("playbooks/teardown.yml", scheduler_name="renamed", cluster_provider="auto")
    assert played.code == 0, played.output
    assert their.ours() == set()
    assert their.kubectl("get", "lease", "turb-kub", "-n", "kube-system").returncode != 0
    assert their.get("pods", "-A", "-l", "app.kubernetes.io/part-of=turb-kub-demo")["items"] == []
    assert their.get("configmap", "theirs", "-n", "kube-system")["metadata"]["name"] == "theirs"
    assert len(their.get("nodes")["items"]) == 2
    assert not their.workshop.work.exists()
    again = their.play("playbooks/teardown.yml")
    assert (again.code, again.changes()) == (0, []), again.output


def test_an_existing_cluster_has_to_be_named(tmp_path: Path) -> None:
    played = play(Workshop(tmp_path, "turb-kub-test-unnamed"), "site.yml", cluster_provider="existing")
    assert played.failure == (
        "The provider existing needs to know which cluster: set cluster_existing_kubeconfig to a kubeconfig and"
        " cluster_existing_context to a context in it."
    )


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{apiVersion: v1, kind: Config, contexts: [], clusters: [], users: []}")
    workshop = Workshop(tmp_path / "ours", "turb-kub-test-unnamed")
    played = play(
        workshop,
        "site.yml",
        cluster_provider="existing",
        cluster_existing_kubeconfig=str(kubeconfig),
        cluster_existing_context="nowhere",
        image_existing_reference=IMAGE,
    )
    assert played.failure.startswith(f"The context nowhere can't be read from {kubeconfig}: "), played.output
    assert played.failure.endswith("Check cluster_existing_kubeconfig and cluster_existing_context.")
