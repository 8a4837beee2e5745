import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import yaml

from tests import loaded
from tests.command import Run
from tests.unit.graft.maker import make_container, make_library, make_tensorflow
from tests.unit.records import maker
from toolkit import records
from toolkit.base.errors import UsageError
from toolkit.engine import Job
from toolkit.engine.container import describe
from toolkit.engine.user import IMAGE_USER
from toolkit.jobs.training_job import GRACE_SECONDS
from toolkit.versions.settings import resolve
from toolkit.wheel import wheel_folder
from tools import notebooks
from train.command_line import parse

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TINY = "--depth 10 --epochs 1 --batch-size 240 --kernels stock --threads 1"


def load(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text())


def test_their_readers_take_the_files_that_users_write(tmp_path: Path) -> None:
    settings = resolve({}, file=EXAMPLES / "toolkit.yaml", environment={})
    assert {settings.sources[name] for name in load("toolkit.yaml")} == {"toolkit.yaml"}
    with pytest.raises(UsageError, match="cannot read the key"):
        records.read_policy([EXAMPLES / "policy.yaml"])
    for name in ("toolkit", "policy"):  # editors check a file by the schema that its first line names
        place = re.match(r"# yaml-language-server: \$schema=(.+)\n", (EXAMPLES / f"{name}.yaml").read_text())
        assert place
        assert (EXAMPLES / place[1]).is_file()


class Shell:
    """Runs the shell of a job beside a host environment; ``toolkit`` is that of this clone."""

    def __init__(self, folder: Path, **others: str) -> None:
        self.folder = folder
        maker.make_environment(folder / "state", loaded.start())
        programs = {"toolkit": f'exec "{sys.executable}" -m toolkit "$@"', **others}
        for name, text in programs.items():
            program = folder / "programs" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)

    def __call__(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLKIT_", "SLURM_"))}
        path = f"{self.folder / 'programs'}{os.pathsep}{own['PATH']}"
        own |= {"PATH": path, "TOOLKIT_STATE": str(self.folder / "state"), "PYTHONPATH": str(ROOT), **variables}
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(argv, cwd=self.folder, env=own, capture_output=True, text=True, check=False)


def read_github() -> tuple[list[str], dict[str, str]]:
    workflow = load("github.yml")
    return [step["run"] for step in workflow["jobs"]["train"]["steps"] if "run" in step], workflow["env"]


def read_gitlab() -> tuple[list[str], dict[str, str]]:
    job = load("gitlab.yml")["train"]
    return ["\n".join(job["before_script"]) + "\n", *job["script"]], job["variables"]


@pytest.mark.weekly
@pytest.mark.parametrize("read", [read_github, read_gitlab])
def test_the_shell_of_the_ci_jobs_trains_and_verifies(read: Any, tmp_path: Path) -> None:
    (install, *steps), variables = read()
    shell = Shell(tmp_path, python='printf "%s\\n" "$*" >> installed')
    done = shell(install)
    assert done.returncode == 0, done.stderr
    for step in steps:
        done = shell(step, **variables | {"JOB": f"digits {TINY}"})
        assert done.returncode == 0, done.stderr
    assert "FAIL" not in done.stdout
    (folder,) = tmp_path.glob("runs/digits-*")
    (folder / "metrics.csv").write_text("damaged")
    assert shell(steps[-1], **variables).returncode == 7, "a run that is not what it says fails the job"


def test_the_actions_are_at_the_commits_of_the_workflows_here() -> None:
    """A tag can be moved to other code. What is copied from here is not proposed anew by Dependabot."""
    workflows, examples = (
        {action for path in folder.glob("*.yml") for action in re.findall(r"uses: (actions/\S+)", path.read_text())}
        for folder in (ROOT / ".github" / "workflows", EXAMPLES)
    )
    assert examples
    assert examples <= workflows


PUBLISHED = "tensorflow-2.21.0-cp311-cp311-manylinux_2_27_x86_64.whl"
GRAFT = f'''
test "$1" = graft || exec "{sys.executable}" -m toolkit "$@"
"{sys.executable}" -m toolkit "$@" --dry-run >&2
mkdir -p dist
cp -r "grafts/${{5:-repaired}}" dist/
'''
"""A stand-in for the program that plans a graft, and takes one that is there."""


@pytest.mark.slow
def test_the_workflow_publishes_an_index_whose_wheels_are_in_a_release(tmp_path: Path) -> None:
    workflow = load("index.yml")
    (install, *steps) = [step["run"] for step in workflow["jobs"]["wheels"]["steps"] if "run" in step]
    assert install == read_github()[0][0]
    tag = PUBLISHED.removeprefix("tensorflow-2.21.0-").removesuffix(".whl")
    numbers = {name: int(name.replace(".", "")) for name in workflow["env"]["CAPABILITIES"].split()}
    wheels = {name: (f"2.21.0+sm{number}.only", (number,)) for name, number in numbers.items()}
    for name, (version, cubins) in {**wheels, "repaired": ("2.21.0+repaired", (80, 89))}.items():
        folder = tmp_path / "grafts" / name
        folder.mkdir(parents=True)
        make_tensorflow(folder, make_library([make_container("one", cubins=cubins)]), version=version, tag=tag)
        wheel_folder.write_sums(folder)
    shell = Shell(tmp_path, toolkit=GRAFT)
    variables = {**workflow["env"], "RELEASE": "wheels-1", "GITHUB_REPOSITORY": "owner/wheels"}
    for step in steps:
        done = shell(step, **variables)
        assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "wheels").iterdir() if path.suffix == ".whl"}
    assert len(names) == 3
    assert PUBLISHED in names, "the repaired wheel, which pip takes"
    assert {path.name for path in (tmp_path / "wheels").iterdir()} == names | {f"{name}.metadata" for name in names}
    page = (tmp_path / "site/tensorflow/index.html").read_text()
    for name in names:
        assert f'href="https://github.com/owner/wheels/releases/download/wheels-1/{name}#sha256=' in page
    assert not list((tmp_path / "site").rglob("*.whl"))
    (path,) = (tmp_path / "site").rglob("*-variants.json")
    assert set(json.loads(path.read_text())["variants"]) == {"sm90", "sm120"}


ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
RECORD = """
printf '%s\\0' "$@" > said
echo '{"wheel": "dist/a/t.whl", "folder": "dist/a", "digest": "sha256:1", "reused": false}'
exit ${CODE:-0}
"""
"""A stand-in for the program, which prints what the real one prints of a wheel."""


def call_action(folder: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], list[str], str]:
    """Run the step that makes the wheel as GitHub does; return its end, the program's arguments, and the outputs."""
    (step,) = [each for each in ACTION["runs"]["steps"] if each.get("id") == "wheel"]
    given = {name: entry["default"] for name, entry in ACTION["inputs"].items()} | inputs
    named = {key: re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value) for key, value in step["env"].items()}
    variables = {key: given[match[1]] for key, match in named.items() if match}
    assert variables.keys() == step["env"].keys()
    variables |= {"GITHUB_OUTPUT": str(folder / "output"), "RUNNER_TEMP": str(folder)}
    done = Shell(folder, toolkit=RECORD)(step["run"], **variables, CODE=given.get("code", "0"))
    said, output = folder / "said", folder / "output"
    arguments = said.read_text().split("\0")[:-1] if said.exists() else []
    return done, arguments, output.read_text() if output.exists() else ""


def test_the_action_passes_its_inputs_on_and_names_the_wheel(tmp_path: Path) -> None:
    inputs = {"cuda": "12.6.1", "cudnn": "9.5.0", "capability": "7.5 8.6", "from": "ghcr.io/a/b", "trust": "my key.pub"}
    done, arguments, output = call_action(tmp_path, **inputs)
    assert done.returncode == 0, done.stderr
    assert shlex.join(arguments) == (
        "build-wheel --json --out dist --cuda 12.6.1 --cudnn 9.5.0 --from ghcr.io/a/b --trust 'my key.pub' "
        "--compute-capability 7.5 --compute-capability 8.6"
    )
    assert output == "wheel=dist/a/t.whl\nfolder=dist/a\ndigest=sha256:1\n"
    assert set(ACTION["outputs"]) == {"wheel", "folder", "digest"}


def test_no_input_of_the_action_is_run_as_a_command(tmp_path: Path) -> None:
    hostile = "$(touch pwned); `touch pwned`"
    done, arguments, _ = call_action(
        tmp_path, cuda=hostile, arguments="--bazel-argument '--copt=$(touch pwned) x' --jobs 2"
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "pwned").exists()
    assert arguments[4:] == ["--cuda", hostile, "--bazel-argument", "--copt=$(touch pwned) x", "--jobs", "2"]


def test_the_pipeline_of_jenkins_runs_commands_that_exist(run: Run) -> None:
    words = [
        shlex.split(line) for line in re.findall(r"\.venv/bin/toolkit (.+)'", (EXAMPLES / "Jenkinsfile").read_text())
    ]
    assert [each[0] for each in words] == ["build-wheel", "verify"]
    assert run(*words[0], "--dry-run").returncode == 0
    for each in re.findall(r"tensorflow-toolkit/(\S+)", (EXAMPLES / "Jenkinsfile").read_text()):
        assert (ROOT / each).exists()


SBATCH = '[ "$1" = --test-only ] || { echo 7; SLURM_JOB_ID=7 setsid bash "$2" > log 2>&1; }'
SRUN = 'while [ "$1" != env ]; do shift; done; SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_NODELIST=localhost exec "$@"'


@pytest.mark.weekly
def test_slurm_gets_a_job_that_trains(tmp_path: Path) -> None:
    """Slurm's programs are stand-ins, and there is one machine; a real Slurm is in the tests with containers."""
    shell = Shell(tmp_path, sbatch=SBATCH, srun=SRUN, scontrol="echo localhost", squeue="", sinfo="")
    done = shell(shlex.join([str(EXAMPLES / "slurm.sh"), "--nodes", "1", *shlex.split(TINY)]))
    assert done.returncode == 0, done.stderr
    assert "job 7 is queued" in done.stdout
    assert len(list(tmp_path.glob("runs/digits-*/manifest.json"))) == 1, (tmp_path / "log").read_text()


def test_the_pod_for_kubernetes_trains_as_its_command_line_says() -> None:
    pod = load("kubernetes.yaml")["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert worker["command"] == ["python", "-P", "-m", "train"]
    config = parse(worker["args"])
    places = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert {str(config.out), str(config.cache_dir), "/tmp", "/dev/shm"} == places
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in worker["volumeMounts"]}
    assert pod["securityContext"]["runAsUser"] == IMAGE_USER
    assert pod["terminationGracePeriodSeconds"] == GRACE_SECONDS
    own = describe(Job(title="x", argv=()), image="i")
    assert worker["securityContext"]["readOnlyRootFilesystem"] == own.read_only
    assert worker["securityContext"]["capabilities"] == {"drop": list(own.cap_drop)}


def test_the_cells_of_the_notebook_read_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = maker.train(tmp_path / "runs", "--steps", "20", "--progress", "quiet")
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    names = notebooks.run(EXAMPLES / "run.ipynb")
    result = json.loads((folder / "manifest.json").read_text())["result"]
    said = capsys.readouterr().out
    assert f"test accuracy {result['test_accuracy']:.2%}" in said
    assert "was taken for" in said
    assert [len(axes.lines) for axes in names["figure"].axes] == [2, 2]
    assert len(names["epochs"]) == result["epochs"]
    names["plt"].close("all")


def test_the_command_for_slurm_asks_for_what_it_says(run: Run) -> None:
    *_, command = (EXAMPLES / "slurm.sh").read_text().splitlines()
    words = shlex.split(command.removesuffix(' "$@"'))
    assert words[:2] == ["exec", "toolkit"]
    done = run(*words[2:], "--dry-run")
    assert done.returncode == 0, done.stderr
    assert {"#SBATCH --nodes=2", "#SBATCH --cpus-per-task=8"} <= set(done.stdout.splitlines())
