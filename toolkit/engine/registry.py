"""Reads and writes sets of files in an OCI registry, with the credentials of `docker login`.

A registry is not trusted: each file is hashed while it streams, and what is not what its digest says is not kept.
Format: https://github.com/opencontainers/distribution-spec 1.1.
"""

import base64
import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urljoin, urlsplit

import requests
import urllib3
from docker import auth
from docker.errors import DockerException

from toolkit.base import digest, files, programs
from toolkit.base.errors import IntegrityError, PreflightError, RegistryError, UsageError
from toolkit.engine.oci_manifest import FORMS, Layer, parse_manifest
from train.system import network
from train.system.progress import Reported, Work, report

_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}

PATIENCE: float = 60
"""Seconds without a byte, or with too few of them, after which a transfer has failed."""

ATTEMPTS: Final = 4
"""How often in a row a download may break without going on by ``PROGRESS`` bytes."""

PROGRESS: Final = 1 << 20
PAUSE: float = 1
"""Seconds before the second attempt; each further one waits longer."""

_REMEDY: Final = (
    "check address and network; --ca-bundle FILE trusts another authority; http:// before the name does without TLS on "
    "this machine"
)
_LARGEST_ANSWER: Final = 4 << 20
_MOST_HOPS: Final = 6
_PIECE: Final = 1 << 20
_WORD: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?P<scheme>https?://)?(?P<host>(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::\d{{1,5}})?)/(?P<name>{_WORD}(?:/{_WORD})*)",
    re.ASCII,
)
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class _BrokenError(RegistryError):
    """A transfer that may be tried again."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    base: str  # scheme, host and port
    name: str

    @property
    def host(self) -> str:
        return urlsplit(self.base).netloc

    def __str__(self) -> str:
        return f"{self.host}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class _Login:
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)  # of an identity, in place of a password


def parse(text: str) -> Repository:
    """Return what ``HOST[:PORT]/NAME`` names. Raises UsageError if it is no such name, or plain http elsewhere."""
    match = _REFERENCE.fullmatch(text)
    if not match or not _is_host(match["host"]):  # the message does not repeat it: it may hold a password
        raise UsageError(
            "not a repository of a registry: HOST[:PORT]/NAME is wanted, the name in small letters",
            remedy="such as ghcr.io/team/tensorflow; passwords are those of `docker login`",
        )
    base = f"{match['scheme'] or 'https://'}{match['host']}"
    if base.startswith("http://") and not _is_loopback(base):
        raise UsageError(
            f"plain http to {match['host']}",
            why="whoever is on the way reads the password; only this machine is asked without TLS",
            remedy="leave out http://",
        )
    return Repository(base=base, name=match["name"])


class Client:
    """Talks to one repository. Credentials go to its own host, and to the token service that it names."""

    def __init__(self, repository: Repository, ca_bundle: str = "") -> None:
        self._host, self._repository = repository.host, repository
        self._root = f"{repository.base}/v2/{repository.name}/"
        self._authorities = ca_bundle or True
        self._authorization = ""
        self._session = requests.Session()
        self._session.trust_env = not _is_loopback(repository.base)  # a proxy is not on this machine
        self._session.auth = lambda request: request  # otherwise requests reads .netrc

    def find(self, reference: str, kind: str) -> list[Layer] | None:
        """Return the files under a tag, or of a manifest's digest, or None if there are none.

        Raises IntegrityError if they are of another kind of artifact, or damaged, and RegistryError.
        """
        answer = self._ask("GET", f"manifests/{reference}", headers={"Accept": ", ".join(FORMS)})
        if answer.status_code == 404:
            if not self._read_errors(answer):
                raise RegistryError(f"{self._host} is no registry", why="its answer 404 is not that of one")
            return None
        self._require(answer, 200, f"was asked for {reference}")
        content = self._read(answer)
        parsed, computed = parse_manifest(content, kind), digest.digest_bytes(content)
        named = {answer.headers.get("Docker-Content-Digest") or computed, reference if ":" in reference else computed}
        if parsed is None or named != {computed}:
            raise IntegrityError(
                f"what {self._repository} has under {reference} is not what was asked for",
                why=f"it is no {kind}" if parsed is None else "its digest is not the one that the registry names",
                remedy="look at it: another program may have pushed it, or the registry is damaged",
            )
        return parsed

    def publish(self, tag: str, media: str, body: bytes) -> None:
        """Give a manifest a tag. What it names was uploaded before."""
        answer = self._ask("PUT", f"manifests/{tag}", body=body, headers={"Content-Type": media})
        self._require(answer, 201, "got the manifest")

    def upload(self, value: str, content: Path | bytes) -> None:
        """Upload a file, unless the registry has it."""
        answer = self._ask("HEAD", f"blobs/{value}")
        if answer.status_code == 200:
            return
        self._require(answer, 404, "was asked for a file")
        try:
            self._store(value, content)
        except _BrokenError:  # as where a token has just expired: that is answered before the file is read
            self._store(value, content)

    def _store(self, value: str, content: Path | bytes) -> None:
        begun = self._ask("POST", "blobs/uploads/")
        self._require(begun, 202, "was to take a file")
        place = begun.headers.get("Location", "")
        done = self._ask("PUT", f"{place}{'&' if '?' in place else '?'}digest={value}", body=content)
        self._require(done, 201, "got a file")

    def download(self, layer: Layer, path: Path) -> None:
        """Download a file, and go on where an earlier download broke off.

        Raises IntegrityError if other bytes came; the file is then removed. Raises RegistryError if the connection
        broke too often; what came is then kept. Raises PreflightError if the disk is too small.
        """
        free = shutil.disk_usage(path.parent).free
        if layer.size > free:
            raise PreflightError(
                f"{layer.title} has {layer.size / 1e6:,.0f} MB, and {path.parent} has room for {free / 1e6:,.0f}",
                remedy="free space",
            )
        failures = 0
        while True:
            before = path.stat().st_size if path.exists() else 0
            try:
                self._receive(layer, path)
            except _BrokenError:
                failures = 1 if path.stat().st_size >= before + PROGRESS else failures + 1
                if failures >= ATTEMPTS:
                    raise
                time.sleep(PAUSE * failures)
            else:
                return

    def _receive(self, layer: Layer, path: Path) -> None:
        hasher = hashlib.sha256()
        with files.open_own(path) as file:
            while piece := file.read(_PIECE):
                hasher.update(piece)
            if (had := file.tell()) < layer.size:
                answer = self._ask("GET", f"blobs/{layer.digest}", headers={"Range": f"bytes={had}-"} if had else {})
                goes_on = had and answer.headers.get("Content-Range", "").startswith(f"bytes {had}-")
                if had and not goes_on and answer.status_code in {200, 206, 416}:
                    hasher = hashlib.sha256()
                    file.seek(0)
                    file.truncate()
                self._require(answer, 206 if goes_on else 200, f"was asked for {layer.title}")
                report(Work(layer.title, file.tell(), layer.size, "bytes"))
                for piece in self._stream(answer):
                    hasher.update(piece)
                    file.write(piece)
                    report(Work(layer.title, file.tell(), layer.size, "bytes"))
                    if file.tell() > layer.size:
                        break
            size = file.tell()
        if size < layer.size:
            raise _BrokenError(
                f"{self._host} sent {size:,} of the {layer.size:,} bytes of {layer.title}",
                why="the connection ended",
                remedy="run the same command again: it goes on from there",
            )
        if size > layer.size or f"sha256:{hasher.hexdigest()}" != layer.digest:
            path.unlink()
            raise IntegrityError(
                f"{self._host} sent other bytes than its manifest names for {layer.title}",
                why=f"{layer.size:,} bytes of {layer.digest} were to come",
                remedy="tell whoever runs the registry",
            )

    def _ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: Path | bytes | None = None
    ) -> requests.Response:
        """Send a request, answer one challenge, and follow redirects of what only reads."""
        challenged = False
        with self._translating("failed", _REMEDY):
            url = urljoin(self._root, path)
            for _ in range(_MOST_HOPS):
                same_origin = _find_origin(url) == _find_origin(self._root)
                known = {"Authorization": self._authorization} if same_origin and self._authorization else {}
                answer = self._send(method, url, {**(headers or {}), **known}, body)
                if answer.status_code == 401 and same_origin and not challenged:
                    challenged = True
                    self._authorization = self._log_in(answer.headers.get("WWW-Authenticate", ""))
                elif answer.is_redirect and method in {"GET", "HEAD"}:
                    url = urljoin(url, answer.headers["Location"])
                else:
                    return answer
                answer.close()
        raise RegistryError(f"{self._host} redirects in a circle")

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Path | bytes | None = None,
        query: Mapping[str, str] | None = None,
    ) -> requests.Response:
        plain = self._root.startswith("http://") and _is_loopback(url)
        if urlsplit(url).scheme not in {"https", "http" if plain else "https"}:
            raise RegistryError(f"{self._host} leads to an address without TLS", why="nothing was sent there")
        # requests would send an empty file in chunks, which not every registry takes.
        with Reported(body) if isinstance(body, Path) and body.stat().st_size else nullcontext() as file:
            wait = PATIENCE * (10 if file else 1)  # a registry stores a large file before it answers
            request = partial(
                self._session.request,
                method,
                url,
                headers={"Accept-Encoding": "identity", **headers},
                params=query,
                data=file or (b"" if isinstance(body, Path) else body),
                stream=True,
                verify=self._authorities,  # given here, because requests prefers REQUESTS_CA_BUNDLE to the session's
                allow_redirects=False,
                timeout=(PATIENCE, wait),
            )
            size = body.stat().st_size if isinstance(body, Path) else len(body or b"")
            return network.within(PATIENCE + wait + size / network.SLOWEST, request)

    def _log_in(self, challenge: str) -> str:
        """Return the header that answers a challenge, or nothing: the registry then refuses."""
        kind, _, rest = challenge.partition(" ")
        login = _find_login(self._host) or _Login()
        basic = f"Basic {base64.b64encode(f'{login.user}:{login.password}'.encode()).decode()}" if login.user else ""
        if kind.lower() != "bearer":
            return basic
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        query = {name: fields[name] for name in ("service", "scope") if name in fields}
        realm = fields.get("realm", "")
        if login.token:
            form = {**query, "grant_type": "refresh_token", "client_id": "toolkit", "refresh_token": login.token}
            answer = self._send("POST", realm, _FORM, urlencode(form).encode())
        else:
            answer = self._send("GET", realm, {"Authorization": basic} if basic else {}, query=query)
        self._require(answer, 200, "was asked for a token")
        value = json.loads(self._read(answer))
        token = value.get("token") or value.get("access_token") if isinstance(value, dict) else None
        return f"Bearer {token}" if isinstance(token, str) and _TOKEN.fullmatch(token) else ""

    def _require(self, answer: requests.Response, status: int, doing: str) -> None:
        if answer.status_code == status:
            return
        passing = answer.status_code >= 500 or answer.status_code == 429
        denied = answer.status_code in {401, 403}
        raise (_BrokenError if passing else RegistryError)(
            f"{self._host} answered {answer.status_code} when it {doing}",
            why="; ".join(self._read_errors(answer))[:400],
            remedy=f"`docker login {self._host}` as a user who may do this"
            if denied
            else "see the registry's log; run the same command again",
        )

    def _read_errors(self, answer: requests.Response) -> list[str]:
        try:
            errors = json.loads(self._read(answer))["errors"]
            return [f"{error.get('code')}: {error.get('message')}" for error in errors]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, IntegrityError, RegistryError):
            return []

    def _read(self, answer: requests.Response) -> bytes:
        content = bytearray()
        for piece in self._stream(answer):
            content += piece
            if len(content) > _LARGEST_ANSWER:
                raise IntegrityError(f"{self._host} answered with more than {_LARGEST_ANSWER >> 20} MiB")
        return bytes(content)

    def _stream(self, answer: requests.Response) -> Iterator[bytes]:
        with answer, self._translating("broke off", "run the same command again: it goes on from there"):
            yield from network.list_pieces(lambda: answer.raw.read1(_PIECE, decode_content=False), PATIENCE)

    @contextmanager
    def _translating(self, message: str, remedy: str) -> Iterator[None]:
        try:
            yield
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            ValueError,
            RecursionError,
            TimeoutError,
        ) as error:
            reason = getattr(error.args[0] if error.args else None, "reason", error)
            # A ValueError may name a header or an address with a secret in it.
            why = type(error).__name__ if isinstance(error, ValueError) else str(reason)[:400]
            raise _BrokenError(f"the connection to {self._host} {message}", why=why, remedy=remedy) from None


def _find_login(host: str) -> _Login | None:
    """Return what `docker login` keeps, in its file or by a helper. What a helper said is not repeated."""
    programs.require_own_docker()
    try:
        credentials = auth.load_config().resolve_authconfig(host)
    except (DockerException, ValueError, KeyError, OSError) as error:
        raise RegistryError(
            f"the credentials for {host} cannot be read",
            why=type(error).__name__,
            remedy="`docker login` writes config.json again; a credential helper that it names must be installed",
        ) from None
    values = {name.lower(): str(value) for name, value in (credentials or {}).items()}
    if token := values.get("identitytoken"):
        return _Login(token=token)
    return _Login(user=values["username"], password=values["password"]) if "password" in values else None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_host(text: str) -> bool:
    """Return whether a host, in brackets an address of IPv6, and its port are possible ones."""
    try:
        parts = urlsplit(f"https://{text}")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _find_origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
