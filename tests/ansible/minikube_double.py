"""A stand-in for Minikube that says and does what a real one did when the files in `minikube/` were recorded.

The real one can't run in the tests: it needs a container engine and a gigabyte from its registries. This one keeps its
profiles in a folder, writes every call down, and prints the recorded texts with other names in them. What could not be
recorded (`node add`, `update-context`, failures as events) follows Minikube's source.

It is run as a program, `minikube_double.py FOLDER ARGUMENTS`, by the script that `Double` puts on PATH. `Double` also
serves the nodes of the profiles as an API server would, for kubectl: also the lie that a node that was just stopped is
Ready for 40 s more.
"""

import http.server
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "minikube"
VERSION = "v1.38.1"


def recorded(name: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command as they were recorded."""
    text = (RECORDED / f"{name}.txt").read_text()
    head, _, rest = text.partition("--- stdout\n")
    output, _, errors = rest.partition("--- stderr")
    return int(re.findall(r"^rc=(\d+)$", head, re.MULTILINE)[0]), output, errors.removeprefix("\n")


class Exit(Exception):
    """The program ends with this code and these outputs."""

    def __init__(self, code: int, output: str = "", errors: str = "") -> None:
        super().__init__(code)
        self.code, self.output, self.errors = code, output, errors


class Store:
    """The profiles, the calls and the knobs of the stand-in, as files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "state.json"

    def read(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.file.read_text())
        return state

    def write(self, state: dict[str, Any]) -> None:
        temporary = self.file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(state))
        temporary.replace(self.file)

    def note_call(self, arguments: list[str]) -> None:
        call = {"arguments": arguments, "kubeconfig": os.environ.get("KUBECONFIG", "")}
        with (self.folder / "calls.jsonl").open("a") as file:
            file.write(f"{json.dumps(call)}\n")


# -- the program ----------------------------------------------------------------------------------------------------


def machine(profile: str, node: dict[str, Any]) -> str:
    return f"{profile}-{node['Name']}" if node["Name"] else profile


def flag(arguments: list[str], name: str, default: str = "") -> str:
    """The value of a flag that is given as one word."""
    values = [word.partition("=")[2] for word in arguments if word.startswith(f"--{name}=")]
    return values[-1] if values else default


class Program:
    """One call."""

    def __init__(self, store: Store, arguments: list[str]) -> None:
        self.store = store
        self.state = store.read()
        self.profile = "minikube"
        words = list(arguments)
        command, rest = (words[: words.index("--")], words[words.index("--") :]) if "--" in words else (words, [])
        if "-p" in command:
            at = command.index("-p")
            self.profile = command[at + 1]
            del command[at : at + 2]
        self.words = command + rest
        self.entry: dict[str, Any] | None = self.state["profiles"].get(self.profile)

    def save(self) -> None:
        self.store.write(self.state)

    def named(self, text: str) -> str:
        """A recorded text about this profile."""
        return re.sub(r'(?<=[" ])minikube(?=\\?"|-m02)', self.profile, text)

    def say(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def run(self) -> None:
        name = "_".join(self.words[:2] if self.words[0] in ("node", "profile", "image") else self.words[:1])
        if refusal := self.state["refuse"].get(name.replace("_", " ")):
            self.refuse(**refusal)
        getattr(self, f"do_{name.replace('-', '_')}")(self.words)

    def refuse(self, name: str, message: str, code: int, advice: str = "", changes: bool = False) -> None:
        """End as a failing command does: with an event where events are asked for, else with a line of errors."""
        if "--output=json" in self.words:
            data = {"exitcode": str(code), "message": message, "name": name, "advice": advice, "issues": "", "url": ""}
            raise Exit(code, self.event("error", data))
        raise Exit(code, "", f"X Exiting due to {name}: {message}\n")

    def event(self, kind: str, data: dict[str, str]) -> str:
        event = {"specversion": "1.0", "source": "https://minikube.sigs.k8s.io/", "datacontenttype": "application/json"}
        return json.dumps(event | {"type": f"io.k8s.sigs.minikube.{kind}", "data": data}) + "\n"

    def known(self, name: str) -> dict[str, Any]:
        """The profile, or the end that the recorded command came to without one."""
        if self.entry is None:
            code, output, errors = recorded(f"none.{name}")
            raise Exit(code, output.replace("minikube", self.profile, 1), errors)
        return self.entry

    def nodes(self) -> dict[str, dict[str, Any]]:
        assert self.entry is not None
        return {machine(self.profile, node): node for node in self.entry["config"]["Nodes"]}

    # commands that only ask

    def do_version(self, words: list[str]) -> None:
        self.say(f"minikube version: {VERSION}\ncommit: eb25dbc703701fa38c3f65c89a1896baa375e5ed\n")

    def do_profile_list(self, words: list[str]) -> None:
        valid = [
            {"Name": name, "Status": "OK", "Config": entry["config"], "Active": False, "ActiveKubeContext": False}
            for name, entry in self.state["profiles"].items()
        ]
        invalid = [{"Name": name} for name in self.state["invalid"]]
        self.say(json.dumps({"invalid": invalid, "valid": valid}))

    def do_status(self, words: list[str]) -> None:
        assert "--layout=cluster" in words, "the other form is an array for two nodes and an object for one"
        entry = self.known("status-cluster")

        def component(name: str, ok: bool) -> dict[str, Any]:
            code, status = (200, "OK") if ok else (405, "Stopped")
            return {"Name": name, "StatusCode": code, "StatusName": status}

        nodes = []
        for name, node in self.nodes().items():
            ok = entry["running"][name]
            parts = ["apiserver", "kubelet"] if node["ControlPlane"] or not ok else ["kubelet"]
            nodes.append(component(name, ok) | {"Components": {part: component(part, ok) for part in parts}})
        ok = entry["running"][self.profile]
        kubeconfig = component("kubeconfig", ok and self.profile in contexts(kubeconfig_path()))
        answer = component(self.profile, ok) | {"Step": "Done", "BinaryVersion": VERSION}
        self.say(json.dumps(answer | {"Components": {"kubeconfig": kubeconfig}, "Nodes": nodes}))
        raise Exit(0 if all(entry["running"].values()) else 7)

    # commands that change something

    def do_start(self, words: list[str]) -> None:
        assert "--output=json" in words
        driver = flag(words, "driver", "docker")
        if driver not in ("docker", "podman", "kvm2"):
            self.refuse("DRV_UNSUPPORTED_OS", f"The driver '{driver}' is not supported on linux/amd64", 56)
        if self.state["root"] and "--force" not in words:
            self.refuse("DRV_AS_ROOT", f'The "{driver}" driver should not be used with root privileges.', 57)
        memory = flag(words, "memory")
        if memory and int(memory.removesuffix("m").removesuffix("g")) * (1024 if memory.endswith("g") else 1) < 1800:
            message = f"Requested memory allocation {memory} is less than the usable minimum of 1800MB"
            self.refuse("RSRC_INSUFFICIENT_REQ_MEMORY", message, 23)
        created = self.entry is None
        if created:
            self.create(words, driver, 4096 if not memory else int(memory[:-1]) * 1024)
        else:
            self.state["restarts"] += 1
        assert self.entry is not None
        for name in self.nodes():
            self.entry["running"][name] = True
        waits = "--wait=all" in words
        self.entry["unready"] = [] if waits else [name for name in self.nodes() if name != self.profile]
        self.save()
        self.tell_start(len(self.nodes()))
        write_context(kubeconfig_path(), self.profile, self.state["api"], current="--keep-context" not in words)

    def create(self, words: list[str], driver: str, memory: int) -> None:
        _, output, _ = recorded("two-running.profile-list")
        config: dict[str, Any] = json.loads(output)["valid"][0]["Config"]
        runtime = flag(words, "container-runtime", "containerd")
        version = "v" + flag(words, "kubernetes-version", "v1.36.3").removeprefix("v")
        config |= {"Name": self.profile, "Driver": driver, "Memory": memory, "Nodes": []}
        config["KubernetesConfig"] |= {"ContainerRuntime": runtime, "KubernetesVersion": version}
        self.entry = {"config": config, "running": {}, "unready": [], "runtime": self.state["real_runtime"] or runtime}
        self.state["profiles"][self.profile] = self.entry
        for _ in range(int(flag(words, "nodes", "1"))):
            self.append_node()

    def append_node(self) -> str:
        assert self.entry is not None
        nodes = self.entry["config"]["Nodes"]
        first = not nodes
        nodes.append({"Name": "" if first else f"m{len(nodes) + 1:02}", "ControlPlane": first, "Worker": True})
        name = machine(self.profile, nodes[-1])
        self.entry["running"][name] = True
        return name

    def tell_start(self, nodes: int) -> None:
        """The recorded events; those of the worker once for each."""
        _, output, _ = recorded("start-events")
        lines = output.splitlines(keepends=True)
        starts = [number for number, line in enumerate(lines) if '"Starting Node"' in line]
        assert len(starts) == 2
        worker = lines[starts[1] : -1]
        for number, line in enumerate(lines[: starts[1]] + worker * (nodes - 1) + lines[-1:]):
            self.say(self.named(line))
            if number == self.state["pause_after"]:
                wait_for(self.store.folder / "go-on")

    def do_stop(self, words: list[str]) -> None:
        entry = self.known("stop")
        for name in entry["running"]:
            entry["running"][name] = False
        self.save()
        self.say(self.named(recorded("stop")[1]))

    def do_node_stop(self, words: list[str]) -> None:
        entry = self.known("node-list")
        entry["running"][f"{self.profile}-{words[2]}"] = False
        self.save()

    def do_node_start(self, words: list[str]) -> None:
        entry = self.known("node-list")
        name = f"{self.profile}-{words[2]}"
        assert name in entry["running"], words
        entry["running"][name] = True
        self.save()
        code, output, errors = recorded("m02-stopped.node-start")
        raise Exit(code, self.named(output), errors)

    def do_node_add(self, words: list[str]) -> None:
        entry = self.known("node-list")
        assert entry["running"][self.profile]
        name = self.append_node()
        self.save()
        short = name.rpartition("-")[2]
        self.say(f"* Adding node {short} to cluster {self.profile}\n* Successfully added {short} to {self.profile}!\n")

    def do_update_context(self, words: list[str]) -> None:
        entry = self.known("ip")
        assert entry["running"][self.profile]
        write_context(kubeconfig_path(), self.profile, self.state["api"], current=True)
        self.say(f'* "{self.profile}" context has been updated\n')

    def do_delete(self, words: list[str]) -> None:
        assert words == ["delete"], "never --all and never --purge"
        there = self.state["profiles"].pop(self.profile, None)
        if self.profile in self.state["invalid"]:
            self.state["invalid"].remove(self.profile)
        self.save()
        remove_context(kubeconfig_path(), self.profile)
        code, output, errors = recorded("delete" if there else "none.delete")
        raise Exit(code, self.named(output), self.named(errors))

    # images, which are on each node or not, whatever the exit code says

    def do_image_build(self, words: list[str]) -> None:
        entry = self.known("image-ls")
        tag, context = words[words.index("-t") + 1], Path(words[-1])
        assert (context / "Dockerfile").is_file(), context
        names = [name for name, runs in entry["running"].items() if runs]
        names = names if "--all" in words else names[:1]
        [base] = re.findall(r"^ARG BASE=(\S+)$", (context / "Dockerfile").read_text(), re.MULTILINE)
        for name in names:
            # Where the base is missing the build would pull it, which a node that pulls has done before.
            good = name not in self.state["build_fails_on"] and base in entry.get("images", {}).get(name, {})
            _, output, errors = recorded("two-running.image-build-all" if good else "two-running.image-build-fails")
            half = output[: output.index("Sending", 1)].replace("demo/t:1", tag)
            self.say(half)
            if good:
                entry.setdefault("images", {}).setdefault(name, {})[tag] = (
                    f"sha256:{'0' * 56}{abs(hash(name)) % 16**8:08x}"
                )
            else:
                sys.stderr.write(errors.splitlines(keepends=True)[0])
        self.save()

    def do_image_load(self, words: list[str]) -> None:
        entry = self.known("image-ls")
        image = words[2]
        if not Path(image).is_file() and image not in self.state["host_images"]:
            code, output, errors = recorded("two-running.image-load-missing")
            raise Exit(code, output, errors.replace("no/such:tag", image))
        tag = Path(image).read_text().strip() if Path(image).is_file() else image
        for name, runs in entry["running"].items():
            if runs and name not in self.state["load_fails_on"]:
                entry.setdefault("images", {}).setdefault(name, {})[tag] = f"sha256:{'1' * 64}"
        self.save()

    def do_ssh(self, words: list[str]) -> None:
        entry = self.known("ip")
        name = words[words.index("-n") + 1]
        command = words[words.index("--") + 1 :]
        if not entry["running"][name]:
            raise Exit(83, recorded("all-stopped.ip")[1])
        images = entry.setdefault("images", {}).setdefault(name, {})
        if command[:2] == ["docker", "pull"]:
            if name in self.state["pull_fails_on"]:
                raise Exit(
                    1, "", "Error response from daemon: no route to the registry\nssh: Process exited with status 1\n"
                )
            images[command[-1]] = f"sha256:{'2' * 64}"
            self.save()
            return
        assert command[:3] == ["docker", "image", "inspect"], command
        found = images.get(command[-1])
        if not found:
            code, output, errors = recorded("two-running.image-inspect-missing")
            raise Exit(code, output.replace("no/such:tag", command[-1]), errors)
        self.say(f"{found}\n")


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def kubeconfig_path() -> Path:
    return Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config")


def read_kubeconfig(path: Path) -> dict[str, Any]:
    empty = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return empty
    except ValueError:
        # What kubectl has written. The import takes longer than all else here.
        import yaml

        data = yaml.safe_load(path.read_text())
    return data or empty


def contexts(path: Path) -> list[str]:
    return [entry["name"] for entry in read_kubeconfig(path)["contexts"]]


def write_context(path: Path, name: str, server: str, current: bool) -> None:
    data = read_kubeconfig(path)
    given: dict[str, dict[str, Any]] = {"clusters": {"cluster": {"server": f"{server}/{name}"}}, "users": {"user": {}}}
    for key, value in given.items():
        data[key] = [entry for entry in data[key] if entry["name"] != name] + [{"name": name} | value]
    context = {"name": name, "context": {"cluster": name, "user": name}}
    data["contexts"] = [entry for entry in data["contexts"] if entry["name"] != name] + [context]
    if current:
        data["current-context"] = name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def remove_context(path: Path, name: str) -> None:
    """As Minikube does, which unsets the current context even where it is another one."""
    if path.is_file():
        data = read_kubeconfig(path)
        for key in ("clusters", "users", "contexts"):
            data[key] = [entry for entry in data[key] if entry["name"] != name]
        data["current-context"] = ""
        path.write_text(json.dumps(data))


def main() -> int:
    """Run one call."""
    store = Store(Path(sys.argv[1]))
    store.note_call(sys.argv[2:])
    try:
        Program(store, sys.argv[2:]).run()
    except Exit as end:
        sys.stdout.write(end.output)
        sys.stderr.write(end.errors)
        return end.code
    return 0


# -- the test's side ------------------------------------------------------------------------------------------------


class Double:
    """A stand-in that is installed in a folder, with the state of its profiles and the API of their nodes."""

    def __init__(self, folder: Path, api: str) -> None:
        self.store = Store(folder)
        folder.mkdir(parents=True)
        self.program = folder / "bin/minikube"
        self.program.parent.mkdir()
        self.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -B "{__file__}" "{folder}" "$@"\n')
        self.program.chmod(0o755)
        self.store.write(
            {
                "profiles": {},
                "invalid": [],
                "api": api,
                "root": False,
                "refuse": {},
                "restarts": 0,
                "real_runtime": "",
                "pause_after": -1,
                "build_fails_on": [],
                "load_fails_on": [],
                "pull_fails_on": [],
                "host_images": [],
                "taints": {},
            }
        )

    def set(self, **knobs: Any) -> None:
        """Set knobs of the stand-in."""
        self.store.write(self.store.read() | knobs)

    def run(self, *arguments: str) -> None:
        """Do what a user would do by hand, with a kubeconfig of its own; it is no call that a test counts."""
        calls = self.store.folder / "calls.jsonl"
        before = calls.read_text() if calls.exists() else ""
        environment = os.environ | {"KUBECONFIG": str(self.store.folder / "kubeconfig")}
        command = [sys.executable, "-B", __file__, str(self.store.folder), *arguments]
        code = os.spawnve(os.P_WAIT, sys.executable, command, environment)
        assert code == 0, (arguments, code)
        calls.write_text(before)

    def calls(self) -> list[dict[str, Any]]:
        """The calls so far."""
        path = self.store.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def mutations(self) -> list[str]:
        """The calls so far that change something, in short."""
        asking = ("version", "profile", "status", "ip", "ssh")
        calls = [call["arguments"] for call in self.calls() if call["arguments"][0] not in asking]
        # With the profile in front where it is about images.
        calls = [words[2:] if words[0] == "-p" else words for words in calls]
        calls = [words for words in calls if words[0] != "ssh" or "pull" in words]
        return [
            " ".join(words[: 3 if words[:2] == ["node", "start"] else 2 if words[0] in ("node", "image") else 1])
            for words in calls
        ]

    def forget(self) -> None:
        """Forget the calls so far."""
        (self.store.folder / "calls.jsonl").unlink(missing_ok=True)

    def profile(self, name: str) -> dict[str, Any]:
        """The state of a profile."""
        entry: dict[str, Any] = self.store.read()["profiles"][name]
        return entry


class Nodes(http.server.ThreadingHTTPServer):
    """What kubectl and kubernetes.core need of an API server to list nodes."""

    daemon_threads = True

    def __init__(self, state: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.store = Store(state)

    def items(self, profile: str) -> list[dict[str, Any]]:
        """The nodes of a profile whose control plane runs, made from the recorded ones."""
        entry = self.store.read()["profiles"].get(profile)
        if not entry or not entry["running"][profile]:
            return []
        items = []
        for name in entry["running"]:
            node = json.loads(recorded("two-running.kubectl-nodes")[1])["items"][0]
            node["metadata"]["name"] = name
            node["spec"]["taints"] = self.store.read()["taints"].get(name, [])
            info = node["status"]["nodeInfo"]
            info["containerRuntimeVersion"] = info["containerRuntimeVersion"].replace(
                "docker://", f"{entry['runtime']}://"
            )
            # A stopped node is called Ready still, as it is for 40 s.
            ready = "Unknown" if name in entry["unready"] else "True"
            for condition in node["status"]["conditions"]:
                condition["status"] = ready if condition["type"] == "Ready" else condition["status"]
            items.append(node)
        return items


class Answer(http.server.BaseHTTPRequestHandler):
    server: Nodes

    def do_GET(self) -> None:
        # The first part of the path is the profile: each has an API server of its own.
        _, profile, path = self.path.partition("?")[0].split("/", 2)
        resource = {
            "name": "nodes",
            "singularName": "node",
            "namespaced": False,
            "kind": "Node",
            "verbs": ["get", "list"],
        }
        answers: dict[str, dict[str, Any]] = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]},
            "/api/v1/nodes": {
                "kind": "NodeList",
                "apiVersion": "v1",
                "metadata": {},
                "items": self.server.items(profile),
            },
            "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
            "/readyz": {},
        }
        answer = answers.get(f"/{path}")
        data = json.dumps(answer).encode()
        self.send_response(200 if answer is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def installed(folder: Path) -> Iterator[Double]:
    """A stand-in in a folder for as long as the context lasts, with the API of its nodes."""
    with Nodes(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield Double(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
