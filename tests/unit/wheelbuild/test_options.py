"""An option of a build is declared once. Here Dockerfile, the program in the container and the command follow it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner
from wheelbuild.request import read_request

from tests.makers.build_request import GIVEN, OTHER
from toolkit.base import project
from toolkit.base.errors import UsageError
from toolkit.cli import app
from toolkit.versions.settings import Settings
from toolkit.wheel import build_plan
from toolkit.wheel.build_options import BuildOptions, list_options
from tools import dockerfile

ORDER = ["BAZEL_JOBS", "BAZEL_MEMORY"]


def read_stages() -> dict[str, set[str]]:
    """Return the names after ARG in each stage of docker/Dockerfile."""
    stages: dict[str, set[str]] = {}
    stage = ""
    for line in project.locate("docker/Dockerfile").read_text().splitlines():
        if match := re.match(r"FROM .* AS (\S+)$", line):
            stage = match[1]
            stages[stage] = set()
        elif stage and (match := re.match(r"ARG (\w+)", line)):
            stages[stage].add(match[1])
    return stages


def test_the_dockerfile_has_the_argument_of_each_option() -> None:
    declared = set().union(*read_stages().values())
    assert {option.argument for option in list_options().values() if option.argument} <= declared


def test_the_dockerfile_declares_what_is_only_handed_over() -> None:
    committed = project.locate(dockerfile.NAME).read_text()
    assert dockerfile.generate() == committed, "make pins"
    without = re.sub("^ARG BAZEL_MEMORY\\n", "", committed, flags=re.MULTILINE)
    assert dockerfile.declare(without, ORDER, "", dockerfile.STAGE) == committed
    added = dockerfile.declare(committed, [*ORDER, "BAZEL_NICE"], "", dockerfile.STAGE).splitlines()
    assert [added[at - 1] for at, line in enumerate(added) if line == "ARG BAZEL_NICE"] == ["ARG BAZEL_MEMORY"] * 2


def test_the_program_in_the_container_reads_what_is_only_handed_over() -> None:
    arguments = OTHER.list_arguments()
    assert arguments.keys() <= read_stages()["bazel-build"]
    usual = read_request(GIVEN, cores=1, memory=4096)
    for name, text in arguments.items():
        changed = vars(read_request({**GIVEN, name: text}, cores=1, memory=4096)).items() - vars(usual).items()
        assert [str(value) for _, value in changed] == [text], name
    assert BuildOptions().list_arguments() == {}, "an empty argument would replace the Dockerfile's default"


def test_the_command_takes_each_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken: list[BuildOptions] = []

    def plan_wheel(_settings: Settings, options: BuildOptions, **_: object) -> SimpleNamespace:
        taken.append(options)
        raise UsageError("enough")

    monkeypatch.setattr(build_plan, "plan_wheel", plan_wheel)
    monkeypatch.chdir(tmp_path)
    words = [
        f"--{name.replace('_', '-')}" + ("" if text is True else f"={text}")
        for name, value in vars(OTHER).items()
        for text in (value if isinstance(value, tuple) else (value,))
    ]
    assert [CliRunner().invoke(app, given).exit_code for given in (["build-wheel", *words], ["build-wheel"])] == [2, 2]
    assert taken == [OTHER, BuildOptions()]
    assert all(value != getattr(BuildOptions(), name) for name, value in vars(OTHER).items())
