"""scripts/bootstrap.sh finds a Python that will do, says which was wrong, and leaves an environment that serves alone.

Every candidate is a stand-in that names itself in PICKED; environment.py is replaced by one that tells who ran it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frame.conftest import Run, write_program

TELLS_WHO = """
import os, sys
if sys.argv[1] == "check":
    sys.exit(0 if os.environ.get("UP_TO_DATE") else 1)
names = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")
print(os.environ["PICKED"], *sys.argv[1:], *(name for name in names if name in os.environ))
"""

GOOD = "pass"
TOO_OLD = "import sys; sys.version_info = (3, 11, 7, 'final', 0)"
NOT_RELEASED = "import sys; sys.version_info = (3, 15, 0, 'candidate', 1)"
NO_VENV = "import sys; sys.modules['ensurepip'] = None"


def candidate(path: Path, before: str = GOOD) -> Path:
    """A Python named by the last parts of its path, in which `before` runs ahead of what -c is given."""
    name = path.name if path.parent.name == "fakes" else "/".join(path.parts[-3:])
    return write_program(
        path,
        f"""PICKED={name}; export PICKED
if [ "$2" = -c ]; then exec "{sys.executable}" -I -c "{before}
$3"; fi
exec "{sys.executable}" "$@"
""",
    )


def refusing(path: Path) -> Path:
    """What a pyenv shim is whose version is not the chosen one."""
    return write_program(path, "echo 'pyenv: python3.14: command not found' >&2\nexit 127\n")


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    folder = tmp_path / "fakes"
    folder.mkdir()
    return folder


@pytest.fixture
def bootstrap(checkout: Path, fakes: Path, tmp_path: Path, run: Run):
    """Runs bootstrap.sh where PATH has the stand-ins and no Python else."""
    (checkout / "scripts/environment.py").write_text(TELLS_WHO)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "sed", "env", "mkdir"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)

    def bootstrap(**env: str) -> subprocess.CompletedProcess[str]:
        return run("/bin/sh", checkout / "scripts/bootstrap.sh", "dev", path=f"{fakes}:{tools}", **env)

    return bootstrap


def test_the_newest_name_on_path_that_will_do(bootstrap, fakes):
    refusing(fakes / "python3.14")
    candidate(fakes / "python3.13", NO_VENV)
    candidate(fakes / "python3.12")
    candidate(fakes / "python3")
    done = bootstrap()
    assert (done.stdout, done.returncode) == ("python3.12 make dev\n", 0), done.stderr


@pytest.mark.parametrize("flaw", [TOO_OLD, NOT_RELEASED, NO_VENV])
def test_plain_python3_is_refused_for_each_flaw(bootstrap, fakes, flaw):
    candidate(fakes / "python3", flaw)
    assert bootstrap().returncode == 3


@pytest.mark.parametrize("folder", [".pyenv", "elsewhere", "told"])
def test_a_version_of_pyenv_that_is_not_on_path(bootstrap, fakes, home, folder):
    candidate(fakes / "python3", TOO_OLD)
    candidate(home / folder / "versions/3.11.7/bin/python3", TOO_OLD)
    candidate(home / folder / "versions/3.12.1/bin/python3")
    if folder == "told":
        write_program(fakes / "pyenv", f'[ "$1" = root ] && echo "{home / folder}"\n')
    done = bootstrap(**({"PYENV_ROOT": str(home / folder)} if folder == "elsewhere" else {}))
    assert done.stdout == "3.12.1/bin/python3 make dev\n", done.stderr


def test_a_python_that_uv_knows_of(bootstrap, fakes, home):
    found = candidate(home / "uv python/3.13/bin/python3")
    write_program(fakes / "uv", f'[ -n "$UV_INDEX" ] && exit 9\n[ "$2" = find ] && echo "{found}"\n')
    done = bootstrap(UV_INDEX="https://index.invalid")
    assert done.stdout == "3.13/bin/python3 make dev\n", done.stderr


def test_a_python_that_uv_downloads_goes_into_the_cache(bootstrap, fakes, home):
    prepared = candidate(home / "download/3.13/bin/python3")
    write_program(
        fakes / "uv",
        f"""[ "$2" = install ] || exit 1
while [ "$1" != --install-dir ]; do shift; done
mkdir -p "$2" && /bin/cp -R "{prepared.parents[1]}" "$2"
""",
    )
    done = bootstrap(TURB_KUB_CACHE_DIR=str(home / "the cache"))
    assert done.stdout == "3.13/bin/python3 make dev\n", done.stderr
    assert (home / "the cache/python/3.13/bin/python3").exists()


def test_none_gives_one_sentence(bootstrap, fakes):
    candidate(fakes / "python3", TOO_OLD)
    done = bootstrap()
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("turb-kub: Python 3.12 or newer is needed and none was found")
    assert f"{fakes}/python3 is older" in done.stderr
    assert done.stdout == ""


def test_a_python_without_venv_names_the_package(bootstrap, fakes):
    candidate(fakes / "python3.12", NO_VENV)
    candidate(fakes / "python3", TOO_OLD)
    done = bootstrap()
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert f"{fakes}/python3.12" in done.stderr
    assert "apt-get install python3-venv" in done.stderr


def test_an_environment_that_serves_is_left_alone(bootstrap, fakes, checkout):
    candidate(checkout / ".venv/bin/python")
    candidate(fakes / "python3")
    done = bootstrap(UP_TO_DATE="1")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_the_own_python_goes_before_those_on_path(bootstrap, fakes, checkout):
    candidate(checkout / ".venv/bin/python")
    candidate(fakes / "python3.14")
    assert bootstrap().stdout == ".venv/bin/python make dev\n"


def test_an_own_python_that_vanished_is_no_candidate(bootstrap, fakes, checkout):
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to("/nowhere/python3")
    candidate(fakes / "python3.14")
    assert bootstrap().stdout == "python3.14 make dev\n"


def test_another_environment_does_not_reach_the_python(bootstrap, fakes):
    candidate(fakes / "python3")
    foreign = dict.fromkeys(("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"), "/nowhere")
    assert bootstrap(**foreign).stdout == "python3 make dev\n"
