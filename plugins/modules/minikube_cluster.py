#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bring up, repair and remove one Minikube profile, and do nothing to it when it is as asked.

A module and not a list of tasks, because `minikube start` is not idempotent: on a cluster that runs it restarts every
container, on one with other nodes or memory than asked it only warns, and it exits 0 while a worker is not ready. So
the state is read first, from Minikube and from the API server, and only what is missing is done.

It touches the one profile that it is given, the kubeconfig that it is given and its work folder. Every call of Minikube
has that kubeconfig as KUBECONFIG: deleting a profile unsets the current context of whatever file it finds there.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: minikube_cluster
short_description: Bring up, repair or remove a Minikube profile
version_added: 0.1.0
description:
  - Brings a profile from any state to the wanted number of Ready nodes, with the fewest commands that do it, and runs
    none where that is so already.
  - A profile with another driver, container runtime or Kubernetes version than asked is refused, never deleted. Nodes
    above the wanted number are left.
options:
  profile:
    description: Name of the profile; also that of the context in the kubeconfig.
    type: str
    required: true
  state:
    description:
      - V(present) makes sure that the nodes run and are ready.
      - V(absent) deletes the profile.
    type: str
    choices: [present, absent]
    default: present
  minikube:
    description: Path of minikube.
    type: path
    required: true
  kubectl:
    description: Path of kubectl. Needed when O(state=present).
    type: path
  kubeconfig:
    description: The kubeconfig that Minikube writes to, in place of the user's.
    type: path
    required: true
  work_dir:
    description: Folder for the lock, the progress and the log of Minikube.
    type: path
    required: true
  nodes:
    description: The number of nodes, the control plane included.
    type: int
    default: 2
  driver:
    description: Minikube's driver. Minikube chooses if empty.
    type: str
    default: ''
  runtime:
    description: The container runtime in the nodes.
    type: str
    choices: [docker, containerd, cri-o]
    default: docker
  kubernetes_version:
    description: The version of Kubernetes. Minikube chooses if empty.
    type: str
    default: ''
  memory:
    description:
      - Memory of each node, as Minikube takes it. Minikube chooses if empty; has no effect on a profile that exists.
    type: str
    default: ''
  cpus:
    description: Processors of each node. Minikube chooses if empty; has no effect on a profile that exists.
    type: str
    default: ''
  base_image:
    description: Image of the nodes' containers. Minikube chooses if empty.
    type: str
    default: ''
  force:
    description: Whether Minikube may do what it warns against, which it needs for its nodes to run as root.
    type: bool
    default: false
  extra_args:
    description: More arguments for C(minikube start).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that one command of Minikube may take, its downloads included.
    type: int
    default: 1800
  ready_timeout:
    description: Seconds that the nodes may take to be Ready once Minikube is done.
    type: int
    default: 120
  wait:
    description:
      - Whether to be done when the module returns. If not, what takes long goes on in the background, and
        M(turb.kub.minikube_progress) tells how far it is.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Says what would be done. Minikube and the API server are only asked.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Two nodes with Docker in them
  turb.kub.minikube_cluster:
    profile: demo
    minikube: /usr/local/bin/minikube
    kubectl: /usr/local/bin/kubectl
    kubeconfig: /home/me/.local/state/turb-kub/demo/kubeconfig
    work_dir: /home/me/.local/state/turb-kub/demo/minikube

- name: Delete them
  turb.kub.minikube_cluster:
    profile: demo
    state: absent
    minikube: /usr/local/bin/minikube
    kubeconfig: /home/me/.local/state/turb-kub/demo/kubeconfig
    work_dir: /home/me/.local/state/turb-kub/demo/minikube
"""

RETURN = r"""
found:
  description: What was there before the module ran.
  type: str
  returned: success
  sample: stopped
actions:
  description: What was done, is being done in the background, or would be done in check mode.
  type: list
  elements: str
  returned: success
running:
  description: Whether it goes on in the background.
  type: bool
  returned: success
available:
  description: Whether the API server answers and the nodes are ready.
  type: bool
  returned: success
nodes:
  description:
    - Each node of the profile, with C(name), C(ready), C(runtime), C(kubernetes_version) and C(memory_mib), the memory
      that it advertises. Empty before the nodes are there.
  type: list
  elements: dict
  returned: success
config:
  description:
    - C(driver), C(runtime), C(kubernetes_version) and C(memory_mib) of the profile; the last is what each node may use,
      0 where that has no limit.
  type: dict
  returned: success
host_memory_mib:
  description: Memory of this machine.
  type: int
  returned: success
notes:
  description: What differs from what was asked and was left as it is.
  type: list
  elements: str
  returned: success
"""

import json
import os
import re
import signal
import subprocess
import threading
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.common.yaml import HAS_YAML, yaml_load

try:
    from ansible_collections.turb.kub.plugins.module_utils.cluster_lock import ClusterError, is_locked, locked
except ImportError:  # in a checkout, where the role brings it
    from ansible.module_utils.cluster_lock import ClusterError, is_locked, locked

POLL = 0.5
LOG_LINES = 12
#: Minikube's code for a node that is as it should be; it uses HTTP's and its own beyond them (405 stopped, 418 paused).
OK = 200
#: Exit codes of `minikube status`: the sum of 1 (host), 2 (cluster) and 4 (Kubernetes) for what does not run.
STATUS_BITS = range(8)
#: Seconds that a question to Minikube may take: it asks each node by SSH, and one that hangs is waited for.
ASKING = 120
CONTAINER_DRIVERS = ("docker", "podman")


class Asked(t.NamedTuple):
    """What the profile is to be like; an empty text leaves a choice to Minikube."""

    profile: str
    nodes: int
    driver: str = ""
    runtime: str = "docker"
    kubernetes_version: str = ""
    memory: str = ""
    cpus: str = ""
    base_image: str = ""
    force: bool = False
    extra_args: tuple[str, ...] = ()


class Found(t.NamedTuple):
    """What Minikube says of the profile."""

    #: The configuration as `profile list` shows it; None where there is no profile.
    config: dict[str, t.Any] | None = None
    #: Whether the profile is one that Minikube itself can't read.
    invalid: bool = False
    #: The state of each node, by the name of its machine, in Minikube's words; "OK" if it runs with its kubelet.
    states: t.Mapping[str, str] = {}
    #: Whether the kubeconfig has a context that leads to the API server.
    context: bool = False


class Action(t.NamedTuple):
    """One command of Minikube."""

    title: str
    arguments: tuple[str, ...]


class Plan(t.NamedTuple):
    """What was found and what is to be done."""

    found: str
    actions: tuple[Action, ...] = ()
    notes: tuple[str, ...] = ()


# -- what is to be done ---------------------------------------------------------------------------------------------


def machine_name(profile: str, node: dict[str, t.Any]) -> str:
    """Return the name of a node of the configuration, as the API server and Minikube's status have it."""
    name = str(node.get("Name") or "")
    return f"{profile}-{name}" if name else profile


def wanted_names(config: dict[str, t.Any], asked: Asked) -> list[str]:
    """Return the names of the nodes that have to run: the first ones, as many as are asked for."""
    return [machine_name(asked.profile, node) for node in config.get("Nodes") or ()][: asked.nodes]


def mebibytes(text: str) -> int | None:
    """Return Minikube's amount of memory in MiB, or None for one that is not a number, such as ``max``."""
    match = re.fullmatch(r"(\d+)\s*(m|mb|g|gb)?", text.strip().lower())
    if not match:
        return None
    return int(match[1]) * (1024 if (match[2] or "m").startswith("g") else 1)


def differences(config: dict[str, t.Any], asked: Asked) -> list[str]:
    """Return what can't be changed on a profile that exists and is not as asked."""
    kubernetes = config.get("KubernetesConfig") or {}
    version = asked.kubernetes_version.removeprefix("v")
    pairs = [
        ("driver", config.get("Driver", ""), asked.driver, "cluster_minikube_driver"),
        ("runtime", kubernetes.get("ContainerRuntime") or "docker", asked.runtime, "cluster_minikube_runtime"),
        (
            "Kubernetes",
            str(kubernetes.get("KubernetesVersion", "")).removeprefix("v"),
            # Words such as `stable` name another version each month.
            version if re.match(r"\d+\.\d+\.\d+", version) else "",
            "cluster_minikube_kubernetes_version",
        ),
    ]
    return [
        f"{what} {there} ({knob} asks for {wanted})"
        for what, there, wanted, knob in pairs
        if wanted and there != wanted
    ]


def left_alone(config: dict[str, t.Any], asked: Asked) -> list[str]:
    """Return what is not as asked and stays so."""
    notes = []
    there = len(config.get("Nodes") or ())
    if there > asked.nodes:
        notes.append(f"The profile has {there} nodes, cluster_node_count asks for {asked.nodes}: the others are left.")
    memory = mebibytes(asked.memory)
    if memory is not None and memory != config.get("Memory"):
        notes.append(
            f"Each node has {config.get('Memory')} MiB, cluster_minikube_memory asks for {asked.memory}: that counts"
            " only for a new profile, after make down."
        )
    if asked.cpus.isdigit() and int(asked.cpus) != config.get("CPUs"):
        notes.append(
            f"Each node has {config.get('CPUs')} CPUs, cluster_minikube_cpus asks for {asked.cpus}: that counts only"
            " for a new profile, after make down."
        )
    return notes


def start(asked: Asked, title: str, nodes: int, new: bool) -> Action:
    """Return `minikube start` for a new profile, or for one that exists, whose size it can't change."""
    arguments = [
        "start",
        f"--nodes={nodes}",
        f"--container-runtime={asked.runtime}",
        "--wait=all",
        "--output=json",
        "--keep-context",
        "--interactive=false",
    ]
    knobs = [("driver", asked.driver), ("kubernetes-version", asked.kubernetes_version)]
    if new:
        knobs += [("memory", asked.memory), ("cpus", asked.cpus), ("base-image", asked.base_image)]
    arguments += [f"--{name}={value}" for name, value in knobs if value]
    if asked.force:
        arguments.append("--force")
    return Action(title, (*arguments, *asked.extra_args))


def decide(found: Found, asked: Asked) -> Plan:
    """Return what leads from what is there to the nodes that are asked for; ClusterError where nothing does."""
    if found.invalid:
        raise ClusterError(
            f"Minikube can't read its profile {asked.profile}: remove it with make down, or with minikube delete -p"
            f" {asked.profile}, and try again."
        )
    config = found.config
    if config is None:
        return Plan("absent", (start(asked, "Create the cluster", asked.nodes, new=True),))
    if different := differences(config, asked):
        raise ClusterError(
            f"The Minikube profile {asked.profile} exists with {' and with '.join(different)}, and that can't be"
            " changed: remove the cluster with make down, or change the knob."
        )
    nodes = {machine_name(asked.profile, node): node for node in config.get("Nodes") or ()}
    down = [name for name in wanted_names(config, asked) if found.states.get(name) != "OK"]
    primary = next((name for name, node in nodes.items() if node.get("ControlPlane")), asked.profile)
    actions = []
    if primary in down or not nodes:
        actions.append(start(asked, "Start the cluster", max(len(nodes), 1), new=False))
        words = "stopped" if all(found.states.get(name) != "OK" for name in nodes) else "control plane stopped"
    else:
        if not found.context:
            actions.append(Action("Write the kubeconfig", ("update-context",)))
        actions += [Action(f"Start the node {name}", ("node", "start", str(nodes[name]["Name"]))) for name in down]
        words = "node stopped" if down else "running"
    missing = asked.nodes - len(nodes)
    if missing > 0:
        actions += [Action("Add a node", ("node", "add"))] * missing
        words = "too few nodes" if words == "running" else f"{words}, too few nodes"
    return Plan(words, tuple(actions), tuple(left_alone(config, asked)))


# -- what Minikube says ---------------------------------------------------------------------------------------------


class Reason(t.NamedTuple):
    """Why a command of Minikube failed, in its own words."""

    name: str = ""
    message: str = ""
    advice: str = ""


class Teller:
    """Turns what a command of Minikube prints into lines for the user, and keeps the reason of a failure.

    `minikube start --output=json` prints one CloudEvent a line. Its steps are counted anew for each node, from the one
    at which a machine is started, so each line says which node it is about.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.node = 0
        self.downloads: dict[str, int] = {}
        self.reason = Reason()

    def tell(self, line: str) -> str:
        """Return what a line of output is to the user; empty if it is nothing."""
        try:
            event = json.loads(line) if line.startswith("{") else None
        except ValueError:
            event = None
        if isinstance(event, dict) and isinstance(event.get("data"), dict):
            return self.event(str(event.get("type", "")).rpartition("sigs.minikube.")[2], event["data"])
        return self.text(line.strip())

    def event(self, kind: str, data: dict[str, t.Any]) -> str:
        """Return the line for one event."""
        message = " ".join(str(data.get("message") or "").split())
        if kind == "step":
            name = data.get("name")
            self.node += name == "Starting Node"
            what = f"step {data.get('currentstep')} of {data.get('totalsteps')}"
            if name == "Done":
                return f"{what}: done"
            return f"{self.about()}{what}: {message}"
        if kind == "download.progress":
            return self.download(str(data.get("artifact")), str(data.get("progress")))
        if kind == "error" and data.get("exitcode"):
            advice = " ".join(str(data.get("advice") or "").split())
            self.reason = Reason(str(data.get("name") or ""), message, advice)
            return ""
        return f"Minikube says: {message}" if kind in ("warning", "error") and message else ""

    def about(self) -> str:
        """Return the beginning of a line about one node of several."""
        return f"node {self.node} of {self.nodes}, " if self.node and self.nodes > 1 else ""

    def download(self, artifact: str, progress: str) -> str:
        """Return a line for each quarter of a download."""
        try:
            quarter = int(float(progress) * 4)
        except ValueError:
            return ""
        if quarter <= self.downloads.get(artifact, 0):
            return ""
        self.downloads[artifact] = quarter
        return f"{self.about()}downloaded {min(quarter * 25, 100)}% of {os.path.basename(artifact)}"

    def text(self, line: str) -> str:
        """Return a line of the commands that print no events: they begin what they do with an asterisk."""
        if match := re.match(r"(?:X|\S*) ?Exiting due to ([A-Z][A-Z0-9_]+): (.*)", line):
            self.reason = Reason(match[1], match[2])
        return line[2:].strip() if line.startswith("* ") else ""


#: What to do next, by the beginning of Minikube's name for the reason; the first that fits.
NEXT = (
    (
        "DRV_AS_ROOT",
        "Run this as an ordinary user, or set cluster_minikube_force=true if it has to be root: Minikube then skips its"
        " own checks, and its nodes are root's.",
    ),
    ("DRV_UNSUPPORTED_MULTINODE", "Choose another driver with cluster_minikube_driver, or set cluster_node_count=1."),
    ("DRV_UNSUPPORTED", "Set cluster_minikube_driver to a driver for this system, or leave it empty."),
    ("DRV_NOT_DETECTED", "Install Docker or a driver for virtual machines, or start it, and try again."),
    ("DRV_NOT_FOUND", "Install what the driver needs, or choose another one with cluster_minikube_driver."),
    ("DRV_NEEDS_ROOT", "Choose another driver with cluster_minikube_driver."),
    ("PROVIDER_", "Install or start what the driver needs, or choose another one with cluster_minikube_driver."),
    (
        "RSRC_INSUFFICIENT_CORES",
        "Set cluster_minikube_cpus to what this machine can give, or give its container engine more.",
    ),
    ("RSRC_DOCKER_CORES", "Give Docker more CPUs, or set cluster_minikube_cpus."),
    (
        r"RSRC_(INSUFFICIENT_\w*MEMORY|DOCKER_MEMORY|OVER_ALLOC_MEM)",
        "Set cluster_minikube_memory to what this machine can give each node (Minikube's least is 1800m), or give its"
        " container engine more.",
    ),
    (r"RSRC_\w*STORAGE", "Free space on the disk that the container engine or Minikube uses, and try again."),
    (r"K8S_(DOWNGRADE|OLD|INVALID|NEW)", "Change cluster_minikube_kubernetes_version, or leave it empty."),
    ("GUEST_DRIVER_MISMATCH", "Change cluster_minikube_driver, or remove the cluster with make down."),
    ("INET_", "Minikube needs the network for its first start; behind a proxy set HTTPS_PROXY and NO_PROXY."),
    ("MK_USAGE", "Look at cluster_minikube_extra_args and the other cluster_minikube_ knobs."),
)


def next_step(reason: Reason) -> str:
    """Return what the user can do about a reason: ours where knobs of ours help, else what Minikube advises."""
    for pattern, text in NEXT:
        if re.match(pattern, reason.name):
            return text
    return reason.advice and f"Minikube advises: {reason.advice}"


# -- the profile ----------------------------------------------------------------------------------------------------


def first_lines(text: str) -> str:
    """Return the beginning of an output, without Minikube's frame of links."""
    lines = [line.strip(" *│╭╮╰╯─") for line in text.splitlines()]
    return " ".join([line for line in lines if line][:3]) or "nothing"


class Cluster:
    """One profile of Minikube."""

    def __init__(
        self,
        asked: Asked,
        minikube: str,
        kubectl: str,
        kubeconfig: Path,
        work_dir: Path,
        timeout: float = 1800,
        ready_timeout: float = 120,
    ) -> None:
        self.asked = asked
        self.minikube = minikube
        self.kubectl = kubectl
        self.kubeconfig = kubeconfig
        self.work_dir = work_dir
        self.timeout = timeout
        self.ready_timeout = ready_timeout
        self.log = work_dir / "minikube.log"
        self.progress = work_dir / "progress"
        self.outcome = work_dir / "outcome.json"

    # what is there

    def environment(self) -> dict[str, str]:
        """Return the environment for Minikube: the user's, but with our kubeconfig and output made for programs."""
        return {name: value for name, value in os.environ.items() if name != "LANGUAGE"} | {
            "KUBECONFIG": str(self.kubeconfig),
            "MINIKUBE_IN_STYLE": "false",
            "MINIKUBE_WANTUPDATENOTIFICATION": "false",
            # Minikube speaks the user's language otherwise.
            "LC_ALL": "C",
        }

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Minikube that changes nothing."""
        command = [self.minikube, *arguments]
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ASKING,
                env=self.environment(),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{' '.join(command)} does not answer within {ASKING} s.") from error

    def answer(self, good: t.Container[int], *arguments: str) -> dict[str, t.Any]:
        """Return the JSON object that a command of Minikube prints."""
        process = self.ask(*arguments)
        try:
            answer = json.loads(process.stdout)
        except ValueError:
            answer = None
        if process.returncode not in good or not isinstance(answer, dict):
            said = first_lines(process.stderr or process.stdout)
            raise ClusterError(
                f"minikube {' '.join(arguments)} failed with exit code {process.returncode}. It says: {said}"
            )
        return answer

    def listed(self) -> tuple[dict[str, t.Any] | None, bool]:
        """Return the configuration of the profile, None where there is none, and whether Minikube can't read it."""
        profiles = self.answer((0,), "profile", "list", "-o", "json")
        for profile in profiles.get("valid") or ():
            if profile.get("Name") == self.asked.profile:
                return profile.get("Config") or {}, False
        return None, any(profile.get("Name") == self.asked.profile for profile in profiles.get("invalid") or ())

    def states(self) -> tuple[dict[str, str], bool]:
        """Return the state of each node by name, and whether Minikube calls the kubeconfig good."""
        status = self.answer(STATUS_BITS, "status", "-o", "json", "--layout=cluster", "-p", self.asked.profile)
        states = {}
        for node in status.get("Nodes") or ():
            parts = [node, *(node.get("Components") or {}).values()]
            wrong = [part for part in parts if part.get("StatusCode") != OK]
            states[str(node.get("Name"))] = str(wrong[0].get("StatusName")) if wrong else "OK"
        kubeconfig = (status.get("Components") or {}).get("kubeconfig") or {}
        return states, kubeconfig.get("StatusCode") == OK

    def read_kubeconfig(self) -> dict[str, t.Any]:
        """Return what the kubeconfig says; nothing where it is missing or no kubeconfig."""
        try:
            data = yaml_load(self.kubeconfig.read_text())
        except Exception:  # a broken file can fail in any way, and is written anew
            return {}
        return data if isinstance(data, dict) else {}

    def survey(self) -> Found:
        """Return what is there."""
        config, invalid = self.listed()
        if config is None:
            return Found(invalid=invalid)
        states, good = self.states()
        names = [context.get("name") for context in self.read_kubeconfig().get("contexts") or ()]
        return Found(config, False, states, good and self.asked.profile in names)

    def run_kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run kubectl with our kubeconfig."""
        command = [self.kubectl, f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            # Its discovery cache goes into our folder, and the user's settings of kubectl have no say.
            env=os.environ | {"HOME": str(self.work_dir), "KUBECONFIG": str(self.kubeconfig)},
            check=False,
        )

    def nodes(self) -> list[dict[str, t.Any]]:
        """Return the nodes as the API server has them; none where it does not answer."""
        if not self.kubeconfig.is_file():
            return []
        arguments = ("get", "nodes", "-o", "json", "--request-timeout=10s", f"--context={self.asked.profile}")
        try:
            process = self.run_kubectl(*arguments)
            items = json.loads(process.stdout)["items"] if process.returncode == 0 else []
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            items = []
        return [describe(node) for node in items]

    # what is done

    def present(self, check_mode: bool, wait: bool) -> dict[str, t.Any]:
        """Make sure that the nodes run; return the module's result."""
        found = self.survey()
        plan = decide(found, self.asked)
        changed = bool(plan.actions)
        running = changed and not wait and not check_mode
        nodes: list[dict[str, t.Any]] = []
        if running:
            self.in_background(plan)
        elif check_mode:
            nodes = self.nodes()
        else:
            if changed:
                self.prepare()
                self.act(plan)
                found = self.survey()
            nodes = self.wait_until_ready(found.config or {})
            changed = self.set_current_context() or changed
            self.check_runtime(nodes)
        return {
            "changed": changed,
            "found": plan.found,
            "actions": [action.title for action in plan.actions],
            "running": running,
            "available": bool(nodes) and all(node["ready"] for node in nodes),
            "nodes": nodes,
            "config": summary(found.config),
            "host_memory_mib": host_memory(),
            "notes": list(plan.notes),
        }

    def prepare(self) -> None:
        """Forget what was said about an earlier attempt."""
        self.outcome.unlink(missing_ok=True)
        self.progress.write_text("")
        self.log.write_text("")

    def say(self, line: str) -> None:
        """Write one line for who follows."""
        with self.progress.open("a") as file:
            file.write(f"{line}\n")

    def act(self, plan: Plan) -> None:
        """Run the commands of the plan."""
        for number, action in enumerate(plan.actions, 1):
            count = f" ({number} of {len(plan.actions)})" if len(plan.actions) > 1 else ""
            self.say(f"{action.title}{count}")
            self.command(action)

    def command(self, action: Action) -> None:
        """Run one command of Minikube, and tell what it says while it does."""
        teller = Teller(self.asked.nodes)
        command = [self.minikube, *action.arguments, "-p", self.asked.profile]
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=self.environment(),
            )
            timer = threading.Timer(self.timeout, process.kill)
            timer.start()
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    log.write(line)
                    if text := teller.tell(line):
                        self.say(text)
                code = process.wait()
                in_time = timer.is_alive()
            finally:
                timer.cancel()
                process.stdout.close()
        if code == 0:
            return
        what = f"minikube {' '.join(action.arguments[:2] if action.arguments[0] == 'node' else action.arguments[:1])}"
        if not in_time:
            raise ClusterError(
                f"{what} was not done within {self.timeout:.0f} s (cluster_minikube_timeout) and was ended. What it"
                f" said is in {self.log}."
            )
        reason = teller.reason
        if not reason.message:
            lines = "\n".join(self.log.read_text(errors="replace").splitlines()[1:][-LOG_LINES:])
            raise ClusterError(f"{what} failed with exit code {code}. The last lines of {self.log}:\n{lines}")
        name = f"{reason.name}, " if reason.name else ""
        sentence = f"{what} failed: {reason.message.rstrip('.')} ({name}exit code {code})."
        raise ClusterError(" ".join(filter(None, (sentence, next_step(reason), f"All that it said is in {self.log}."))))

    def wait_until_ready(self, config: dict[str, t.Any]) -> list[dict[str, t.Any]]:
        """Wait until the API server calls the wanted nodes of this configuration Ready; return all that it has.

        What the API server says of a node that was just stopped is true again only after 40 s. Such a node is started
        before anybody waits here.
        """
        deadline = time.monotonic() + self.ready_timeout
        wanted = wanted_names(config, self.asked)
        while True:
            nodes = self.nodes()
            ready = {node["name"] for node in nodes if node["ready"]}
            if len(wanted) == self.asked.nodes and ready.issuperset(wanted):
                return nodes
            if time.monotonic() > deadline:
                break
            time.sleep(POLL)
        states = [f"{name} is {'Ready' if name in ready else 'not Ready'}" for name in wanted]
        raise ClusterError(
            f"The nodes of {self.asked.profile} are not ready in time (cluster_start_timeout):"
            f" {', '.join(states) if nodes else 'the API server does not answer'}. minikube logs -p"
            f" {self.asked.profile} says more; make down and make up set the cluster up again."
        )

    def check_runtime(self, nodes: list[dict[str, t.Any]]) -> None:
        """Raise ClusterError for a node with another container runtime than asked."""
        other = [node for node in nodes if not node["runtime"].startswith(f"{self.asked.runtime}://")]
        if other:
            raise ClusterError(
                f"The node {other[0]['name']} runs {other[0]['runtime']}, cluster_minikube_runtime asks for"
                f" {self.asked.runtime}: change the knob, or remove the cluster with make down and set it up again."
            )

    def set_current_context(self) -> bool:
        """Make our context the current one of our kubeconfig; return whether it was not."""
        if self.read_kubeconfig().get("current-context") == self.asked.profile:
            return False
        process = self.run_kubectl("config", "use-context", self.asked.profile)
        if process.returncode != 0:
            raise ClusterError(f"{self.kubeconfig} could not be written: {first_lines(process.stderr)}")
        return True

    def in_background(self, plan: Plan) -> None:
        """Go on in a process of its own, which holds the lock until it is done and then leaves its outcome."""
        self.prepare()
        if os.fork():
            return
        code = 1
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            failure = ""
            (self.work_dir / "pid").write_text(f"{os.getpid()}\n")
            try:
                self.act(plan)
                self.say("Wait until the nodes are ready")
                self.wait_until_ready(self.listed()[0] or {})
            except ClusterError as error:
                failure = str(error)
            except OSError as error:
                failure = f"{error.filename or self.work_dir}: {error.strerror}."
            temporary = self.outcome.with_suffix(".new")
            temporary.write_text(json.dumps({"failure": failure}))
            temporary.replace(self.outcome)
            code = 0
        finally:
            # Not by an exception: this process must not go on with what its parent does.
            os._exit(code)

    def end_background(self) -> None:
        """End what an earlier run left working in the background; only who holds the lock is one."""
        try:
            pid = int((self.work_dir / "pid").read_text())
            if os.getsid(pid) == pid and is_locked(self.work_dir):
                os.killpg(pid, signal.SIGKILL)
        except (OSError, ValueError):
            return

    def absent(self, check_mode: bool) -> dict[str, t.Any]:
        """Make sure that the profile is gone; return the module's result."""
        config, invalid = self.listed()
        there = config is not None or invalid
        if not check_mode:
            # Also where none is listed: it removes what a broken-off creation left.
            process = subprocess.run(
                [self.minikube, "delete", "-p", self.asked.profile],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout,
                env=self.environment(),
                check=False,
            )
            if process.returncode != 0 or self.listed() != (None, False):
                said = first_lines(process.stderr or process.stdout)
                raise ClusterError(
                    f"The Minikube profile {self.asked.profile} could not be deleted (exit code"
                    f" {process.returncode}). It says: {said}"
                )
        return removed("present" if there else "absent", there)


def removed(found: str, changed: bool) -> dict[str, t.Any]:
    """Return the module's result for a profile that is gone."""
    actions = ["Delete the profile"] if changed else []
    return {"changed": changed, "found": found, "actions": actions, "running": False, "available": False, "nodes": []}


def describe(node: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what matters of a node of the API server."""
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    conditions = {entry.get("type"): entry.get("status") for entry in status.get("conditions") or ()}
    memory = re.fullmatch(r"(\d+)Ki", str((status.get("capacity") or {}).get("memory", "")))
    return {
        "name": node["metadata"]["name"],
        "ready": conditions.get("Ready") == "True",
        "runtime": str(info.get("containerRuntimeVersion", "")),
        "kubernetes_version": str(info.get("kubeletVersion", "")),
        "memory_mib": int(memory[1]) // 1024 if memory else 0,
    }


def summary(config: dict[str, t.Any] | None) -> dict[str, t.Any]:
    """Return what matters of a profile's configuration."""
    config = config or {}
    kubernetes = config.get("KubernetesConfig") or {}
    return {
        "driver": config.get("Driver", ""),
        "runtime": kubernetes.get("ContainerRuntime", ""),
        "kubernetes_version": kubernetes.get("KubernetesVersion", ""),
        "memory_mib": config.get("Memory") or 0,
    }


def host_memory() -> int:
    """Return the memory of this machine in MiB; 0 where it does not say."""
    try:
        return int(re.findall(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())[0]) // 1024
    except (OSError, IndexError):
        return 0


def profile_folder(profile: str) -> Path:
    """Return where Minikube keeps a profile."""
    home = Path(os.environ.get("MINIKUBE_HOME") or Path.home())
    return (home if home.name == ".minikube" else home / ".minikube") / "profiles" / profile


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "profile": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "minikube": {"type": "path", "required": True},
            "kubectl": {"type": "path"},
            "kubeconfig": {"type": "path", "required": True},
            "work_dir": {"type": "path", "required": True},
            "nodes": {"type": "int", "default": 2},
            "driver": {"type": "str", "default": ""},
            "runtime": {"type": "str", "choices": ["docker", "containerd", "cri-o"], "default": "docker"},
            "kubernetes_version": {"type": "str", "default": ""},
            "memory": {"type": "str", "default": ""},
            "cpus": {"type": "str", "default": ""},
            "base_image": {"type": "str", "default": ""},
            "force": {"type": "bool", "default": False},
            "extra_args": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 1800},
            "ready_timeout": {"type": "int", "default": 120},
            "wait": {"type": "bool", "default": True},
        },
        required_if=[("state", "present", ["kubectl"])],
        supports_check_mode=True,
    )
    if not HAS_YAML:
        module.fail_json(msg=missing_required_lib("PyYAML"))
    params = module.params
    given = {name: params[name] for name in Asked._fields if name != "extra_args"}
    asked = Asked(**given, extra_args=tuple(params["extra_args"]))
    work_dir = Path(params["work_dir"])
    cluster = Cluster(
        asked,
        params["minikube"],
        params["kubectl"] or "",
        Path(params["kubeconfig"]),
        work_dir,
        params["timeout"],
        params["ready_timeout"],
    )
    try:
        module.exit_json(**run(cluster, params["state"], params["wait"], module.check_mode))
    except ClusterError as error:
        module.fail_json(msg=str(error))
    except subprocess.TimeoutExpired as error:
        module.fail_json(msg=f"{' '.join(map(str, error.cmd))} does not end within {error.timeout:.0f} s.")
    except OSError as error:
        module.fail_json(msg=f"{error.filename or work_dir}: {error.strerror}.")


def run(cluster: Cluster, state: str, wait: bool, check_mode: bool) -> dict[str, t.Any]:
    """Do what is asked; return the module's result."""
    there = os.access(cluster.minikube, os.X_OK)
    if state == "absent":
        if not there:
            folder = profile_folder(cluster.asked.profile)
            if folder.exists():
                raise ClusterError(
                    f"The Minikube profile {cluster.asked.profile} is still there ({folder}), but there is no minikube"
                    " to delete it: install it, or name one in cluster_programs, and try again."
                )
            return removed("absent", changed=False)
        if check_mode:
            return cluster.absent(check_mode=True)
        cluster.end_background()
        with locked(cluster.work_dir, cluster.timeout):
            return cluster.absent(check_mode=False)
    if check_mode:
        if not there:
            # It would be downloaded first.
            return {**removed("absent", changed=True), "actions": ["Create the cluster"], "config": summary(None)}
        return cluster.present(check_mode=True, wait=True)
    if not wait and is_locked(cluster.work_dir):
        # What another run began is followed to its end, and looked at again then.
        return {**removed("busy", changed=True), "actions": [], "running": True, "config": summary(None)}
    with locked(cluster.work_dir, cluster.timeout):
        return cluster.present(check_mode=False, wait=wait)


if __name__ == "__main__":
    main()
