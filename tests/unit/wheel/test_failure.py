from pathlib import Path

import pytest

from tests.makers.failed_build import STEP
from toolkit.base.errors import BuildError
from toolkit.wheel import bazel_output


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


def test_a_failure_without_words_stays_what_it_was() -> None:
    found = bazel_output.explain(BuildError("the build failed", why="exit code 1", remedy="the log"), [])
    assert (found.what, found.why, found.remedy) == ("the build failed", "exit code 1", "the log")
