"""Helpers run nothing that a folder or a variable names, and are started in one place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import NOWHERE, Run
from tests.makers.canary import STRANGER, Canary
from toolkit.base import programs, project
from toolkit.base.errors import PreflightError
from toolkit.versions import lock
from toolkit.wheel import build_inputs
from train.native import library

"""The modules that start programs by themselves, and which. All others do it by `toolkit.base.programs`."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository, as a stranger's archive holds one: all that it can say of programs is in its configuration."""
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "configure").write_text("x")
    (folder / ".bazelversion").write_text("6.5.0\n")
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    _commit(folder)
    return folder


def _commit(folder: Path) -> None:
    for words in ("init --quiet", "add --all", "-c user.name=a -c user.email=a@b commit --quiet --message x"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True, stderr=subprocess.DEVNULL)


SAYINGS = {
    "fsmonitor": '[core]\n\tfsmonitor = "{sing}; false"\n',
    "filter": '[filter "evil"]\n\tclean = "{sing}; cat"\n\tsmudge = "{sing}; cat"\n\trequired = true\n',
    "filter process": '[filter "evil"]\n\tprocess = "{sing}; false"\n\trequired = true\n',
    "diff": '[diff "evil"]\n\ttextconv = "{sing}"\n\tcommand = "{sing}"\n',
    "include": '[include]\n\tpath = other\n[filter "x"]\n\tclean = cat\n',
    "promise": '[remote "o"]\n\turl = "ext::sh -c \\"{sing}\\""\n\tpromisor = true\n'
    '[protocol "ext"]\n\tallow = always\n[extensions]\n\tpartialClone = o\n[core]\n\trepositoryformatversion = 1\n',
}  # fmt: skip


@pytest.mark.parametrize("kind", [*SAYINGS, "hook", "submodule"])
def test_git_runs_nothing_that_a_source_tree_names(tree: Path, canary: Canary, kind: str) -> None:
    if kind == "hook":
        hook = tree / ".git" / "hooks" / "post-index-change"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{canary.shell}\n")
        hook.chmod(0o755)
    elif kind == "submodule":
        inner = tree / "inner"
        inner.mkdir()
        (inner / "file").write_text("x")
        _commit(inner)
        _commit(tree)
        (inner / ".gitattributes").write_text("* filter=evil\n")
        _add(inner / ".git" / "config", SAYINGS["filter"], canary)
    else:
        _add(tree / ".git" / "config", SAYINGS[kind], canary)
        _add(tree / ".git" / "other", SAYINGS["filter"], canary)
    if kind == "promise":
        for path in (tree / ".git" / "objects").glob("??/*"):
            path.unlink()
    os.utime(tree / "configure", (1, 1))  # so that git has to read it again
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*") if path.is_file()}
    identity = build_inputs.identify_folder(tree)
    assert not canary.has_sung()
    if kind != "promise":  # git before 2.45 notes there that it wants to fetch
        assert {path: path.stat().st_mtime_ns for path in tree.rglob("*") if path.is_file()} == before
    assert identity.startswith("sha256:" if kind in {"promise", "submodule"} else "git:")


def _add(path: Path, text: str, canary: Canary) -> None:
    with path.open("a") as stream:
        stream.write(text.replace("{sing}", canary.shell))


def test_a_plan_of_a_strangers_tree_runs_nothing(tree: Path, canary: Canary, run: Run) -> None:
    _add(tree / ".git" / "config", SAYINGS["fsmonitor"], canary)
    versions = ("--tensorflow", "2.19.0", "--cuda", "12.6.1", "--cudnn", "9.5.0", "--compute-capability", "7.5")
    for more in ((), ("--collect", "downloads")):
        run("build-wheel", *versions, "--source", str(tree), "--dry-run", *more)
        assert not canary.has_sung()


def test_the_current_folder_does_not_say_where_repositories_are(
    tree: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead = f'[url "ext::sh -c \\"{canary.shell}\\" "]\n\tinsteadOf = {lock.REPOSITORY}\n'
    _add(tree / ".git" / "config", f'{instead}[protocol "ext"]\n\tallow = always\n', canary)
    monkeypatch.setattr(lock, "REPOSITORY", lock.REPOSITORY)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.ext.allow")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "always")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.chdir(tree)
    assert lock.ask_commit("2.19.0") == ""
    assert not canary.has_sung()


@pytest.mark.parametrize("module", ["pip", "json", "site", "sitecustomize"])
def test_no_module_of_the_current_folder_runs_in_pythons_that_help(
    run: Run, canary: Canary, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.folder / f"{module}.py").write_text(canary.python)
    run("doctor", "--engine", "host", PYTHONPATH=str(run.folder), **NOWHERE)
    assert any(sys.executable in line for line in run.started), "pip is asked"
    monkeypatch.chdir(run.folder)
    assert programs.python("-c", "import json, site").run(seconds=60).returncode == 0
    assert not canary.has_sung()


def test_the_question_for_memory_reads_no_module_of_the_current_folder(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "__init__.py").write_text(canary.python)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(project.ROOT))
    from train.step import budget

    with pytest.raises(PreflightError):
        budget._ask("nonsense", "no JSON")
    assert not canary.has_sung()


@pytest.mark.parametrize("part", ["", "config.json", "cli-plugins"])
def test_settings_of_docker_that_another_user_can_change_are_refused(
    tmp_path: Path, canary: Canary, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = tmp_path / "docker" / "cli-plugins"
    plugins.mkdir(parents=True)
    plugin = plugins / "docker-buildx"
    plugin.write_text(f"#!/bin/sh\n{canary.shell}\n")
    plugin.chmod(0o755)
    (tmp_path / "docker" / "config.json").write_text("{}")
    path = tmp_path / "docker" / part
    path.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with pytest.raises(PreflightError, match="settings of Docker"):
        programs.docker(["docker", "buildx", "version"])
    assert not canary.has_sung()


def test_ptxas_loads_no_library_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/nowhere/evil.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", "lib")
    assert not {"LD_PRELOAD", "LD_LIBRARY_PATH"} & programs.assembler(["ptxas"]).variables.keys()


def test_a_compiler_takes_nothing_of_the_current_folder(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "c++"
    fake.write_text(f"#!/bin/sh\n{canary.shell}\n")
    fake.chmod(0o755)
    (tmp_path / "vector").write_text("#error a header of a stranger\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    monkeypatch.setenv("CPATH", ":")
    try:
        compiler = library.find_compiler()
    except PreflightError:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "program.cpp").write_text("#include <vector>\nint main() {}\n")
    library._run([compiler, "-c", str(tmp_path / "source" / "program.cpp"), "-o", str(tmp_path / "program.o")])
    assert not canary.has_sung()


def test_a_program_of_the_current_folder_is_not_found(run: Run, canary: Canary) -> None:
    for name in ("docker", "git", "nvidia-smi"):
        (run.folder / name).write_text(f"#!/bin/sh\n{canary.shell}\n")
        (run.folder / name).chmod(0o755)
    for path in (f".:{os.environ['PATH']}", f":{os.environ['PATH']}"):
        run("doctor", "--engine", "host", PATH=path, **NOWHERE)
    assert not canary.has_sung()
