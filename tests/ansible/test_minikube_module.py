"""The modules for Minikube: what they decide in each state, and do with a stand-in that behaves as recorded."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import load_module, run_module
from tests.ansible.minikube_double import Double, installed, recorded

minikube = load_module("minikube_cluster")
progress = load_module("minikube_progress")
drivers = load_module("minikube_driver")

PROFILE = "turb-kub-test-n"


def asked(**more: Any) -> Any:
    return minikube.Asked(**{"profile": PROFILE, "nodes": 2} | more)


def found(running: str = "11", context: bool = True, **config: Any) -> Any:
    """A profile with as many nodes as digits, of which 1 is one that runs."""
    nodes = [{"Name": f"m{number:02}" if number > 1 else "", "ControlPlane": number == 1} for number in (1, 2, 3)]
    names = [PROFILE, f"{PROFILE}-m02", f"{PROFILE}-m03"]
    kubernetes = {"ContainerRuntime": "docker", "KubernetesVersion": "v1.36.3"} | config.pop("kubernetes", {})
    return minikube.Found(
        {"Driver": "docker", "Memory": 4096, "CPUs": 2, "Nodes": nodes[: len(running)], "KubernetesConfig": kubernetes}
        | config,
        False,
        {name: "OK" if state == "1" else "Stopped" for name, state in zip(names, running, strict=False)},
        context,
    )


# -- what is decided ------------------------------------------------------------------------------------------------

#: State, what is asked for beside two nodes, what it is called, and the commands.
DECISIONS: dict[str, tuple[Any, dict[str, Any], str, list[str]]] = {
    "none": (minikube.Found(), {}, "absent", ["start --nodes=2"]),
    "running": (found("11"), {}, "running", []),
    "running with more nodes": (found("111"), {}, "running", []),
    "all stopped": (found("00"), {}, "stopped", ["start --nodes=2"]),
    "all stopped, one too few": (found("0"), {}, "stopped, too few nodes", ["start --nodes=1", "node add"]),
    "worker stopped": (found("10"), {}, "node stopped", ["node start m02"]),
    "control plane stopped": (found("01"), {}, "control plane stopped", ["start --nodes=2"]),
    "one too few": (found("1"), {}, "too few nodes", ["node add"]),
    "two too few": (found("1"), {"nodes": 3}, "too few nodes", ["node add", "node add"]),
    "worker stopped, one too few": (
        found("10"),
        {"nodes": 3},
        "node stopped, too few nodes",
        ["node start m02", "node add"],
    ),
    "a surplus node stopped": (found("110"), {}, "running", []),
    "no kubeconfig": (found("11", context=False), {}, "running", ["update-context"]),
    "same version in other words": (found("11"), {"kubernetes_version": "1.36.3"}, "running", []),
    "a version that is no number": (found("11"), {"kubernetes_version": "stable"}, "running", []),
    "one node is enough": (found("1"), {"nodes": 1}, "running", []),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_each_state_gets_what_it_lacks(case: str) -> None:
    state, more, name, commands = DECISIONS[case]
    plan = minikube.decide(state, asked(**more))
    short = [" ".join(action.arguments[: 2 if action.arguments[0] == "start" else 3]) for action in plan.actions]
    assert (plan.found, short) == (name, commands)


def test_a_new_profile_gets_the_knobs_that_are_set_and_no_others() -> None:
    bare = minikube.decide(minikube.Found(), asked()).actions[0].arguments
    fixed = ("--wait=all", "--output=json", "--keep-context", "--interactive=false")
    assert bare == ("start", "--nodes=2", "--container-runtime=docker", *fixed)
    knobs = {"driver": "kvm2", "memory": "4g", "cpus": "2", "kubernetes_version": "v1.36.3", "base_image": "mine:1"}
    full = (
        minikube.decide(minikube.Found(), asked(**knobs, force=True, extra_args=("--addons=x",))).actions[0].arguments
    )
    assert sorted(set(full) - set(bare)) == [
        "--addons=x",
        "--base-image=mine:1",
        "--cpus=2",
        "--driver=kvm2",
        "--force",
        "--kubernetes-version=v1.36.3",
        "--memory=4g",
    ]


def test_a_stopped_profile_is_not_asked_to_change_its_size() -> None:
    [action] = minikube.decide(found("00"), asked(memory="8g", cpus="4", base_image="mine:1")).actions
    assert not [word for word in action.arguments if word.startswith(("--memory", "--cpus", "--base-image"))]


@pytest.mark.parametrize("running", ["11", "00"])
@pytest.mark.parametrize(
    ("there", "wanted", "sentence"),
    [
        ({"Driver": "kvm2"}, {"driver": "docker"}, "driver kvm2 (cluster_minikube_driver asks for docker)"),
        (
            {"kubernetes": {"ContainerRuntime": "containerd"}},
            {},
            "runtime containerd (cluster_minikube_runtime asks for docker)",
        ),
        (
            {},
            {"kubernetes_version": "v1.35.0"},
            "Kubernetes 1.36.3 (cluster_minikube_kubernetes_version asks for 1.35.0)",
        ),
    ],
)
def test_what_can_not_be_changed_is_refused(
    running: str, there: dict[str, Any], wanted: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(minikube.ClusterError) as raised:
        minikube.decide(found(running, **there), asked(**wanted))
    assert str(raised.value) == (
        f"The Minikube profile {PROFILE} exists with {sentence}, and that can't be changed: remove the cluster with"
        " make down, or change the knob."
    )


def test_a_profile_that_minikube_can_not_read_is_refused() -> None:
    with pytest.raises(minikube.ClusterError, match=f"can't read its profile {PROFILE}: remove it with make down"):
        minikube.decide(minikube.Found(invalid=True), asked())


def test_what_is_left_as_it_is_is_said() -> None:
    notes = minikube.decide(found("111"), asked(memory="8g", cpus="4")).notes
    assert [note.partition(":")[0] for note in notes] == [
        "The profile has 3 nodes, cluster_node_count asks for 2",
        "Each node has 4096 MiB, cluster_minikube_memory asks for 8g",
        "Each node has 2 CPUs, cluster_minikube_cpus asks for 4",
    ]
    assert minikube.decide(found("11"), asked(memory="4g", cpus="2")).notes == ()
    assert minikube.decide(found("11"), asked(memory="max", cpus="max")).notes == ()


# -- what is told ---------------------------------------------------------------------------------------------------


def test_the_recorded_events_become_steps_of_each_node() -> None:
    teller = minikube.Teller(2)
    told = [line for line in map(teller.tell, recorded("start-events")[1].splitlines()) if line]
    steps = [line for line in told if not line.startswith("Minikube says")]
    assert steps[:5] == [
        "step 0 of 19: minikube v1.38.1 on Debian 12.11 (docker/amd64)",
        "step 1 of 19: Using the docker driver based on user configuration",
        'node 1 of 2, step 3 of 19: Starting "minikube" primary control-plane node in "minikube" cluster',
        "node 1 of 2, step 5 of 19: Pulling base image v0.0.50-1787134061-23516 ...",
        "node 1 of 2, step 8 of 19: Creating docker container (CPUs=2, Memory=4096MB) ...",
    ]
    assert "node 2 of 2, step 8 of 19: Creating docker container (CPUs=2, Memory=4096MB) ..." in steps
    assert steps[-1] == "step 19 of 19: done"
    assert len(steps) == 18
    # Errors without an exit code are advice: the start went well.
    assert teller.reason == minikube.Reason()


def event(kind: str, **data: str) -> str:
    return json.dumps({"type": f"io.k8s.sigs.minikube.{kind}", "data": data})


def test_a_download_is_told_by_quarters() -> None:
    teller = minikube.Teller(2)
    steps = [event("download.progress", artifact="a/kic.tar", progress=f"{step / 20:.2f}") for step in range(21)]
    assert [line for line in map(teller.tell, steps) if line] == [
        f"downloaded {percent}% of kic.tar" for percent in (25, 50, 75, 100)
    ]


@pytest.mark.parametrize("line", ["", "{", '{"type": 3}', "[]", "{}", "I1130 klog", "\x1b[0m"])
def test_what_is_no_event_is_not_told(line: str) -> None:
    assert minikube.Teller(2).tell(line) == ""


@pytest.mark.parametrize("name", ["root-without-force", "start-unknown-driver", "two-running.docker-env"])
def test_the_reason_of_a_recorded_failure_is_found(name: str) -> None:
    _, output, errors = recorded(name)
    teller = minikube.Teller(2)
    for line in (output + errors).splitlines():
        teller.tell(line)
    assert (
        teller.reason
        == {
            "root-without-force": minikube.Reason(
                "DRV_AS_ROOT", 'The "docker" driver should not be used with root privileges.'
            ),
            "start-unknown-driver": minikube.Reason(
                "DRV_UNSUPPORTED_OS", "The driver 'nonsense' is not supported on linux/amd64"
            ),
            "two-running.docker-env": minikube.Reason(
                "ENV_MULTINODE_CONFLICT",
                "The docker-env command is incompatible with multi-node clusters. Use the 'registry' add-on:"
                " https://minikube.sigs.k8s.io/docs/handbook/registry/",
            ),
        }[name]
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DRV_AS_ROOT", "cluster_minikube_force=true"),
        ("DRV_UNSUPPORTED_OS", "cluster_minikube_driver"),
        ("DRV_UNSUPPORTED_MULTINODE", "cluster_node_count=1"),
        ("DRV_NOT_DETECTED", "Install Docker"),
        ("PROVIDER_DOCKER_NOT_RUNNING", "Install or start"),
        ("PROVIDER_KVM2_NOT_FOUND", "Install or start"),
        ("RSRC_INSUFFICIENT_REQ_MEMORY", "cluster_minikube_memory"),
        ("RSRC_INSUFFICIENT_CONTAINER_MEMORY", "cluster_minikube_memory"),
        ("RSRC_DOCKER_MEMORY", "cluster_minikube_memory"),
        ("RSRC_INSUFFICIENT_CORES", "cluster_minikube_cpus"),
        ("RSRC_DOCKER_STORAGE", "Free space"),
        ("K8S_DOWNGRADE_UNSUPPORTED", "cluster_minikube_kubernetes_version"),
        ("INET_REPOS_UNAVAILABLE", "HTTPS_PROXY"),
        ("GUEST_PROVISION", "Minikube advises: Turn it off and on."),
    ],
)
def test_a_reason_comes_with_the_next_thing_to_do(name: str, words: str) -> None:
    assert words in minikube.next_step(minikube.Reason(name, "", "Turn it off and on."))


# -- the module with the stand-in -------------------------------------------------------------------------------------


class Bench:
    """A stand-in, and the way to give it to the module."""

    def __init__(self, folder: Path, double: Double, kubectl: str) -> None:
        self.folder, self.double, self.kubectl = folder, double, kubectl
        self.kubeconfig = folder / "work/kubeconfig"
        self.work = folder / "work/minikube"

    def arguments(self, **more: Any) -> dict[str, Any]:
        return {
            "profile": PROFILE,
            "minikube": str(self.double.program),
            "kubectl": self.kubectl,
            "kubeconfig": str(self.kubeconfig),
            "work_dir": str(self.work),
            "ready_timeout": 20,
        } | more

    def play(self, **more: Any) -> dict[str, Any]:
        """What the module answers when Ansible runs it."""
        return run_module("minikube_cluster", self.arguments(**more), self.folder)

    def run(self, check: bool = False, state: str = "present", **more: Any) -> dict[str, Any]:
        """The same without the time that a start of Python takes."""
        timeout, ready_timeout = more.pop("timeout", 60), more.pop("ready_timeout", 20)
        programs = (str(self.double.program), self.kubectl)
        cluster = minikube.Cluster(asked(**more), *programs, self.kubeconfig, self.work, timeout, ready_timeout)
        try:
            answer: dict[str, Any] = minikube.run(cluster, state, wait=True, check_mode=check)
        except minikube.ClusterError as error:
            return {"failed": True, "msg": str(error)}
        return answer

    def by_hand(self, *commands: str) -> None:
        """What a user did before."""
        for command in commands:
            self.double.run(*command.split(), "-p", PROFILE)


START = "start --output=json --nodes=2 --container-runtime=docker --wait=all"


@pytest.fixture
def bench(tmp_path: Path, programs: dict[str, str]) -> Iterator[Bench]:
    with installed(tmp_path / "double") as double:
        yield Bench(tmp_path, double, programs["kubectl"])


#: What a user did by hand before, and the mutating calls that follow.
STATES: dict[str, tuple[list[str], list[str]]] = {
    "none": ([], ["start"]),
    "one node too few": ([START.replace("--nodes=2", "--nodes=1")], ["update-context", "node add"]),
    "running": ([START], ["update-context"]),
    "a node stopped": ([START, "node stop m02"], ["update-context", "node start m02"]),
    "all stopped": ([START, "stop"], ["start"]),
}


@pytest.mark.cluster
@pytest.mark.parametrize("state", STATES)
def test_from_each_state_two_nodes_are_ready_and_then_nothing_is_done(bench: Bench, state: str) -> None:
    before, calls = STATES[state]
    bench.by_hand(*before)

    dry = bench.run(check=True)
    assert (dry["changed"], bench.double.mutations()) == (True, [])
    assert not bench.work.exists()

    answer = bench.run()
    assert answer.get("changed"), answer
    assert (bench.double.mutations(), answer["actions"]) == (calls, dry["actions"])
    assert [(node["name"], node["ready"]) for node in answer["nodes"]] == [(PROFILE, True), (f"{PROFILE}-m02", True)]
    assert answer["nodes"][0]["memory_mib"] == 24684084 // 1024
    assert {call["kubeconfig"] for call in bench.double.calls()} == {str(bench.kubeconfig)}

    bench.double.forget()
    again = bench.run()
    assert (again["changed"], again["found"], again["actions"]) == (False, "running", [])
    assert (again["available"], bench.double.mutations()) == (True, [])
    assert bench.run(check=True)["changed"] is False


@pytest.mark.cluster
def test_a_running_cluster_is_never_started_again(bench: Bench) -> None:
    bench.by_hand(START)
    for more in ({}, {"nodes": 1}, {"nodes": 3}, {"memory": "8g"}):
        bench.run(**more)
    assert bench.double.store.read()["restarts"] == 0


@pytest.mark.cluster
def test_a_worker_that_the_api_server_still_calls_ready_is_started(bench: Bench) -> None:
    bench.run()
    bench.by_hand("node stop m02")
    answer = bench.run()
    assert (answer["found"], answer["actions"]) == ("node stopped", [f"Start the node {PROFILE}-m02"])


@pytest.mark.cluster
def test_our_context_is_the_current_one_of_our_kubeconfig(bench: Bench) -> None:
    bench.run()
    command = [bench.kubectl, f"--kubeconfig={bench.kubeconfig}", "config", "current-context"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{PROFILE}\n"


@pytest.mark.cluster
def test_a_kubeconfig_that_is_lost_is_written_again_without_a_start(bench: Bench) -> None:
    bench.run()
    bench.kubeconfig.unlink()
    bench.double.forget()
    assert bench.run()["changed"]
    assert bench.double.mutations() == ["update-context"]


#: Knobs of the stand-in, what is asked for, and what the sentence has to say.
FAILURES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "root": (
        {"root": True},
        {},
        [
            'minikube start failed: The "docker" driver should not be used with root privileges',
            "cluster_minikube_force",
        ],
    ),
    "unknown driver": (
        {},
        {"driver": "nonsense"},
        [
            "The driver 'nonsense' is not supported on linux/amd64 (DRV_UNSUPPORTED_OS, exit code 56).",
            "or leave it empty",
        ],
    ),
    "too little memory": (
        {},
        {"memory": "1g"},
        ["RSRC_INSUFFICIENT_REQ_MEMORY, exit code 23", "cluster_minikube_memory"],
    ),
    "docker does not run": (
        {
            "refuse": {
                "start": {"name": "PROVIDER_DOCKER_NOT_RUNNING", "message": "Cannot connect to Docker.", "code": 69},
            }
        },
        {},
        [
            "minikube start failed: Cannot connect to Docker (PROVIDER_DOCKER_NOT_RUNNING, exit code 69).",
            "Install or start",
        ],
    ),
    "a reason that nobody knows": ({"refuse": {"start": {"name": "", "message": "", "code": 1}}}, {}, ["exit code 1"]),
    "no list": (
        {"refuse": {"profile list": {"name": "HOST_HOME_PERMISSION", "message": "No permission.", "code": 37}}},
        {},
        ["minikube profile list -o json failed with exit code 37", "No permission."],
    ),
    "other runtime after all": (
        {"real_runtime": "containerd"},
        {},
        [f"The node {PROFILE} runs containerd://", "cluster_minikube_runtime asks for docker"],
    ),
}


@pytest.mark.cluster
@pytest.mark.parametrize("case", FAILURES)
def test_each_failure_gets_a_sentence_with_minikubes_reason(bench: Bench, case: str) -> None:
    knobs, more, words = FAILURES[case]
    bench.double.set(**knobs)
    answer = bench.run(**more)
    assert answer.get("failed"), answer
    assert not [word for word in words if word not in answer["msg"]], answer["msg"]
    assert "Traceback" not in answer["msg"]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("before", "command"),
    [
        ([START.replace("--nodes=2", "--nodes=1")], "node add"),
        ([START, "node stop m02"], "node start"),
        ([START, "stop"], "start"),
    ],
)
def test_a_step_that_fails_is_named(bench: Bench, before: list[str], command: str) -> None:
    bench.by_hand(*before)
    reason = {"name": "GUEST_NODE_START", "message": "no route to host", "code": 80, "advice": ""}
    bench.double.set(refuse={command: reason})
    assert f"minikube {command} failed: no route to host (GUEST_NODE_START, exit code 80)." in bench.run()["msg"]


@pytest.mark.cluster
def test_force_lets_root_start(bench: Bench) -> None:
    bench.double.set(root=True)
    assert bench.run(force=True)["available"]


@pytest.mark.cluster
def test_nodes_that_do_not_become_ready_are_named(bench: Bench) -> None:
    bench.by_hand(START.replace(" --wait=all", ""))
    answer = bench.run(ready_timeout=1)
    assert f"{PROFILE} is Ready, {PROFILE}-m02 is not Ready. minikube logs -p {PROFILE} says more" in answer["msg"]


@pytest.mark.cluster
def test_a_start_that_takes_too_long_is_ended(bench: Bench) -> None:
    bench.double.set(pause_after=8)
    answer = bench.run(timeout=2)
    assert "minikube start was not done within 2 s (cluster_minikube_timeout) and was ended" in answer["msg"]


def next_lines(bench: Bench, first: int) -> Iterator[dict[str, Any]]:
    """What the module minikube_progress answers, to the end."""
    for line in range(first, 1000):
        answer = progress.wait_for(bench.work, line)
        yield answer
        if answer["finished"]:
            return


@pytest.mark.cluster
def test_progress_is_there_while_minikube_works(bench: Bench) -> None:
    bench.double.set(pause_after=15)
    answer = bench.play(wait=False)
    assert (answer["changed"], answer["running"], answer["available"]) == (True, True, False)

    lines = next_lines(bench, 0)
    assert next(lines)["text"] == "Create the cluster"
    # The last one that Minikube prints before it pauses.
    assert any("node 1 of 2, step 8 of 19: Creating docker container" in answer["text"] for answer in lines)
    # Another run does not begin anything: it follows.
    assert bench.play(wait=False)["found"] == "busy"

    (bench.double.store.folder / "go-on").touch()
    rest = list(lines)
    assert "node 2 of 2, step 8 of 19" in " ".join(answer["text"] for answer in rest)
    assert rest[-1] == {"text": "ready", "finished": True, "failure": ""}
    assert bench.double.mutations() == ["start"]
    assert bench.run()["changed"] is True  # the current context, which Minikube leaves alone
    assert bench.run()["changed"] is False


@pytest.mark.cluster
def test_a_failure_in_the_background_is_told(bench: Bench) -> None:
    bench.double.set(root=True)
    bench.play(wait=False)
    *_, last = next_lines(bench, 0)
    assert last["finished"]
    assert "DRV_AS_ROOT" in last["failure"]


@pytest.mark.cluster
def test_a_removal_ends_what_goes_on_in_the_background(bench: Bench) -> None:
    bench.double.set(pause_after=8)
    bench.play(wait=False)
    assert next(next_lines(bench, 0))["text"] == "Create the cluster"
    answer = bench.run(state="absent")
    assert not answer.get("failed"), answer
    assert progress.wait_for(bench.work, 1000)["failure"] == "Minikube was ended before it was done: run this again."
    assert PROFILE not in bench.double.store.read()["profiles"]


@pytest.mark.cluster
def test_a_removal_is_of_this_profile_and_fine_twice(bench: Bench) -> None:
    bench.double.run("start", "--output=json", "-p", "other")
    bench.run()
    assert (bench.run(check=True, state="absent")["changed"], bench.double.mutations()) == (True, ["start"])
    assert bench.run(state="absent")["changed"] is True
    assert bench.run(state="absent")["changed"] is False
    assert list(bench.double.store.read()["profiles"]) == ["other"]


@pytest.mark.cluster
def test_a_profile_that_minikube_can_not_read_is_removed(bench: Bench) -> None:
    bench.double.set(invalid=[PROFILE])
    assert bench.run(state="absent")["changed"]
    assert bench.double.store.read()["invalid"] == []


@pytest.mark.cluster
def test_a_removal_that_fails_is_said(bench: Bench) -> None:
    bench.run()
    bench.double.set(refuse={"delete": {"name": "GUEST_DELETION", "message": "in use", "code": 80}})
    message = bench.run(state="absent")["msg"]
    assert f"{PROFILE} could not be deleted (exit code 80). It says: X Exiting due to GUEST_DELETION: in use" in message


def test_a_removal_without_minikube_is_fine_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIKUBE_HOME", str(tmp_path))
    given = {"profile": PROFILE, "state": "absent", "minikube": "", "kubeconfig": "/k", "work_dir": str(tmp_path / "w")}
    assert run_module("minikube_cluster", given, tmp_path)["changed"] is False
    (tmp_path / ".minikube/profiles" / PROFILE).mkdir(parents=True)
    answer = run_module("minikube_cluster", given, tmp_path)
    assert "is still there" in answer["msg"]
    assert "there is no minikube to delete it: install it" in answer["msg"]


# -- the driver that auto looks for -----------------------------------------------------------------------------------


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes programs that do this, on a PATH with nothing else."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    shell = shutil.which("sh", path="/bin:/usr/bin")

    def make(name: str, body: str) -> None:
        (folder / name).write_text(f"#!{shell}\n{body}\n")
        (folder / name).chmod(0o755)

    return make


def test_a_container_engine_has_to_answer(on_path: Callable[[str, str], None]) -> None:
    assert drivers.find("docker", False, 5, root=False) == ("", "there is no docker")
    on_path("docker", "echo 28.0.1")
    assert drivers.find("", False, 5, root=False) == ("docker", "")
    on_path("docker", "echo; exit 0")
    assert drivers.find("docker", False, 5, root=False) == ("", "docker does not answer")
    on_path("docker", "exec /bin/sleep 60")
    assert drivers.find("docker", False, 0.2, root=False) == ("", "docker does not answer within 0 s")
    on_path("VBoxManage", "")
    assert drivers.find("", False, 0.2, root=False) == ("virtualbox", "")


def test_root_needs_force(on_path: Callable[[str, str], None]) -> None:
    on_path("docker", "echo 28.0.1")
    driver, reason = drivers.find("", False, 5, root=True)
    assert (driver, "cluster_minikube_force" in reason) == ("", True)
    assert drivers.find("", True, 5, root=True) == ("docker", "")
