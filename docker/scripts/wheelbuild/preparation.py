"""Prepares what Bazel is run with: variables, authorities, archives, the tree, and what masks secrets in its words."""

import os
import shutil
import subprocess
from pathlib import Path

from wheelbuild import redaction, request
from wheelbuild.trust import compose_store

BUILD = Path("/build")
CACHE = Path("/var/cache/bazel")
SOURCE = Path("/usr/src/tensorflow")
SECRETS = Path("/run/secrets")
PRIVATE = Path("/tmp")  # noqa: S108 -- in memory, and gone with the step: it is in no layer
"""Folder for what may hold credentials."""

TOOLCHAIN = Path("/etc/toolkit/toolchain")
"""The toolchain's name, written by name-toolchain. The image of a farm's workers has the same file."""


def read_toolchain() -> str:
    return TOOLCHAIN.read_text().strip()


def prepare_environment() -> dict[str, str]:
    kept = {"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}
    proxies = {"http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"}
    base = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    return base | {name: value for name, value in os.environ.items() if name in kept or name.lower() in proxies}


def prepare_trust() -> Path | None:
    bundle = SECRETS / "ca"
    if not bundle.is_file():
        return None
    store = PRIVATE / "trust.jks"
    store.write_bytes(compose_store(bundle.read_text(encoding="utf-8")))
    return store


def prepare_downloads(cache: Path) -> None:
    """Copy a repository cache from the context ``downloads``: Bazel writes into its own, and a context is read-only."""
    given = BUILD / "downloads" / "repository_cache"
    if given.is_dir():
        shutil.copytree(given, cache, dirs_exist_ok=True)


def prepare_logging() -> Path:
    """Write the properties file that switches off the log of Bazel's server, which holds the values of rc files."""
    path = PRIVATE / "logging.properties"
    path.write_text(".level=OFF\n")
    return path


def prepare_redactor(credentials: Path, environment: dict[str, str]) -> redaction.Redactor:
    rc = credentials.read_text(errors="replace") if credentials.is_file() else ""
    redaction.require_safe(rc)
    return redaction.Redactor(rc, environment)


def prepare_source(wanted: request.Request, environment: dict[str, str]) -> int:
    both = f"{wanted.tensorflow}-{wanted.cuda}"
    for folder in (f"kernels/{both}", f"tensorflow/{wanted.tensorflow}", f"tensorflow/{both}"):
        patches = BUILD / "patches" / folder
        if code := subprocess.run([BUILD / "apply-patches", patches, SOURCE], check=False).returncode:
            return code
    if subprocess.run(["./configure"], cwd=SOURCE, env=environment, stdin=subprocess.DEVNULL, check=False).returncode:
        print("wheel: ./configure failed; its words are above", flush=True)
        return 2
    return 0
