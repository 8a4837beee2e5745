"""An image is known by the same digest before it is pulled and after."""

import pytest

from toolkit.engine.base import _identify

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("reference", "digests", "identity"),
    [
        ("python:3.11-slim-trixie", [f"python@{DIGEST}"], DIGEST),
        ("python:3.11-slim-trixie", [f"mirror.example/python@{OTHER}", f"python@{DIGEST}"], DIGEST),
        (f"python@{DIGEST}", [f"python@{DIGEST}"], DIGEST),
        (f"python:3.11@{DIGEST}", [f"python@{DIGEST}"], DIGEST),
        ("127.0.0.1:5000/base", [f"127.0.0.1:5000/base@{DIGEST}"], DIGEST),
        ("127.0.0.1:5000/base:tag", [f"127.0.0.1:5000/base@{DIGEST}"], DIGEST),
        ("python:3.11-slim-trixie", [f"mirror.example/python@{OTHER}"], ""),
        ("toolkit/base:python3.11-trixie", [], ""),
    ],
)
def test_the_digest_is_the_one_of_the_images_own_registry(reference: str, digests: list[str], identity: str) -> None:
    assert _identify(reference, digests) == identity
