import json
from pathlib import Path

import pytest

from tests.makers.publication import finish_build, publish
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.engine import EnvironmentSpec, Platform
from toolkit.jobs import choice, pipeline
from toolkit.versions.settings import resolve
from toolkit.wheel import wheel_folder

CUDA = EnvironmentSpec(tensorflow="2.19.0", python="3.11", cuda="12.6.1", cudnn="9.5.0", requirements="cuda-12.6.1")
PLACE = Platform(glibc="2.41", python="3.11")


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    publish(finish_build(tmp_path / "staging"), tmp_path / "dist")
    return tmp_path / "dist"


def test_a_wheel_brings_the_instructions_that_its_record_names(dist: Path) -> None:
    path = dist / "manifest.json"
    value = json.loads(path.read_text())
    assert value["facts"]["instructions"] == []
    value["facts"]["instructions"] = ["avx2", "fma"]
    path.write_text(json.dumps(value))
    wheel_folder.write_sums(dist)
    assert pipeline.use_wheel(CUDA, wheel_folder.find_wheel(dist), PLACE).instructions == ("avx2", "fma")


def test_a_manifest_of_another_wheel_is_refused(dist: Path) -> None:
    """The checksums are right, but the manifest describes another wheel, so its facts do not apply."""
    path = dist / "manifest.json"
    whole = path.read_text()
    for before, after in ((json.loads(whole)["digest"], "sha256:" + "0" * 64), ('"kind": "wheel"', '"kind": "image"')):
        path.write_text(whole.replace(before, after))
        wheel_folder.write_sums(dist)
        with pytest.raises(IntegrityError, match="not the wheel of the manifest beside it"):
            pipeline.use_wheel(CUDA, wheel_folder.find_wheel(dist), PLACE)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_dry_run_refuses_what_the_real_run_refuses(
    dist: Path, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dist.parent)
    path = dist / "manifest.json"
    path.write_text(path.read_text().replace('"cudnn": "9.5.0"', '"cudnn": "9.1.0"'))
    settings = resolve({"cuda": "12.6.1", "cudnn": "9.5.0", "engine": "host"})
    with pytest.raises(IntegrityError):
        pipeline.choose_environment(
            choice.keep(choice.Wishes(settings=settings, wheel=str(dist))),
            choice.Manner(console=Console(verbosity=-1), dry_run=dry_run),
        )
