import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import loaded
from tests.command import Run
from tests.unit.launch.test_batch import check
from tests.unit.sweep.conftest import OPTIONS, Commands, write
from toolkit import sweep
from toolkit.settings import resolve
from train import member
from train.cli import parse
from train.config.configuration import TrainConfig

SWEEP = {"dataset": "digits", "options": OPTIONS, "grid": {"learning-rate": [0.05, 0.1], "seed": [0, 1]}}
IMAGE = ("--image", "a.b/train:1", "--runs-claim", "runs")


def ask_kubernetes(run: Run, *options: str, value: object = SWEEP) -> dict[str, Any]:
    done = run("launch", "kubernetes", "--sweep", write(run.folder, value), *IMAGE, *options)
    assert done.returncode == 0, done.stderr
    assert "toolkit sweep seeds.yaml --summarise" in done.stderr
    (job,) = yaml.safe_load_all(done.stdout)
    return dict(job)


def ask_slurm(run: Run, *options: str) -> str:
    done = run("launch", "slurm", "--sweep", write(run.folder, SWEEP), "--dry-run", *options)
    assert done.returncode == 0, done.stderr
    assert "toolkit sweep seeds.yaml --summarise" in done.stderr
    return str(done.stdout)


def test_the_command_for_the_table_allows_as_many_members(run: Run) -> None:
    done = run("launch", "slurm", "--sweep", write(run.folder, SWEEP), "--dry-run", "--limit", "150")
    assert "toolkit sweep seeds.yaml --summarise --limit 150" in done.stderr


def find_command(script: str) -> list[str]:
    """Return what each job of the array runs."""
    joined = script.replace("\\\n", " ")
    (line,) = (line for line in joined.splitlines() if line.startswith("srun"))
    words = shlex.split(line.removesuffix(" &"))
    return words[words.index("env") :]


@pytest.mark.parametrize(
    "options", [(), ("--slots", "2", "--gpus", "1", "--cpus", "4", "--mem", "8Gi", "--data-claim", "data")]
)
def test_the_libraries_find_no_fault_with_the_job_of_a_sweep(run: Run, options: tuple[str, ...]) -> None:
    job = ask_kubernetes(run, *options)
    check(job)
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (4, 2 if options else 4)
    assert "subdomain" not in job["spec"]["template"]["spec"], "members need not find each other"


@pytest.mark.parametrize(
    ("name", "wrong"), [("backoffLimitPerIndexes", 3), ("backoffLimitPerIndex", "3"), ("completions", "4")]
)
def test_a_wrong_job_of_a_sweep_is_found(run: Run, name: str, wrong: object) -> None:
    job = ask_kubernetes(run)
    job["spec"][name] = wrong
    with pytest.raises(Exception):  # noqa: B017, PT011 - the libraries have errors of their own
        check(job)


def test_a_member_that_fails_leaves_the_others_alone(run: Run) -> None:
    """Kubernetes allows FailIndex and a back-off for each index in this combination alone."""
    spec = ask_kubernetes(run)["spec"]
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore", "FailIndex"]
    assert spec["backoffLimitPerIndex"] > 0
    assert spec["completionMode"] == "Indexed"
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert not spec.keys() & {"backoffLimit", "maxFailedIndexes"}, "which count the failures of all members"


def read_members(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    monkeypatch.chdir(folder)
    return [each.config for each in sweep.read(Path("seeds.yaml"), resolve({}), limit=100).members]


def test_each_pod_trains_the_run_of_its_member(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ask_kubernetes(run)
    (pod,) = job["spec"]["template"]["spec"]["containers"]
    assert pod["command"] == ["python", "-P", "-m", "train.member", "kubernetes"]
    expected = read_members(run.folder, monkeypatch)
    found = [
        parse(member.pick("kubernetes", pod["args"], {"JOB_COMPLETION_INDEX": str(index)}))
        for index in range(job["spec"]["completions"])
    ]
    assert [each.digest for each in found] == [each.digest for each in expected]
    assert [each.run_dir for each in found] == [Path("/runs") / each.run_dir.name for each in expected]


def test_each_job_of_the_array_trains_the_run_of_its_member(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ask_slurm(run, "--interpreter", "/opt/python", "--slots", "2", "--cpus", "2")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert {"#SBATCH --array=0-3%2", "#SBATCH --nodes=1", "#SBATCH --requeue"} <= set(script.splitlines())
    assert 'scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"' in script
    words = find_command(script)
    first = words.index("train.member")
    assert words[first - 3 : first + 2] == ["/opt/python", "-P", "-m", "train.member", "slurm"]
    expected = read_members(run.folder, monkeypatch)
    found = [parse(member.pick("slurm", words[first + 2 :], {"SLURM_ARRAY_TASK_ID": str(index)})) for index in range(4)]
    assert [each.digest for each in found] == [each.digest for each in expected]
    assert [each.run_dir for each in found] == [each.run_dir for each in expected], "from the folder of the script"


def test_the_objects_are_named_as_the_folder_of_the_sweep(run: Run) -> None:
    shown = json.loads(run("sweep", write(run.folder, SWEEP), "--dry-run", "--json").stdout)
    name = Path(shown["sweep"]).name
    assert name.startswith("sweep-seeds-")
    assert ask_kubernetes(run)["metadata"]["name"] == f"train-{name}"
    script = ask_slurm(run)
    assert f"--job-name=toolkit-{name}\n" in script
    assert f"--output=toolkit-{name}-%A_%a.log\n" in script
    assert "--array=0-3\n" in script, "without --slots, all at the same time"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to train"),
        (["digits", "--slots", "2"], "--slots is for a sweep"),
        (["digits", "--limit", "2"], "--limit is for a sweep"),
        (["digits", "--sweep", "seeds.yaml"], "a sweep does not go with digits"),
        (["--sweep", "seeds.yaml", "--epochs", "3"], "a sweep does not go with --epochs 3"),
        (["--sweep", "seeds.yaml", "--limit", "3"], "the sweep has 4 members, more than 3"),
        (["--sweep", "other.yaml"], "cannot read other.yaml"),
    ],
)
@pytest.mark.parametrize("scheduler", [("slurm", "--dry-run"), ("kubernetes", *IMAGE)], ids=["slurm", "kubernetes"])
def test_what_is_no_sweep_alone_is_refused(
    run: Run, scheduler: tuple[str, ...], arguments: list[str], message: str
) -> None:
    write(run.folder, SWEEP)
    refuse(run, *scheduler, *arguments, message=message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slurm", "--nodes", "2"], "a sweep does not go with --nodes 2"),
        (["slurm", "--gpus", "2"], "a sweep does not go with --gpus 2"),
        (["slurm", "--port", "3000"], "a sweep does not go with --port 3000"),
        (["kubernetes", *IMAGE, "--workers", "2"], "a sweep does not go with --workers 2"),
        (["kubernetes", *IMAGE, "--kind", "trainjob"], "a sweep does not go with --kind trainjob"),
        (["kubernetes", "--image", "toolkit/train:cpu-1", "--runs-claim", "runs"], "is in no registry"),
    ],
)
def test_options_for_several_workers_do_not_go_with_a_sweep(run: Run, arguments: list[str], message: str) -> None:
    refuse(run, *arguments, "--sweep", write(run.folder, SWEEP), message=message)


def refuse(run: Run, *arguments: str, message: str) -> None:
    done = run("launch", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("error:") == 1
    assert message in done.stderr
    assert not done.stdout
    assert run.started == []


def test_one_worker_on_one_machine_is_what_a_member_is(run: Run) -> None:
    assert "#SBATCH --gpus-per-task=1" in ask_slurm(
        run, "--nodes", "1", "--gpus", "1", "--cuda", "12.6.1", "--cudnn", "9.5.0"
    )
    check(ask_kubernetes(run, "--workers", "1", "--kind", "job"))


@pytest.mark.parametrize("option", ["data-dir", "config", "out", "cache-dir"])
def test_a_member_with_a_path_is_refused_where_pods_run(run: Run, option: str) -> None:
    (run.folder / "here").write_text(yaml.safe_dump(parse(["cifar10", "--seed", "7"]).as_dict()))
    value = {"data-dir": ".", "config": "here"}.get(option, "elsewhere")
    file = write(run.folder, {"dataset": "cifar10", "list": [{"seed": 5}, {option: value}]})
    refuse(run, "kubernetes", "--sweep", file, *IMAGE, message=f"{value} is a path on this machine")
    assert run("launch", "slurm", "--sweep", file, "--dry-run").returncode == 0


@pytest.mark.slow
def test_the_commands_of_pods_train_what_the_sweep_compares(tmp_path: Path) -> None:
    """The pod's own command runs here, with folders in place of its volumes."""
    commands = Commands(tmp_path)
    value = {"dataset": "digits", "options": {**OPTIONS, "steps": 20}, "list": [{"seed": 0}, {"learning-rate": 99.0}]}
    job = ask_kubernetes(commands, value=value)
    (pod,) = job["spec"]["template"]["spec"]["containers"]
    words = [word.replace("/runs", "runs").replace("/data", "data") for word in (*pod["command"], *pod["args"])]
    assert words[0] == "python"
    codes = []
    for index in ("0", "1", "2"):
        variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "JOB_COMPLETION_INDEX": index}
        done = subprocess.run([loaded.start(), *words[1:]], cwd=commands.folder, env=variables, check=False)
        codes.append(done.returncode)
    assert codes == [0, 7, 2], "a member that learns nothing, and one that there is not"
    assert set(codes[1:]) <= set(job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"])
    done = commands("sweep", "seeds.yaml", "--summarise", "--json")
    assert done.returncode == 7, done.stderr
    shown = json.loads(done.stdout)
    assert [each["status"] for each in shown["members"]] == ["complete", "missing"]
    assert (commands.folder / shown["sweep"] / "table.csv").exists()
    for option in ("init-from", "continue"):
        entry = {option: shown["members"][0]["run"]} | ({"epochs": 9} if option == "continue" else {})
        own = {"dataset": "digits", "list": [{"seed": 5}, entry]}
        refuse(commands, "kubernetes", "--sweep", write(commands.folder, own), *IMAGE, message="is a path on this")
