"""Asks the sources of the version table: a package index, by pip and by its own service, and repositories, by git."""

import http.client
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from toolkit.errors import UsageError
from train.system import network

PATIENCE_SECONDS = 300
DOWNLOAD_SECONDS, DOWNLOAD_BYTES = 30, 1 << 24
_certificates: ContextVar[Mapping[str, str]] = ContextVar("certificates", default={})  # noqa: B039 - never changed
"""Variables by which pip and git trust a CA bundle."""


class UnreadableError(Exception):
    """A source does not answer, or not as expected."""


@contextmanager
def parsing_answer(answer: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError, UsageError) as error:
        raise UnreadableError(f"an answer that is not understood: {answer.strip()[:60]!r}") from error


@contextmanager
def trusting_certificates(ca_bundle: str) -> Iterator[None]:
    token = _certificates.set(dict.fromkeys(("PIP_CERT", "GIT_SSL_CAINFO"), ca_bundle) if ca_bundle else {})
    try:
        yield
    finally:
        _certificates.reset(token)


def run_pip(*words: str) -> str:
    return run(sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--retries=1", *words)


def run(*command: str) -> str:
    environment = {**os.environ, **_certificates.get(), "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PATIENCE_SECONDS,
            env=environment,
            cwd="/",  # what the current folder configures does not count
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadableError(str(error)) from error
    if done.returncode:
        raise UnreadableError(" ".join(done.stderr.split())[:300] or f"{command[0]} ended with {done.returncode}")
    return done.stdout


def download(address: str) -> str:
    """Return what is at an address, by the authorities that pip trusts."""
    trusted = {**os.environ, **_certificates.get()}.get("PIP_CERT")
    try:
        context = ssl.create_default_context(cafile=trusted or None)
        return network.within(PATIENCE_SECONDS, lambda: _read_address(address, context))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UnreadableError(f"{error}") from error


def _read_address(address: str, context: ssl.SSLContext) -> str:
    # http or https, by all who call
    with urllib.request.urlopen(address, timeout=DOWNLOAD_SECONDS, context=context) as answer:  # noqa: S310
        return str(answer.read(DOWNLOAD_BYTES).decode(errors="replace"))
