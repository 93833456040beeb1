"""scripts/environment.py: what the stamp means, and that pip and uv are run as they must be.

The last test runs the whole of it, with a stand-in for uv that pip installs from a wheel made here.
"""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from scripts import environment
from tests.frame.conftest import ROOT


@pytest.fixture
def root(checkout: Path) -> Path:
    """A checkout with inputs, and with the beginning of an environment."""
    (checkout / "scheduler").mkdir()
    for name in environment.INPUTS:
        (checkout / name).write_text(name)
    (checkout / ".venv/bin").mkdir(parents=True)
    return checkout


def stamp(root: Path, group: str, **changed: str) -> None:
    environment.write_stamp(root / ".venv", environment.wanted_stamp(root, group) | changed)


@pytest.mark.parametrize(
    ("made", "asked", "serves"),
    [("ansible", "ansible", True), ("dev", "dev", True), ("dev", "ansible", True), ("ansible", "dev", False)],
)
def test_a_larger_group_serves_a_smaller_one(root, made, asked, serves):
    stamp(root, made)
    assert environment.serves(root, asked) is serves


@pytest.mark.parametrize("name", environment.INPUTS)
def test_each_input_counts(root, name):
    stamp(root, "dev")
    (root / name).write_text("changed")
    assert not environment.serves(root, "dev")


@pytest.mark.parametrize("changed", [{"state": "unfinished"}, {"python": "3.10"}, {"checkout": "/elsewhere"}])
def test_a_stamp_that_says_otherwise_does_not_serve(root, changed):
    stamp(root, "dev", **changed)
    assert not environment.serves(root, "dev")


@pytest.mark.parametrize("text", ["", "[]", "{", "\0"])
def test_a_broken_stamp_is_no_stamp(root, text):
    (root / ".venv/bootstrap.json").write_text(text)
    assert environment.read_stamp(root / ".venv") == {}
    assert not environment.serves(root, "ansible")


@pytest.mark.parametrize(
    ("made", "asked", "group"),
    [("dev", "ansible", "dev"), ("ansible", "dev", "dev"), ("ansible", "ansible", "ansible")],
)
def test_an_environment_is_never_made_smaller(root, made, asked, group):
    stamp(root, made, state="unfinished", inputs="older")
    assert environment.group_to_make(root / ".venv", asked) == group


def test_an_environment_made_by_hand_is_kept_whole(root):
    assert environment.group_to_make(root / ".venv", "ansible") == "ansible"
    (root / ".venv/bin/pytest").touch()
    assert environment.group_to_make(root / ".venv", "ansible") == "dev"


def test_other_projects_settings_do_not_reach_pip_and_uv(root, monkeypatch):
    for name in ("UV_INDEX_URL", "UV_PYTHON", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_USER"):
        monkeypatch.setenv(name, "/elsewhere")
    for name in ("UV_HTTP_TIMEOUT", "HTTPS_PROXY", "PIP_CERT", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "kept")
    env = environment.clean_environment(root, Path("/the cache"))
    assert "/elsewhere" not in env.values()
    assert list(env.values()).count("kept") == 4
    assert env["UV_CACHE_DIR"] == "/the cache/uv"
    assert env["UV_PROJECT_ENVIRONMENT"] == str(root / ".venv")


def test_the_lock_names_uv_and_the_hashes_of_its_files():
    version, requirement = environment.locked_uv(ROOT)
    name, *hashes = requirement.split()
    assert name == f"uv=={version}"
    assert len(hashes) > 10
    assert all(each.startswith("--hash=sha256:") for each in hashes)


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n", "", "package = []\n"])
def test_a_lock_that_is_none_is_said_to_be_that(root, text):
    (root / "uv.lock").write_text(text)
    with pytest.raises(environment.BootstrapError, match=r"uv\.lock can't be read \(.*\): bring it back"):
        environment.locked_uv(root)


def test_a_lock_that_changes_meanwhile_is_installed_next(root, commands, monkeypatch):
    def install_uv(*_):
        (root / "uv.lock").write_text("changed")

    monkeypatch.setattr(environment, "install_uv", install_uv)
    environment.make(root, root, "ansible")
    assert not environment.serves(root, "ansible")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "error: all wrong\n  cause: no route to host\n\nhint: pray\n",
            "cause: no route to host; run the same command",
        ),
        ("error: The lockfile is old, run `uv lock`.\n", "error: The lockfile is old, run `uv lock`."),
        (
            "WARNING: after connection broken by 'SSLError(\"x\")': /simple/uv/\nERROR: nothing found\n",
            'failed: SSLError("x");',
        ),
        ("", "ended with exit code 3"),
    ],
)
def test_the_tools_last_line_is_the_reason(tmp_path, output, said):
    code = f"import sys; sys.stderr.write({output!r}); sys.exit(3)"
    with pytest.raises(environment.BootstrapError) as failure:
        environment.run([sys.executable, "-c", code], root=tmp_path, env={}, what="Trying")
    text = str(failure.value)
    assert text.startswith("Trying failed: ")
    assert said in text
    assert "\n" not in text
    assert ("network" in text) is ("lock" not in output)


@pytest.fixture
def commands(root, monkeypatch):
    """What make() would run, in order."""
    called: list[list[str]] = []
    monkeypatch.setattr(environment, "run", lambda command, **_: called.append([Path(command[0]).name, *command[1:]]))
    monkeypatch.setattr(environment, "install_uv", lambda *_: called.append(["install uv"]))
    return called


SYNC = "uv sync --locked --group ansible --no-build-isolation-package turb-kub"


def test_an_environment_whose_python_is_gone_is_made_anew(root, commands, capsys):
    stamp(root, "ansible", state="unfinished")
    environment.make(root, root, "ansible")  # by a Python that is not the environment's
    assert "Making .venv anew: its Python is gone or older than 3.12\n" in capsys.readouterr().err
    made, *others = commands
    assert made[1:] == ["-I", "-m", "venv", "--without-pip", "--clear", str(root / ".venv")]
    assert others == [["install uv"], SYNC.split()]
    assert environment.serves(root, "ansible")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"checkout": "/elsewhere"}, "it was made in /elsewhere"), ({"python": "3.10"}, "its Python was 3.10 and is")],
)
def test_an_environment_that_no_longer_fits_is_made_anew(root, commands, monkeypatch, capsys, changed, reason):
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    stamp(root, "ansible", **changed)
    environment.make(root, root, "ansible")
    assert f"Making .venv anew: {reason}" in capsys.readouterr().err
    assert "--clear" in commands[0]


def test_an_environment_that_only_lacks_something_is_kept(root, commands, monkeypatch, capsys):
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    stamp(root, "ansible", inputs="older")
    environment.make(root, root, "ansible")
    assert commands == [["install uv"], SYNC.split()]
    assert "anew" not in capsys.readouterr().err


UV = """#!/bin/sh
case "$1" in
    --version) echo "uv 9.9.9 (a stand-in)" ;;
    *)
        echo "$*" >>"$PIP_FIND_LINKS/calls"
        [ -e "$PIP_FIND_LINKS/hang" ] && exec sleep 30
        [ -e "$PIP_FIND_LINKS/fail" ] && { echo "error: no route to host" >&2; exit 2; }
        exit 0
        ;;
esac
"""


def stand_in_wheel(folder: Path) -> str:
    """Put a wheel with the stand-in for uv into `folder`; returns its hash."""
    info = "uv-9.9.9.dist-info"
    files = {
        "uv-9.9.9.data/scripts/uv": UV,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: uv\nVersion: 9.9.9\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {name: hashlib.sha256(text.encode()).digest() for name, text in files.items()}
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(digests[name]).decode().rstrip('=')},{len(text)}"
        for name, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    wheel = folder / "uv-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16  # pip makes executable what was so in the wheel
            archive.writestr(entry, text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_from_nothing_through_failures_to_an_environment(checkout, home, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (checkout / "scheduler").mkdir()
    for name in environment.INPUTS:
        (checkout / name).write_text("")
    hashed = stand_in_wheel(wheels)
    lock = '[[package]]\nname = "uv"\nversion = "9.9.9"\nwheels = [{{ hash = "sha256:{}" }}]\n'
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    python.symlink_to(base)
    env = {
        "PATH": f"{python.parent}:{os.defpath}",
        "HOME": str(home),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PYTHONPATH": "/nowhere",
        "UV_PYTHON": "/nowhere",
    }
    venv = checkout / ".venv"

    def start(group: str) -> subprocess.Popen[str]:
        command = ["/bin/sh", str(checkout / "scripts/bootstrap.sh"), group]
        return subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def bootstrap(group: str) -> tuple[int, str, list[str]]:
        """Exit code, what was said, and how uv was called."""
        (wheels / "calls").unlink(missing_ok=True)
        process = start(group)
        output, said = process.communicate(timeout=60)
        assert output == ""
        calls = (wheels / "calls").read_text().splitlines() if (wheels / "calls").exists() else []
        return process.returncode, said, calls

    # Another file than the locked one is not installed.
    (checkout / "uv.lock").write_text(lock.format(hashed[::-1]))
    code, said, calls = bootstrap("dev")
    assert (code, calls) == (1, [])
    assert "turb-kub: Downloading uv 9.9.9 failed: " in said
    assert hashed in said
    (checkout / "uv.lock").write_text(lock.format(hashed))

    # No network: one sentence with uv's reason; what is there by half is installed anew by the next.
    (wheels / "fail").touch()
    code, said, calls = bootstrap("dev")
    assert code == 1
    assert "turb-kub: Installing the packages of uv.lock failed: error: no route to host; run the same command" in said
    sync = "sync --locked --group dev --no-build-isolation-package turb-kub"
    assert calls == [f"{sync} --reinstall"]
    (wheels / "fail").unlink()

    # Broken off by force, then taken up by a command that needs less: it stays a developer's.
    (wheels / "hang").touch()
    (wheels / "calls").unlink()
    process = start("dev")
    deadline = time.monotonic() + 30
    while not (wheels / "calls").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (wheels / "hang").unlink()
    assert json.loads((venv / "bootstrap.json").read_text())["state"] == "unfinished"
    code, said, calls = bootstrap("ansible")
    assert (code, calls) == (0, [f"{sync} --reinstall"]), said
    assert ".venv is ready" in said

    # Up to date: silent, in well under a second, for both groups.
    started = time.monotonic()
    assert bootstrap("dev") == (0, "", [])
    assert bootstrap("ansible") == (0, "", [])
    assert time.monotonic() - started < 2

    # A changed lock is installed into the environment that is there.
    (checkout / "pyproject.toml").write_text("# changed")
    (venv / "kept").touch()
    code, said, calls = bootstrap("ansible")
    assert (code, calls) == (0, [sync]), said
    assert (venv / "kept").exists()
