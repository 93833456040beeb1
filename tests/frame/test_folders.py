"""The Makefile's programs and the inventory find the same folders, by the same variables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import cluster, environment
from tests.frame.conftest import ROOT

ASK = "msg={{ [cluster_work_dir, cluster_kubeconfig, cluster_cache_dir] | to_json }}"


@pytest.mark.parametrize(
    ("env", "work", "cache"),
    [
        ({}, "{home}/.local/state/turb-kub/turb-kub", "{home}/.cache/turb-kub"),
        ({"XDG_STATE_HOME": "/state", "XDG_CACHE_HOME": "/cache"}, "/state/turb-kub/turb-kub", "/cache/turb-kub"),
        ({"TURB_KUB_WORK_DIR": "/my work", "TURB_KUB_CACHE_DIR": "/my cache"}, "/my work", "/my cache"),
        ({"CLUSTER_NAME": "second"}, "{home}/.local/state/turb-kub/second", "{home}/.cache/turb-kub"),
    ],
)
def test_both_find_the_same(home, monkeypatch, tmp_path, env, work, cache):
    work, cache = work.format(home=home), cache.format(home=home)
    name = ["-e", f"cluster_name={env['CLUSTER_NAME']}"] if "CLUSTER_NAME" in env else []  # what the Makefile adds
    answer = subprocess.run(
        [Path(sys.executable).parent / "ansible", "localhost", "-m", "ansible.builtin.debug", "-a", ASK, *name],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8", "ANSIBLE_HOME": str(tmp_path), **env}
        | {
            "ANSIBLE_LOCAL_TEMP": str(tmp_path),
            "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
            "ANSIBLE_STDOUT_CALLBACK": "json",
        },
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    said = json.loads(answer.stdout)["plays"][0]["tasks"][0]["hosts"]["localhost"]["msg"]
    assert json.loads(said) == [work, f"{work}/kubeconfig", cache]

    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_CACHE_HOME", "TURB_KUB_CACHE_DIR"):
        monkeypatch.setenv(variable, env.get(variable, ""))
    assert str(cluster.work_folder(env)) == work
    assert str(environment.cache_folder()) == cache
