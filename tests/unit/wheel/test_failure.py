from pathlib import Path

import pytest

from tests.makers.failed_build import STEP
from toolkit.base.errors import BuildError, CheckError, EngineError, IntegrityError, PreflightError, ToolkitError
from toolkit.wheel import bazel_output

ADDRESS = "https://storage.googleapis.com/mirror.tensorflow.org/github.com/tensorflow/runtime/archive"
CHECKSUM = f"""\
ERROR: An error occurred during the fetch of repository 'tf_runtime':
   Traceback (most recent call last):
\tFile "third_party/repo.bzl", line 73, column 33, in _tf_http_archive_impl
Error in download_and_extract: java.io.IOException: Error downloading [{ADDRESS}/{"3367" * 10}.tar.gz, \
https://github.com/tensorflow/runtime/archive/{"3367" * 10}.tar.gz] to /root/.cache/bazel/_bazel_root/{"b46" * 10}\
/external/tf_runtime/temp103/{"3367" * 10}.tar.gz: Checksum was {"4d2f" * 16} but wanted {"5e6b" * 16}
"""
"""A line of Bazel as it is: with two addresses, a folder of the cache and two digests, it has 600 characters."""

LOCK = """\
Could not find requirements_lock.txt file matching specified Python version.
Specified python version: 3.13
ERROR: /tensorflow/WORKSPACE:33:25: fetching python_repository rule //external:python_version_repo: Traceback:
"""
"""The cause stands before the first line that Bazel marks as an error."""


@pytest.mark.parametrize(
    ("said", "kind", "advice"),
    [
        (f"{STEP}137\n    wheel: a process was killed for memory", BuildError, "--jobs"),
        (f"{STEP}7\n    proof: sm_75: limits:2089:27: error: __float128", CheckError, "bazel_patches/README.md"),
        (f"{STEP}1\n{CHECKSUM}", IntegrityError, "the corrected hash"),
        ("ERROR: failed to solve: digest mismatch sha256:aa: sha256:bb", IntegrityError, "toolkit lock"),
        (f"{STEP}1\nERROR: java.io.IOException: Checksum was aa but wanted bb", IntegrityError, "the corrected hash"),
        (f"{STEP}1\n{LOCK}", BuildError, "HERMETIC_PYTHON_VERSION"),
        ("error: Hash mismatch for `nvidia-curand-cu12==10.3.7.68`", IntegrityError, "toolkit lock"),
        (f"{STEP}1\n    error: write /x: no space left on device", PreflightError, "free space"),
        (
            f"{STEP}28\n    wheel: the disk is full: clang: error: x",
            PreflightError,
            "compiled files are used again",
        ),
        (f"{STEP}5\n    E: You don't have enough free space in /var/cache/apt/.", PreflightError, "free space"),
        (f"{STEP}137\n    OSError: [Errno 28] No space left on device", PreflightError, "free space"),
        (f"{STEP}5\n    E: The repository 'x' does not have a Release file.", BuildError, "--apt-snapshot"),
        (f"{STEP}34\n    wheel: the remote executor does not answer: grpc://x", BuildError, "--remote-executor"),
        (f"{STEP}34\nERROR: Failed to query remote execution capabilities: UNAVAILABLE", BuildError, "--bazelrc"),
        (
            f"{STEP}34\n    ERROR: x (Exit 34): Expected digest 'ab12/8' does not match received digest 'cd34/8'.",
            BuildError,
            "remove the blob ab12 there",
        ),
        (f"{STEP}34\n    ERROR: x (Exit 34): Missing digest: ab12/8 for y", BuildError, "the results that name ab12"),
        (f"{STEP}6\n    wheel: no action ran on the remote executor, and 7 ran here", BuildError, "--spawn_strategy"),
        (f"{STEP}12\n    wheel: instructions: 9 in x.so: _ZN1x1yEv", BuildError, "wheelbuild/dispatched"),
        ("ERROR: rpc error: code = Unavailable desc = error reading from server: EOF", EngineError, "start it"),
        ("ERROR: Get https://github.com: dial tcp: lookup github.com: no such host", BuildError, "--downloads"),
        (f"{STEP}1\nERROR: Error downloading [https://x] to y: Unknown host: x", BuildError, "--downloads"),
        ("fatal: unable to access 'x': Failed to connect to 127.0.0.1 port 1", BuildError, "--downloads"),
    ],
)
def test_known_failures_say_what_to_do(said: str, kind: type[ToolkitError], advice: str) -> None:
    found = bazel_output.explain(BuildError("the build failed", why=said, remedy="the log"), [])
    assert type(found) is kind
    assert advice.lower() in found.remedy.lower()
    assert found.why


def test_the_cause_is_found_in_the_log_of_bazel(tmp_path: Path) -> None:
    log = tmp_path / "bazel.log"
    log.write_text(
        "WARNING: Remote Cache: connection refused\n"
        "ERROR: BUILD:25:10: Compiling host.cc failed: (Exit 1): clang failed\n"
        f"  clang {'-I x ' * 500} -c host.cc\n"
        "host.cc:17:85: error: expected ')'\n"
        "INFO: Elapsed time: 36.079s\n"
        "ERROR: Build did NOT complete successfully\n"
    )
    error = BuildError("the build failed at [bazel-build 2/2] RUN --mount=…", why=f"{STEP}1", remedy="x")
    found = bazel_output.explain(error, [tmp_path / "none", log])
    assert found.what == "the build failed in the stage bazel-build"
    assert [line.strip() for line in found.why.splitlines()] == [
        "ERROR: BUILD:25:10: Compiling host.cc failed: (Exit 1): clang failed",
        "host.cc:17:85: error: expected ')'",
    ]
    assert str(log) in found.remedy


NO_COMPILER = """\
INFO: Repository local_config_cc instantiated at:
  /DEFAULT.WORKSPACE.SUFFIX:509:13: in <toplevel>
ERROR: An error occurred during the fetch of repository 'local_config_cc':
   Traceback (most recent call last):
\tFile "/root/.cache/bazel/external/bazel_tools/tools/cpp/cc_configure.bzl", line 125, column 33, in cc_autoconf_impl
\t\tconfigure_unix_toolchain(repository_ctx, cpu_value, overriden_tools)
Error in fail:
Auto-Configuration Error: Cannot find gcc or CC; correct your path or set the CC variable
ERROR: Analysis of target '//tensorflow/tools/pip_package:wheel' failed; build aborted:
INFO: Elapsed time: 3.203s
INFO: 0 processes.
"""
"""Bazel 7's output without a compiler: the line that begins with ERROR does not name the cause."""

KILLED_ACTION = """\
ERROR: /usr/src/BUILD:7:10: Executing genrule //tensorflow:version failed: (Exit 1): bash failed
  (cd /var/cache/bazel/execroot/org_tensorflow && \\
  exec env - \\
    PATH=/usr/bin:/bin \\
  /bin/bash -c 'source external/bazel_tools/tools/genrule/genrule-setup.sh; external/tool/make --out x.h')
# Configuration: 2e4cf1f3
# Execution platform: @local_execution_config_platform//:platform
Traceback (most recent call last):
  File "gen_git_source.py", line 3, in <module>
    import missing
    ^^^^^^^^^^^^^^
ModuleNotFoundError: No module named 'missing'
[12 / 40] Compiling reduce.cc; 3s local
unrelated.cc is compiled
ERROR: Build did NOT complete successfully
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            NO_COMPILER,
            [
                "ERROR: An error occurred during the fetch of repository 'local_config_cc':",
                "  Error in fail:",
                "  Auto-Configuration Error: Cannot find gcc or CC; correct your path or set the CC variable",
                "ERROR: Analysis of target '//tensorflow/tools/pip_package:wheel' failed; build aborted:",
            ],
        ),
        (
            KILLED_ACTION,
            [
                "ERROR: /usr/src/BUILD:7:10: Executing genrule //tensorflow:version failed: (Exit 1): bash failed",
                "  ModuleNotFoundError: No module named 'missing'",
            ],
        ),
    ],
    ids=["analysis", "action"],
)
def test_a_key_line_of_bazel_comes_with_the_lines_that_continue_it(said: str, told: list[str]) -> None:
    assert bazel_output.find_causes(said) == told
    # The step repeats the same lines with indentation: each is reported once.
    indented = "".join(f"    {line}\n" for line in said.splitlines())
    assert bazel_output.find_causes(said + indented) == told


def test_the_lines_that_continue_a_cause_are_few() -> None:
    causes = bazel_output.find_causes("ERROR: x failed:\n" + "".join(f"line {at}\n" for at in range(100)))
    assert causes[:2] == ["ERROR: x failed:", "  line 0"]
    assert len(causes) == 7


def test_a_failure_without_words_stays_what_it_was() -> None:
    found = bazel_output.explain(BuildError("the build failed", why="exit code 1", remedy="the log"), [])
    assert (found.what, found.why, found.remedy) == ("the build failed", "exit code 1", "the log")


def test_causes_are_few_and_short() -> None:
    said = "\n".join(f"x.cc:{at}: error: {'y' * 1000} does not match" for at in range(100))
    causes = bazel_output.find_causes(said)
    assert len(causes) == 8
    assert all(len(line) <= 301 for line in causes)
    assert all(line.startswith("x.cc:") and line.endswith("y does not match") for line in causes)
