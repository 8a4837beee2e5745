from pathlib import Path

import pytest

from toolkit.engine.docker import _explain
from toolkit.errors import BuildError, IntegrityError, ToolkitError

ERROR = BuildError("the build failed at [venv 1/1]", why=" 189 | >>> --mount=type=bind", remedy="the whole log is x")


@pytest.mark.parametrize(
    ("said", "kind", "why"),
    [
        (
            "    error: Failed to download `a==1`\n      cause: Hash mismatch for `a==1`\n       Expected:\n",
            IntegrityError,
            "error: Failed to download `a==1`\n       cause: Hash mismatch for `a==1`",
        ),
        (
            "    ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n",
            IntegrityError,
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        ),
        ("    error: Failed to fetch `a`\n", BuildError, "error: Failed to fetch `a`"),
        ("ERROR: failed to solve: process did not complete\n", BuildError, ERROR.why),
    ],
)
def test_the_installers_words_are_the_reason(tmp_path: Path, said: str, kind: type[ToolkitError], why: str) -> None:
    log = tmp_path / "build.log"
    log.write_text(f"[venv 1/1] RUN install\n{said}Dockerfile:183\n 189 | >>> --mount=type=bind\n")
    found = _explain(ERROR, log)
    assert (type(found), found.why) == (kind, why)
