import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Run
from tests.unit.wheel.maker import CPU_INFO, MEMBER, hash_for_record, make_wheel
from toolkit.base.project import ROOT
from tools import pages, reference


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["up", "cifra10"], 2, "did you mean cifar10"),
        (["train", "digits", "--no-such-option"], 2, "--no-such-option"),
        (["train", "digits", "--epochs", "0"], 2, "at least 1"),
        (["up", "--tensorflow", "2.18.0"], 3, "`toolkit lock --tensorflow 2.18.0 --python 3.11` makes it"),
        (["up", "--wheel", "nowhere.whl"], 2, "there is no wheel"),
        (["smoke", "--wheel", "nowhere"], 2, "a folder"),
        (["up", "--cuda", "9.5.0", "--cudnn", "12.6.1"], 2, "--cuda 12.6.1 --cudnn 9.5.0"),
        (["build-wheel", "--tensorflow", "latest"], 2, "such as 2."),
        (["push", "ghcr.io/team/tensorflow", "dist/name"], 2, "toolkit push dist/name ghcr.io/team/tensorflow"),
        (["advise", "RTX 5090", "--gpu", "T4"], 2, "twice"),
        (["nosuch"], 2, "nosuch"),
        (["doctor", "--ca-bundle", str(Path(__file__))], 2, "holds no certificate"),
        (["up", "--base-image", "Bad Name"], 2, "not the name of an image"),
        (["up", "--engine", "docker"], 5, "container engine"),
        (["smoke", "--skip", "cpu.onedn"], 2, "did you mean cpu.onednn"),
        (["doctor", "--engine", "docker"], 4, "engine"),
    ],
)
def test_bad_input_gets_one_message_and_its_code(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list(run.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "tag", "code", "message"),
    [
        ("tensorflow", "cp311-cp311-linux_x86_64", 0, ""),
        ("torch", "cp311-cp311-linux_x86_64", 3, "is not TensorFlow"),
        ("tensorflow", "cp312-cp312-linux_x86_64", 3, "not for Python 3.11"),
    ],
)
def test_a_wheel_is_read_before_it_is_used(run: Run, name: str, tag: str, code: int, message: str) -> None:
    wheel = make_wheel(run.folder, name=name, tag=tag, files={MEMBER: CPU_INFO})
    done = run("up", "--wheel", wheel.name, "--engine", "host", "--dry-run")
    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_a_damaged_wheel_is_an_integrity_error(run: Run) -> None:
    path = make_wheel(run.folder, files={MEMBER: CPU_INFO}, record={MEMBER: hash_for_record(b"other")})
    assert run("up", "--wheel", path.name, "--engine", "host", "--dry-run").returncode == 8
    path.write_bytes(path.read_bytes()[:200])
    assert run("up", "--wheel", path.name, "--engine", "host", "--dry-run").returncode == 8


def test_an_unwritable_output_is_said_before_anything_is_made(run: Run) -> None:
    (run.folder / "state").write_text("a file where the folder should be")
    done = run("up", "digits", TOOLKIT_STATE="state")
    assert done.returncode == 4
    assert "cannot write to" in done.stderr


@pytest.mark.parametrize("arguments", [["doctor", "--engine", "docker"], ["matrix", "--nope"], ["up", "nosuch"]])
def test_a_failure_is_one_json_object(run: Run, arguments: list[str]) -> None:
    done = run(*arguments, "--json")
    assert done.returncode != 0
    error = json.loads(done.stdout)["error"]
    assert error["code"] == done.returncode
    assert error["remedy"]


def test_a_reader_who_goes_away_does_not_change_the_verdict(run: Run) -> None:
    program = (
        f"{shlex.quote(sys.executable)} -m toolkit doctor --offline --engine docker | true; exit ${{PIPESTATUS[0]}}"
    )
    variables = {**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:1"}
    done = subprocess.run(["bash", "-c", program], env=variables, cwd=run.folder, capture_output=True, check=False)
    assert done.returncode == 4


def test_a_full_output_is_one_message(run: Run) -> None:
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, "-m", "toolkit", "matrix"]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


def test_auto_takes_the_host_and_says_why(run: Run) -> None:
    done = run("up", "digits", "--dry-run")
    assert done.returncode == 0
    assert "host: " in done.stderr
    create, install, *warm, smoke, train = (shlex.split(line) for line in done.stdout.splitlines())
    assert "venv" in create
    assert len(warm) == 2
    assert any("tensorflow" in command[-1] for command in warm)
    assert "--require-hashes" in install
    assert "--expect-version" in smoke
    assert train[0] == "env"
    assert train[train.index("-m") :][:3] == ["-m", "train", "digits"]
    assert list(run.folder.iterdir()) == []


def test_matrix_shows_each_version_with_its_sources_and_each_known_failure(run: Run) -> None:
    text, value = run("matrix").stdout, json.loads(run("matrix", "--json").stdout)
    for row in value["rows"]:
        assert row["sources"]
        assert set(row["sources"]) <= value["sources"].keys()
        assert re.search(rf"(?m)^{re.escape(row['version'])} ", text)
    for row in value["cuda"]:
        assert re.search(rf"(?m)^{re.escape(row['version'])} +{re.escape(row['driver'] or '-')} ", text)
    assert "9.5.0" in {row["version"] for row in value["cudnn"]}
    for failure in value["failures"]:
        assert f"{failure['symptom']} ({', '.join(failure['issues'])})\n    answer: {failure['ours']}" in text
    assert "P10, tensorflow before 2.20 and cuda from 12.8: " in text


@pytest.mark.parametrize("command", ["up", "build-wheel"])
def test_a_tensorflow_with_security_advisories_is_named_once_and_not_refused(run: Run, command: str) -> None:
    options = ("--dry-run", "--json", "--tensorflow", "2.19.0")
    done = run(command, *options, **({"TOOLKIT_ENGINE": "host"} if command == "up" else {}))
    assert done.stderr.count("CVE-2026-2492") == 1
    assert json.loads(done.stdout)["advisories"] == ["CVE-2026-2492"]


def test_the_fast_commands_load_nothing_slow(run: Run) -> None:
    slow = {"tensorflow", "docker", "datasets", "numpy", "requests", "packaging"}
    for arguments in (["--help"], ["matrix"], ["up", "--help"]):
        program = (
            "import sys; from toolkit.cli import app\n"
            f"try: app({arguments!r})\n"
            "except SystemExit: pass\n"
            f"print(*{slow} & sys.modules.keys(), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stderr.strip() == ""


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_the_pages_show_what_the_code_says(page: Path) -> None:
    assert pages.generate(page.read_text()) == page.read_text(), "run: python -m tools.pages"
    assert reference.render_manual(pages.list_job_options()) == pages.MANUAL.read_text(), "run: python -m tools.pages"


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "nowhere"],
        ["report", "nowhere"],
        ["push", "nowhere", "ghcr.io/team/tensorflow"],
        ["reproduce", "nowhere"],
        ["predict", "nowhere", "photo.jpg"],
        ["serve", "nowhere"],
        ["train", "./nowhere"],
        ["train", "cifar10", "--data-dir", "nowhere"],
        ["train", "digits", "--init-from", "./nowhere"],
        ["build-image", "--wheel", "nowhere"],
        ["build-wheel", "--source", "./nowhere"],
    ],
    ids=" ".join,
)
def test_what_is_not_there_has_one_exit_code(run: Run, words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2, done.stderr
    assert "nowhere" in done.stderr
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1


def test_a_python_without_packages_is_one_message() -> None:
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv[1:] = ['digits']; "
        f"runpy.run_module('train', run_name='__main__')"
    )
    bare = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "toolkit train" in done.stderr
    assert sys.executable in done.stderr
