#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bring up, repair and remove one cluster of kwokctl's binary runtime.

A module and not a list of tasks, because each step depends on what is really there: half-made folders, pid files of
processes that are gone or that now belong to somebody else, a component that ended on its own. It touches the folder it
is given and the processes whose program lies in that folder, nothing else.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: kwok_cluster
short_description: Bring up, repair or remove a cluster of kwokctl's binary runtime
version_added: 0.1.0
description:
  - Runs etcd, kube-apiserver, kube-controller-manager and the kwok controller as processes of the calling user, all of
    them listening on the loopback address only.
  - A cluster that runs is left alone. One that is stopped, that lost a component or whose creation was broken off is
    repaired.
  - Linux only, since processes are told apart through C(/proc).
options:
  name:
    description: Name of the cluster; also that of the context, cluster and user in the kubeconfig.
    type: str
    required: true
  work_dir:
    description: Folder for everything that kwokctl and the components write.
    type: path
    required: true
  state:
    description:
      - V(present) makes sure that the cluster runs and answers.
      - V(absent) ends its processes and removes O(work_dir).
    type: str
    choices: [present, absent]
    default: present
  programs:
    description:
      - Absolute paths by program name. Needs C(etcd), C(kube-apiserver), C(kube-controller-manager), C(kubectl),
        C(kwok) and C(kwokctl) when O(state=present).
    type: dict
    default: {}
  api_port:
    description:
      - Port of the API server on 127.0.0.1. With V(0) a free one is taken when the cluster is created, and kept.
    type: int
    default: 0
  kubeconfig:
    description: File to write the administrator's kubeconfig to. Needed when O(state=present).
    type: path
  timeout:
    description: Seconds that the cluster may take to answer.
    type: int
    default: 120
attributes:
  check_mode:
    support: full
    description: Says whether the cluster would be changed, and starts nothing.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Start a cluster
  turb.kub.kwok_cluster:
    name: demo
    work_dir: /home/me/.local/state/turb-kub/demo/kwok
    kubeconfig: /home/me/.local/state/turb-kub/demo/kubeconfig
    programs:
      etcd: /opt/kwok/etcd
      kube-apiserver: /opt/kwok/kube-apiserver
      kube-controller-manager: /opt/kwok/kube-controller-manager
      kubectl: /opt/kwok/kubectl
      kwok: /opt/kwok/kwok
      kwokctl: /opt/kwok/kwokctl

- name: Remove it
  turb.kub.kwok_cluster:
    name: demo
    work_dir: /home/me/.local/state/turb-kub/demo/kwok
    state: absent
"""

RETURN = r"""
found:
  description: What was there before the module ran.
  type: str
  returned: success
  sample: running
action:
  description: What the module did, or would do in check mode.
  type: str
  returned: success
  sample: created
available:
  description: Whether the API server answers now.
  type: bool
  returned: success
api_port:
  description: Port of the API server; 0 where there is no cluster.
  type: int
  returned: success
components:
  description: The processes of the cluster, with C(name), C(pid) (0 if it does not run), C(ports) and C(version).
  type: list
  elements: dict
  returned: success
"""

import base64
import contextlib
import errno
import http.client
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.common.yaml import HAS_YAML, yaml_dump, yaml_load_all

try:
    from ansible_collections.turb.kub.plugins.module_utils.cluster_lock import ClusterError, locked
except ImportError:  # in a checkout, where the role brings it
    from ansible.module_utils.cluster_lock import ClusterError, locked

ADDRESS = "127.0.0.1"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kwok", "kwokctl")
#: The names that kwokctl gives to its links in the cluster's bin folder, with the program that each one leads to.
LINKS = {
    "etcd": "etcd",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    "kubectl": "kubectl",
    "kwok-controller": "kwok",
}
#: Ports are drawn from here: below the range from which the kernel takes the ports of outgoing connections, so that a
#: cluster that was stopped finds its ports free again.
PORTS = range(12000, 30000)
#: kube-apiserver announces this address as its own. Without it, it takes that of the default route, and does not start
#: on a machine that has none. It may not be a loopback address; nothing connects to it (RFC 5737, documentation only).
ADVERTISED = "192.0.2.1"
LOG_LINES = 12
POLL = 0.1
#: How often components that ended are started again. The controller manager gives up when the API server takes longer
#: than ten seconds, which it does on a busy machine.
STARTS = 3


class ComponentEnded(ClusterError):
    """A component ended on its own while the cluster started."""


class Component(t.NamedTuple):
    """One process of the cluster as kwokctl recorded it."""

    name: str
    args: tuple[str, ...]
    ports: tuple[int, ...]
    version: str


# -- processes ------------------------------------------------------------------------------------------------------


def read_argv(pid: int) -> list[str]:
    """Return the command line of a process; empty when it is gone, or a zombie that nobody has collected yet."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0")[:-1]]


def processes(cluster: Path, options: Path) -> dict[int, str]:
    """Return the processes of the cluster by pid, with the name of their program.

    Ours are the components, started through kwokctl's links in the cluster's own folder, and a kwokctl that was given
    our options file. The pid files are not asked: after a reboot their numbers belong to other programs.
    """
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        argv = read_argv(int(entry))
        if not argv:
            continue
        if argv[0].startswith(f"{cluster}/bin/"):
            found[int(entry)] = os.path.basename(argv[0])
        elif f"--config={options}" in argv:
            found[int(entry)] = "kwokctl"
    return found


def end_processes(cluster: Path, options: Path, only: str = "", seconds: float = 20) -> None:
    """Kill what runs from the cluster's folder, or only one program, and wait until it is gone.

    Killed rather than asked to end: their data is removed next, and a kube-apiserver that drains takes its time.
    """
    deadline = time.monotonic() + seconds
    while True:
        running = {pid: name for pid, name in processes(cluster, options).items() if name == only or not only}
        if not running:
            return
        # kwokctl first, or it starts the next component meanwhile.
        for pid in sorted(running, key=lambda pid: running[pid] != "kwokctl"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError as error:
                raise ClusterError(
                    f"Process {pid} ({running[pid]}) of this cluster belongs to another user: run this as that user."
                ) from error
        if time.monotonic() > deadline:
            names = ", ".join(f"{name} (pid {pid})" for pid, name in running.items())
            raise ClusterError(f"These processes of the cluster do not end: {names}.")
        time.sleep(POLL)


# -- ports ----------------------------------------------------------------------------------------------------------


def port_error(port: int) -> int:
    """Return 0 if a server could listen on the port, else the errno that says why not."""
    with socket.socket() as sock:
        # As Go's servers do: a connection that was closed a moment ago is no reason.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((ADDRESS, port))
            sock.listen(1)
        except OSError as error:
            return error.errno or errno.EADDRINUSE
    return 0


def draw_ports(count: int, taken: set[int]) -> list[int]:
    """Draw free ports at random, so that two clusters that are created at the same time do not choose the same ones.

    kwokctl's own way counts down from a fixed number, and a kube-apiserver that meets another cluster's etcd on its
    port would write into it.
    """
    drawn: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(drawn) == count:
            break
        if port not in taken and not port_error(port):
            drawn.append(port)
    if len(drawn) < count:
        raise ClusterError(f"No free ports between {PORTS.start} and {PORTS.stop - 1} on {ADDRESS}.")
    return drawn


# -- the cluster ----------------------------------------------------------------------------------------------------


def read_components(config: Path) -> list[Component]:
    """Return the components from kwokctl's record of the cluster; none when it was not written to its end."""
    try:
        documents = list(yaml_load_all(config.read_text()))
    except Exception:  # a file cut off in the middle can fail in any way
        return []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "KwokctlConfiguration":
            return [
                Component(
                    name=entry["name"],
                    args=tuple(entry.get("args", ())),
                    ports=tuple(port["port"] for port in entry.get("ports", ())),
                    version=entry.get("version", ""),
                )
                for entry in document.get("components") or []
            ]
    return []


def options_document(programs: dict[str, str], ports: list[int], cache: Path) -> dict[str, t.Any]:
    """Return kwokctl's settings: our programs, loopback only, TLS and RBAC on."""
    api, etcd, peer, manager, kwok = ports
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "bindAddress": ADDRESS,
            "disable": ["kube-scheduler"],
            "securePort": True,
            "kubeAuthorization": True,
            "kubeAdmission": True,
            "kubeApiserverPort": api,
            "etcdPort": etcd,
            "etcdPeerPort": peer,
            "kubeControllerManagerPort": manager,
            "kwokControllerPort": kwok,
            "etcdBinary": programs["etcd"],
            "kubeApiserverBinary": programs["kube-apiserver"],
            "kubeControllerManagerBinary": programs["kube-controller-manager"],
            "kubectlBinary": programs["kubectl"],
            "kwokControllerBinary": programs["kwok"],
            "cacheDir": str(cache),
        },
        "componentsPatches": [
            {"name": "kube-apiserver", "extraArgs": [{"key": "advertise-address", "value": ADVERTISED}]},
        ],
    }


def kubeconfig_text(name: str, port: int, ca: bytes, cert: bytes, key: bytes) -> str:
    """Return a kubeconfig of one context that holds its certificates, so that it can be copied."""

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return yaml_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": f"https://{ADDRESS}:{port}",
                        "certificate-authority-data": encoded(ca),
                    },
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {"client-certificate-data": encoded(cert), "client-key-data": encoded(key)},
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )


class Cluster:
    """The cluster on disk and in the process table."""

    def __init__(self, name: str, work_dir: Path, programs: dict[str, str]) -> None:
        self.name = name
        self.work_dir = work_dir
        self.programs = programs
        self.folder = work_dir / "clusters" / name
        # Not kwok.yaml: kwokctl reads a file of that name in its work folder unasked.
        self.options = work_dir / "options.yaml"
        self.components: list[Component] = []
        self.read()

    # what is there

    def read(self) -> None:
        """Read what kwokctl wrote down."""
        self.components = read_components(self.folder / "kwok.yaml")

    def running(self) -> dict[str, int]:
        """Return the pids of the components that run."""
        return {name: pid for pid, name in processes(self.folder, self.options).items()}

    def dead(self) -> list[Component]:
        """Return the components that do not run."""
        running = self.running()
        return [component for component in self.components if component.name not in running]

    def complete(self) -> bool:
        """Return whether the creation went as far as the files that a start needs."""
        files = ("ca.crt", "admin.crt", "admin.key")
        return bool(self.components) and all((self.folder / "pki" / file).is_file() for file in files)

    def found(self) -> str:
        """Return ``absent``, ``incomplete``, ``stopped``, ``degraded`` or ``running``."""
        if not self.complete():
            return "incomplete" if self.folder.exists() or processes(self.folder, self.options) else "absent"
        dead = self.dead()
        if not dead:
            return "running"
        return "stopped" if len(dead) == len(self.components) else "degraded"

    def port(self, component: str = "kube-apiserver") -> int:
        """Return the recorded port of a component, or 0."""
        for entry in self.components:
            if entry.name == component and entry.ports:
                return entry.ports[0]
        return 0

    def pid_file(self, component: str) -> Path:
        """Return the file in which kwokctl keeps a component's pid."""
        return self.folder / "pids" / f"{component}.pid"

    def describe(self) -> list[dict[str, t.Any]]:
        """Return the components for the module's result."""
        running = self.running()
        return [
            {
                "name": component.name,
                "pid": running.get(component.name, 0),
                "ports": list(component.ports),
                "version": component.version,
            }
            for component in self.components
        ]

    def get(self, path: str, seconds: float = 2) -> int:
        """Ask the API server as the administrator. Return the HTTP status, 0 when there is no answer."""
        pki = self.folder / "pki"
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(pki / "ca.crt")
            context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
            connection = http.client.HTTPSConnection(ADDRESS, self.port(), timeout=seconds, context=context)
            try:
                connection.request("GET", path)
                return connection.getresponse().status
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return 0

    def answers(self) -> bool:
        """Return whether the API server is ready."""
        return self.port() != 0 and self.get("/readyz") == 200

    def served(self) -> bool:
        """Return whether pods can be created: the API server is ready and the controller manager has done its part."""
        return self.answers() and self.get("/api/v1/namespaces/default/serviceaccounts/default") == 200

    def kubeconfig(self) -> str:
        """Return the text of the administrator's kubeconfig."""
        pki = self.folder / "pki"
        ca, cert, key = ((pki / file).read_bytes() for file in ("ca.crt", "admin.crt", "admin.key"))
        return kubeconfig_text(self.name, self.port(), ca, cert, key)

    def log(self, component: str) -> str:
        """Return the last lines that a component wrote."""
        path = self.folder / "logs" / f"{component}.log"
        try:
            lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
        except OSError:
            lines = []
        return f"The last lines of {path}:\n" + "\n".join(lines or ["(nothing)"])

    # what is done

    def create(self, api_port: int, deadline: float) -> None:
        """Create and start the cluster, after removing what an earlier attempt left."""
        end_processes(self.folder, self.options)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.components = []
        if api_port and (reason := port_error(api_port)):
            why = "is in use" if reason == errno.EADDRINUSE else f"can't be used ({os.strerror(reason)})"
            raise ClusterError(
                f"Port {api_port} on {ADDRESS} {why}: set cluster_api_port to a free port, or to 0 for any free one."
            )
        ports = [api_port, *draw_ports(4, {api_port})] if api_port else draw_ports(5, set())
        self.work_dir.mkdir(parents=True, exist_ok=True)
        document = options_document(self.programs, ports, self.work_dir / "cache")
        self.options.write_text(yaml_dump(document, sort_keys=False))
        # No kubeconfig for kwokctl to write to: it would change the user's own.
        self.kwokctl(["create", "cluster", "--kubeconfig="], deadline)

    def start(self, deadline: float) -> None:
        """Start the components that do not run."""
        dead = self.dead()
        for component in dead:
            for port in component.ports:
                if port_error(port):
                    raise ClusterError(
                        f"Port {port} on {ADDRESS}, which {component.name} of this cluster had before it stopped, is"
                        " now in use by another program: end that one, or tear the cluster down and set it up again."
                    )
        for link, program in LINKS.items():
            path = self.folder / "bin" / link
            # The cache may have been moved, or emptied and filled with another version.
            if not path.exists():
                path.unlink(missing_ok=True)
                path.symlink_to(self.programs[program])
        # kwokctl believes the pid files, whoever has those numbers now. Let them say what is true.
        running = self.running()
        for component in self.components:
            file = self.pid_file(component.name)
            file.parent.mkdir(exist_ok=True)
            if component.name in running:
                file.write_text(str(running[component.name]))
            else:
                file.unlink(missing_ok=True)
        self.kwokctl(["start", "cluster"], deadline)

    def kwokctl(self, arguments: list[str], deadline: float) -> None:
        """Run kwokctl and wait until the cluster serves.

        kwokctl waits for two minutes when a component ends at once, and then reports success; so the components are
        watched meanwhile.
        """
        output = self.work_dir / "kwokctl.log"
        command = [self.programs["kwokctl"], *arguments, f"--name={self.name}", f"--config={self.options}"]
        # A bare environment: the components inherit it, kwokctl lets KWOK_* win over the file, etcd reads ETCD_*, and
        # a kubectl that is found on PATH would be used in place of ours.
        environment = {"HOME": str(self.work_dir), "KWOK_WORKDIR": str(self.work_dir), "PATH": f"{self.folder}/bin"}
        with output.open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.work_dir,
                start_new_session=True,
            )
        try:
            while (code := process.poll()) is None:
                if not self.components:
                    self.read()
                # kwokctl writes the pid file once it has started a component.
                started = {component.name for component in self.components if self.pid_file(component.name).exists()}
                self.check_none_ended(started - set(self.running()))
                self.check_time(deadline)
                time.sleep(POLL)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if code != 0:
            lines = output.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise ClusterError(f"kwokctl failed. The last lines of {output}:\n" + "\n".join(lines))
        self.read()
        self.wait(deadline)

    def wait(self, deadline: float) -> None:
        """Wait until a cluster serves whose components all run."""
        while not self.served():
            self.check_none_ended({component.name for component in self.dead()})
            self.check_time(deadline)
            time.sleep(POLL)
        self.check_none_ended({component.name for component in self.dead()})

    def check_none_ended(self, names: set[str]) -> None:
        """Raise ComponentEnded for a component among the names."""
        for component in self.components:
            if component.name in names:
                raise ComponentEnded(f"{component.name} ended while the cluster started. {self.log(component.name)}")

    def check_time(self, deadline: float) -> None:
        """Raise ClusterError when the time is over."""
        if time.monotonic() < deadline:
            return
        component = "kube-controller-manager" if self.answers() else "kube-apiserver"
        raise ClusterError(
            f"{component} is not ready in time (cluster_start_timeout). If it stays so, tear the cluster down and set"
            f" it up again. {self.log(component)}"
        )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def is_current(path: Path, text: str) -> bool:
    """Return whether the file holds this text and is closed to others."""
    try:
        return path.read_text() == text and path.stat().st_mode & 0o077 == 0
    except OSError:
        return False


ACTIONS = {"absent": "created", "incomplete": "created", "stopped": "started", "degraded": "started"}


def present(cluster: Cluster, api_port: int, kubeconfig: Path, timeout: float, check_mode: bool) -> dict[str, t.Any]:
    """Make sure that the cluster runs; return the module's result."""
    if not check_mode:
        # The kwokctl of a run that was killed goes on working; who holds the lock now has not started one yet.
        end_processes(cluster.folder, cluster.options, only="kwokctl")
        cluster.read()
    found = cluster.found()
    action = ACTIONS.get(found, "none")
    if action != "created" and api_port and api_port != cluster.port():
        raise ClusterError(
            f"The cluster has its API server on port {cluster.port()}, cluster_api_port says {api_port}: set it to"
            f" {cluster.port()} or 0, or tear the cluster down and set it up again."
        )
    if not check_mode:
        deadline = time.monotonic() + timeout
        step = {
            "created": lambda: cluster.create(api_port, deadline),
            "started": lambda: cluster.start(deadline),
            "none": lambda: cluster.wait(deadline),
        }[action]
        for starts_left in range(STARTS, -1, -1):
            try:
                step()
                break
            except ComponentEnded:
                if not starts_left:
                    raise
                action = "started" if action == "none" else action
                step = lambda: cluster.start(deadline)  # noqa: E731
    changed = action != "none"
    if cluster.complete():
        text = cluster.kubeconfig()
        if not is_current(kubeconfig, text):
            changed = True
            if not check_mode:
                write_private(kubeconfig, text)
    return {"changed": changed, "found": found, "action": action}


def absent(cluster: Cluster, check_mode: bool) -> dict[str, t.Any]:
    """Make sure that nothing is left; return the module's result."""
    found = cluster.found()
    changed = found != "absent" or cluster.work_dir.exists()
    if changed and not check_mode:
        end_processes(cluster.folder, cluster.options)
        if cluster.work_dir.exists():
            shutil.rmtree(cluster.work_dir)
        cluster.components = []
    return {"changed": changed, "found": found, "action": "removed" if changed else "none"}


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "work_dir": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "programs": {"type": "dict", "default": {}},
            "api_port": {"type": "int", "default": 0},
            "kubeconfig": {"type": "path"},
            "timeout": {"type": "int", "default": 120},
        },
        required_if=[("state", "present", ["kubeconfig", "programs"])],
        supports_check_mode=True,
    )
    if not HAS_YAML:
        module.fail_json(msg=missing_required_lib("PyYAML"))
    if not os.path.isdir("/proc/self"):
        module.fail_json(msg="The kwok provider needs Linux: it tells its processes apart through /proc.")
    params = module.params
    missing = [name for name in PROGRAMS if not params["programs"].get(name)]
    if params["state"] == "present" and missing and not module.check_mode:
        module.fail_json(msg=f"No path given for {', '.join(missing)}.")
    cluster = Cluster(params["name"], Path(os.path.realpath(params["work_dir"])), params["programs"])
    # Without a folder there is nothing that two runs could both work on, and a dry run must not make one.
    alone = module.check_mode or (params["state"] == "absent" and not cluster.work_dir.exists())
    try:
        with contextlib.nullcontext() if alone else locked(cluster.work_dir, params["timeout"]):
            if params["state"] == "absent":
                result = absent(cluster, module.check_mode)
            else:
                kubeconfig = Path(params["kubeconfig"])
                result = present(cluster, params["api_port"], kubeconfig, params["timeout"], module.check_mode)
    except ClusterError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or cluster.work_dir}: {error.strerror}.")
    module.exit_json(
        available=cluster.answers(),
        api_port=cluster.port(),
        components=cluster.describe(),
        **result,
    )


if __name__ == "__main__":
    main()
