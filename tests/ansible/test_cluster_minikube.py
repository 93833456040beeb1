"""The provider minikube as a user meets it: brought up, left alone, removed, chosen by auto. Minikube is a stand-in."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import Played, Workshop, processes_of
from tests.ansible.minikube_double import VERSION, Double, installed
from tests.ansible.releases import ARCH, Releases, serving

USERS_KUBECONFIG = "# the user's own, of which no byte may change\ncurrent-context: production\n"


class Machine:
    """A machine with a user's home and a PATH on which is what the test puts there."""

    def __init__(self, workshop: Workshop, double: Double) -> None:
        self.workshop, self.double = workshop, double
        self.path = workshop.folder / "path"
        self.path.mkdir()
        for name in ("chmod", "cp", "ls", "mkdir", "mv", "rm", "sh", "sleep", "uname"):
            found = shutil.which(name)
            assert found
            (self.path / name).symlink_to(found)
        self.kubeconfig = workshop.home / ".kube/config"
        self.kubeconfig.parent.mkdir()
        self.kubeconfig.write_text(USERS_KUBECONFIG)

    def put(self, name: str, program: str | Path) -> None:
        (self.path / name).symlink_to(program)

    def script(self, name: str, text: str) -> None:
        (self.path / name).write_text(f"#!{self.path}/sh\n{text}\n")
        (self.path / name).chmod(0o755)

    def play(self, playbook: str, *arguments: str, **variables: Any) -> Played:
        """Run a playbook with that PATH; Minikube is run as root, where the tests are."""
        given: dict[str, Any] = {"cluster_provider": "minikube", "cluster_minikube_force": True} | variables
        return self.workshop.play(playbook, *arguments, env={"PATH": str(self.path)}, **given)


@pytest.fixture
def machine(workshop: Workshop) -> Iterator[Machine]:
    with installed(workshop.folder / "double") as double:
        yield Machine(workshop, double)


def items(played: Played, task: str) -> list[str]:
    """What a loop showed, item by item."""
    return [str(each["text"]) for each in played.answer(task)["results"]]


@pytest.mark.cluster
def test_a_cluster_is_brought_up_left_alone_repaired_and_removed(machine: Machine, programs: dict[str, str]) -> None:
    name, work = machine.workshop.name, machine.workshop.work
    machine.put("minikube", machine.double.program)
    machine.put("kubectl", programs["kubectl"])
    machine.double.run("start", "--output=json", "-p", "other")
    other = machine.double.profile("other")

    dry = machine.play("up.yml", "--check")
    assert (dry.code, machine.double.mutations(), work.exists()) == (0, [], False), dry.output
    assert dry.answer("Look at the profile, and begin what it lacks")["actions"] == ["Create the cluster"]
    assert dry.answer("Say what later roles learn")["msg"]["available"] is False

    first = machine.play("up.yml")
    assert (first.code, machine.double.mutations()) == (0, ["start"]), first.output
    told = first.answer("Say what later roles learn")["msg"]
    assert (told["available"], told["provider"], told["kubectl"]) == (True, "minikube", str(machine.path / "kubectl"))
    nodes = [name, f"{name}-m02"]
    assert json.loads((work / "record.json").read_text()) == {
        "provider": "minikube",
        "cluster_name": name,
        "kubeconfig": str(work / "kubeconfig"),
        "kubectl": str(machine.path / "kubectl"),
        "minikube": str(machine.path / "minikube"),
        "profile": name,
        "nodes": nodes,
    }
    shown = items(first, "Show what Minikube does")
    assert (shown[0], shown[-1]) == ("Create the cluster", "ready")
    assert "node 1 of 2, step 8 of 19: Creating docker container (CPUs=2, Memory=4096MB) ..." in shown
    said = first.answer("Say what the nodes advertise and what they have")["msg"]
    assert said[:2] == [f"{node} advertises 24105 MiB, but its container may use 4096 MiB." for node in nodes]

    machine.double.forget()
    again = machine.play("up.yml", scheduler_node_mem_limit_mb="8192")
    assert (again.code, again.changes(), machine.double.mutations()) == (0, [], []), again.output
    assert again.answer("Say what the nodes advertise and what they have")["msg"][-2:] == [
        "The scheduler holds each node to 8192 MiB (NODE_MEM_LIMIT_MB).",
        "That is more than a node may use: lower it, or set cluster_minikube_memory for a new cluster.",
    ]

    # Minikube calls a node ready, and the control plane has not taken its taint away yet.
    machine.double.set(taints={nodes[1]: [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]})
    tainted = machine.play("up.yml", cluster_start_timeout=2)
    assert tainted.failure.startswith(
        f"Not all nodes of the cluster {name} take pods after 2 s (cluster_start_timeout): {nodes[1]} is not Ready, or"
        " still has the taint of a node that is not."
    )
    machine.double.set(taints={nodes[1]: [{"key": "the-users-own", "effect": "NoSchedule"}]})
    assert machine.play("up.yml").code == 0

    # The profile is gone; the record says what there was, also where another provider would be taken now.
    machine.double.run("delete", "-p", name)
    repaired = machine.play("up.yml", cluster_provider="auto")
    assert (repaired.code, machine.double.mutations()) == (0, ["start"]), repaired.output

    machine.double.forget()
    down = machine.play("down.yml")
    assert (down.code, down.changed > 0, machine.double.mutations()) == (0, True, ["delete"]), down.output
    assert not work.exists()
    assert {call["kubeconfig"] for call in machine.double.calls()} == {str(work / "kubeconfig")}

    machine.double.forget()
    again = machine.play("down.yml")
    assert (again.code, again.changed, machine.double.calls()) == (0, 0, []), again.output

    assert machine.double.store.read()["profiles"] == {"other": other}
    assert machine.kubeconfig.read_text() == USERS_KUBECONFIG
    assert [path.name for path in machine.kubeconfig.parent.iterdir()] == ["config"]
    assert not processes_of(machine.workshop.folder)


@pytest.mark.cluster
def test_a_failing_start_is_one_sentence_and_can_be_removed(machine: Machine, programs: dict[str, str]) -> None:
    machine.put("minikube", machine.double.program)
    machine.put("kubectl", programs["kubectl"])
    machine.double.set(root=True)
    played = machine.play("up.yml", cluster_minikube_force=False)
    assert played.code != 0
    log = machine.workshop.work / "minikube/minikube.log"
    assert played.failure == (
        'minikube start failed: The "docker" driver should not be used with root privileges (DRV_AS_ROOT, exit code'
        " 57). Run this as an ordinary user, or set cluster_minikube_force=true if it has to be root: Minikube then"
        f" skips its own checks, and its nodes are root's. All that it said is in {log}."
    )
    assert items(played, "Show what Minikube does")[-1] == "failed"
    assert "DRV_AS_ROOT" in log.read_text()
    assert machine.play("down.yml").code == 0
    assert not machine.workshop.work.exists()


# -- where the program comes from -------------------------------------------------------------------------------------

#: kubectl is the others' affair.
ASKED = {"cluster_programs_asked": ["minikube"], "cluster_programs_path_first": ["minikube"]}


@pytest.fixture
def releases(machine: Machine) -> Iterator[Releases]:
    """A server that has the stand-in as the release of Minikube."""
    program = machine.double.program.read_bytes()
    path = f"/minikube/{VERSION}/minikube-linux-{ARCH}"
    with serving() as server:
        server.files = {path: program, f"{path}.sha256": hashlib.sha256(program).hexdigest().encode()}
        yield server


def download(machine: Machine, urls: dict[str, str], **more: Any) -> Played:
    """Let the role get Minikube into an empty cache."""
    given = {"cluster_cache_dir": str(machine.workshop.folder / "cache"), "cluster_download_urls": urls}
    return machine.play("programs.yml", **ASKED, **given, **more)


def test_minikube_is_downloaded_with_its_checksum_and_kept(machine: Machine, releases: Releases) -> None:
    first = download(machine, releases.urls)
    assert first.code == 0, first.output
    path = Path(first.answer("Say where the programs are")["msg"]["minikube"])
    assert path.is_relative_to(machine.workshop.folder / "cache")
    assert path.read_bytes() == machine.double.program.read_bytes()
    releases.asked.clear()
    again = download(machine, releases.urls)
    assert (again.code, again.changed, releases.asked) == (0, 0, []), again.output


def test_a_minikube_with_another_checksum_is_not_used(machine: Machine, releases: Releases) -> None:
    [path] = [path for path in releases.files if not path.endswith(".sha256")]
    releases.files[path] += b"# and something else\n"
    played = download(machine, releases.urls)
    assert played.code != 0
    assert "but it should be" in played.failure
    assert "it was not used" in played.failure
    assert not list((machine.workshop.folder / "cache").rglob("minikube*"))


def test_where_minikube_can_not_be_had(machine: Machine) -> None:
    sentence = "install minikube, name one in cluster_programs, or set cluster_provider=kwok, which needs none."
    played = download(machine, {"minikube": "http://127.0.0.1:9"})
    assert played.failure == f"There is no minikube on PATH, and its release could not be downloaded: {sentence}"
    played = download(machine, {}, cluster_download=False)
    assert played.failure == f"There is no minikube on PATH, and downloads are off (cluster_download): {sentence}"


def test_a_minikube_on_path_that_does_not_run_is_named(machine: Machine) -> None:
    machine.script("minikube", "echo broken; exit 3")
    played = download(machine, {})
    assert played.failure == (
        f"{machine.path}/minikube, which is the minikube on PATH, can't be used: it does not run (exit code 3: broken)."
        " Mend it, or name another one in cluster_programs."
    )


# -- what auto takes --------------------------------------------------------------------------------------------------


def chosen(machine: Machine, **more: Any) -> tuple[str, str]:
    """What auto takes, and what it says about that."""
    given = {"cluster_cache_dir": str(machine.workshop.folder / "cache"), "cluster_download_timeout": 2} | more
    played = machine.play("provider.yml", cluster_provider="auto", **given)
    assert (played.code, played.changed) == (0, 0), played.output
    assert not machine.workshop.work.exists()
    assert not (machine.workshop.folder / "cache").exists()
    return played.answer("Say which it is")["msg"], played.answer("Say which provider that is")["msg"]


def test_auto_takes_a_minikube_that_is_there_beside_a_driver_that_works(machine: Machine) -> None:
    machine.put("minikube", machine.double.program)
    assert chosen(machine)[0] == "kwok"
    machine.script("docker", "echo 28.0.1")
    provider, said = chosen(machine, cluster_download=False)
    assert (provider, "its driver docker" in said) == ("minikube", True)


def test_auto_takes_a_minikube_that_can_be_downloaded_beside_docker(machine: Machine, releases: Releases) -> None:
    assert chosen(machine, cluster_download_urls=releases.urls)[0] == "kwok"
    assert releases.asked == []
    machine.script("docker", "echo 28.0.1")
    assert chosen(machine, cluster_download_urls=releases.urls)[0] == "minikube"
    # Only asked for: the download is the provider's.
    assert [path.rpartition(".")[2] for path in releases.asked] == ["sha256"]


def test_auto_takes_kwok_where_docker_runs_and_no_minikube_can_be_had(machine: Machine) -> None:
    machine.script("docker", "echo 28.0.1")
    provider, said = chosen(machine, cluster_download_urls={"minikube": "http://127.0.0.1:9"})
    assert provider == "kwok"
    assert "minikube is not on PATH and can not be downloaded (Connection refused)" in said


def test_auto_takes_kwok_where_docker_does_not_answer(machine: Machine) -> None:
    machine.put("minikube", machine.double.program)
    machine.script("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    provider, said = chosen(machine)
    assert (provider, "docker does not answer" in said) == ("kwok", True)
