"""Whether a virtual environment of ours still holds what was installed, by what pip and the packages recorded."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from toolkit import digest, files, manifest
from toolkit.audit import origins
from toolkit.audit.installed import BROUGHT, Installed, find_changed, read_packages
from toolkit.engine import host
from toolkit.errors import IntegrityError
from toolkit.findings import Finding, check


def verify(folder: Path) -> list[Finding]:
    """Look at everything again.

    Raises:
        IntegrityError: the folder has no manifest of an environment, or pip's report beside it cannot be read.
    """
    record = manifest.read(folder)
    report = files.read_json(folder / host.REPORT)
    if record is None or record.kind != "environment" or not isinstance(report, dict):
        raise IntegrityError(
            f"{folder} has no manifest of an environment, with pip's report beside it",
            remedy=f"remove the folder {folder}; the next `toolkit up` or `toolkit train` makes it again",
        )
    parent = record.parent or {}
    packages = read_packages(folder / "venv")
    promised: dict[str, Any] = {canonicalize_name(item["metadata"]["name"]): item for item in report["install"]}
    name = folder.name.endswith(f"-{digest.shorten(record.digest)}")
    return [
        check("manifest", name, record.digest if name else f"{record.digest} is not that of the folder's name"),
        _check_wheel(parent, promised, packages),
        _check_packages(promised, packages),
        _check_files(packages),
        *origins.verify_origin(parent),
    ]


def _check_wheel(parent: Mapping[str, Any], promised: Mapping[str, Any], packages: Mapping[str, Installed]) -> Finding:
    """The wheel of the manifest is the one that pip says it installed."""
    names = sorted(manifest.PUBLISHED & packages.keys())
    seen = {digest_ for name in names for digest_ in _read_digests(promised.get(name), packages[name])}
    return check(
        "wheel",
        parent.get("digest") in seen,
        f"{parent.get('name')} {parent.get('digest')}"
        if parent.get("digest") in seen
        else f"the manifest names {parent.get('digest')}, pip installed {', '.join(sorted(seen)) or 'none'}",
    )


def _read_digests(promised: Any, package: Installed) -> Iterator[str]:
    """What pip says of an archive: in its report, or for a file of ours in ``direct_url.json`` (PEP 610)."""
    direct = files.read_json(package.info / "direct_url.json")
    for place in (promised.get("download_info") if promised else None, direct):
        info = place.get("archive_info", {}) if isinstance(place, dict) else {}
        if info.get("hashes", {}).get("sha256"):
            yield "sha256:" + info["hashes"]["sha256"]


def _check_packages(promised: Mapping[str, Any], packages: Mapping[str, Installed]) -> Finding:
    wanted = {name: item["metadata"]["version"] for name, item in promised.items()}
    found = {name: item.version for name, item in packages.items()}
    extra = found.keys() - wanted.keys() - BROUGHT - manifest.PUBLISHED
    wrong = [
        f"{name} {found.get(name, 'is missing')}, was {version}"
        for name, version in sorted(wanted.items())
        if found.get(name) != version
    ]
    wrong += [f"{name} was not installed by the toolkit" for name in sorted(extra)]
    return check(
        "packages", not wrong, "; ".join(wrong[:5]) or f"{len(wanted)}, each of the version that pip wrote down"
    )


def _check_files(packages: Mapping[str, Installed]) -> Finding:
    count, changed = 0, []
    for package in packages.values():
        compared, names = find_changed(package)
        count += compared
        changed += names
    text = f"{len(changed)} of {count} are changed or gone: {', '.join(changed[:3])}"
    return check("files", not changed, text if changed else f"{count}, each as its package recorded it")
