"""The command line: exit codes, and one sentence for whatever is wrong."""

import logging
import re
import socket
import subprocess
import sys

import pytest
from turb_kub import __version__
from turb_kub.cli.main import main

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


@pytest.fixture(autouse=True)
def outside_a_cluster(monkeypatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_MEM_LIMIT_MB"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def logging_as_it_was():
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return path


def sentence(capsys):
    told = capsys.readouterr().err
    assert re.fullmatch(r"turb-kub: [^\n]+\n", told), told
    return told


def test_version(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"turb-kub {__version__}\n"


@pytest.mark.parametrize("command", ["run", "status"])
@pytest.mark.parametrize("value", ["abc", "-1", "0", "1e3"])
def test_a_bad_limit(command, value, capsys, monkeypatch):
    monkeypatch.setenv("NODE_MEM_LIMIT_MB", value)
    assert main([command]) == 2
    assert sentence(capsys) == (
        f"turb-kub: NODE_MEM_LIMIT_MB: {value!r} is not a whole number of MiB (at least 1, for example 2048)\n"
    )


@pytest.mark.parametrize("command", ["run", "status"])
def test_no_cluster_named(command, capsys):
    assert main([command]) == 2
    assert "name a kubeconfig file with --kubeconfig or KUBECONFIG" in sentence(capsys)


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_kubeconfig_that_points_nowhere(command, capsys, config):
    port = ["--http-port", "0"]
    assert main([command, "--kubeconfig", str(config), *port]) == 1
    assert "the API server http://127.0.0.1:1 cannot be reached" in sentence(capsys)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "could not be used"),
        ("", "could not be used"),
        ("a: b", "could not be used"),
        (KUBECONFIG.replace("cluster: c,", "cluster: d,"), "could not be used"),
    ],
    ids=["no YAML", "empty", "no kubeconfig", "a cluster that is not there"],
)
def test_a_kubeconfig_that_is_broken(text, what, capsys, config):
    config.write_text(text)
    assert main(["status", "--kubeconfig", str(config)]) == 2
    assert what in sentence(capsys)


def test_a_context_that_is_not_there(capsys, config):
    assert main(["status", "--kubeconfig", str(config), "--context", "other"]) == 2
    assert "context other" in sentence(capsys)


def test_a_pid_file_that_cannot_be_written(capsys, config, tmp_path):
    assert main(["run", "--kubeconfig", str(config), "--pid-file", str(tmp_path / "none/pid")]) == 2
    assert "cannot write the pid file" in sentence(capsys)


def test_an_unknown_policy(capsys, config):
    assert main(["run", "--kubeconfig", str(config), "--policy", "fairest"]) == 2
    assert "there is no policy 'fairest'" in sentence(capsys)


def test_a_port_in_use(capsys, config):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["run", "--kubeconfig", str(config), "--http-port", str(port)]) == 1
    told = sentence(capsys)
    assert f"cannot listen on 127.0.0.1 port {port}" in told
    assert "--http-port (TURB_KUB_HTTP_PORT)" in told


def test_every_setting_is_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = capsys.readouterr().out
    for flag in ("--node-mem-limit-mb", "--scheduler-name", "--config", "--kubeconfig", "--context"):
        assert flag in shown


def test_a_bug_is_told_in_one_sentence_too(capsys, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("turb_kub.cli.status.settings_of", broken)
    assert main(["status"]) == 1
    assert "unexpected ZeroDivisionError: oops; this is a bug" in sentence(capsys)


def test_python_m_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "turb_kub", "version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"turb-kub {__version__}\n")


def test_a_reader_that_leaves_early_is_no_error():
    command = [sys.executable, "-m", "turb_kub", "version"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (0, b"")
