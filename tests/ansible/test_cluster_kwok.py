"""The provider kwok with real programs: created, left alone, repaired, removed."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import Played, Workshop, processes_of, run_module, start_module

pytestmark = pytest.mark.cluster

COMPONENTS = {"etcd", "kube-apiserver", "kube-controller-manager", "kwok-controller"}
KUBECONFIG = b"# the user's own, of which no byte may change\ncurrent-context: production\n"


def eventually(holds: Callable[[], bool], seconds: float = 30) -> bool:
    """Whether a condition comes to hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def listeners(pids: set[int]) -> dict[int, set[str]]:
    """The addresses on which these processes listen, as /proc/net has them."""
    inodes = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    inodes[target[8:-1]] = pid
    found: dict[int, set[str]] = {pid: set() for pid in pids}
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            # 0A is TCP_LISTEN; UDP sockets have no such state.
            if fields[9] in inodes and (fields[3] == "0A" or table.startswith("udp")):
                found[inodes[fields[9]]].add(fields[1].split(":")[0])
    return found


def node_manifest(folder: Path, name: str) -> Path:
    """A file with a node as the role makes them."""
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "turb-kub"}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
    return path


class Running:
    """The cluster that most of the tests share."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.dry: Played
        self.made_by_dry_run: list[object]
        self.first: Played

    @property
    def components(self) -> dict[str, int]:
        """The pids of the components by name, by the path of their program."""
        folder = f"{self.workshop.work}/kwok/clusters/{self.workshop.name}/bin/"
        return {
            argv[0].removeprefix(folder): pid
            for pid, argv in processes_of(self.workshop.work).items()
            if argv[0].startswith(folder)
        }

    def pid_file(self, component: str) -> Path:
        return self.workshop.work / f"kwok/clusters/{self.workshop.name}/pids/{component}.pid"

    def kubectl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        told = self.first.answer("Say what later roles learn")["msg"]
        command = [told["kubectl"], f"--kubeconfig={self.workshop.work}/kubeconfig", *arguments]
        env = {"HOME": str(self.workshop.folder), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    def get(self, *arguments: str) -> Any:
        done = self.kubectl("get", "--output=json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, programs: dict[str, str]) -> Iterator[Running]:
    """A cluster made by the role, after a dry run where there was none."""
    workshop = Workshop(tmp_path_factory.mktemp("kwok"), "turb-kub-test-k")
    (workshop.home / ".kube").mkdir()
    (workshop.home / ".kube/config").write_bytes(KUBECONFIG)
    cluster = Running(workshop)
    try:
        # With an empty cache too: there is nothing yet that a dry run could ask.
        cluster.dry = workshop.play("up.yml", "--check", "--diff", cluster_cache_dir=str(workshop.folder / "cache"))
        cluster.made_by_dry_run = [*workshop.folder.glob("cache"), *workshop.folder.glob("state"), *cluster.components]
        cluster.first = workshop.play("up.yml", env={"KUBECONFIG": str(workshop.home / ".kube/config")})
        assert cluster.first.code == 0, cluster.first.output
        yield cluster
    finally:
        arguments = {"name": workshop.name, "work_dir": str(workshop.work / "kwok"), "state": "absent"}
        run_module("kwok_cluster", arguments, workshop.folder)
        assert not processes_of(workshop.work)


def test_a_dry_run_before_there_is_a_cluster_makes_nothing(running: Running) -> None:
    assert running.dry.code == 0, running.dry.output
    assert running.dry.answer("Say what later roles learn")["msg"]["available"] is False
    assert running.made_by_dry_run == []


def test_the_first_run_makes_the_cluster_and_says_how_to_reach_it(running: Running, programs: dict[str, str]) -> None:
    assert set(running.components) == COMPONENTS
    told = running.first.answer("Say what later roles learn")["msg"]
    assert told["available"] is True
    assert told["provider"] == "kwok"
    assert told["kubectl"] == programs["kubectl"]
    record = json.loads((running.workshop.work / "record.json").read_text())
    assert record == told["record"]
    assert record["provider"] == "kwok"
    assert record["cluster_name"] == running.workshop.name
    assert set(record["versions"]) == COMPONENTS
    config = running.kubectl("config", "view", "--output=json").stdout
    assert json.loads(config)["current-context"] == running.workshop.name
    assert f"127.0.0.1:{record['api_port']}" in config


def test_all_of_it_listens_on_the_loopback_address_only(running: Running) -> None:
    found = listeners(set(running.components.values()))
    # As /proc/net writes 127.0.0.1 on a little-endian machine.
    loopback = {"0100007F"} if sys.byteorder == "little" else {"7F000001"}
    assert found == dict.fromkeys(running.components.values(), loopback)


def test_the_nodes_are_ready_and_as_big_as_asked(running: Running) -> None:
    nodes = {node["metadata"]["name"]: node for node in running.get("nodes")["items"]}
    assert set(nodes) == {"node-1", "node-2"}
    for name, node in nodes.items():
        size = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        assert node["status"]["capacity"] == node["status"]["allocatable"] == size
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == name
        assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
        ready = [entry["status"] for entry in node["status"]["conditions"] if entry["type"] == "Ready"]
        assert ready == ["True"]


def test_a_second_run_changes_nothing_not_even_in_a_dry_run(running: Running) -> None:
    before = running.components
    again = running.workshop.play("up.yml")
    assert (again.code, again.changes()) == (0, []), again.output
    dry = running.workshop.play("up.yml", "--check", "--diff")
    assert (dry.code, dry.changes()) == (0, []), dry.output
    assert dry.answer("Say what later roles learn")["msg"]["available"] is True
    assert running.components == before


def test_a_service_account_may_do_what_it_was_given_and_no_more(running: Running) -> None:
    assert running.kubectl("create", "serviceaccount", "reader").returncode == 0
    assert running.kubectl("create", "clusterrole", "reader", "--verb=list", "--resource=nodes").returncode == 0
    bind = ["create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:reader"]
    assert running.kubectl(*bind).returncode == 0
    token = running.kubectl("create", "token", "reader", "--duration=10m").stdout.strip()
    assert token
    # The kubeconfig's own certificate would win over the token.
    record = json.loads((running.workshop.work / "record.json").read_text())
    config = running.workshop.work / "tmp/token-kubeconfig"
    ca = running.workshop.work / f"kwok/clusters/{running.workshop.name}/pki/ca.crt"
    setting = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": f"https://127.0.0.1:{record['api_port']}",
                    "certificate-authority": str(ca),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    config.write_text(json.dumps(setting))
    assert running.kubectl("--kubeconfig", str(config), "get", "nodes", "--output=name").stdout.split() == [
        "node/node-1",
        "node/node-2",
    ]
    denied = running.kubectl("--kubeconfig", str(config), "get", "pods")
    assert denied.returncode != 0
    assert 'User "system:serviceaccount:default:reader" cannot list resource "pods"' in denied.stderr
    config.unlink()


def test_a_cluster_that_was_killed_is_started_again(running: Running) -> None:
    """As after a reboot: nothing runs, and the numbers in the pid files are now other programs'. With more, and bigger,
    nodes, which are asked for at the same time.
    """
    before = running.components
    assert running.kubectl("create", "configmap", "kept").returncode == 0
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as bystander:
        try:
            for pid in before.values():
                os.kill(pid, signal.SIGKILL)
            assert eventually(lambda: not running.components)
            for component in COMPONENTS:
                running.pid_file(component).write_text(str(bystander.pid))
            (running.workshop.work / "kubeconfig").unlink()

            played = running.workshop.play("up.yml", cluster_node_count=3, cluster_node_memory="32768Mi")
            assert played.code == 0, played.output
            assert played.answer("Start the control plane")["found"] == "stopped"
            assert set(running.components) == COMPONENTS
            assert set(running.components.values()).isdisjoint(before.values())
            assert bystander.poll() is None
        finally:
            bystander.kill()
    # On the same port, and what was stored is still there.
    record = running.first.answer("Say what later roles learn")["msg"]["record"]
    assert json.loads((running.workshop.work / "record.json").read_text()) == record
    assert running.get("configmap", "kept")
    # The API server's way to write 32768Mi.
    nodes = {node["metadata"]["name"]: node["status"]["allocatable"] for node in running.get("nodes")["items"]}
    sizes = {name: size["memory"] for name, size in nodes.items()}
    assert sizes == dict.fromkeys(("node-1", "node-2", "node-3"), "32Gi")


def test_nodes_that_are_too_many_are_removed(running: Running) -> None:
    # The third one may be there already, if the cluster was asked for it before.
    running.kubectl("create", "--filename", str(node_manifest(running.workshop.folder, "node-3")))
    memory = running.get("node", "node-1")["status"]["capacity"]["memory"]
    assert memory.endswith("Gi")
    played = running.workshop.play("up.yml", cluster_node_memory=f"{int(memory[:-2]) * 1024}Mi")
    # Neither is a cluster that runs changed, nor is another way to write the same size a change.
    assert played.changes() == ["cluster : nodes | Remove nodes that are too many"], played.output
    assert [node["metadata"]["name"] for node in running.get("nodes")["items"]] == ["node-1", "node-2"]


@pytest.mark.parametrize("component", sorted(COMPONENTS))
def test_a_component_that_ended_is_started_again(running: Running, component: str) -> None:
    before = running.components
    os.kill(before[component], signal.SIGKILL)
    assert eventually(lambda: component not in running.components)
    arguments = {
        "name": running.workshop.name,
        "work_dir": str(running.workshop.work / "kwok"),
        "kubeconfig": str(running.workshop.work / "kubeconfig"),
        "programs": running.first.answer("Note where the programs are")["ansible_facts"]["cluster_program_paths"],
    }
    dry = run_module("kwok_cluster", arguments | {"_ansible_check_mode": True}, running.workshop.folder)
    assert (dry["changed"], dry["found"]) == (True, "degraded")
    assert component not in running.components
    done = run_module("kwok_cluster", arguments, running.workshop.folder)
    assert (done.get("changed"), done.get("available")) == (True, True), done
    assert set(running.components) == COMPONENTS
    assert running.get("nodes")


def test_the_port_can_not_be_changed_under_a_running_cluster(running: Running) -> None:
    arguments = {
        "name": running.workshop.name,
        "work_dir": str(running.workshop.work / "kwok"),
        "kubeconfig": str(running.workshop.work / "kubeconfig"),
        "programs": {"etcd": "/x"},
        "api_port": 6443,
        "_ansible_check_mode": True,
    }
    answer = run_module("kwok_cluster", arguments, running.workshop.folder)
    port = json.loads((running.workshop.work / "record.json").read_text())["api_port"]
    assert f"on port {port}, cluster_api_port says 6443: set it to {port} or 0" in answer["msg"]


def test_nothing_is_left_after_it_is_removed(running: Running) -> None:
    """Last of those that share the cluster. The programs are gone, and cluster_provider says something else."""
    workshop = running.workshop
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", str(workshop.work)]) as bystander:
        try:
            gone: dict[str, Any] = {"cluster_cache_dir": "/nonexistent", "cluster_provider": "kind"}
            played = workshop.play("down.yml", **gone)
            assert (played.code, bool(played.changed)) == (0, True), played.output
            assert set(processes_of(workshop.work)) == {bystander.pid}
            assert not workshop.work.exists()
            # turb-kub, where it lay, was empty.
            assert list(workshop.work.parent.parent.iterdir()) == []
            again = workshop.play("down.yml", **gone)
            assert (again.code, again.changed) == (0, 0), again.output
            assert bystander.poll() is None
        finally:
            bystander.kill()
    # Not one file in the user's home in all these runs but the one that was there.
    assert [path for path in workshop.home.rglob("*") if path.is_file()] == [workshop.home / ".kube/config"]
    assert (workshop.home / ".kube/config").read_bytes() == KUBECONFIG


# -- clusters of their own ---------------------------------------------------------------------------------------------


Given = Callable[..., dict[str, Any]]


def test_a_creation_that_was_killed_is_made_good(module_cluster: Given, tmp_path: Path) -> None:
    process = start_module("kwok_cluster", module_cluster(), tmp_path)
    work = tmp_path / "work"

    def etcd_runs() -> bool:
        return any(argv[0].endswith("/bin/etcd") for argv in processes_of(work).values())

    assert eventually(etcd_runs)
    process.kill()
    process.communicate()
    # What is left is a kwokctl that goes on by itself, and a cluster somewhere on its way. Two runs find that at
    # the same time; one repairs it, and the other waits for the first.
    runs = [start_module("kwok_cluster", module_cluster(), tmp_path) for _ in range(2)]
    answers = [json.loads(run.communicate(timeout=200)[0]) for run in runs]
    assert [answer.get("available") for answer in answers] == [True, True], answers
    assert sorted(answer["changed"] for answer in answers) == [False, True]
    assert answers[0]["components"] == answers[1]["components"]
    assert len(answers[0]["components"]) == len(COMPONENTS)
    assert (tmp_path / "work/kubeconfig").exists()

    # Cut off even earlier: before kwokctl had written down what belongs to the cluster.
    (work / "kwok/clusters/turb-kub-test-m/kwok.yaml").write_text("kind: KwokctlConfiguration\n")
    first = run_module("kwok_cluster", module_cluster(_ansible_check_mode=True), tmp_path)
    assert (first["found"], first["action"]) == ("incomplete", "created")
    gone = run_module("kwok_cluster", module_cluster(state="absent"), tmp_path)
    assert (gone["changed"], gone["available"]) == (True, False)
    assert not processes_of(work)


def test_a_port_in_use_is_named_before_anything_is_started(module_cluster: Given, tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        port = sock.getsockname()[1]
        answer = run_module("kwok_cluster", module_cluster(api_port=port), tmp_path)
    assert answer["msg"] == (
        f"Port {port} on 127.0.0.1 is in use: set cluster_api_port to a free port, or to 0 for any free one."
    )
    assert not processes_of(tmp_path / "work")


def test_a_component_that_does_not_start_shows_its_log(
    module_cluster: Given, programs: dict[str, str], tmp_path: Path
) -> None:
    etcd = tmp_path / "etcd"
    etcd.write_text('#!/bin/sh\n[ "$1" = --version ] && echo etcd Version: 3.6.16 && exit\necho disk on fire; exit 1\n')
    etcd.chmod(0o755)
    began = time.monotonic()
    answer = run_module("kwok_cluster", module_cluster(programs=programs | {"etcd": str(etcd)}), tmp_path)
    assert answer["msg"].startswith("etcd ended while the cluster started. The last lines of ")
    assert answer["msg"].endswith("disk on fire")
    # kwokctl alone would have waited for two minutes and reported success.
    assert time.monotonic() - began < 60


def test_a_cluster_that_does_not_answer_in_time_shows_a_log(module_cluster: Given, tmp_path: Path) -> None:
    answer = run_module("kwok_cluster", module_cluster(timeout=1), tmp_path)
    assert "is not ready in time (cluster_start_timeout)" in answer["msg"]
    assert "The last lines of" in answer["msg"]
