import os
import signal
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.makers.apptainer import LABELS, SPEC, write_archive
from toolkit import records
from toolkit.base import manifest, naming
from toolkit.base.console import Console
from toolkit.base.digest import digest_bytes
from toolkit.base.errors import BuildError, EngineError, IntegrityError, PreflightError, ToolkitError
from toolkit.engine import Job, Mount, packed_engine
from toolkit.engine.apptainer import ApptainerEngine
from toolkit.jobs.engines import choose_engine
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
    assert {path.name for path in first.folder.iterdir()} == {"build.log", "image.sif", manifest.FILE, "seal.json"}
    assert not list((tmp_path / "state").glob(".*"))


def test_an_image_that_has_changed_fails_its_verification(engine: ApptainerEngine) -> None:
    made = engine.prepare(engine.plan(SPEC), QUIET)
    image = records.Image(folder=made.folder, state=made.folder.parent)
    assert all(item.state == "ok" for item in records.compare(image).list_findings())
    (made.folder / ApptainerEngine.file).write_bytes(b"other")
    assert {item.id: item.state for item in image.check()}["file"] == "fail"
    (made.folder / ApptainerEngine.file).unlink()
    assert image.check()[0].state == "absent"


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
    argv = ApptainerEngine(tmp_path, "").commands("x.sif", job)[-1]
    assert argv[:3] == ("apptainer", "--quiet", "exec")
    options, rest = argv[: argv.index("x.sif")], argv[argv.index("x.sif") + 1 :]
    assert {"--containall", "--no-home", "--no-eval", "--net", "--nv"} <= {*options}
    assert f'type=bind,"source={comma}",destination=/runs/a' in options
    assert f"type=bind,source={tmp_path},destination=/data,ro" in options
    assert rest[0] == "env"
    assert {"HOME=/tmp", "WORD=$HOME", "CUDA_VISIBLE_DEVICES=1"} <= {*rest}
    assert rest[-4:] == ("python", "-m", "train", "/runs")
    assert not any("HF_TOKEN" in word for word in argv)


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
    assert not list(tmp_path.glob(f"state/*/{ApptainerEngine.file}"))


def test_a_damaged_layer_is_found_because_apptainer_does_not_look(tmp_path: Path, install: Install) -> None:
    archive = write_archive(tmp_path / "train.tar", layer=b"lay3r")
    with pytest.raises(IntegrityError, match="damaged") as caught:
        make(tmp_path, install, archive)
    assert digest_bytes(b"lay3r") in caught.value.why


def test_too_little_disk_is_said_before_the_build(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_engine, "_COPIES", 1 << 40)
    with pytest.raises(PreflightError, match="too little disk"):
        make(tmp_path, install, write_archive(tmp_path / "train.tar"))


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
    assert ApptainerEngine.find_version() == "1.4.5"


def test_an_archive_chooses_the_engine_unless_another_is_named(engine: ApptainerEngine, tmp_path: Path) -> None:
    archive = str(tmp_path / "train.tar")
    del engine
    assert choose_engine(resolve({"archive": archive}, environment={})).engine.name == "apptainer"
    assert choose_engine(resolve({"archive": archive, "engine": "host"}, environment={})).engine.name == "host"
