"""site.yml, the inventory and the collection as a whole, without a cluster."""

import os
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.conftest import ROOT, Played, Workshop
from tests.ansible.playing import QUICK, free_port, play

ROLES = ["cluster", "image", "scheduler", "workload"]
PLAYS = {
    "settings": "Check what was asked for",
    "cluster": "Bring up the cluster",
    "image": "Bring the scheduler's image to the nodes",
    "scheduler": "Run the scheduler",
    "workload": "Apply the pods",
    "verify": "Check the placement and show it",
    "teardown": "Remove everything, if asked to",
}

# -- the inventory ----------------------------------------------------------------------------------------------------


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


@pytest.mark.parametrize("role", ROLES)
def test_the_inventory_states_every_knob_with_the_roles_own_default(role: str) -> None:
    assert read(f"inventory/group_vars/all/{role}.yml") == read(f"roles/{role}/defaults/main.yml")


@pytest.mark.parametrize("role", ["image", "scheduler", "workload"])
def test_every_knob_is_described_with_its_default(role: str) -> None:
    options = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(f"roles/{role}/defaults/main.yml")
    assert set(options) == set(defaults)
    for name, value in defaults.items():
        assert options[name].get("default") == (None if "{{" in str(value) else value), name


@pytest.mark.parametrize("role", ROLES)
def test_every_knob_has_a_line_that_says_why(role: str) -> None:
    text = (ROOT / f"inventory/group_vars/all/{role}.yml").read_text()
    paragraphs = [each for each in text.split("\n\n") if re.search(r"^[a-z]", each, re.MULTILINE)]
    assert paragraphs
    assert [each for each in paragraphs if not each.startswith("#")] == []


# -- tags -------------------------------------------------------------------------------------------------------------

SELECTIONS: dict[str, list[str]] = {
    "": ["settings", "cluster", "image", "scheduler", "workload", "verify"],
    "--tags cluster": ["settings", "cluster"],
    "--tags image": ["settings", "image"],
    "--tags scheduler": ["settings", "scheduler"],
    "--tags workload": ["settings", "workload"],
    "--tags verify": ["settings", "verify"],
    "--tags redeploy": ["settings", "image", "scheduler", "verify"],
    "--skip-tags workload,verify": ["settings", "cluster", "image", "scheduler"],
    # The settings are listed, and skipped in the run: see test_a_bad_limit_does_not_keep_anybody_from_tearing_down.
    "--tags teardown": ["settings", "teardown"],
}


def listed(playbook: str, *arguments: str) -> dict[str, list[str]]:
    """The tasks that would run, by play; without plays of which nothing would run."""
    program = Path(sys.executable).parent / "ansible-playbook"
    output = subprocess.run(
        [str(program), str(ROOT / playbook), "--list-tasks", *arguments],
        cwd=ROOT,
        env=os.environ | QUICK,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    plays: dict[str, list[str]] = {}
    for line in output.splitlines():
        if match := re.match(r"  play #\d+ \(localhost\): (.*?)\tTAGS", line):
            tasks = plays.setdefault(match[1], [])
        elif match := re.match(r"      (\S.*?)\tTAGS", line):
            tasks.append(match[1])
    return {name: tasks for name, tasks in plays.items() if tasks}


@pytest.fixture(scope="module")
def lists() -> dict[str, dict[str, list[str]]]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(SELECTIONS, pool.map(lambda tags: listed("site.yml", *tags.split()), SELECTIONS), strict=True))


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_tag_selects_whole_plays(lists: dict[str, dict[str, list[str]]], selection: str) -> None:
    # Nothing of a play that was not asked for: no validation with the tag "always", no teardown by another tag.
    assert list(lists[selection]) == [PLAYS[name] for name in SELECTIONS[selection]]


def test_a_redeploy_is_these_tasks(lists: dict[str, dict[str, list[str]]]) -> None:
    tasks = dict(lists["--tags redeploy"])
    assert tasks == listed("playbooks/redeploy.yml")
    del tasks[PLAYS["settings"]]
    assert tasks == {
        PLAYS["image"]: [
            "image : Check the settings of the image",
            "image : Read the files beside the package",
            "image : Read the package",
            "image : Check that there is a source",
            "image : Name the image after its source",
            "image : Bring the image to the nodes",
        ],
        PLAYS["scheduler"]: [
            "Name of the image",
            "scheduler : Check the scheduler's settings",
            "scheduler : Look at what there is without a cluster",
            "scheduler : Read what is there",
            "scheduler : Check that namespaces can opt in",
            "scheduler : Note what is made on a cluster that stays",
            "scheduler : Apply the account and its rights",
            "scheduler : Apply the settings and the Deployment, or have them checked where no node could run them",
            "scheduler : Wait until it runs, or go back to the version before",
            "scheduler : Run the scheduler on this machine",
            "scheduler : Let namespaces opt in, or no longer",
        ],
        PLAYS["verify"]: [
            "workload : Look at what there is without a cluster",
            "workload : Check where the pods are",
            "scheduler : Ask where each pod is and why",
            "scheduler : Show where each pod is and why",
        ],
    }


# -- plays that need no cluster ---------------------------------------------------------------------------------------


def with_limit(playbook: str, value: str, *arguments: str) -> Callable[[Workshop], Played]:
    return lambda workshop: play(workshop, playbook, *arguments, env={"NODE_MEM_LIMIT_MB": value})


def with_bad_knobs(workshop: Workshop) -> Played:
    return play(
        workshop,
        "site.yml",
        scheduler_name="default-scheduler",
        scheduler_http_port=70000,
        scheduler_default_request_mb="lots",
        scheduler_accounting_namespaces="default",
        scheduler_settings={"TURB_KUB_HTTP_PORT": 1, "TURB_KUB_LOG_LEVEL": "debug"},
        scheduler_token_duration="1 day",
        scheduler_ready_timeout=0,
    )


def with_a_port_in_use(workshop: Workshop) -> Played:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return play(workshop, "site.yml", scheduler_http_port=server.getsockname()[1])


def galaxy(folder: Path, *arguments: str) -> None:
    program = Path(sys.executable).parent / "ansible-galaxy"
    env = os.environ | QUICK | {"ANSIBLE_HOME": str(folder / "ansible")}
    subprocess.run([str(program), "collection", *arguments], cwd=folder, env=env, check=True, capture_output=True)


def with_the_installed_collection(workshop: Workshop) -> Played:
    galaxy(workshop.folder, "build", "--output-path", ".", str(ROOT))
    [package] = workshop.folder.glob("turb-kub-*.tar.gz")
    # --no-deps: kubernetes.core is in the environment, and Galaxy may not be reachable.
    galaxy(workshop.folder, "install", "--no-deps", "-p", "collections", package.name)
    env = {"ANSIBLE_COLLECTIONS_PATH": str(workshop.folder / "collections"), "ANSIBLE_ROLES_PATH": ""}
    return play(workshop, "turb.kub.redeploy", env=env, scheduler_http_port=free_port())


#: Started together before the first test that asks for one: each spends its time starting Python.
WITHOUT_CLUSTER: dict[str, Callable[[Workshop], Played]] = {
    "limit abc": with_limit("site.yml", "abc"),
    "limit -1": with_limit("site.yml", "-1"),
    "limit 0": with_limit("site.yml", "0"),
    "limit 1e3": with_limit("site.yml", "1e3"),
    "limit abc in a redeploy": with_limit("playbooks/redeploy.yml", "abc"),
    "limit abc by tag": with_limit("site.yml", "abc", "--tags", "redeploy"),
    "limit abc in a teardown": with_limit("site.yml", "abc", "--tags", "teardown"),
    "bad knobs": with_bad_knobs,
    "missing manifest": lambda workshop: play(workshop, "site.yml", workload_pods=["pod1", "pod9"]),
    "port in use": with_a_port_in_use,
    "dry run": lambda workshop: play(workshop, "site.yml", "--check", "--diff", scheduler_http_port=free_port()),
    "installed": with_the_installed_collection,
}

Outcome = Callable[[str], tuple[Workshop, Played]]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """How one of the plays above went, and in which folders; none of them may have left anything there."""
    # Made here: pytest's factory is not meant for several threads, and its first call empties the folder of all.
    folders = {name: tmp_path_factory.mktemp("play") for name in WITHOUT_CLUSTER}

    def run(name: str) -> tuple[Workshop, Played]:
        workshop = Workshop(folders[name], "turb-kub-test-s")
        played = WITHOUT_CLUSTER[name](workshop)
        assert not workshop.work.exists(), name
        assert list(workshop.home.iterdir()) == [], name
        assert list((workshop.folder / "ansible/tmp").iterdir()) == [], name
        return workshop, played

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures: dict[str, Future[tuple[Workshop, Played]]] = {name: pool.submit(run, name) for name in WITHOUT_CLUSTER}
    return lambda name: futures[name].result()


@pytest.mark.parametrize(
    "case", [name for name in WITHOUT_CLUSTER if name.startswith("limit") and "teardown" not in name]
)
def test_a_bad_limit_is_refused_before_anything_is_done(outcome: Outcome, case: str) -> None:
    _, played = outcome(case)
    assert played.code != 0
    assert played.failure == (
        f'NODE_MEM_LIMIT_MB is "{case.split()[1]}", but has to be a whole number of MiB, at least 1: for example'
        " NODE_MEM_LIMIT_MB=2048 make up."
    )
    assert len(played.tasks()) == 1


def test_a_bad_limit_does_not_keep_anybody_from_tearing_down(outcome: Outcome) -> None:
    _, played = outcome("limit abc in a teardown")
    assert (played.code, played.changed) == (0, 0), played.output


def test_other_bad_knobs_are_all_named_at_once(outcome: Outcome) -> None:
    _, played = outcome("bad knobs")
    assert played.code != 0
    assert played.failure.split(". ") == [
        'scheduler_name is "default-scheduler", the name of the scheduler that Kubernetes brings; choose another one',
        'scheduler_http_port is "70000", but has to be a port from 1 to 65535',
        'scheduler_default_request_mb is "lots", but has to be a whole number of MiB, at least 1, or null',
        "scheduler_accounting_namespaces has to be a list of namespaces, such as [default]",
        "scheduler_settings names TURB_KUB_HTTP_PORT, which has a knob of its own: set scheduler_http_port instead",
        'scheduler_token_duration is "1 day", but has to be a duration such as 24h or 90m, at least 10m',
        'scheduler_ready_timeout and scheduler_stop_timeout are "0" and "30", but have to be whole numbers of seconds,'
        " at least 1.",
    ]


def test_a_manifest_that_is_missing_is_named(outcome: Outcome) -> None:
    _, played = outcome("missing manifest")
    assert played.failure == (
        f"There is no {ROOT}/manifests/pod9.yaml: check workload_pods and workload_manifests_dir."
    )


def test_a_port_in_use_is_found_before_a_cluster_is_made(outcome: Outcome) -> None:
    _, played = outcome("port in use")
    assert re.fullmatch(
        r"Port \d+ on 127\.0\.0\.1 is in use: end the program that listens there, or set scheduler_http_port to a free"
        r" port\.",
        played.failure,
    )


def test_a_dry_run_before_there_is_a_cluster(outcome: Outcome) -> None:
    _, played = outcome("dry run")
    assert played.code == 0, played.output
    assert "Start the control plane" in " ".join(played.changes())
    assert "what the scheduler on it would need is known when there is one" in played.output
    assert "and so no pod on it" in played.output


def test_the_installed_collection_needs_neither_checkout_nor_inventory(outcome: Outcome) -> None:
    workshop, played = outcome("installed")
    [package] = workshop.folder.glob("turb-kub-*.tar.gz")
    with tarfile.open(package) as tar:
        names = tar.getnames()
    unwanted = r"(^|/)(\.git|\.venv|\.cache|\.\w+_cache|\.ansible|\.hypothesis|__pycache__)(/|$)|\.(pyc|gz)$"
    assert [name for name in names if re.search(unwanted, name)] == []
    assert "scheduler/pyproject.toml" in names  # what the image and the process are made of comes along

    # What modules share comes along: this one gets as far as its kubeconfig.
    answer = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible"),
            "localhost",
            "--module-name=turb.kub.objects_info",
            '--args={"reads": {}, "kubeconfig": "/nonexistent", "context": "none"}',
        ],
        cwd=workshop.folder,
        env=workshop.environment(**QUICK, ANSIBLE_COLLECTIONS_PATH=str(workshop.folder / "collections")),
        capture_output=True,
        text=True,
    )
    assert "The kubeconfig /nonexistent can't be used" in answer.stdout

    # A redeploy of nothing goes as far as it can.
    reference = played.answer("Name the image after its source")["ansible_facts"]["image_reference"]
    assert re.fullmatch(r"turb-kub:[0-9a-f]{12}", reference)
    assert played.failure == (
        f"The cluster {workshop.name} is not there or does not answer: run `make up`, or `ansible-playbook site.yml`."
    )
