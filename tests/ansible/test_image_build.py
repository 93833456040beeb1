"""What the scheduler's image is made of: the lock's wheels for its Python, and a folder that is always the same."""

import hashlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import parse_wheel_filename

from tests.ansible.conftest import CACHE, ROOT, Workshop, load_module, run_module

houses = load_module("wheelhouse")
contexts = load_module("image_context")
bases = load_module("debian_base")

UV = Path(sys.executable).parent / "uv"
REQUIREMENTS = [ROOT / "scheduler/requirements.txt", ROOT / "scheduler/requirements-build.txt"]
MACHINE = "x86_64"


def uv(*arguments: str) -> str:
    """What uv says of our lock, without any network."""
    command = [str(UV), *arguments, "--frozen", "--offline", "--no-config", "--cache-dir", str(CACHE / "uv")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    return process.stdout


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("file", "selection"),
    [(REQUIREMENTS[0], ["--package", "turb-kub", "--no-dev"]), (REQUIREMENTS[1], ["--only-group", "build"])],
    ids=["requirements.txt", "requirements-build.txt"],
)
def test_requirements_of_the_image_are_those_of_the_lock(file: Path, selection: list[str]) -> None:
    exported = uv("export", *selection, "--no-emit-project", "--no-annotate")
    command = next(line for line in file.read_text().splitlines() if "uv export" in line)
    assert lines(file.read_text()) == lines(exported), f"run: {command.lstrip('# ')}"


# -- the wheelhouse ----------------------------------------------------------------------------------------------------


def wheelhouse(folder: Path, tmp_path: Path, python: str, requirements: list[Path] = REQUIREMENTS) -> dict[str, Any]:
    arguments = {"path": str(folder), "requirements": [str(file) for file in requirements], "machine": MACHINE}
    return run_module("wheelhouse", arguments | {"python_version": python}, tmp_path)


def packages_in_the_tree(python: str) -> set[tuple[str, str]]:
    """Names and versions that uv itself resolves for the scheduler and its build on that Python."""
    tree = ["tree", "--python-version", python, "--python-platform", f"{MACHINE}-manylinux_2_36", "--no-dedupe"]
    texts = [uv(*tree, "--package", "turb-kub", "--no-dev"), uv(*tree, "--only-group", "build")]
    words = [line.replace("│", " ").lstrip(" ├└─").split() for text in texts for line in text.splitlines()]
    return {(word[0].split("[")[0], word[1].removeprefix("v")) for word in words if len(word) > 1} - {
        ("turb-kub", "0.1.0"),
        ("turb-kub-collection", "0.1.0"),
    }


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_wheelhouse_has_exactly_the_locked_wheels_for_the_images_python(python: str, tmp_path: Path) -> None:
    answer = wheelhouse(CACHE / "wheelhouse", tmp_path, python)
    assert not answer.get("failed"), answer
    folder = Path(answer["folder"])
    names = [path.name for path in folder.iterdir() if path.name != "SHA256SUMS"]
    parsed = {name: parse_wheel_filename(name) for name in names}
    assert {(str(wheel[0]), str(wheel[1])) for wheel in parsed.values()} == packages_in_the_tree(python)

    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    locked = {
        wheel["url"].rpartition("/")[2]: wheel["hash"].removeprefix("sha256:")
        for package in lock["package"]
        for wheel in package.get("wheels", [])
    }
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names} == {
        name: locked[name] for name in names
    }
    own = f"cp{python.replace('.', '')}"
    for name, (_, _, _, tags) in parsed.items():
        assert any(tag.interpreter in (own, "py3") or tag.abi == "abi3" for tag in tags), name
        assert any(tag.platform == "any" or tag.platform.endswith(MACHINE) for tag in tags), name


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Makes a wheelhouse of the few wheels that a build needs; they come from the one in the cache."""
    full = wheelhouse(CACHE / "wheelhouse", tmp_path, "3.11")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", full["folder"])
    return lambda: wheelhouse(tmp_path / "wheels", tmp_path, "3.11", REQUIREMENTS[1:])


def test_whole_wheelhouse_is_used_again_without_asking_anybody(small, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small()
    assert first["changed"], first
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    again = small()
    assert (again["changed"], again["wheels"]) == (False, first["wheels"])


def damage(folder: Path) -> None:
    wheel = next(folder.glob("pluggy-*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1])


@pytest.mark.parametrize(
    "harm",
    [
        damage,
        lambda folder: next(folder.glob("pip-*.whl")).unlink(),
        lambda folder: (folder / "foreign-1-py3-none-any.whl").write_bytes(b"x"),
        lambda folder: (folder / "SHA256SUMS").write_text(""),
    ],
    ids=["cut short", "one missing", "one too many", "no sums"],
)
def test_wheelhouse_that_is_not_whole_is_made_anew(small, harm: Callable[[Path], Any]) -> None:
    first = small()
    harm(Path(first["folder"]))
    again = small()
    assert (again["changed"], again["wheels"]) == (True, first["wheels"])
    assert not small()["changed"]
    assert [path.name for path in Path(first["folder"]).parent.iterdir()] == [Path(first["folder"]).name]


def test_wheels_with_another_hash_than_the_locks_are_refused(
    small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small()
    damage(Path(made["folder"]))
    monkeypatch.setenv("PIP_FIND_LINKS", made["folder"])
    other = wheelhouse(tmp_path / "other", tmp_path, "3.11", REQUIREMENTS[1:])
    assert other["failed"]
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in other["msg"]
    assert list((tmp_path / "other").iterdir()) == []


def test_no_index_and_a_python_without_wheels_are_one_message(small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    answer = small()
    assert answer["failed"]
    assert answer["msg"].startswith(
        "The wheels for Python 3.11 on x86_64 can't be downloaded: the network is not there,"
    )
    assert "No matching distribution found" in answer["msg"]


def test_requirement_without_hash_is_refused() -> None:
    with pytest.raises(houses.Failure, match=r"requirements\.txt has a line .* 'numpy==2\.4\.6'"):
        houses.parse("numpy==2.4.6\n", "requirements.txt")


def test_conditions_are_those_of_the_image_and_not_of_this_python() -> None:
    requirements = houses.parse(REQUIREMENTS[0].read_text(), "requirements.txt")
    versions = {
        python: [each.version for each in houses.meant(requirements, python, MACHINE) if each.name == "numpy"]
        for python in ("3.11.2", "3.12", "3.13")
    }
    assert versions["3.12"] == versions["3.13"] != versions["3.11.2"]
    assert all(len(each) == 1 for each in versions.values())


# -- the folder --------------------------------------------------------------------------------------------------------


def source_copy(folder: Path) -> Path:
    """A copy of the scheduler's source with what a run and an editor leave in it."""
    shutil.copytree(ROOT / "scheduler", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "src/turb_kub/__pycache__").mkdir()
    (folder / "src/turb_kub/__pycache__/x.cpython-313.pyc").write_bytes(b"compiled")
    (folder / "src/turb_kub/notes.py~").write_text("old")
    (folder / "README.md").chmod(0o600)
    return folder


def content(folder: Path) -> dict[str, tuple[bytes, int, float]]:
    """Everything that a build could see of each file but the wheels, which are links into the cache."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".whl"]
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_mtime)
        for path in files
        if path.name != "SHA256SUMS"
    }


def test_same_source_elsewhere_is_the_same_tag_and_the_same_folder(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        workshop = Workshop(tmp_path / name, "turb-kub-test-context")
        source = source_copy(tmp_path / name / "source")
        made.append(
            workshop.play(
                "image_context.yml",
                cases=[{"source": str(source)}],
                with_context=True,
                image_context_dir=str(source),
                cluster_record={},
            )
        )
        assert made[-1].code == 0, made[-1].output
    folders = [tmp_path / name / "state/turb-kub/turb-kub-test-context/image/context" for name in ("one", "two")]
    assert made[0].answer("Say the names")["msg"] == made[1].answer("Say the names")["msg"]
    assert content(folders[0]) == content(folders[1])
    assert not [path for path in folders[0].rglob("*") if path.name.endswith(("~", ".pyc"))]
    assert (folders[0] / "src/turb_kub/cli/main.py").is_file()
    # The default base's Python, by its name: nothing was asked.
    assert (
        {name.name for name in (folders[0] / "wheels").glob("numpy-*")}
        == {name.name for name in (folders[0] / "wheels").glob("numpy-*-cp313-*")}
        != set()
    )
    dockerfile = (folders[0] / "Dockerfile").read_text()
    tag = made[0].answer("Say the names")["msg"][0].split(":")[1]
    assert (
        f"\nARG BASE=python:3.13-slim\nARG VERSION=0.1.0\nARG SOURCE=https://example.com/turb-kub\nARG REVISION={tag}\n"
        in (dockerfile)
    )


def test_tag_differs_where_the_image_would(workshop: Workshop, tmp_path: Path) -> None:
    cases: list[dict[str, str]] = []
    for name, change in {
        "same": None,
        "code": "src/turb_kub/__init__.py",
        "recipe": "Dockerfile",
        "packages": "requirements.txt",
        "build": "requirements-build.txt",
    }.items():
        source = source_copy(tmp_path / name)
        if change:
            with (source / change).open("a") as file:
                file.write("# changed\n")
        cases.append({"source": str(source)})
    cases += [cases[0], cases[0] | {"base": "debootstrap"}, cases[0] | {"python": "3.12"}]
    played = workshop.play("image_context.yml", cases=cases)
    assert played.code == 0, played.output
    references = played.answer("Say the names")["msg"]
    assert references[0] == references[5]
    assert len(set(references)) == len(references) - 1


def test_a_base_whose_python_can_not_be_told_is_one_sentence(workshop: Workshop) -> None:
    played = workshop.play(
        "image_context.yml",
        cases=[{"source": str(ROOT / "scheduler")}],
        with_context=True,
        image_base="example.com/python-of-ours:1",
        cluster_record={},
    )
    assert played.failure == (
        "Which Python example.com/python-of-ours:1 has can't be told from its name: set image_python, for example to"
        " 3.13."
    )


def made_context(tmp_path: Path, **arguments: Any) -> dict[str, Any]:
    """Run the module on a source of two files."""
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "Dockerfile").write_text("ARG BASE=old\nFROM ${BASE}\nARG BASE\n")
    (source / "a").write_text("a")
    (tmp_path / "wheels").mkdir(exist_ok=True)
    (tmp_path / "wheels/w.whl").write_text("w")
    given = {"path": str(tmp_path / "context"), "source": str(source), "wheels": str(tmp_path / "wheels")}
    return run_module("image_context", given | {"files": ["Dockerfile", "a"]} | arguments, tmp_path)


def test_folder_is_made_anew_only_where_something_changed(tmp_path: Path) -> None:
    assert made_context(tmp_path)["changed"]
    assert not made_context(tmp_path)["changed"]
    (tmp_path / "context/left over").write_text("x")
    again = made_context(tmp_path)
    assert again["changed"]
    assert again["files"] == ["Dockerfile", "a", "wheels/w.whl"]
    assert made_context(tmp_path, build_arguments={"BASE": "new:1"})["changed"]
    assert (tmp_path / "context/Dockerfile").read_text() == "ARG BASE=new:1\nFROM ${BASE}\nARG BASE\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"build_arguments": {"BASE": "a b"}},
            "'a b' can't be the value of BASE: a Dockerfile would read it otherwise.",
        ),
        ({"files": ["Dockerfile", "../a"]}, "../a is not below "),
        ({"files": ["a"]}, "There is no Dockerfile in "),
        ({"files": ["Dockerfile", "none"]}, "No such file or directory"),
    ],
)
def test_what_can_not_be_put_together_is_one_sentence(tmp_path: Path, arguments: dict[str, Any], says: str) -> None:
    answer = made_context(tmp_path, **arguments)
    assert answer["failed"]
    assert says in answer["msg"]
    assert not (tmp_path / "context").exists()


# -- the base from Debian's packages -----------------------------------------------------------------------------------


def test_mirrors_are_those_of_this_machines_apt() -> None:
    listing = """http://mirror.local/debian bookworm main
http://mirror.local/debian bookworm contrib
http://mirror.local/security bookworm-security main
https://deb.example.com/node nodistro main

"""
    assert bases.mirrors_of_apt("bookworm", listing) == {
        "": "http://mirror.local/debian",
        "-updates": "http://deb.debian.org/debian",
        "-security": "http://mirror.local/security",
    }


def test_mounts_that_a_killed_debootstrap_left_are_found() -> None:
    table = (
        "22 1 0:20 / /proc rw - proc proc rw\n"
        "31 1 0:20 / /c/b.tar.work/root/proc rw - proc proc rw\n"
        "32 1 0:21 / /c/b.tar.work/root/a\\040b rw - tmpfs tmpfs rw\n"
        "33 1 0:22 / /c/b.tar.work/root/proc/sys/x rw - binfmt_misc none rw\n"
        "34 1 0:23 / /c/b.tar.workshop rw - tmpfs tmpfs rw\n"
    )
    root = "/c/b.tar.work/root"
    assert bases.mounts_below(Path("/c/b.tar.work"), table) == [f"{root}/proc/sys/x", f"{root}/proc", f"{root}/a b"]


def test_an_archive_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "base.tar").write_bytes(b"there")
    given = {"dest": str(tmp_path / "base.tar"), "reference": "localhost/base:1", "suite": "bookworm"}
    assert not run_module("debian_base", given, tmp_path)["changed"]
    assert (tmp_path / "base.tar").read_bytes() == b"there"
