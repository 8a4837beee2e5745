import re
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.base import programs
from toolkit.base.errors import PreflightError, ToolkitError
from toolkit.base.findings import Finding
from toolkit.engine.packed import PACKERS
from toolkit.versions.settings import Settings

if TYPE_CHECKING:
    import docker


def check_engine(settings: Settings) -> Iterator[Finding]:
    # The docker SDK is slow to load, and `doctor` is imported by commands that do not need it.
    from toolkit.engine.client import connect, is_podman, select_base

    try:
        client = connect()
    except ToolkitError as error:
        evidence = f"{error.what}: {error.why}"
        advisory = settings.engine != "docker"
        yield Finding(id="engine", state="fail", advisory=advisory, evidence=evidence, remedy=error.remedy)
        return
    version = client.version()
    podman = is_podman(client)
    summary = f"{'Podman' if podman else 'engine'} {version['Version']}, API {version['ApiVersion']}"
    yield Finding(id="engine", state="ok", evidence=summary, facts={"api": version["ApiVersion"]})
    yield from _check_users(client)
    yield from _check_podman() if podman else [_check_plugin("buildx", "image builds go through it")]
    yield _check_plugin("compose", "compose.yaml needs it; the toolkit itself does not")
    try:
        chosen = select_base(client, settings, settings.python)
        yield Finding(
            id="base-image",
            state="ok",
            evidence=chosen.why or f"{chosen.reference} is on this machine",
            facts={"reference": chosen.reference, "id": chosen.identity},
        )
    except ToolkitError as error:
        yield Finding(id="base-image", state="fail", advisory=True, evidence=error.what, remedy=error.remedy)
    runtimes = client.info().get("Runtimes", {})
    if "nvidia" in runtimes:
        yield Finding(id="nvidia-runtime", state="ok", evidence="the engine has the NVIDIA runtime")
    else:
        yield Finding(
            id="nvidia-runtime",
            state="fail",
            advisory=True,
            evidence="the engine has no NVIDIA runtime: containers see no GPU",
            remedy="on a GPU machine, install nvidia-container-toolkit and run `nvidia-ctk runtime configure`",
        )


def _check_users(client: "docker.DockerClient") -> Iterator[Finding]:
    from toolkit.engine.client import find_users
    from toolkit.engine.user import name_user

    users, info = find_users(client), client.info()
    owner = name_user(users.owner[0] if users.owner else -1)
    kind = "rootless" if users.rootless else "mapped" if users.mapped else "rootful"
    evidence = {
        "rootful": "rootful: jobs run as their caller, those of root as the owner of the folder that they write to",
        "mapped": "it maps users, which jobs turn off for themselves by --userns=host; then as without",
        "rootless": f"rootless: jobs read and write as {owner}, but not by further groups",
    }
    yield Finding(id="users", state="ok", evidence=evidence[kind], facts=asdict(users))
    if users.rootless and str(info.get("CgroupVersion")) == "1":
        yield Finding(
            id="limits",
            state="fail",
            advisory=True,
            evidence="a rootless engine cannot limit cores and processes by control groups of version 1",
            remedy="start the system with control groups of version 2, or use --threads",
        )


def _check_podman() -> Iterator[Finding]:
    from toolkit.engine.client import PODMAN_BUILDS

    evidence = "images are not built through Podman's socket; jobs run in images that it has"
    yield Finding(id="buildx", state="fail", advisory=True, evidence=evidence, remedy=PODMAN_BUILDS)


def check_packers(settings: Settings) -> Iterator[Finding]:
    for name, packer in PACKERS.items():
        try:
            yield Finding(id=name, state="ok", evidence=f"{packer.find_version()}, and users can run images")
        except ToolkitError as error:
            evidence, advisory = f"{error.what}: {error.why}", settings.engine != name
            yield Finding(id=name, state="fail", advisory=advisory, evidence=evidence, remedy=error.remedy)


def _check_plugin(name: str, use: str) -> Finding:
    from toolkit.engine.client import OLDEST_BUILDX, is_old_buildx

    try:
        answer = programs.docker(["docker", name, "version"]).run(seconds=20)
    except PreflightError as error:
        return Finding(id=name, state="fail", advisory=True, evidence=f"{error.what}: {error.why}", remedy=error.remedy)
    except (OSError, subprocess.TimeoutExpired):
        answer = None
    if answer is None or answer.returncode:
        remedy = f"install the docker-{name} plugin"
        return Finding(
            id=name, state="fail", advisory=True, evidence=f"`docker {name}` is missing: {use}", remedy=remedy
        )
    version = answer.stdout.strip()
    if name == "buildx" and is_old_buildx(version):
        remedy = f"install docker-buildx {'.'.join(map(str, OLDEST_BUILDX))} or newer"
        return Finding(id=name, state="fail", advisory=True, evidence=f"{version} is too old: {use}", remedy=remedy)
    return Finding(id=name, state="ok", evidence=version)


PATIENCE_SECONDS = 5

SOURCES = {
    "github": ("https://github.com/tensorflow/tensorflow", "TensorFlow's source and Bazel"),
    "nvidia": ("https://developer.download.nvidia.com/compute/cuda/redist/", "CUDA and cuDNN of a source build"),
    "cifar": ("https://www.cs.toronto.edu/~kriz/cifar.html", "cifar10 and cifar100"),
    "huggingface": ("https://huggingface.co", "svhn"),
}
"""Address, and what is fetched from there."""

_OFFLINE = "build and train off-line: --source, --downloads, --data-dir; or repair the network"
_REPAIR = "repair the network; behind a proxy that re-signs https, give --ca-bundle"


def check_sources(settings: Settings) -> Iterator[Finding]:
    """Check all sources in parallel. One that does not answer is a warning, because much works without it."""
    context = ssl.create_default_context()
    if settings.ca_bundle:
        context.load_verify_locations(settings.ca_bundle)
    with ThreadPoolExecutor(len(SOURCES) + 2) as pool:
        index = pool.submit(_ask_index, settings)
        debian = pool.submit(_check_debian, settings, context)
        reasons = pool.map(lambda source: _ask(source[0], context), SOURCES.values())
        for (name, (_, use)), reason in zip(SOURCES.items(), reasons, strict=True):
            yield _describe_source(name, use, reason, _OFFLINE)
        yield _describe_source("python", "Python's packages, from pip's index", index.result(), _REPAIR)
        yield from debian.result()


def _describe_source(name: str, use: str, reason: str | None, remedy: str) -> Finding:
    if reason is None:
        return Finding(id=f"source-{name}", state="ok", evidence=f"{use}: in reach")
    return Finding(
        id=f"source-{name}", state="fail", advisory=True, evidence=f"{use}: out of reach ({reason})", remedy=remedy
    )


def _ask(address: str, context: ssl.SSLContext) -> str | None:
    """Return why an address does not answer, or None. An error status is an answer too."""
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - http or https, by all who call
    try:
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context).close()  # noqa: S310
    except urllib.error.HTTPError:
        return None
    except OSError as error:
        return str(getattr(error, "reason", error))[:80]
    return None


def _ask_index(settings: Settings) -> str | None:
    patience = ("--timeout", str(PATIENCE_SECONDS), "--retries", "0")
    argv = ("-m", "pip", "--disable-pip-version-check", *patience, "index", "versions", "pip")
    trusted = {"PIP_CERT": settings.ca_bundle} if settings.ca_bundle else {}
    try:
        answer = programs.python(*argv, variables=trusted).run(seconds=4 * PATIENCE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "pip does not answer"
    lines = answer.stderr.strip().splitlines()
    return (lines[-1][:80] if lines else f"exit code {answer.returncode}") if answer.returncode else None


def _check_debian(settings: Settings, context: ssl.SSLContext) -> list[Finding]:
    use = "Debian's packages of the toolchain"
    try:
        answer = _read_archives(settings)
    except ToolkitError:
        return []
    if answer is None:
        remedy = f"`docker pull {settings.base_image}` and run this again"
        summary = f"{use}: not checked: the base image is not on this machine"
        return [Finding(id="source-debian", state="skipped", evidence=summary, remedy=remedy)]
    addresses = sorted(set(re.findall(r"https?://[^\s\]]+", answer)))
    reasons = [reason for reason in (_ask(address, context) for address in addresses) if reason]
    return [_describe_source("debian", use, reasons[0] if reasons else None, _REPAIR)]


def _read_archives(settings: Settings) -> str | None:
    from toolkit.engine.client import connect, find_digest, read_files, select_base

    client = connect()
    chosen = select_base(client, settings, settings.python)
    if find_digest(client, chosen.reference) is None:
        return None
    contents = read_files(client, chosen.reference, "/etc/apt", Path(settings.state))
    return "\n".join(
        content.decode(errors="replace") for name, content in contents.items() if name.endswith((".list", ".sources"))
    )
