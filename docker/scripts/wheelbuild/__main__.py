"""Build a TensorFlow wheel: patch, configure, run Bazel, hand over one wheel and what belongs to it.

Exit codes: 0 done, 1 a patch does not apply, 2 usage, 3 not exactly one wheel, 28 the disk is full, 34 the remote
executor does not answer, 137 a compiler was killed for memory, otherwise Bazel's own.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from wheelbuild import arguments, bazel, machine, redaction, request, result, service

BUILD = Path("/build")
CACHE = Path("/var/cache/bazel")
SOURCE = Path("/usr/src/tensorflow")
OUT = Path("/out")
SECRETS = Path("/run/secrets")
RAW_EVENTS = Path("/tmp/events.json")  # noqa: S108 -- holds credentials, so it must not outlive the step
LOG = CACHE / "log" / "build.log"
EVENTS = CACHE / "log" / "events.json"
REMOTE_FAILED = 34
"""Bazel's own code for a remote executor that fails; ours for one that cannot be reached."""


def prepare_environment() -> dict[str, str]:
    """Environment of ``./configure`` and Bazel: nothing of the outside but proxies and the certificates to trust."""
    kept = {"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}
    proxies = {"http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"}
    base = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    return base | {name: value for name, value in os.environ.items() if name in kept or name.lower() in proxies}


def prepare_trust() -> Path | None:
    """Turn the bundle of the secret ``ca`` into a store that Bazel's Java reads; None without the secret.

    Java takes a certificate of a PKCS #12 file as trusted only with an attribute of its own, ``-jdktrust``.
    """
    bundle = SECRETS / "ca"
    if not bundle.is_file():
        return None
    store = Path("/tmp/trust.p12")  # noqa: S108 -- the container's own, gone with the step
    export = ["openssl", "pkcs12", "-export", "-nokeys", "-jdktrust", "anyExtendedKeyUsage", "-passout", "pass:toolkit"]
    subprocess.run([*export, "-in", str(bundle), "-out", str(store)], check=True)
    return store


def prepare_downloads() -> None:
    """Copy a repository cache from the context ``downloads``: Bazel writes into its own, and a context is read-only."""
    given = BUILD / "downloads" / "repository_cache"
    if given.is_dir():
        shutil.copytree(given, CACHE / "repository", dirs_exist_ok=True)


def redact(credentials: Path) -> None:
    """Leave log and event file in the cache mount, without what the user's rc file keeps secret."""
    secrets = redaction.read_secrets(credentials.read_text()) if credentials.is_file() else []
    for raw, clean in ((LOG, LOG), (RAW_EVENTS, EVENTS)):
        if raw.exists():
            clean.write_text(redaction.redact(raw.read_text(errors="replace"), secrets))


def explain_failure(ended: bazel.Ended, wanted: request.Request, kills: int) -> int:
    """Print the first error of the log and what to do; returns the exit code of the step."""
    code = ended.code
    log = LOG.read_text(errors="replace")
    lines = log.splitlines()
    # The first error is the cause; with --keep_going or many jobs it is far from the end.
    first = next((number for number, line in enumerate(lines) if line.startswith(("ERROR:", "FATAL:"))), -20)
    said = "\n".join(lines[first:][:60])
    print(f"wheel: Bazel failed with exit code {code}; the target bazel-log has its whole log\n{said}", file=sys.stderr)
    if kills or bazel.KILLED.search(log):
        print(f"wheel: a process was killed for memory, with {wanted.jobs} jobs at once", file=sys.stderr)
        print(f"  try: BAZEL_JOBS={max(1, wanted.jobs // 2)}; what is compiled already is kept", file=sys.stderr)
        return 137
    if ended.full:
        return explain_full_disk(ended.full)
    # Where all actions are cached, Bazel ends with the code of what it does next: 38, the events cannot be uploaded.
    return REMOTE_FAILED if bazel.REFUSED in log else code


def explain_full_disk(said: str) -> int:
    """Print where space is wanted; returns the exit code of the step."""
    free = ", ".join(f"{folder} {shutil.disk_usage(folder).free >> 20} MiB" for folder in (CACHE, "/"))
    print(f"wheel: the disk is full: {said}\n  free now: {free}", file=sys.stderr)
    print("  try: free space in the engine; what is compiled already is kept", file=sys.stderr)
    return errno.ENOSPC


def build(wanted: request.Request) -> int:
    """Run the whole stage; returns its exit code."""
    if trouble := service.find_trouble(wanted.remote_executor):
        # Bazel itself asks six times, and each time may take a minute where packets get lost.
        print(f"wheel: the remote executor does not answer: {trouble}", file=sys.stderr)
        return REMOTE_FAILED
    environment = prepare_environment()
    patches = BUILD / "patches" / "tensorflow" / wanted.tensorflow
    if code := subprocess.run([BUILD / "apply-patches", patches, SOURCE], check=False).returncode:
        return code
    configuration = arguments.compose_configure(wanted, python=sys.executable)
    configured = subprocess.run(
        ["./configure"], cwd=SOURCE, env=environment | configuration, stdin=subprocess.DEVNULL, check=False
    )
    if configured.returncode:
        print("wheel: ./configure failed; its words are above", file=sys.stderr)
        return 2

    trust = prepare_trust()
    prepare_downloads()
    credentials = SECRETS / "bazelrc"
    startup = arguments.compose_startup(
        cache=CACHE, credentials=credentials if credentials.is_file() else None, trust=trust
    )
    argv = ["bazel", *startup]
    argv += arguments.compose_build(wanted, cache=CACHE, events=RAW_EVENTS, downloads=BUILD / "downloads", trust=trust)
    print(f"wheel: {wanted.jobs} jobs, {wanted.memory} MiB\n+ {' '.join(argv)}", flush=True)
    began, kills = time.monotonic(), machine.count_kills()
    ended = bazel.run(argv, environment=environment, folder=SOURCE, log=LOG)
    seconds = time.monotonic() - began
    redact(credentials)
    if ended.code:
        return explain_failure(ended, wanted, machine.count_kills() - kills)

    try:
        wheel = result.find_wheel(EVENTS)
    except result.ResultError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 3
    facts = {
        "schema": 1,
        "bazel": bazel.read_version(environment),
        "argv": argv,
        "configure": configuration,
        "jobs": wanted.jobs,
        "memory_mib": wanted.memory,
        "cores": machine.count_cores(),
        "seconds": round(seconds, 1),
        "peak_memory_mib": machine.read_peak(),
        "processes": bazel.count_processes(LOG.read_text(errors="replace")),
    }
    hand_over(wheel, facts)
    return 0


def hand_over(wheel: Path, facts: dict[str, object]) -> None:
    """Fill ``/out`` with the wheel and what belongs to it."""
    OUT.mkdir(exist_ok=True)
    packages = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package}=${Version}\n"], capture_output=True, text=True, check=True
    )
    for file in (wheel, LOG, EVENTS, Path("/proof/toolchain.json")):
        shutil.copyfile(file, OUT / file.name)
    (OUT / "packages.txt").write_text(packages.stdout)
    (OUT / "build.json").write_text(json.dumps(facts, indent=2) + "\n")
    result.write_sums(OUT)
    print(f"wheel: {wheel.name}, {wheel.stat().st_size:,} bytes, in {facts['seconds']} s")


def main() -> int:
    """Read the request from the environment and build."""
    try:
        wanted = request.read_request(os.environ, cores=machine.count_cores(), memory=machine.read_memory())
    except request.UsageError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 2
    try:
        (CACHE / "log").mkdir(parents=True, exist_ok=True)
        for stale in (LOG, EVENTS):
            stale.unlink(missing_ok=True)
        return build(wanted)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        return explain_full_disk(str(error))


if __name__ == "__main__":
    sys.exit(main())
