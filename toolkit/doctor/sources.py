"""Whether what the chain downloads from can be reached from here."""

import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.settings import Settings

PATIENCE_SECONDS = 5

SOURCES = {
    "github": ("https://github.com/tensorflow/tensorflow", "TensorFlow's source and Bazel"),
    "nvidia": ("https://developer.download.nvidia.com/compute/cuda/redist/", "CUDA and cuDNN of a source build"),
    "cifar": ("https://www.cs.toronto.edu/~kriz/cifar.html", "cifar10 and cifar100"),
    "huggingface": ("https://huggingface.co", "svhn"),
}
"""Address, and what is fetched from there."""

_OFFLINE = "build and train off-line: --source, --downloads, --data-dir; or mend the network"
_MEND = "mend the network; behind a proxy that re-signs https, give --ca-bundle"

_READ_ARCHIVES = """
from pathlib import Path
for file in Path("/etc/apt").rglob("*"):
    if file.suffix in {".list", ".sources"}:
        print(file.read_text())
"""


def check(settings: Settings) -> Iterator[Finding]:
    """Each source, asked at once; one that does not answer is a warning, for much works without it."""
    context = ssl.create_default_context()
    if settings.ca_bundle:
        context.load_verify_locations(settings.ca_bundle)
    with ThreadPoolExecutor(len(SOURCES) + 2) as pool:
        index = pool.submit(_ask_index, settings)
        debian = pool.submit(_check_debian, settings, context)
        reasons = pool.map(lambda source: _ask(source[0], context), SOURCES.values())
        for (name, (_, use)), reason in zip(SOURCES.items(), reasons, strict=True):
            yield _judge(name, use, reason, _OFFLINE)
        yield _judge("python", "Python's packages, as pip is told", index.result(), _MEND)
        yield from debian.result()


def _judge(name: str, use: str, reason: str | None, remedy: str) -> Finding:
    if reason is None:
        return Finding(id=f"source-{name}", state="ok", evidence=f"{use}: in reach")
    return Finding(
        id=f"source-{name}", state="fail", advisory=True, evidence=f"{use}: out of reach ({reason})", remedy=remedy
    )


def _ask(address: str, context: ssl.SSLContext) -> str | None:
    """None if somebody answers, else why not. A refusal is an answer: the source itself is there."""
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - http or https, by all who call
    try:
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context).close()  # noqa: S310
    except urllib.error.HTTPError:
        return None
    except OSError as error:
        return str(getattr(error, "reason", error))[:80]
    return None


def _ask_index(settings: Settings) -> str | None:
    """None if pip finds itself where it is configured to look; its address is nobody's business but pip's."""
    patience = ("--timeout", str(PATIENCE_SECONDS), "--retries", "0")
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", *patience, "index", "versions", "pip"]
    trusted = {"PIP_CERT": settings.ca_bundle} if settings.ca_bundle else {}
    try:
        answer = subprocess.run(
            argv, env=os.environ | trusted, capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "pip does not answer"
    said = answer.stderr.strip().splitlines()
    return (said[-1][:80] if said else f"exit code {answer.returncode}") if answer.returncode else None


def _check_debian(settings: Settings, context: ssl.SSLContext) -> list[Finding]:
    """The archives that the base image names: the toolchain's packages come from there. Nothing without an engine."""
    use = "Debian's packages of the toolchain"
    try:
        said = _read_archives(settings)
    except ToolkitError:
        return []
    if said is None:
        remedy = f"`docker pull {settings.base_image}`, and ask again"
        summary = f"{use}: not asked, for the base image is not on this machine"
        return [Finding(id="source-debian", state="skipped", evidence=summary, remedy=remedy)]
    addresses = sorted(set(re.findall(r"https?://[^\s\]]+", said)))
    reasons = [reason for reason in (_ask(address, context) for address in addresses) if reason]
    return [_judge("debian", use, reasons[0] if reasons else None, _MEND)]


def _read_archives(settings: Settings) -> str | None:
    """What the base image's apt is told of archives; None where the image is not here."""
    from toolkit.engine import docker
    from toolkit.engine.client import connect, find_digest, select_base
    from toolkit.engine.job import Job

    client = connect()
    chosen = select_base(client, settings)
    if find_digest(client, chosen.reference) is None:
        return None
    heard: list[str] = []
    job = Job(title="archives", argv=("-c", _READ_ARCHIVES), deadline=60)
    docker.run(client, job, image=chosen.reference, listener=heard.append)
    return "\n".join(heard)
