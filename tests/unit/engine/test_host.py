import os
import shutil
import signal
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.wheel.maker import make_wheel
from toolkit.base import manifest, project
from toolkit.base.console import Console
from toolkit.base.digest import digest_file
from toolkit.base.errors import BuildError, CheckError, IntegrityError
from toolkit.engine import Environment, EnvironmentSpec, Job, host, local, packages, uv
from toolkit.engine.host import HostEngine
from toolkit.jobs import training_job
from toolkit.versions.settings import resolve
from train.system import signals

QUIET = Console(verbosity=-1)
SPEC = EnvironmentSpec(tensorflow="2.19.0", python="3.11")


def _prepare(engine: HostEngine, spec: EnvironmentSpec = SPEC) -> Environment:
    return engine.prepare(engine.plan(spec), QUIET)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    for name in ("bin", "lib", "pyvenv.cfg"):
        (tmp_path / "venv").mkdir(exist_ok=True)
        (tmp_path / "venv" / name).symlink_to(Path(sys.prefix) / name)
    return Environment(kind="environment", digest="", reference=str(tmp_path), folder=tmp_path, reused=True)


@pytest.fixture
def engine(tmp_path: Path) -> HostEngine:
    return HostEngine(tmp_path / "state")


def test_a_job_past_its_deadline_is_stopped(engine: HostEngine, environment: Environment) -> None:
    job = Job(title="test", argv=("-c", "import time; time.sleep(60)"), deadline=0.3, grace=5)
    with pytest.raises(CheckError, match="did not end within"):
        engine.run(environment, job)


def test_what_an_interrupted_job_has_said_is_not_said_again(engine: HostEngine, environment: Environment) -> None:
    told: list[None] = []
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    job = Job(title="test", argv=("-c", program), grace=10)

    def run() -> int:
        return engine.run(environment, job, lambda _line: os.kill(os.getpid(), signal.SIGINT))

    assert signals.run(run, lambda: told.append(None)) == 130
    assert not told


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / "docker" / "requirements").mkdir(parents=True)
    monkeypatch.setattr(project, "ROOT", root)
    house = tmp_path / "wheels"
    house.mkdir()
    make_wheel(house, name="tensorflow-cpu", tag="py3-none-any", files={"tensorflow.py": "VERSION = '2.19.0'\n"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    return house


def _lock(wheelhouse: Path, digest: str | None = None) -> None:
    wheel = next(wheelhouse.glob("*.whl"))
    line = f"tensorflow-cpu==2.19.0 --hash={digest or digest_file(wheel)}\n"
    (project.ROOT / "docker" / "requirements" / "cpu.txt").write_text(line)


def test_an_environment_is_made_once_and_again_where_it_is_not_whole(
    engine: HostEngine, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise AssertionError("it would wait for the end of the job")

    _lock(wheelhouse)
    first = _prepare(engine)
    with local.using(first.folder), monkeypatch.context() as patch:  # as the job of another command does
        patch.setattr(local, "making", refuse)
        second = _prepare(engine)
    assert (first.reused, second.reused) == (False, True)
    record = manifest.read(first.folder)
    assert record is not None
    assert record.parent is not None
    assert record.parent["digest"] == digest_file(next(wheelhouse.glob("*.whl")))
    (first.folder / "manifest.json").unlink()
    (first.folder / "left-over").touch()
    assert not _prepare(engine).reused
    assert not (first.folder / "left-over").exists()


def test_a_file_that_somebody_wrote_into_is_never_used_through_the_cache(
    engine: HostEngine, wheelhouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments share files with uv's cache, so that a change in one is a change in all."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    _lock(wheelhouse)
    made = _prepare(engine)
    (module,) = made.folder.glob("venv/lib/python3*/site-packages/tensorflow.py")
    with module.open("a") as file:
        file.write("# to see what happens here\n")
    with pytest.raises(IntegrityError, match=r"1 of the files .* as their packages") as caught:
        _prepare(engine)
    assert "`uv cache clean tensorflow_cpu`" in caught.value.remedy
    uv.Uv().run("cache", "clean", "tensorflow_cpu")
    made = _prepare(engine)
    assert not made.reused
    (record,) = made.folder.glob("venv/lib/python3*/site-packages/*.dist-info/RECORD")
    record.write_bytes(b"\xff")
    with pytest.raises(IntegrityError, match="as their packages"):
        packages.require_unchanged(made.folder, {})


def test_other_bytes_than_locked_are_refused(engine: HostEngine, wheelhouse: Path) -> None:
    _lock(wheelhouse, "sha256:" + "0" * 64)
    with pytest.raises(IntegrityError):
        _prepare(engine)


def test_an_environment_that_lacks_a_package_is_not_sealed(
    engine: HostEngine, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lock(wheelhouse)
    run = uv.Uv.run

    def pretend(self: uv.Uv, *words: Any, **options: Any) -> str:
        return "" if words[:2] == ("pip", "install") else run(self, *words, **options)

    monkeypatch.setattr(uv.Uv, "run", pretend)
    with pytest.raises(BuildError, match=r"lacks tensorflow-cpu 2\.19\.0"):
        _prepare(engine)
    assert engine.find(engine.plan(SPEC)) is None


@pytest.mark.parametrize(
    "name", ["PIP_DRY_RUN", "PIP_TARGET", "PIP_NO_DEPS", "UV_PROJECT_ENVIRONMENT", "UV_CONSTRAINT"]
)
def test_variables_that_redirect_or_pretend_do_not_count(
    engine: HostEngine, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    _lock(wheelhouse)
    monkeypatch.setenv(name, str(tmp_path / "elsewhere") if "TARGET" in name or "PROJECT" in name else "1")
    made = _prepare(engine)
    assert list(made.folder.glob("venv/lib/python3.*/site-packages/tensorflow.py"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
def test_a_wheel_of_our_own_takes_tensorflows_place(engine: HostEngine, wheelhouse: Path) -> None:

    _lock(wheelhouse, "sha256:" + "0" * 64)
    wheel = next(wheelhouse.glob("*.whl"))
    environment = _prepare(engine, EnvironmentSpec(tensorflow="2.19.0", python="3.11", wheel=wheel))
    record = manifest.read(environment.folder)
    assert record is not None
    assert record.parent == {"kind": "wheel", "name": wheel.name, "digest": digest_file(wheel)}


def test_a_train_module_in_the_current_folder_is_not_run(
    engine: HostEngine, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    (tmp_path / "train.py").write_text("raise SystemExit('the wrong train')")
    monkeypatch.chdir(tmp_path)
    arguments = ["digits", "--out", str(tmp_path / "runs")]
    config = training_job.read_arguments(arguments, resolve({}, environment={}))
    job = training_job.plan([*arguments, "--help"], config, None, gpu=False)
    heard: list[str] = []
    assert engine.run(environment, job, heard.append) == 0
    assert any("DenseNet" in line for line in heard)


@pytest.mark.parametrize("take", [shutil.copytree, shutil.move], ids=["copied", "moved"])
def test_an_environment_goes_on_in_another_folder(wheelhouse: Path, tmp_path: Path, take: Any) -> None:
    wheel = next(wheelhouse.glob("*.whl"))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(
            "tensorflow_cpu-2.19.0.dist-info/entry_points.txt", "[console_scripts]\nsay = tensorflow:say\n"
        )
    _lock(wheelhouse)
    before, after = tmp_path / "a clone" / ".toolkit", tmp_path / "another" / ".toolkit"
    made = _prepare(HostEngine(before)).folder
    take(before, after, **({"symlinks": True} if take is shutil.copytree else {}))
    moved = _prepare(HostEngine(after))
    assert moved.reused
    script = (moved.folder / "venv" / "bin" / "say").read_text()
    assert "realpath" in script
    assert str(made) not in script


def test_settings_of_the_current_folder_do_not_count(
    engine: HostEngine, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _lock(wheelhouse)
    (tmp_path / "uv.toml").write_text('no-index = true\nfind-links = ["evil"]\n[pip]\ntarget = "elsewhere"\n')
    monkeypatch.chdir(tmp_path)
    assert list(_prepare(engine).folder.glob("venv/lib/python3.*/site-packages/tensorflow.py"))


@pytest.mark.parametrize(
    ("compiler", "folders"),
    [("cuda_nvcc", ["cuda_cupti", "cudnn", "cusolver"]), ("cu13", ["cu13", "cudnn"])],
    ids=["CUDA 12", "CUDA 13"],
)
def test_the_libraries_and_the_compiler_of_each_cuda_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, folders: list[str]
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    nvidia = tmp_path / "venv/lib/python3.11/site-packages/nvidia"
    for path in (*(nvidia / folder / "lib" for folder in folders), nvidia / compiler / "bin/ptxas"):
        path.mkdir(parents=True)
    found = host.find_cuda(tmp_path)
    assert found["LD_LIBRARY_PATH"].split(":") == [*(str(nvidia / folder / "lib") for folder in folders), "/mine"]
    assert found["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={nvidia / compiler}"
