#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Start, check and stop one server as a detached process of the user.

Ansible has nothing for a process that outlives the play and is neither a system service nor a container; on clusters
without real kubelets the scheduler is such a process. This module may touch the one process whose command line names
the given pid file, and the log, pid and record files it is given.

The process is found by its command line (`--pid-file <our path>`) and never by a number read from a file: the system
uses numbers again, and a foreign process must not get our signal.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_process
short_description: Run one server as a detached process of the user
version_added: 0.1.0
description:
  - Has a server running in a session of its own, so that it outlives the play, and waits until it is ready.
  - The server must take the option C(--pid-file) and write its process id to that file. The process is told from others
    by this argument.
  - A process that runs and was started for the same O(identity) is left alone; otherwise it is ended and started again.
options:
  state:
    description:
      - V(present) makes sure that the wanted process runs and is ready.
      - V(absent) ends it.
      - V(startable) starts nothing, and fails where a start would fail, because O(version_command) does or because
        somebody else listens on O(port).
    type: str
    choices: [present, absent, startable]
    default: present
  pid_file:
    description: Absolute path of the pid file.
    type: path
    required: true
  record_file:
    description: File in which the module notes for which O(identity) the process was started.
    type: path
    required: true
  command:
    description: Program and arguments without C(--pid-file), which is appended. Needed when O(state=present).
    type: list
    elements: str
    default: []
  version_command:
    description: Command that must succeed before anything is started; what it prints is returned as RV(version).
    type: list
    elements: str
    default: []
  command_knob:
    description: What the user sets to choose another program; named in messages.
    type: str
    default: command
  identity:
    description: What the process depends on, by name. When a value differs from the recorded one it is restarted.
    type: dict
    default: {}
  directory:
    description: Folder to run in. Needed when O(state=present).
    type: path
  environment:
    description: Variables to add to the environment.
    type: dict
    default: {}
  log_file:
    description: File that standard output and standard error are appended to. Needed when O(state=present).
    type: path
  address:
    description: Address that the server listens on.
    type: str
    default: 127.0.0.1
  port:
    description: Port that the server listens on.
    type: int
  port_knob:
    description: What the user sets to choose another port; named in messages.
    type: str
    default: port
  ready_path:
    description: Path that answers 200 once the server is ready.
    type: str
    default: /readyz
  ready_timeout:
    description: Seconds that the server may take to be ready.
    type: int
    default: 60
  stop_timeout:
    description: Seconds between SIGTERM and SIGKILL.
    type: int
    default: 30
attributes:
  check_mode:
    support: full
    description: Says whether the process would be started or ended, and does neither.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Have the scheduler running
  turb.kub.host_process:
    command: [turb-kub, run, --kubeconfig, /home/me/kubeconfig]
    pid_file: /home/me/scheduler/turb-kub.pid
    record_file: /home/me/scheduler/process.json
    log_file: /home/me/scheduler/turb-kub.log
    directory: /home/me/scheduler
    identity:
      config: 6f1ed002ab55
    port: 10270

- name: End it
  turb.kub.host_process:
    state: absent
    pid_file: /home/me/scheduler/turb-kub.pid
    record_file: /home/me/scheduler/process.json
"""

RETURN = r"""
action:
  description: What was done, or would be done in check mode.
  type: str
  returned: success
  sample: restarted
reason:
  description: Why.
  type: str
  returned: success
  sample: config changed
pid:
  description: Id of the process that runs now; 0 if there is none.
  type: int
  returned: success
version:
  description: What O(version_command) printed.
  type: str
  returned: success
"""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import time
import typing as t
import urllib.request
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

if t.TYPE_CHECKING:
    from collections.abc import Callable

POLL = 0.05
#: How long a process may take to vanish after SIGKILL; one that takes longer hangs in the kernel.
KILL_TIMEOUT = 10.0
VERSION_TIMEOUT = 60
LOG_LINES = 15
LOG_BYTES = 16_384

#: Dropped from the environment: the settings, which come from the configuration file alone (a variable would win over
#: it), and whatever could lead the process to another cluster than the one that it is started for.
DROPPED_VARIABLES = ("NODE_MEM_LIMIT_MB", "KUBECONFIG")
DROPPED_PREFIXES = ("TURB_KUB_", "K8S_AUTH_", "KUBERNETES_", "ANSIBLE_", "MOLECULE_")
#: An address that stands for all of them is not one to connect to.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class ProcessError(Exception):
    """Something that the user has to know; the text says what to do."""


# -- what is there --------------------------------------------------------------------------------------------------


def find_in_proc(pid_file: str) -> list[int]:
    """Return our processes by Linux's /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            # A zombie's command line is empty: it holds neither port nor connection, so it counts as gone.
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it ended while we were looking
        if ("--pid-file", pid_file) in itertools.pairwise(argv):
            found.append(int(entry.name))
    return found


def find_by_ps(pid_file: str) -> list[int]:
    """Return our processes by ps, which shows the arguments joined by blanks (macOS has no /proc)."""
    command = ["ps", "-axww", "-o", "pid=,uid=,command="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for line in listing.splitlines():
        pid, uid, arguments = [*line.split(maxsplit=2), ""][:3]
        if int(uid) == os.getuid() and f" --pid-file {pid_file} " in f"{arguments} ":
            found.append(int(pid))
    return found


def find(pid_file: str) -> list[int]:
    """Return the pids of this user's processes that were started with our pid file."""
    return find_in_proc(pid_file) if os.path.isdir("/proc/self") else find_by_ps(pid_file)


def why_restart(record_file: Path, wanted: dict[str, t.Any]) -> str:
    """Return what differs between the process that runs and the one that is wanted; empty when nothing does."""
    try:
        recorded = json.loads(record_file.read_text())["identity"]
        changed = sorted(name for name in wanted.keys() | recorded.keys() if wanted.get(name) != recorded.get(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "no record of what runs"
    return f"{', '.join(changed)} changed" if changed else ""


def port_is_free(address: str, port: int) -> bool:
    """Return whether a server may listen there now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections in TIME_WAIT of the process that was just ended are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def is_ready(url: str) -> bool:
    """Return whether the server answers its readiness probe with 200."""
    # No proxy: the address is this machine's.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def log_tail(log_file: str, offset: int) -> str:
    """Return the last lines that were written to the log after ``offset``."""
    try:
        with open(log_file, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(offset, log.tell() - LOG_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    return "\n".join(lines[-LOG_LINES:]) or "(it wrote nothing)"


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition holds; False when it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL)
    return True


# -- the process ----------------------------------------------------------------------------------------------------


class Process:
    """The one process, as the module's parameters describe it."""

    def __init__(self, params: dict[str, t.Any]) -> None:
        self.params = params
        self.pid_file: str = params["pid_file"]
        self.record_file = Path(params["record_file"])
        host = LOOPBACK.get(params["address"], params["address"])
        host = f"[{host}]" if ":" in host else host
        self.ready_url = f"http://{host}:{params['port']}{params['ready_path']}"

    def environment(self) -> dict[str, str]:
        """Return the environment to run in."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in DROPPED_VARIABLES and not name.startswith(DROPPED_PREFIXES)
        }
        return kept | {name: str(value) for name, value in self.params["environment"].items()}

    def version(self) -> str:
        """Run the version command; what it prints."""
        command = self.params["version_command"]
        if not command:
            return ""
        shown, knob = " ".join(command), self.params["command_knob"]
        try:
            answer = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=VERSION_TIMEOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment(),
            )
        except subprocess.TimeoutExpired:
            raise ProcessError(f"`{shown}` does not answer within {VERSION_TIMEOUT} s: check {knob}.") from None
        except OSError as error:
            raise ProcessError(f"`{shown}` can't be run ({error.strerror}): check {knob}.") from error
        if answer.returncode != 0:
            last = (answer.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise ProcessError(
                f"`{shown}` fails ({last}): install the scheduler where Ansible runs, as `make up` does, or check"
                f" {knob}."
            )
        return answer.stdout.strip()

    def require_port(self) -> None:
        """Raise when somebody else listens on the port."""
        address, port, knob = (self.params[name] for name in ("address", "port", "port_knob"))
        if not port_is_free(address, port):
            raise ProcessError(
                f"Port {port} on {address} is in use: end the program that listens there, or set {knob} to a free port."
            )

    def start(self) -> int:
        """Start detached and wait until ready; the pid."""
        log_file: str = self.params["log_file"]
        seconds: int = self.params["ready_timeout"]
        with open(log_file, "ab") as log:
            offset = log.tell()
            try:
                process = subprocess.Popen(
                    [*self.params["command"], "--pid-file", self.pid_file],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.params["directory"],
                    env=self.environment(),
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessError(f"{self.params['command'][0]} can't be started: {error.strerror}.") from error
        # Before the wait: when this run is broken off, the next one knows what it finds.
        self.record_file.write_text(json.dumps({"identity": self.params["identity"]}, indent=2) + "\n")

        if not wait_until(lambda: process.poll() is not None or is_ready(self.ready_url), seconds):
            raise ProcessError(
                f"The process (pid {process.pid}) runs, but {self.ready_url} did not answer 200 within {seconds} s."
                f" The end of {log_file}:\n{log_tail(log_file, offset)}"
            )
        if process.returncode is not None:
            code = process.returncode
            how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
            raise ProcessError(
                f"The process ended before it was ready, {how}. The end of {log_file}:\n{log_tail(log_file, offset)}"
            )
        return process.pid

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when that was not enough."""
        for number, seconds in ((signal.SIGTERM, self.params["stop_timeout"]), (signal.SIGKILL, KILL_TIMEOUT)):
            # Looked up again before each signal: a pid can become somebody else's in between.
            for pid in find(self.pid_file):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if wait_until(lambda: not find(self.pid_file), seconds):
                Path(self.pid_file).unlink(missing_ok=True)
                return
        raise ProcessError(f"Process {find(self.pid_file)} does not end, not even by SIGKILL.")


def present(process: Process, check_mode: bool) -> dict[str, t.Any]:
    """Have exactly the wanted process running and ready."""
    params = process.params
    version = process.version()
    params["identity"] = params["identity"] | {"version": version}
    pids = find(process.pid_file)
    reason = why_restart(process.record_file, params["identity"]) if pids else "it was not running"
    if len(pids) > 1:
        reason = f"{len(pids)} of them were running"
    if not reason:
        if check_mode or wait_until(lambda: is_ready(process.ready_url), params["ready_timeout"]):
            return {"changed": False, "action": "none", "reason": "", "pid": pids[0], "version": version}
        reason = f"it was not ready within {params['ready_timeout']} s"
    pid = 0
    if not check_mode:
        process.stop()
        process.require_port()
        pid = process.start()
    action = "restarted" if pids else "started"
    return {"changed": True, "action": action, "reason": reason, "pid": pid, "version": version}


def absent(process: Process, check_mode: bool) -> dict[str, t.Any]:
    """Have no process of ours."""
    pids = find(process.pid_file)
    if not check_mode:
        if pids:
            process.stop()
        process.record_file.unlink(missing_ok=True)
    return {"changed": bool(pids), "action": "ended" if pids else "none", "reason": "", "pid": 0, "version": ""}


def startable(process: Process, check_mode: bool) -> dict[str, t.Any]:
    """Fail where a start would fail."""
    version = process.version()
    pids = find(process.pid_file)
    if not pids:
        process.require_port()
    return {"changed": False, "action": "none", "reason": "", "pid": (pids or [0])[0], "version": version}


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "startable"], "default": "present"},
            "pid_file": {"type": "path", "required": True},
            "record_file": {"type": "path", "required": True},
            "command": {"type": "list", "elements": "str", "default": []},
            "version_command": {"type": "list", "elements": "str", "default": []},
            "command_knob": {"type": "str", "default": "command"},
            "identity": {"type": "dict", "default": {}},
            "directory": {"type": "path"},
            "environment": {"type": "dict", "default": {}},
            "log_file": {"type": "path"},
            "address": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int"},
            "port_knob": {"type": "str", "default": "port"},
            "ready_path": {"type": "str", "default": "/readyz"},
            "ready_timeout": {"type": "int", "default": 60},
            "stop_timeout": {"type": "int", "default": 30},
        },
        required_if=[
            ("state", "present", ["command", "directory", "log_file", "port"]),
            ("state", "startable", ["port"]),
        ],
        supports_check_mode=True,
    )
    actions = {"present": present, "absent": absent, "startable": startable}
    try:
        result = actions[module.params["state"]](Process(module.params), module.check_mode)
    except ProcessError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
