import gzip
import os
import signal
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.makers.apptainer import LABELS, SPEC, write_archive
from toolkit import records
from toolkit.base import manifest, naming
from toolkit.base.console import Console
from toolkit.base.digest import digest_bytes
from toolkit.base.errors import (
    BuildError,
    CheckError,
    EngineError,
    IntegrityError,
    PreflightError,
    ToolkitError,
    UsageError,
)
from toolkit.base.findings import Finding
from toolkit.engine import EnvironmentSpec, Job, Mount, Network, apptainer, gpus
from toolkit.engine.apptainer import SIF, ApptainerEngine, describe, read_archive
from toolkit.records import Link
from toolkit.versions.settings import resolve

Install = Callable[[str, str], Path]
QUIET = Console(verbosity=-1)
PROGRAM = """
case $1 in
--version) echo apptainer version 1.4.5 ;;
buildcfg) echo /nowhere ;;
build) shift 2; echo "$APPTAINER_TMPDIR" > "$(dirname "$1")/../asked"; cp "${2#*:}" "$1" ;;
*) shift 2; while [ "$1" != env ]; do shift; done; "$@" ;;
esac
"""
"""Takes apptainer's commands, and runs jobs on the host."""


@pytest.fixture
def engine(tmp_path: Path, install: Install) -> ApptainerEngine:
    install("apptainer", PROGRAM)
    install("unshare", "exit 0")
    install("python", f'exec "{sys.executable}" "$@"')  # as in the image; a host may have none of this name
    return ApptainerEngine(tmp_path / "state", str(write_archive(tmp_path / "train.tar")))


def make(tmp_path: Path, install: Install, archive: Path, build: str = "exit 1") -> None:
    install("apptainer", f"case $1 in --version) echo apptainer version 1.4.5 ;; *) {build} ;; esac")
    install("unshare", "exit 0")
    engine = ApptainerEngine(tmp_path / "state", str(archive))
    engine.prepare(engine.plan(SPEC), QUIET)


def test_an_image_is_made_once_and_recorded(engine: ApptainerEngine, tmp_path: Path) -> None:
    plan = engine.plan(SPEC)
    first = engine.prepare(plan, QUIET)
    assert not first.reused
    assert first.instructions == plan.spec.instructions == ("avx2", "fma")
    assert engine.find(plan) == engine.prepare(plan, QUIET)
    with tarfile.open(tmp_path / "train.tar") as stored:
        config = stored.extractfile("blobs/config")
        assert config
        assert first.digest == digest_bytes(config.read())
    found = manifest.read(first.folder)
    assert found
    assert found.parent == {
        "kind": "lock",
        "name": "a label of toolkit/train:cpu-1",
        "digest": LABELS[naming.LOCK_LABEL],
    }
    asked = (tmp_path / "state/asked").read_text().strip()
    assert Path(asked).parent == tmp_path / "state"
    assert sorted(path.name for path in first.folder.iterdir()) == ["build.log", SIF, manifest.FILE, "seal.json"]
    assert not list((tmp_path / "state").glob(".*"))


@dataclass(frozen=True, kw_only=True)
class TrainedIn(records.Run):
    """A run of which a test looks at its image alone."""

    named: dict[str, str]  # how its record names the image

    def list_parents(self) -> list[Link]:
        return [Link(kind="image", named=self.named)]

    def check(self) -> list[Finding]:
        return []

    def find_tensorflow(self) -> str:
        return "2.19.0"


def check_parent(named: dict[str, str], folder: Path) -> list[Finding]:
    chain = records.compare(TrainedIn(folder=folder, state=folder.parent, named=named))
    return [item for item in chain.list_findings() if item.id in {"parent", "image.sif"}]


def test_an_image_that_has_changed_fails_its_verification(engine: ApptainerEngine) -> None:
    made = engine.prepare(engine.plan(SPEC), QUIET)
    image = records.Image(folder=made.folder, state=made.folder.parent)
    assert all(item.state == "ok" for item in records.compare(image).list_findings())
    link = {"kind": "image", "digest": made.digest, "reference": str(made.folder / SIF)}
    assert [item.state for item in check_parent(link, made.folder)] == ["ok", "ok"]
    (made.folder / SIF).write_bytes(b"other")
    assert {item.id: item.state for item in image.check()}["sif"] == "fail"
    (made.folder / SIF).unlink()
    assert image.check()[0].state == "absent"
    (made.folder / manifest.FILE).unlink()
    assert [item.state for item in check_parent(link, made.folder)] == ["absent"]


def test_a_job_gets_what_is_named_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    comma = tmp_path / "a,b"
    job = Job(
        title="train",
        argv=("-m", "train", Mount(source=tmp_path, target="/runs")),
        mounts=(Mount(source=comma, target="/runs/a", writable=True), Mount(source=tmp_path, target="/data")),
        environment={"WORD": "$HOME"},
        inherit=("HF_TOKEN",),
        gpu=True,
    )
    argv = describe("x.sif", job)
    assert argv[:3] == ("apptainer", "--quiet", "exec")
    options, rest = argv[: argv.index("x.sif")], argv[argv.index("x.sif") + 1 :]
    assert {"--containall", "--no-home", "--no-eval", "--net", "--nv"} <= {*options}
    assert f'type=bind,"source={comma}",destination=/runs/a' in options
    assert f"type=bind,source={tmp_path},destination=/data,ro" in options
    assert rest[0] == "env"
    assert {"HOME=/tmp", "WORD=$HOME", "CUDA_VISIBLE_DEVICES=1"} <= {*rest}
    assert rest[-4:] == ("python", "-m", "train", "/runs")
    assert not any("HF_TOKEN" in word for word in argv)


@pytest.mark.parametrize("granted", ["", "4,6"])
def test_a_job_gets_the_gpus_that_the_scheduler_granted(granted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", granted)
    assert gpus.choose(Job(title="a", argv=(), gpu=True)) == granted
    assert gpus.choose(Job(title="a", argv=())) == ""


@pytest.mark.parametrize("job", [Job(title="a", argv=(), network=True), Job(title="a", argv=(), own_network=Network())])
def test_a_job_that_needs_the_network_gets_it_and_no_gpu(job: Job) -> None:
    assert not {"--net", "--nv"} & {*describe("x.sif", job)}


def test_a_secret_reaches_the_job(engine: ApptainerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    made = engine.prepare(engine.plan(SPEC), QUIET)
    heard: list[str] = []
    argv = ("-c", "import os; print(os.environ['APPTAINERENV_HF_TOKEN'], os.environ['HOME'])")
    assert engine.run(made, Job(title="a", argv=argv, inherit=("HF_TOKEN",)), heard.append) == 0
    assert heard == ["secret /tmp"]


@pytest.mark.usefixtures("interruptible")
def test_only_the_program_is_asked_to_stop_because_it_hands_the_signal_on(
    engine: ApptainerEngine, install: Install, tmp_path: Path
) -> None:
    made = engine.prepare(engine.plan(SPEC), QUIET)
    install(
        "apptainer",
        f'trap \'echo asked > {tmp_path}/asked\' TERM; while [ "$1" != env ]; do shift; done; "$@" & wait; wait',
    )
    program = (
        "import signal, time; from pathlib import Path\n"
        f"signal.signal(signal.SIGTERM, lambda *_: Path({str(tmp_path / 'twice')!r}).touch())\n"
        "print('ready', flush=True)\nwhile True: time.sleep(60)"
    )

    def interrupt(_line: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        engine.run(made, Job(title="a", argv=("-c", program), grace=0.5), interrupt)
    assert (tmp_path / "asked").exists()
    assert not (tmp_path / "twice").exists()


def test_a_job_past_its_deadline_is_killed(engine: ApptainerEngine) -> None:
    made = engine.prepare(engine.plan(SPEC), QUIET)
    argv = ("-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    with pytest.raises(CheckError, match="did not end within"):
        engine.run(made, Job(title="a", argv=argv, deadline=0.3, grace=0.3))


def test_what_the_program_itself_refuses_is_no_failure_of_the_job(engine: ApptainerEngine, install: Install) -> None:
    made = engine.prepare(engine.plan(SPEC), QUIET)
    install("apptainer", "exit 255")
    with pytest.raises(EngineError, match="could not run smoke"):
        engine.run(made, Job(title="smoke", argv=()))


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (
            "write /small/bundle-temp-2/temp-oci-4/blobs/sha256/8: no space left on device",
            PreflightError,
            "disk filled",
        ),
        ("while searching for mksquashfs: not found", BuildError, "exit code 255"),
    ],
)
def test_a_failed_build_says_why_and_leaves_no_image(
    tmp_path: Path, install: Install, said: str, kind: type[ToolkitError], text: str
) -> None:
    build = f'echo "$3" > {tmp_path}/target; touch "$3"; echo "FATAL:   While performing build: {said}"; exit 255'
    with pytest.raises(kind, match=text) as caught:
        make(tmp_path, install, write_archive(tmp_path / "train.tar"), build)
    assert said in caught.value.why
    assert not Path((tmp_path / "target").read_text().strip()).exists()
    assert not list(tmp_path.glob(f"state/*/{SIF}"))


def test_a_damaged_layer_is_found_because_apptainer_does_not_look(tmp_path: Path, install: Install) -> None:
    archive = write_archive(tmp_path / "train.tar", layer=b"lay3r")
    with pytest.raises(IntegrityError, match="damaged") as caught:
        make(tmp_path, install, archive)
    assert digest_bytes(b"lay3r") in caught.value.why


def test_a_compressed_layer_counts_by_its_content(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "train.tar", layer=gzip.compress(b"layer"))
    apptainer.verify_archive(archive, read_archive(archive))
    damaged = write_archive(tmp_path / "train.tar", layer=gzip.compress(b"layer")[:-3])
    with pytest.raises(IntegrityError, match="damaged"):
        apptainer.verify_archive(damaged, read_archive(damaged))


def test_too_little_disk_is_said_before_the_build(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apptainer, "_COPIES", 1 << 40)
    with pytest.raises(PreflightError, match="too little disk"):
        make(tmp_path, install, write_archive(tmp_path / "train.tar"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1500])


def join(path: Path) -> None:
    write_archive(path, images=2)


@pytest.mark.parametrize("spoil", [Path.unlink, cut, join, lambda path: path.write_text("no archive")])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    archive = write_archive(tmp_path / "train.tar")
    spoil(archive)
    with pytest.raises(UsageError, match="is not an archive of one image"):
        read_archive(archive)


@pytest.mark.parametrize(
    ("labels", "spec", "text"),
    [
        ({}, SPEC, "no labels of the toolkit"),
        (LABELS, EnvironmentSpec(tensorflow="2.20.0", python="3.11"), "other versions"),
        (LABELS, EnvironmentSpec(tensorflow="2.19.0", python="3.11", wheel=Path("a.whl")), "--wheel"),
    ],
)
def test_an_image_of_something_else_is_refused(
    tmp_path: Path, engine: ApptainerEngine, labels: Mapping[str, str], spec: EnvironmentSpec, text: str
) -> None:
    write_archive(tmp_path / "train.tar", labels)
    with pytest.raises(UsageError, match=text):
        engine.plan(spec)


def test_an_archive_must_be_given(engine: ApptainerEngine, tmp_path: Path) -> None:
    del engine
    with pytest.raises(UsageError, match="needs the archive"):
        ApptainerEngine(tmp_path, "").plan(SPEC)


def test_a_machine_without_the_program_or_namespaces_is_refused(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "train.tar")

    def prepare() -> None:
        engine = ApptainerEngine(tmp_path / "state", str(archive))
        engine.prepare(engine.plan(SPEC), QUIET)

    with monkeypatch.context() as changed:
        changed.setenv("PATH", str(tmp_path))
        with pytest.raises(EngineError, match="no apptainer"):
            prepare()
        assert not (tmp_path / "state").exists()
    install("apptainer", "printf '\\033[31mFATAL:  \\033[0m user: unknown userid 12345' >&2; exit 255")
    with pytest.raises(EngineError, match="does not run for you") as caught:
        prepare()
    assert caught.value.why == "FATAL:   user: unknown userid 12345"
    install("apptainer", PROGRAM.replace("/nowhere", str(tmp_path)))
    install("unshare", "exit 1")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(EngineError, match="cannot run images for you"):
        prepare()
    starter = tmp_path / "apptainer/bin/starter-suid"
    starter.parent.mkdir(parents=True)
    starter.touch()
    assert apptainer.find_version() == "1.4.5"


def test_an_archive_chooses_the_engine_unless_another_is_named(engine: ApptainerEngine, tmp_path: Path) -> None:
    from toolkit.jobs.engines import choose_engine

    archive = str(tmp_path / "train.tar")
    del engine
    assert choose_engine(resolve({"archive": archive}, environment={})).engine.name == "apptainer"
    assert choose_engine(resolve({"archive": archive, "engine": "host"}, environment={})).engine.name == "host"
