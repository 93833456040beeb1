"""What the role `cluster` says to bad input: one clear sentence, before anything is made."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import Workshop


def work_folder(folder: Path, name: str, **files: str) -> str:
    """A work folder with these files in it."""
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / file.replace("_json", ".json")).write_text(text)
    return str(folder / name)


def record(**entries: str) -> str:
    return json.dumps({"provider": "kwok", "cluster_name": "turb-kub-test-i"} | entries)


def cases(folder: Path, home: Path) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Each bad input with what the answer has to name."""
    foreign = work_folder(folder, "foreign", **{"thesis.tex": "years of work"})
    return {
        "unknown provider": (
            {"cluster_provider": "k3s"},
            ['no cluster provider "k3s"', "auto, minikube, kind, kwok, existing"],
        ),
        "many at once": (
            {
                "cluster_name": "Not_A_Label",
                "cluster_api_port": 65536,
                "cluster_node_count": 0,
                "cluster_node_memory": "16 GB",
                "cluster_node_cpu": "many",
                "cluster_programs": {"kubelet": "/bin/true"},
                "cluster_context": "minikube",
                "cluster_minikube_runtime": "rkt",
                "cluster_minikube_extra_args": "--addons=metrics-server",
                "cluster_minikube_timeout": "a while",
                "cluster_kubeconfig": str(home / ".kube/config"),
            },
            [
                'cluster_name is "Not_A_Label", but has to be a DNS label',
                'cluster_api_port is "65536", but has to be a port from 1 to 65535',
                'cluster_node_count is "0", but',
                'cluster_node_memory is "16 GB", but has to be a quantity of Kubernetes such as 16Gi',
                'cluster_node_cpu is "many", but',
                "cluster_programs names kubelet, but only knows etcd, kube-apiserver",
                'cluster_context is "minikube", but',
                'cluster_minikube_runtime is "rkt", but has to be docker, containerd or cri-o',
                'cluster_minikube_extra_args is "--addons=metrics-server", but has to be a list',
                'cluster_minikube_timeout is "a while", but',
                "cluster_kubeconfig is",
            ],
        ),
        "at the edges": (
            {"cluster_name": "x" * 64, "cluster_api_port": -1, "cluster_node_count": "two"},
            ["at most 63", 'cluster_api_port is "-1"', 'cluster_node_count is "two"'],
        ),
        "relative folder": ({"cluster_work_dir": "somewhere"}, ['"somewhere"', "absolute"]),
        "home as work folder": ({"cluster_work_dir": str(home)}, ["holds your home folder"]),
        "folder with other things": ({"cluster_work_dir": foreign}, ["thesis.tex", "empty folder"]),
        "removing a folder with other things": (
            {"cluster_work_dir": foreign, "tasks_from": "teardown"},
            ["thesis.tex", "it is not removed"],
        ),
        "another cluster's folder": (
            {"cluster_work_dir": work_folder(folder, "other", record_json=record(cluster_name="other"))},
            ["belongs to the cluster other", "tear that cluster down first"],
        ),
        "a record of a provider that is not known": (
            {
                "cluster_provider": "auto",
                "cluster_work_dir": work_folder(folder, "later", record_json=record(provider="k3s")),
            },
            ["made by the provider k3s", "does not have"],
        ),
        "another provider than the recorded one": (
            {"cluster_provider": "kwok", "cluster_work_dir": str(folder / "later")},
            ["made by the provider k3s", "asks for kwok", "tear the cluster down first"],
        ),
        "half a record": (
            {"cluster_work_dir": work_folder(folder, "half", record_json='{"provider": ')},
            ["record.json", "can't be read", "Delete that file"],
        ),
    }


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, list[str]], set[Path]]:
    """What the role says to each, and what there is in the folders after."""
    folder = tmp_path_factory.mktemp("inputs")
    workshop = Workshop(folder, "turb-kub-test-i")
    asked = cases(folder, workshop.home)
    # Only what is not to be varied is an extra variable: those win over all others.
    workshop.defaults = {"cluster_cache_dir": str(folder / "cache"), "work": str(workshop.work)}
    before = set(folder.rglob("*"))
    played = workshop.play("inputs.yml", inputs={name: given for name, (given, _) in asked.items()})
    assert played.code == 0, played.output
    different = {path for path in set(folder.rglob("*")) ^ before if not path.is_relative_to(folder / "ansible")}
    return played.answer("Say what it said")["msg"], {name: words for name, (_, words) in asked.items()}, different


def test_each_bad_input_gets_a_sentence_that_names_it(answers) -> None:
    said, expected, _ = answers
    wrong = {name: said[name] for name, words in expected.items() if not all(word in said[name] for word in words)}
    assert not wrong
    assert len(expected) == len(said)


def test_the_sentences_are_whole(answers) -> None:
    said, _, _ = answers
    for name, text in said.items():
        assert text.endswith("."), name
        assert "{{" not in text, name
        assert "Traceback" not in text, name


def test_nothing_is_made_or_removed(answers) -> None:
    _, _, different = answers
    assert different == set()
