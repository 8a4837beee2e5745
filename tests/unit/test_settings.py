import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.errors import UsageError
from toolkit.versions.settings import resolve


def test_each_layer_beats_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "toolkit.yaml"
    file.write_text("tensorflow: 2.18.0\nruns: from-file\nengine: host\n")
    environment = {"TOOLKIT_RUNS": "from-env", "TOOLKIT_ENGINE": "docker"}
    settings = resolve({"engine": "auto", "base_image": None}, file=file, environment=environment)
    assert (settings.tensorflow, settings.sources["tensorflow"]) == ("2.18.0", "toolkit.yaml")
    assert (settings.runs, settings.sources["runs"]) == ("from-env", "TOOLKIT_RUNS")
    assert (settings.engine, settings.sources["engine"]) == ("auto", "flag")
    assert settings.sources["base_image"] == "default"


def test_cuda_none_is_the_processor_and_leaves_the_cuda_of_a_lower_layer_out(tmp_path: Path) -> None:
    file = tmp_path / "toolkit.yaml"
    file.write_text("cuda: 12.6.1\ncudnn: 9.5.0\n")
    settings = resolve({"cuda": "none"}, file=file, environment={})
    assert (settings.card, settings.sources["card"], settings.cuda, settings.cudnn) == ("none", "flag", "", "")
    assert settings.for_processor
    assert not settings.asks("cuda")
    assert not resolve({"card": "none"}, file=file, environment={}).for_processor
    assert resolve({"card": "none"}, file=_empty(tmp_path), environment={}).for_processor


@pytest.mark.parametrize("given", [{"cudnn": "9.5.0"}, {"card": "RTX 5090"}])
def test_cuda_none_beside_what_is_for_a_gpu_is_refused(tmp_path: Path, given: dict[str, str]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(UsageError, match=f"--cuda none is for processors, and --{name} {value} is given too"):
        resolve({"cuda": "none", **given}, file=_empty(tmp_path), environment={})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tensroflow: 2.19.0", "did you mean tensorflow"),
        ("python: 3.10", 'write it in quotes: python: "3.1"'),
        ("- a list", "not a mapping"),
        ("engine: [", "cannot read"),
        ("engine: podman", "one of auto, docker, "),
        ("cuda: 12.6.1", "--cuda was given without --cudnn"),
        ('cudnn: "9.5"', "--cudnn was given without --cuda, and 9.5 is not a full x.y.z"),
        ("state: elsewhere", "may not set state"),
        ("archive: image.tar", "give --archive"),
        ("downloads: nowhere", "may not set downloads"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "toolkit.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=re.escape(message)):
        resolve({}, file=file, environment={})


@pytest.mark.parametrize(
    ("name", "message"), [("CA_BUNDLE", "does not exist"), ("DOWNLOADS", "there is no folder nowhere")]
)
def test_mistakes_in_variables_are_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve({}, file=_empty(tmp_path), environment={f"TOOLKIT_{name}": "nowhere"})


@given(st.text())
def test_any_file_gives_settings_or_a_usage_error(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    file = tmp_path_factory.mktemp("settings") / "toolkit.yaml"
    file.write_text(content, encoding="utf-8", errors="surrogatepass")
    with contextlib.suppress(UsageError):
        resolve({}, file=file, environment={})


def _empty(folder: Path) -> Path:
    file = folder / "toolkit.yaml"
    file.write_text("")
    return file
