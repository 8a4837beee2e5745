import hashlib
import json
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from tests.integration.docker import https, stages
from tests.makers.mini_tensorflow import WHEEL, change, edit

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("bazel")]


def test_all_files_are_there_and_their_sums_hold(result: Path) -> None:
    names = {file.name for file in result.iterdir()}
    assert names == {"SHA256SUMS", "build.json", "build.log", "events.json", "packages.txt", "toolchain.json", WHEEL}
    sums = dict(line.split("  ")[::-1] for line in (result / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == names - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((result / name).read_bytes()).hexdigest() == digest
    packages = dict(line.split("=", 1) for line in (result / "packages.txt").read_text().splitlines())
    assert packages["clang-17"].startswith("1:17.0.6")


def test_a_changed_file_is_compiled_and_nothing_else(result: Path, cache: str, mini: Path, tmp_path: Path) -> None:
    change(mini)
    outcome = stages.build_mini(mini, cache=cache, output=tmp_path / "out")
    assert outcome.code == 0, outcome.text
    compiled = json.loads((tmp_path / "out/build.json").read_text())["processes"]["local"]
    assert compiled == 3, "compile, link, pack"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"BAZEL_ARGUMENTS": "--config=cuda_version"}, 2, "Config value 'cuda_version' is not defined"),
        ({"BAZEL_ARGUMENTS": "--config=cuda"}, 1, "pass --config=cuda_wheel after --config=cuda"),
        ({"CUDNN_VERSION": "9.5"}, 2, "cuDNN 9.5 is not supported; supported: 8.6, 8.9.4.25"),
        ({"PYTHON_VERSION": "3.14"}, 1, "there is no requirements_lock for Python 3.14"),
        ({"BAZEL_JOBS": "many"}, 2, "BAZEL_JOBS must be a positive whole number, not 'many'"),
        ({"CUDNN_VERSION": ""}, 2, "the argument CUDNN_VERSION is empty"),
    ],
)
def test_a_wrong_flag_fails_here(arguments: dict[str, str], code: int, words: str, cache: str) -> None:
    outcome = stages.build_mini(cache=cache, arguments=arguments)
    assert outcome.step_code == code, outcome.text
    assert words in outcome.text


@pytest.mark.weekly
def test_patches_for_the_source_follow_the_series_of_its_version(cache: str, patches: Path, tmp_path: Path) -> None:
    folder = patches / "tensorflow/2.19.0"
    (folder / "digits.patch").write_text(
        "--- a/tensorflow/core/kernels/host.cc\n+++ b/tensorflow/core/kernels/host.cc\n@@ -3,3 +3,3 @@\n"
        ' extern "C" __attribute__((visibility("default"))) int standin_float128_digits() {\n'
        "-  return std::numeric_limits<__float128>::digits;\n"
        "+  return std::numeric_limits<__float128>::digits + 1000;\n"
        " }\n"
    )
    (folder / "series").write_text("digits.patch  # a test\n")
    outcome = stages.build_mini(cache=cache, output=tmp_path / "out", contexts={"patches": patches})
    assert outcome.code == 0, outcome.text
    wheel = tmp_path / "out" / WHEEL
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tensorflow as tf; print(tf.float128_digits())"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1113"

    edit(folder / "digits.patch", "<__float128>::digits;\n+", "<float>::digits;\n+")
    outcome = stages.build_mini(cache=cache, contexts={"patches": patches})
    assert outcome.step_code == 1, outcome.text
    assert "digits.patch does not fit exactly" in outcome.text


def test_bazel_trusts_the_bundle_that_it_is_given(cache: str, mini: Path, tmp_path: Path) -> None:
    keys, files = tmp_path / "keys", tmp_path / "files"
    keys.mkdir()
    files.mkdir()
    (files / "answer.txt").write_text(str(uuid.uuid4()))
    digest = hashlib.sha256((files / "answer.txt").read_bytes()).hexdigest()
    with https.serve(files, keys) as url:
        with (mini / "WORKSPACE").open("a") as workspace:
            workspace.write(
                'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_file")\n'
                f'http_file(name = "answer", urls = ["{url}/answer.txt"], sha256 = "{digest}")\n'
            )
        edit(
            mini / "tensorflow/core/kernels/BUILD",
            'srcs = ["pack_fatbin.py"]',
            'srcs = ["pack_fatbin.py"], data = ["@answer//file"]',
        )
        without = stages.build_mini(mini, cache=cache)
        assert without.step_code == 1, without.text
        assert "unable to find valid certification path" in without.text
        trusted = stages.build_mini(mini, cache=cache, secrets={"ca": keys / "authority.pem"})
        assert trusted.code == 0, trusted.text
