"""Reads the package index and upstream's own tables, and says how the version table differs from them.

The names of NVIDIA's devices, which are a file of their own, are read anew too.

A new version gets a row that is refused until the rest of it is written by hand. What a source does not say, or says no
more, is noted and changes nothing.
"""

import ast
import datetime as dt
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from toolkit import advisories, device_names, inquiry
from toolkit.errors import PreflightError
from toolkit.inquiry import UnreadableError
from toolkit.lock import REPOSITORY
from toolkit.versions import numbers, patch
from toolkit.versions.patch import Change
from toolkit.versions.sets import name_wheel
from toolkit.versions.table import PATH, Table, TensorflowRow

TABLES = "cuda_redist_versions.bzl"
HANDWORK = "its Bazel flags, compiler and target"
TAGS = "tensorflow/tensorflow at the tag of each version: .bazelversion, and the CUDA tables that its WORKSPACE loads"


@dataclass
class Report:
    changes: list[Change] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    files: dict[Path, str] = field(default_factory=dict)
    """Files that are made anew, with their text."""
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def reading(self, source: str) -> Iterator[None]:
        try:
            yield
        except UnreadableError as error:
            self.unread.append(f"{source}: {error}")
        else:
            self.looked.append(source)

    def describe(self) -> list[str]:
        parts = (("read", self.looked), ("could not be read", self.unread), ("note", self.notes))
        return [f"{word}: {item}" for word, items in parts for item in items]


def collect(table: Table, today: dt.date, repository: str = REPOSITORY, *, ca_bundle: str = "") -> Report:
    """Return how the table differs from its sources. ``repository``: TensorFlow's, as git takes it."""
    report = Report()
    with inquiry.trusting_certificates(ca_bundle):
        _compare(report, table, today, repository)
    return report


def draw_patch(report: Report) -> str:
    """Return the patch of the version table; empty if nothing changed. Raises PreflightError if no source was read."""
    if not report.looked:
        raise PreflightError(
            "no source of the version table can be read",
            why=report.unread[0],
            remedy="let pip reach a package index, and git TensorFlow's repository",
        )
    before = PATH.read_text()
    drawn = patch.draw(PATH, before, patch.apply(before, report.changes))
    return drawn + "".join(patch.draw(path, path.read_text(), text) for path, text in report.files.items())


def read_device_names(report: Report, *, ca_bundle: str = "") -> None:
    """Add the file with the names of NVIDIA's devices, if it has other names than before."""
    with inquiry.trusting_certificates(ca_bundle), report.reading("names of NVIDIA's devices"):
        text = device_names.collect()
        before = device_names.PATH.read_text(encoding="utf-8")
        if device_names.list_rows(text) != device_names.list_rows(before):
            report.files[device_names.PATH] = text


def _compare(report: Report, table: Table, today: dt.date, repository: str) -> None:
    known = {**table.tensorflow_rows, **table.incomplete}
    wheels = _compare_wheels(report, known)
    _compare_components(report, table)
    _compare_cudnn(report, table)
    by_index = bool(report.looked)
    candidates = {version: row.candidate for version, row in known.items()}
    candidates |= {version: fields["candidate"] for version, fields in wheels.items()}
    tags = _compare_tags(report, table, repository, candidates)
    for version in numbers.sort({*wheels, *tags}):
        origins = {"index": wheels.get(version, {}), "tags": tags.get(version, {})}
        report.changes += _list_changes(version, known.get(version), origins)
    listed: dict[str, dict[str, advisories.Vulnerability]] = {}
    with report.reading("package index, security advisories"):
        listed = advisories.read({version: row.candidate or version for version, row in known.items()})
    new = list(advisories.compare(table, listed))
    report.changes += new
    if report.changes:
        report.changes.append(Change(("updated",), today))
    if report.changes and by_index:
        report.changes.append(Change(("sources", "index", "date"), today))
    if report.changes and tags:
        report.changes.append(Change(("sources", "tags"), {"what": TAGS, "date": today}))
    if new:
        report.changes.append(Change(("sources", advisories.SOURCE), {"what": advisories.LISTED, "date": today}))


def _list_changes(
    version: str, row: TensorflowRow | None, origins: Mapping[str, Mapping[str, Any]]
) -> Iterator[Change]:
    if row is None:
        fields = {name: value for known in origins.values() for name, value in known.items() if value}
        sources = [source for source, known in origins.items() if known]
        yield Change(("tensorflow", version), {"tested": False, **fields, "sources": sources})
        return
    sources = list(row.sources)
    for source, known in origins.items():
        for name, value in known.items():
            before = getattr(row, name)
            if (list(before) if isinstance(before, tuple) else before) != value:
                yield Change(("tensorflow", version, name), value or None)
                sources += [] if source in sources else [source]
    if sources != list(row.sources):
        yield Change(("tensorflow", version, "sources"), sources)


def _compare_wheels(report: Report, known: Mapping[str, TensorflowRow]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    pythons = _list_pythons(known)
    with report.reading("package index, tensorflow"):
        wheels = _list_wheels("tensorflow", pythons)
        newest = {Version(text).base_version: text for text in sorted(wheels, key=Version)}
        for version, wheel in newest.items():
            row = known.get(version)
            # A complete row is described by the wheel of its own version alone.
            if row.missing or wheel == version if row else Version(version) > min(map(Version, known)):
                rows[version] = _describe_wheel(wheel, wheels[wheel], row)
        _note_gone(report, "tensorflow", wheels, known)
    with report.reading("package index, tensorflow-cpu"):
        _note_gone(report, "tensorflow-cpu", _list_wheels("tensorflow-cpu", pythons), known)
    with report.reading("package index, nvidia-nccl-cu12"):
        gone = {row.nccl for row in known.values() if row.nccl} - {*_list_versions("nvidia-nccl-cu12")}
        report.notes += [f"the package index has no nvidia-nccl-cu12 {release}" for release in sorted(gone)]
    return rows


def _note_gone(
    report: Report, name: str, wheels: Mapping[str, Sequence[str]], known: Mapping[str, TensorflowRow]
) -> None:
    for version, row in known.items():
        pythons = wheels.get(row.candidate or version, ())
        gone = [python for python in row.python if python not in pythons]
        if gone:
            which = f" for Python {', '.join(gone)}" if pythons else ""
            report.notes.append(f"the package index has no {name} {row.candidate or version}{which}")


def _list_pythons(rows: Mapping[str, TensorflowRow]) -> list[str]:
    minors = {numbers.parse(python)[1] for row in rows.values() for python in row.python}
    return [f"3.{minor}" for minor in range(min(minors), max(minors) + 2)]


def _describe_wheel(wheel: str, pythons: Sequence[str], row: TensorflowRow | None) -> dict[str, Any]:
    wanted = _read_requirements("tensorflow", wheel, pythons[-1])
    fields: dict[str, Any] = {
        "candidate": wheel if Version(wheel).is_prerelease else "",
        # A Python that the index leaves out stays in the row: the answer for it may have been lost.
        "python": numbers.sort({*pythons, *(row.python if row else ())}),
    }
    if "nvidia-nccl-cu12" in wanted:
        fields["nccl"] = wanted["nvidia-nccl-cu12"]
    if wanted.keys() >= {"nvidia-cuda-nvcc-cu12", "nvidia-cudnn-cu12"}:
        cuda, cudnn = (wanted[name].split(".") for name in ("nvidia-cuda-nvcc-cu12", "nvidia-cudnn-cu12"))
        fields["and_cuda"] = {"cuda": ".".join(cuda[:2]), "cudnn": ".".join(cudnn[:3])}
    if row is None:
        nightly = [name for name in wanted if name.endswith("-nightly")]
        fields["missing"] = [HANDWORK, *(f"a locked set with {name}, which its wheel wants" for name in nightly)]
    return fields


def _compare_components(report: Report, table: Table) -> None:
    with report.reading("package index, cuda-toolkit"):
        versions = _list_versions("cuda-toolkit")
        for release, row in table.cuda_rows.items():
            if "toolkit-wheel" not in row.sources:
                continue
            if release not in versions:
                report.notes.append(f"the package index has no cuda-toolkit {release}")
                continue
            pinned = _read_requirements("cuda-toolkit", release)
            for group, named in (("components", row.components), ("headers", row.headers)):
                for name, version in named.items():
                    wanted = pinned.get(name_wheel(name, release), version)
                    if version != wanted and not version.startswith(f"{wanted}."):
                        report.changes.append(Change(("cuda", release, group, name), wanted))


def _compare_cudnn(report: Report, table: Table) -> None:
    with report.reading("package index, nvidia-cudnn-cu12"):
        versions = _list_versions("nvidia-cudnn-cu12")
        for release, row in table.cudnn_rows.items():
            fitting = [version for version in versions if version == release or version.startswith(f"{release}.")]
            if row.wheel and row.wheel not in versions:
                report.notes.append(f"the package index has no nvidia-cudnn-cu12 {row.wheel}")
            elif fitting and not row.wheel:
                report.changes.append(Change(("cudnn", release, "wheel"), max(fitting, key=Version)))
                report.changes.append(
                    Change(("cudnn", release, "sources"), list(dict.fromkeys([*row.sources, "index"])))
                )


def _compare_tags(
    report: Report, table: Table, repository: str, candidates: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    tags: Mapping[str, str] = {}
    with report.reading("TensorFlow's repository"):
        tags = _list_tags(repository)
    redist: dict[str, str] = {}
    for version in numbers.sort(candidates) if tags else ():
        tag = "v" + re.sub(r"(rc\d+)$", r"-\1", candidates[version] or version)
        with report.reading(f"TensorFlow's repository, {tag}"):
            if tag not in tags:
                raise UnreadableError("there is no such tag")
            details = _read_tag(repository, tags[tag])
            rows[version] = _describe_tag(report, table, version, details)
            redist |= details.cudnn
    # The index is asked for the wheel of a new cuDNN the next time, when the release has a row.
    for release in numbers.sort(redist.keys() - table.cudnn_rows.keys()):
        report.changes.append(Change(("cudnn", release), {"redist": redist[release], "sources": ["tags"]}))
    return rows


def _describe_tag(report: Report, table: Table, version: str, tag: "Tag") -> dict[str, Any]:
    fields: dict[str, Any] = {"cudnn": numbers.sort(tag.cudnn)}
    fields["cuda"] = numbers.sort(tag.cuda.keys() & table.cuda_rows.keys())
    row = table.tensorflow_rows.get(version)
    if row and row.commit and row.commit != tag.commit:
        report.notes.append(f"{version}: its tag is at {tag.commit}, but its row has {row.commit}")
    else:
        fields["commit"] = tag.commit
    if tag.bazel in table.bazel_rows:
        fields["bazel"] = tag.bazel
    else:
        report.notes.append(f"{version}: Bazel {tag.bazel} has no row")
    known = {f"CUDA {release}": item.redist for release, item in table.cuda_rows.items()}
    known |= {f"cuDNN {release}": item.redist for release, item in table.cudnn_rows.items()}
    listed = {f"CUDA {release}": redist for release, redist in tag.cuda.items()}
    listed |= {f"cuDNN {release}": redist for release, redist in tag.cudnn.items() if release in table.cudnn_rows}
    for name, redist in listed.items():
        if known.get(name) != redist:
            reason = "another hash in the table" if name in known else "no row"
            report.notes.append(f"{version}: {name}, redist {redist}, has {reason}")
    return fields


@dataclass(frozen=True, kw_only=True)
class Tag:
    commit: str
    bazel: str
    cuda: Mapping[str, str]  # cuda, cudnn: sha256 of the redistrib JSON by release
    cudnn: Mapping[str, str]


def _list_wheels(name: str, pythons: Sequence[str]) -> dict[str, list[str]]:
    _list_versions(name)
    versions: dict[str, list[str]] = {}
    for python in pythons:
        # Without any wheel for this Python, pip fails as it does without an index. So the index was asked first.
        with suppress(UnreadableError):
            for version in _list_versions(name, python):
                versions.setdefault(version, []).append(python)
    return versions


def _list_versions(name: str, python: str = "") -> tuple[str, ...]:
    target = ["--python-version", python, "--only-binary", ":all:"] if python else []
    answer = inquiry.run_pip("index", "versions", "--pre", *target, name)
    match = re.search(r"^Available versions: (.+)$", answer, re.MULTILINE)
    with inquiry.parsing_answer(answer):
        return tuple(str(Version(text)) for text in (match[1] if match else "").split(", "))


def _read_requirements(name: str, version: str, python: str = "") -> dict[str, str]:
    """Return the lowest version of each package that a wheel wants, in whatever extra; empty where it says none."""
    # The second feature reads the metadata of a wheel of half a gigabyte without the rest of it.
    wanted = ["--no-deps", "--ignore-installed", "--only-binary", ":all:", "--use-feature", "fast-deps"]
    # A dry run writes nothing, but before version 23.3 pip wants a folder if another Python is named.
    target = ["--python-version", python, "--target", tempfile.gettempdir()] if python else []
    answer = inquiry.run_pip("install", "--quiet", "--dry-run", "--report", "-", *wanted, *target, f"{name}=={version}")
    with inquiry.parsing_answer(answer):
        (item,) = json.loads(answer)["install"]
        required = [Requirement(line) for line in item["metadata"].get("requires_dist", ())]
        return {requirement.name: _find_lowest(requirement) for requirement in required}


def _find_lowest(required: Requirement) -> str:
    bounds = (
        specifier.version.removesuffix(".*") for specifier in required.specifier if specifier.operator in {">=", "=="}
    )
    return next(bounds, "")


def _list_tags(repository: str) -> dict[str, str]:
    answer = inquiry.run("git", "ls-remote", repository, "refs/tags/v2.*")
    references = re.findall(r"^([0-9a-f]{40})\trefs/tags/([^^\n]+)(?:\^\{\})?$", answer, re.MULTILINE)
    if not references:
        raise UnreadableError("it has no tag of a release")
    # The line of an annotated tag's commit comes after that of the tag.
    return {tag: commit for commit, tag in references}


def _read_tag(repository: str, commit: str) -> Tag:
    with _fetching(repository, commit) as show:
        bazel = show(".bazelversion").split("\n")[0].strip()
        text = _read_tables(show)
        return Tag(commit=commit, bazel=bazel, cuda=_read_releases(text, "CUDA"), cudnn=_read_releases(text, "CUDNN"))


def _read_tables(show: Callable[[str], str]) -> str:
    """Return the file with the tables that WORKSPACE loads: of the tree itself, or of the commit that it pins."""
    label = re.search(r'"@(\w+)//([\w/]+):cuda_json_init_repository\.bzl"', show("WORKSPACE"))
    name, folder = label.groups() if label else ("", "")
    definitions = show("tensorflow/workspace3.bzl") + show("tensorflow/workspace0.bzl")
    vendored = re.search(rf'name = "{name}", relpath = "([\w/]+)"', definitions)
    pinned = re.search(rf"(https://[\w./-]+/{name})/archive/([0-9a-f]{{40}})\.", definitions)
    if name and vendored:
        return show(f"{vendored[1]}/{folder}/{TABLES}")
    if name and pinned:
        with _fetching(f"{pinned[1]}.git", pinned[2]) as other:
            return other(f"{folder}/{TABLES}")
    raise UnreadableError("its WORKSPACE loads the CUDA tables in a way that is not known here")


def _read_releases(text: str, name: str) -> dict[str, str]:
    match = re.search(rf"^{name}_REDIST_JSON_DICT = (\{{.*?^\}})", text, re.MULTILINE | re.DOTALL)
    with inquiry.parsing_answer(text):
        releases = {
            str(release): redist for release, (_, redist) in ast.literal_eval(match[1] if match else "").items()
        }
        if not all(re.fullmatch("[0-9a-f]{64}", str(redist)) for redist in releases.values()):
            raise ValueError
        numbers.sort(releases)
        return releases


@contextmanager
def _fetching(repository: str, commit: str) -> Iterator[Callable[[str], str]]:
    with tempfile.TemporaryDirectory() as folder:
        git = ("git", "-C", folder)
        inquiry.run(*git, "init", "--quiet", "--bare")
        inquiry.run(*git, "remote", "add", "origin", repository)
        inquiry.run(*git, "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit)
        yield lambda path: inquiry.run(*git, "show", f"{commit}:{path}")
