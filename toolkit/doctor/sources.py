"""Whether what the chain downloads from can be reached from here."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from toolkit.doctor.finding import Finding
from toolkit.settings import Settings

PATIENCE_SECONDS = 5

SOURCES = {
    "github": ("https://github.com/tensorflow/tensorflow", "TensorFlow's source and Bazel"),
    "nvidia": ("https://developer.download.nvidia.com/compute/cuda/redist/", "CUDA and cuDNN of a source build"),
    "cifar": ("https://www.cs.toronto.edu/~kriz/cifar.html", "cifar10 and cifar100"),
    "huggingface": ("https://huggingface.co", "svhn"),
}
"""Address, and what is fetched from there."""


def check(settings: Settings) -> Iterator[Finding]:
    """Each source, asked at once; one that does not answer is a warning, for much works without it."""
    context = ssl.create_default_context()
    if settings.ca_bundle:
        context.load_verify_locations(settings.ca_bundle)
    with ThreadPoolExecutor(len(SOURCES)) as pool:
        reasons = pool.map(lambda source: _ask(source[0], context), SOURCES.values())
        for (name, (_, use)), reason in zip(SOURCES.items(), reasons, strict=True):
            if reason is None:
                yield Finding(id=f"source-{name}", level="ok", summary=f"{use}: in reach")
            else:
                remedy = "build and train off-line: --source, --downloads, --data-dir; or mend the network"
                yield Finding(
                    id=f"source-{name}", level="warn", summary=f"{use}: out of reach ({reason})", remedy=remedy
                )


def _ask(address: str, context: ssl.SSLContext) -> str | None:
    """None if somebody answers, else why not. A refusal is an answer: the source itself is there."""
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the addresses above, all https
    try:
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context).close()  # noqa: S310
    except urllib.error.HTTPError:
        return None
    except OSError as error:
        return str(getattr(error, "reason", error))[:80]
    return None
