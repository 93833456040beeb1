"""What `make env`, `make status` and `make explain` need to know of the cluster that `make up` made.

Reads the cluster's work folder, and where nodes are real the scheduler's own objects. Writes nothing but, in that
folder, what the client learns of the server's kinds.
"""

import importlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class NoClusterError(Exception):
    """There is no cluster to speak of; the text is one sentence for the user."""


def work_folder(environ: Mapping[str, str]) -> Path:
    """The cluster's work folder, by the rule of docs/architecture.md and inventory/group_vars/all/cluster.yml."""
    if own := environ.get("TURB_KUB_WORK_DIR"):
        return Path(own).expanduser().absolute()
    state = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    return state / "turb-kub" / (environ.get("CLUSTER_NAME") or "turb-kub")


def read_record(environ: Mapping[str, str]) -> tuple[Path, dict[str, object]]:
    """The work folder, and what role `cluster` wrote down there of the cluster."""
    work = work_folder(environ)
    name = environ.get("CLUSTER_NAME")
    advice = "run make up" + (f" CLUSTER_NAME={shlex.quote(name)}" if name else "")
    try:
        record = json.loads((work / "record.json").read_text())
    except FileNotFoundError:
        raise NoClusterError(f"There is no cluster in {work}: {advice}") from None
    except (OSError, ValueError) as error:
        raise NoClusterError(f"{work / 'record.json'} can't be read ({error}): delete it and {advice}") from None
    # Role `cluster` writes the record's first half before it starts the cluster, and the path of kubectl after.
    if not isinstance(record, dict) or "kubectl" not in record or not (work / "kubeconfig").is_file():
        raise NoClusterError(f"The cluster in {work} is not complete: {advice}")
    return work, record


def shell_lines(work: Path, record: dict[str, object]) -> list[str]:
    """Lines for a shell's `eval`: kubectl finds this cluster, and is found."""
    programs = Path(str(record["kubectl"])).parent
    return [
        f"export KUBECONFIG={shlex.quote(str(work / 'kubeconfig'))}",
        # kubectl keeps what it learnt of a server; of this one it may go with the cluster.
        f"export KUBECACHEDIR={shlex.quote(str(work / 'tmp/kubectl'))}",
        f'export PATH={shlex.quote(str(programs))}:"$PATH"',
    ]


def installation(work: Path) -> tuple[str, str] | None:
    """Name and namespace of the Deployment that role `scheduler` made last; None where the scheduler is a process."""
    try:
        made = json.loads((work / "scheduler/installed.json").read_text())[-1]
        return str(made["name"]), str(made["namespace"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def deployment_state(work: Path, context: str) -> tuple[str, dict[str, str]]:
    """One line about the scheduler's replicas, and the settings that they have; nothing where there is no Deployment.

    What can't be read is left out: whoever asks for the pods' state next is told why.
    """
    if (installed := installation(work)) is None:
        return "", {}
    name, namespace = installed
    sys.path.append(str(ROOT / "plugins/module_utils"))
    kube_objects = importlib.import_module("kube_objects")
    try:
        objects = kube_objects.Objects(str(work / "kubeconfig"), context, str(work / "tmp"))
        found = objects.read("apps/v1", "Deployment", name=name, namespace=namespace)
        leases = objects.read("coordination.k8s.io/v1", "Lease", name=name, namespace=namespace)
        settings = read_settings(objects, found[0], namespace) if found else {}
    except kube_objects.KubeError:
        return "", {}
    return describe_deployment(found, leases) if found else f"There is no Deployment {namespace}/{name}.", settings


def read_settings(objects: Any, deployment: dict[str, Any], namespace: str) -> dict[str, str]:
    """The settings of a Deployment's current version, by their names."""
    import yaml  # here, since it is not needed for what is read from the work folder

    settings: dict[str, str] = {}
    for volume in deployment["spec"]["template"]["spec"].get("volumes", []):
        if "configMap" in volume:
            for found in objects.read("v1", "ConfigMap", name=volume["configMap"]["name"], namespace=namespace):
                stated = yaml.safe_load(found["data"].get("config.yaml", "")) or {}
                settings |= {key: str(value) for key, value in stated.items()}
    return settings


def describe_deployment(deployments: list[dict[str, Any]], leases: list[dict[str, Any]]) -> str:
    """How many replicas there are, of which image, and which of them is active."""
    spec, status = deployments[0]["spec"], deployments[0].get("status") or {}
    holder = (leases[0]["spec"].get("holderIdentity") if leases else "") or ""
    active = f"{holder.split('_')[0]} is active" if holder else "none is active"
    ready = f"{status.get('readyReplicas', 0)} of {spec['replicas']} replicas ready"
    return f"{ready}, {active}; image {spec['template']['spec']['containers'][0]['image']}"


def look_command(verb: str, work: Path, more: list[str]) -> list[str]:
    """The command line of `turb-kub status` or `turb-kub explain` for this cluster."""
    command = [str(ROOT / ".venv/bin/turb-kub"), verb, "--kubeconfig", str(work / "kubeconfig")]
    config = work / "scheduler/config.yaml"
    if config.is_file():
        command += ["--config", str(config)]
    return command + more


def main(arguments: list[str]) -> int:
    """Run the command line; the result is the exit code."""
    verb = arguments[0] if arguments else ""
    if verb not in {"env", "status", "explain"}:
        print("usage: cluster.py env | cluster.py status|explain [arguments of the same of turb-kub]", file=sys.stderr)
        return 2
    if verb == "explain" and len(arguments) == 1:
        print("turb-kub: name a pod: make explain POD=NAMESPACE/POD", file=sys.stderr)
        return 2
    try:
        work, record = read_record(os.environ)
    except NoClusterError as error:
        print(f"turb-kub: {error}", file=sys.stderr)
        return 1
    if verb != "env":
        line, settings = deployment_state(work, str(record.get("cluster_name")))
        if line and verb == "status":
            # What is meant for a program stays as it is.
            print(line, file=sys.stderr if "json" in arguments else sys.stdout, flush=True)
        # In a process beside this one: the client has written keys into files, which are gone when this one ends.
        try:
            return subprocess.run(look_command(verb, work, arguments[1:]), env=os.environ | settings).returncode
        except KeyboardInterrupt:
            return 130
    print("\n".join(shell_lines(work, record)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
