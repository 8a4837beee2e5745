"""Find out what Bazel would download for the wheel: analyse the target while every download gets a placeholder.

Bazel then names the addresses and the hash of what it wanted instead. Only Bazel knows which archives a target needs on
this platform. ``wanted.json`` has the answer. Exit codes: 0 answered, 1 a patch does not apply, 2 usage, otherwise
Bazel's own: it failed for another reason.
"""

import base64
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from train.cores import count_cores  # mounted beside this package
from wheelbuild import arguments, bazel, machine, preparation, request
from wheelbuild.preparation import BUILD, CACHE, PRIVATE, SECRETS, SOURCE

OUT = Path("/out")
PLACEHOLDER = b"This is not the archive that was asked for.\n"
"""Content of every answer. Its hash is no archive's, so Bazel says which one it wanted."""

_REFUSED = re.compile(r"Error downloading \[([^\]]*)\] to \S+: Checksum was \S+ but wanted (\S+)")


class _Placeholder(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path.removeprefix("/"))
        self.send_response(200)
        self.send_header("Content-Length", str(len(PLACEHOLDER)))
        self.end_headers()
        self.wfile.write(PLACEHOLDER)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering() -> Iterator[str]:
    """Answer every download while the block runs; yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Placeholder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def compose_rules(address: str) -> str:
    """Return the configuration of Bazel's downloader that turns every address into one of the server."""
    return f"rewrite (.*) http://{address}/$1\n"


def read_wanted(log: str, address: str) -> list[dict[str, object]]:
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
    with answering() as address:
        rules = PRIVATE / "downloader"
        rules.write_text(compose_rules(address))
        startup = arguments.compose_startup(
            cache=folder, logging=preparation.prepare_logging(), credentials=None, trust=trust
        )
        build = arguments.compose_build(
            wanted, cache=folder, events=PRIVATE / "events.json", downloads=BUILD / "downloads", trust=trust
        )
        argv = ["bazel", *startup, *build, "--nobuild", "--keep_going", f"--experimental_downloader_config={rules}"]
        log = OUT / "collect.log"
        ended = bazel.run(argv, environment=environment, folder=SOURCE, log=log, redact=redactor.redact)
        found = read_wanted(log.read_text(errors="replace"), address)
    if ended.code and not found:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(("ERROR:", "FATAL:"))]
        lines = [f"wheel: Bazel failed with exit code {ended.code}", *lines[:8]]
        if unpinned := sorted(set(_Placeholder.asked)):
            # A rule that reads what it downloads fails on the placeholder, and no hash says what it wanted.
            lines.append(f"wheel: downloads without a hash, which cannot be collected: {', '.join(unpinned)}")
            lines.append("  try: leave their repository out, by --bazel-argument=--override_repository=NAME=PATH")
        print("\n".join(lines), file=sys.stderr)
        return ended.code
    (OUT / "wanted.json").write_text(json.dumps({"schema": 1, "wanted": found}, indent=1) + "\n")
    print(f"wheel: Bazel wants {len(found)} more archives" if found else "wheel: Bazel wants nothing more")
    return 0


def main() -> int:
    OUT.mkdir(exist_ok=True)
    try:
        toolchain = (BUILD / "toolchain/toolchain").read_text().strip()
        return ask(
            request.read_request(os.environ, cores=count_cores(), memory=machine.read_memory(), toolchain=toolchain)
        )
    except request.UsageError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
