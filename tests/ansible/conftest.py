"""What the tests of the roles share: ways to run playbooks and modules, and work folders of their own."""

import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = Path(__file__).parent / "playbooks"
MODULES = ROOT / "plugins/modules"
SHARED = str(ROOT / "plugins/module_utils")
# What modules share is found here, as Ansible finds it in a role's folder module_utils.
importlib.import_module("ansible.module_utils").__path__.append(SHARED)
#: The same for a module in a process of its own, whose file is the first argument.
RUN = f"""
import runpy, sys
import ansible.module_utils
ansible.module_utils.__path__.append({SHARED!r})
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: The user's cache: the programs take minutes to build, and no test changes what is in there.
CACHE = Path(
    os.environ.get("TURB_KUB_CACHE_DIR")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turb-kub"
)


#: The files that take minutes, so that no worker is left alone with one of them at the end.
LONGEST = ("test_site_existing.py", "test_image_role.py", "test_cluster_kind.py", "test_cluster_kwok.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first; tests of one file stay in their order."""
    here = Path(__file__).parent
    items.sort(
        key=lambda item: (
            LONGEST.index(item.path.name) if item.path.parent == here and item.path.name in LONGEST else len(LONGEST)
        )
    )


def load_module(name: str) -> ModuleType:
    """One of the collection's modules, to call its functions."""
    spec = importlib.util.spec_from_file_location(name, MODULES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def start_module(name: str, arguments: dict[str, Any], folder: Path) -> "subprocess.Popen[str]":
    """Start one of the collection's modules the way Ansible does, in a tenth of the time."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    return subprocess.Popen(
        [sys.executable, "-B", "-c", RUN, str(MODULES / f"{name}.py"), str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_module(name: str, arguments: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run one of the collection's modules; return what it answers."""
    process = start_module(name, arguments, folder)
    output, errors = process.communicate(timeout=200)
    assert output.strip(), errors
    result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return result


def processes_of(folder: Path) -> dict[int, list[str]]:
    """The processes whose command line names the folder, with that command line; zombies are none."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            except OSError:
                continue
            if any(str(folder) in word for word in argv) and int(entry.name) != os.getpid():
                found[int(entry.name)] = argv
    return found


class Played:
    """How a playbook went."""

    def __init__(self, process: "subprocess.CompletedProcess[str]") -> None:
        self.code = process.returncode
        self.output = process.stdout + process.stderr
        start = process.stdout.find("{\n")
        self.data: dict[str, Any] = json.loads(process.stdout[start:]) if start >= 0 else {}

    @property
    def changed(self) -> int:
        """The number of tasks that changed something."""
        assert self.data, self.output
        return int(self.data["stats"]["localhost"]["changed"])

    def tasks(self) -> list[tuple[str, dict[str, Any]]]:
        """The names of the tasks and what each one answered."""
        assert self.data, self.output
        return [
            (task["task"]["name"], task["hosts"]["localhost"])
            for play in self.data["plays"]
            for task in play["tasks"]
            if "localhost" in task["hosts"]
        ]

    def answer(self, name: str) -> dict[str, Any]:
        """What the task whose name ends so answered."""
        answers = [answer for task, answer in self.tasks() if task.endswith(name)]
        assert answers, f"no task {name}: {self.output}"
        return answers[-1]

    def changes(self) -> list[str]:
        """The names of the tasks that changed something."""
        return [name for name, answer in self.tasks() if answer.get("changed")]

    @property
    def failure(self) -> str:
        """The message of the task that failed."""
        for _, answer in self.tasks():
            if answer.get("failed"):
                # An item of `assert` that failed says so by its exception alone.
                items = answer.get("results", ())
                messages = [item["msg"] for item in items if item.get("failed") or "exception" in item]
                return "\n".join(messages) or str(answer["msg"])
        raise AssertionError(f"nothing failed: {self.output}")


class Workshop:
    """Folders for one cluster, and the way to run playbooks against it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.home = folder / "home"
        self.work = folder / "state/turb-kub" / name
        self.folder = folder
        self.home.mkdir(parents=True)
        self.defaults: dict[str, Any] = {
            "cluster_name": name,
            # Not auto, which would take a Minikube that happens to be on the machine.
            "cluster_provider": "kwok",
            "cluster_work_dir": str(self.work),
            "cluster_cache_dir": str(CACHE),
        }

    def command(self, playbook: str, *arguments: str, **variables: Any) -> list[str]:
        """The command line for one of the playbooks next to this file."""
        extra = json.dumps(self.defaults | variables)
        program = Path(sys.executable).parent / "ansible-playbook"
        return [str(program), str(PLAYBOOKS / playbook), "--extra-vars", extra, *arguments]

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment for it: nothing of the user's but what programs need to be found."""
        return {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.home),
            # Ansible has a socket among its temporary files, and the path of a socket has at most 107 characters: with
            # a longer one it says that its own server did not start.
            "TMPDIR": tempfile.gettempdir(),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "ansible/tmp"),
            "ANSIBLE_REMOTE_TEMP": str(self.folder / "ansible/tmp"),
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        } | variables

    def play(
        self, playbook: str, *arguments: str, env: dict[str, str] | None = None, patience: float = 240, **variables: Any
    ) -> Played:
        """Run one of the playbooks next to this file with these variables; it may take `patience` seconds."""
        process = subprocess.run(
            self.command(playbook, *arguments, **variables),
            cwd=self.folder,
            env=self.environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience,
        )
        return Played(process)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, "turb-kub-test-w")


#: Seconds that building every program may take, from empty caches.
BUILDING = 35 * 60
WITH_SCHEDULER = {"cluster_programs_asked": "{{ cluster_program_sets.kwok + ['kube-scheduler'] }}"}


@pytest.fixture(scope="session")
def programs() -> dict[str, str]:
    """The programs of the control plane by name, from the user's cache."""
    return find_programs()


def find_programs(**variables: Any) -> dict[str, str]:
    """Paths of programs by name, in the user's cache, where the role puts first what is missing.

    They are those of the control plane, or with `WITH_SCHEDULER` kube-scheduler too, which no user needs.
    """
    folder = Path(os.environ.get("TMPDIR") or "/tmp") / f"turb-kub-test-programs-{os.getpid()}"
    try:
        played = Workshop(folder, "turb-kub-test-p").play("programs.yml", patience=BUILDING, **variables)
        assert played.code == 0, played.output
        paths: dict[str, str] = played.answer("Say where the programs are")["msg"]
        return paths
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def module_cluster(tmp_path: Path, programs: dict[str, str]) -> Iterator[Callable[..., dict[str, Any]]]:
    """Arguments for the module kwok_cluster, for a cluster that is gone after the test."""
    arguments = {
        "name": "turb-kub-test-m",
        "work_dir": str(tmp_path / "work/kwok"),
        "kubeconfig": str(tmp_path / "work/kubeconfig"),
        "programs": programs,
    }

    def given(**more: Any) -> dict[str, Any]:
        return arguments | more

    yield given
    run_module("kwok_cluster", given(state="absent"), tmp_path)
    assert not processes_of(tmp_path / "work")
