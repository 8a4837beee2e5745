"""Find out what Bazel would download for the wheel: analyse the target while every download gets a placeholder.

Bazel then names the addresses and the hash of what it wanted instead. Only Bazel knows which archives a target needs on
this platform. An address without a hash is downloaded, and its content is given to Bazel with the next question.
``wanted.json`` has the answer. Exit codes: 0 answered, 1 a patch does not apply, 2 usage, otherwise Bazel's own: it
failed for another reason.
"""

import base64
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from train.cores import count_cores  # mounted beside this package
from wheelbuild import arguments, bazel, downloader, machine, preparation, request
from wheelbuild.preparation import BUILD, CACHE, PRIVATE, SECRETS, SOURCE

OUT = Path("/out")

_REFUSED = re.compile(r"Error downloading \[([^\]]*)\] to \S+: Checksum was \S+ but wanted (\S+)")


def read_wanted(log: str, address: str) -> list[dict[str, Any]]:
    """Return what Bazel wanted: for each archive its SHA-256 and its addresses without scheme, in Bazel's order."""
    found: dict[str, list[str]] = {}
    for addresses, checksum in _REFUSED.findall(log):
        urls = [each.strip().removeprefix(f"http://{address}/") for each in addresses.split(",")]
        found[to_sha256(checksum)] = urls
    return [{"sha256": sha256, "urls": urls} for sha256, urls in sorted(found.items())]


def to_sha256(checksum: str) -> str:
    """Return a checksum of Bazel as hex digits: it writes ``integrity`` as ``sha256-`` and base64."""
    kind, _, value = checksum.partition("-")
    return base64.b64decode(value).hex() if kind == "sha256" else checksum


def forget_other_run(folder: Path, run: str) -> None:
    """Remove what an earlier command left: Bazel does not ask again for an archive that it has unpacked."""
    name = folder / "run"
    if not name.exists() or name.read_text() != run:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        name.write_text(run)


def ask(wanted: request.Request) -> int:
    environment = preparation.prepare_environment()
    configuration = arguments.compose_configure(wanted, python=sys.executable)
    if code := preparation.prepare_source(wanted, environment | configuration):
        return code
    folder = CACHE / "collect"
    forget_other_run(folder, os.environ.get("RUN_ID", ""))
    trust = preparation.prepare_trust()
    preparation.prepare_downloads(folder / "repository")
    redactor = preparation.prepare_redactor(SECRETS / "bazelrc", environment)
    answers = downloader.Downloader(downloader.read_unpinned(BUILD / "downloads"))
    with answers.answering():
        rules = PRIVATE / "downloader"
        rules.write_text(answers.compose_rules(all_=True))
        startup = arguments.compose_startup(
            cache=folder, logging=preparation.prepare_logging(), credentials=None, trust=trust
        )
        build = arguments.compose_build(
            wanted,
            cache=folder,
            events=PRIVATE / "events.json",
            downloads=BUILD / "downloads",
            trust=trust,
            rules=rules,
        )
        log = OUT / "collect.log"
        argv = ["bazel", *startup, *build, "--nobuild", "--keep_going"]
        ended = bazel.run(argv, environment=environment, folder=SOURCE, log=log, redact=redactor.redact)
    text = log.read_text(errors="replace")
    found = read_wanted(text, answers.address)
    hashed = {url for row in found for url in row["urls"]}
    unpinned = sorted(set(answers.asked) - hashed)
    if ended.code and not found and not unpinned:
        lines = [line for line in text.splitlines() if line.startswith(("ERROR:", "FATAL:"))]
        print("\n".join([f"wheel: Bazel failed with exit code {ended.code}", *lines[:8]]), file=sys.stderr)
        return ended.code
    answer = {"schema": 1, "wanted": found, "unpinned": unpinned}
    (OUT / "wanted.json").write_text(json.dumps(answer, indent=1) + "\n")
    count = len(found) + len(unpinned)
    print(f"wheel: Bazel wants {count} more archives" if count else "wheel: Bazel wants nothing more")
    return 0


def main() -> int:
    OUT.mkdir(exist_ok=True)
    try:
        toolchain = preparation.read_toolchain()
        return ask(
            request.read_request(os.environ, cores=count_cores(), memory=machine.read_memory(), toolchain=toolchain)
        )
    except request.UsageError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
