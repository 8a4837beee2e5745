"""Failures by what the tools really say when they happen."""

import pytest

from toolkit.errors import BuildError, CheckError, EngineError, IntegrityError, PreflightError, ToolkitError
from toolkit.wheel import failure

STEP = 'process "/bin/sh -c /build/with-ca python3.11 -u -m wheelbuild" did not complete successfully: exit code: '


@pytest.mark.parametrize(
    ("said", "kind", "advice"),
    [
        (f"{STEP}137\n    wheel: a process was killed for memory", BuildError, "--jobs"),
        (f"{STEP}7\n    proof: sm_75: limits:2089:27: error: __float128", CheckError, "bazel_patches/README.md"),
        ("digest mismatch sha256:aa: sha256:bb", IntegrityError, "toolkit lock"),
        (f"{STEP}1\n    Checksum was aa but wanted bb", IntegrityError, "toolkit lock"),
        ("error: Hash mismatch for `nvidia-curand-cu12==10.3.7.68`", IntegrityError, "toolkit lock"),
        (f"{STEP}1\n    write /x: no space left on device", PreflightError, "free space"),
        ("rpc error: code = Unavailable desc = error reading from server: EOF", EngineError, "start it"),
        ("Get https://github.com: dial tcp: lookup github.com: no such host", BuildError, "--downloads"),
        (f"{STEP}1\n    Error downloading [https://x] to y: Unknown host: x", BuildError, "--downloads"),
    ],
)
def test_known_failures_say_what_to_do(said: str, kind: type[ToolkitError], advice: str) -> None:
    found = failure.explain(BuildError("the build failed", why=said, remedy="the log"))
    assert type(found) is kind
    assert advice in found.remedy
    assert said in found.why


def test_an_unknown_failure_stays_what_it_was() -> None:
    error = BuildError("the build failed", why=f"{STEP}1\n    error: expected ';'", remedy="the whole log is x")
    assert failure.explain(error) is error
