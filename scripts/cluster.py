"""What `make env` and `make status` need to know of the cluster that `make up` made.

Reads the cluster's work folder and writes nothing.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

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


def status_command(work: Path, more: list[str]) -> list[str]:
    """The command line of `turb-kub status` for this cluster."""
    command = [str(ROOT / ".venv/bin/turb-kub"), "status", "--kubeconfig", str(work / "kubeconfig")]
    config = work / "scheduler/config.yaml"
    if config.is_file():
        command += ["--config", str(config)]
    return command + more


def main(arguments: list[str]) -> int:
    """Run the command line; the result is the exit code."""
    if arguments[:1] not in (["env"], ["status"]):
        print("usage: cluster.py env | cluster.py status [arguments of turb-kub status]", file=sys.stderr)
        return 2
    try:
        work, record = read_record(os.environ)
    except NoClusterError as error:
        print(f"turb-kub: {error}", file=sys.stderr)
        return 1
    if arguments[0] == "status":
        command = status_command(work, arguments[1:])
        os.execv(command[0], command)
    print("\n".join(shell_lines(work, record)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
