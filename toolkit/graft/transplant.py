"""Gives the libraries of a wheel new machine code: assembles their PTX, and writes those that change with it."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Any, Final

from toolkit.base import digest
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, IntegrityError, UnsupportedError
from toolkit.graft import assembly, cubin, library, proof, search_paths
from toolkit.graft.assembly import Assembled, Assembler, PtxModule
from toolkit.graft.graft_plan import GraftPlan
from toolkit.graft.library import FatBinary, Inventory
from toolkit.graft.search_paths import Correction
from toolkit.wheel import archive, elf, fatbin

_WARNING: Final = b"jit-compiled from PTX, which could take 30 minutes or longer."
_TRUE: Final = b"those grafted for %b, elsewhere compiled from PTX."
_SHORT: Final = b"the grafted ones, or else compiled from PTX."
"""How TensorFlow's warning goes on after "CUDA kernels will be": its own words, and two replacements."""
_GENERAL: Final = 90
"""SM number of the GPU for which a repair assembles PTX, to show that it uses no feature of that GPU alone."""


@dataclass(frozen=True, kw_only=True)
class Grafted:
    """What was done to one library."""

    name: str  # in the wheel
    containers: int  # number of its fat binaries
    changed: int  # number of those that were rewritten
    kernels: int  # number of new kernels
    general: int  # number of PTX texts that later GPUs can take now
    moved: int  # number of fat binaries that have a new place
    bytes_before: int
    bytes_after: int
    left: Mapping[str, int] = field(
        default_factory=dict
    )  # number of fat binaries without machine code for the card, by reason
    search_path: tuple[str, ...] = ()  # folders of NVIDIA's libraries that its search path has now, and lacked before


@dataclass(frozen=True, kw_only=True)
class Outcome:
    libraries: tuple[Grafted, ...]
    texts: int  # PTX modules that were assembled, or taken from earlier grafts
    reused: int
    refused: Mapping[str, str]  # message of ptxas for each PTX module that it does not take

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def summary(self) -> str:
        kernels = sum(item.kernels for item in self.libraries)
        general = sum(item.general for item in self.libraries)
        changed = sum(item.changed for item in self.libraries)
        parts = [f"{kernels} kernels in {changed} fat binaries"] if kernels else []
        parts += [f"{general} PTX texts made general"] if general else []
        folders = sorted({folder for item in self.libraries for folder in item.search_path})
        parts += [f"search path with {', '.join(folders)}"] if folders else []
        return ", ".join(parts) or "nothing to do"


@dataclass(frozen=True, kw_only=True)
class Library:
    name: str  # in the wheel
    path: Path
    data: mmap
    inventory: Inventory
    correction: Correction | None = None  # of its search path, or None if it needs none


def open_libraries(wheel: Path, cuda: str, work: Path, stack: ExitStack) -> Iterator[Library]:
    """Check every file of a wheel against its RECORD, and yield its libraries, which are written to ``work``.

    Libraries without GPU code are left out if their search path needs no correction. ``cuda``: a release of the major
    version that the wheel was built with.
    """
    with archive.open_wheel(wheel) as opened:
        for number, (name, content) in enumerate(opened.read_members(elf.MAGIC)):
            try:
                inventory, correction = library.take_inventory(content), search_paths.correct(name, content, cuda)
                if not inventory.blobs and not inventory.relocatable and not correction:
                    continue
                path = work / f"{number}.so"
                with path.open("wb") as stream:
                    stream.write(content)
            except ValueError as error:
                raise IntegrityError(
                    f"{wheel.name} holds a damaged library", why=f"{name}: {error}", remedy=archive.REMEDY
                ) from error
            data = stack.enter_context(library.mapping(path))
            yield Library(name=name, path=path, data=data, inventory=inventory, correction=correction)


def transplant(
    plan: GraftPlan, libraries: list[Library], assembler: Assembler, console: Console, work: Path
) -> tuple[Outcome, dict[str, Path]]:
    """Assemble the PTX of all libraries and write those that change; return what was done, and the new files."""
    texts = _list_texts(libraries, plan)
    # ptxas takes PTX without its suffix only if nothing in it is for one GPU alone.
    numbers = (plan.architectures or (_GENERAL,)) if texts else ()
    results = {number: _assemble(assembler, texts, number, console) for number in numbers}
    if texts and not any(result.cubins for result in results.values()):
        refusal = next(text for result in results.values() for text in result.refused.values())
        raise BuildError("no machine code could be made", why=refusal, remedy="please report it")
    done, replaced = [], {}
    for item in libraries:
        contents, left = _compose(plan, item, texts, results)
        if item.correction and item.correction.impossible:
            left["libraries for which the search path has no room"] = len(item.correction.impossible)
        grafted = _describe(item, left)
        if contents or (item.correction and item.correction.words):
            replaced[item.name] = work / f"{item.path.stem}.new.so"
            with console.timed("write", item.name):
                grafted = _rewrite(plan, item, contents, grafted, replaced[item.name])
        done.append(grafted)
    refused = {key: text for result in results.values() for key, text in result.refused.items()}
    outcome = Outcome(
        libraries=tuple(done),
        texts=sum(len(result.cubins) for result in results.values()),
        reused=sum(result.reused for result in results.values()),
        refused=refused,
    )
    _require_change(plan, done)
    console.heading("graft", outcome.summary)
    return outcome, replaced


def _require_change(plan: GraftPlan, done: list[Grafted]) -> None:
    """Raise UnsupportedError if there is no machine code to add, or in a repair nothing to change."""
    corrected = any(item.search_path for item in done)
    if any(item.changed for item in done) or (corrected and plan.mode == "repair"):
        return
    why = "no PTX in it is for one GPU alone, and it finds the libraries that it opens"
    raise UnsupportedError(
        "there is nothing to graft into this wheel",
        why=why if plan.mode == "repair" else "it has machine code for the card",
        remedy="only its search path needs a correction: toolkit graft --repair" if corrected else "use it as it is",
    )


def _rewrite(
    plan: GraftPlan,
    item: Library,
    contents: Mapping[int, tuple[bytes, frozenset[int]]],
    described: Grafted,
    target: Path,
) -> Grafted:
    """Write a library with other fat binaries, compare it with the original, and return what was done."""
    new, words = {start: content for start, (content, _) in contents.items()}, _reword_warning(plan, item.data)
    try:
        words |= item.correction.words if item.correction else {}
        layout = library.write(item.path, target, item.inventory, new, words)
    except ValueError as error:
        raise BuildError(
            f"{item.name} cannot be written with more machine code",
            why=str(error),
            remedy="give --only, so that it takes less room, or please report it",
        ) from error
    with library.mapping(target) as after:
        proven = proof.prove(
            item.name,
            item.data,
            after,
            item.inventory,
            layout,
            added={start: made for start, (_, made) in contents.items()},
            kept=plan.architectures if plan.mode == "only" else None,
            words=words,
        )
    if item.correction and item.correction.words:
        search_paths.prove(item.name, item.path, target, item.correction)
    return replace(
        described,
        search_path=item.correction.added if item.correction else (),
        changed=len(contents),
        kernels=proven.kernels,
        general=proven.general,
        moved=sum(move.address != move.blob.address for move in layout.moves),
        bytes_after=target.stat().st_size,
    )


def _describe(item: Library, left: Mapping[str, int]) -> Grafted:
    size = item.path.stat().st_size
    return Grafted(
        name=item.name,
        containers=len(item.inventory.blobs),
        changed=0,
        kernels=0,
        general=0,
        moved=0,
        bytes_before=size,
        bytes_after=size,
        left=left,
    )


def _read_text(data: mmap, entry: fatbin.Entry) -> bytes:
    return assembly.drop_gpu_suffix(fatbin.unpack(data, entry).rstrip(b"\0") + b"\n")


def _list_texts(libraries: list[Library], plan: GraftPlan) -> dict[tuple[str, int], PtxModule]:
    """Return the PTX to assemble, by library and offset of its fat binary.

    A graft assembles the PTX of fat binaries that lack machine code for a card. A repair assembles the PTX that is for
    one GPU alone. Raises IntegrityError if a fat binary is damaged.
    """
    texts = {}
    for item in libraries:
        for blob in item.inventory.blobs:
            entry = _find_text(blob)
            if entry is None or (
                plan.architectures and not any(_needs(blob, architecture) for architecture in plan.architectures)
            ):
                continue
            try:
                if plan.mode == "repair" and assembly.has_no_gpu_suffix(fatbin.unpack(item.data, entry)):
                    continue
                content = _read_text(item.data, entry)
                _require_stated(item.data, blob, content)
            except ValueError as error:
                raise IntegrityError(f"{item.name} has damaged GPU code", why=str(error)) from error
            texts[item.name, blob.start] = PtxModule(
                digest=digest.digest_bytes(content), size=len(content), read=partial(_read_text, item.data, entry)
            )
    return texts


def _require_stated(data: mmap, blob: FatBinary, text: bytes) -> None:
    """Raise ValueError unless PTX and newest machine code of a fat binary are for the GPUs that its table states."""
    entry = _find_text(blob)
    if entry and assembly.read_target(text) != entry.architecture:
        raise ValueError(f"{entry.name} at {entry.start:#x} holds PTX of sm_{assembly.read_target(text)}")
    newest = proof.find_newest(blob.container)
    if newest and (number := cubin.read(fatbin.unpack(data, newest)).architecture) != newest.architecture:
        raise ValueError(f"{newest.name} at {newest.start:#x} holds machine code of sm_{number}")


def _find_text(blob: FatBinary) -> fatbin.Entry | None:
    """Return the newest PTX of a fat binary."""
    texts = [entry for entry in blob.container.entries if entry.kind == "compute"]
    return max(texts, key=lambda entry: entry.architecture, default=None)


def _needs(blob: FatBinary, architecture: int) -> bool:
    return not any(entry.kind == "sm" and entry.architecture == architecture for entry in blob.container.entries)


def _assemble(
    assembler: Assembler, texts: Mapping[tuple[str, int], PtxModule], architecture: int, console: Console
) -> Assembled:
    distinct = {text.digest: text for text in texts.values()}
    workers = assembly.count_workers()
    console.heading("assemble", f"{len(distinct)} PTX modules for sm_{architecture}, {workers} at a time …")
    start = time.monotonic()
    with console.follow("assemble") as status:
        done = assembly.assemble(assembler, distinct.values(), architecture, status.show)
    counts = f"{len(done.cubins)} of {len(distinct)}, {done.reused} of them from earlier grafts"
    console.heading("assemble", f"{counts}, in {time.monotonic() - start:.1f} s")
    return done


def _compose(
    plan: GraftPlan,
    item: Library,
    texts: Mapping[tuple[str, int], PtxModule],
    results: Mapping[int, Assembled],
) -> tuple[dict[int, tuple[bytes, frozenset[int]]], dict[str, int]]:
    """Return the new fat binaries of a library by offset, and the number of those left out, by reason.

    Each new fat binary comes with the architectures whose machine code is new in it. Left out is what stays without
    machine code for a card.
    """
    contents: dict[int, tuple[bytes, frozenset[int]]] = {}
    left = Counter[str]()
    if plan.architectures:
        left["relocatable parts, which only nvlink makes into kernels"] += item.inventory.relocatable
        for target in item.inventory.texts:
            left[f"PTX text of {target}, which the driver compiles when it is used"] += 1
    for blob in item.inventory.blobs:
        entries, text = blob.container.entries, texts.get((item.name, blob.start))
        raw = {entry.start: bytes(item.data[entry.start : entry.end]) for entry in entries}
        made = {}
        for number in plan.architectures:
            if not _needs(blob, number):
                continue
            if text is None:
                left["fat binaries without PTX"] += 1
            elif text.digest in results[number].refused:
                left["PTX that ptxas refused"] += 1
            else:
                code = assembly.read_result(results[number].cubins[text.digest])
                made[number] = fatbin.pack_cubin(code, number, cubin.read_compatibility(code))
        # What has no machine code for any of the cards keeps that for others: better than none.
        serves = made or not all(_needs(blob, number) for number in plan.architectures)
        dropped = plan.mode == "only" and serves
        kept = [
            entry for entry in entries if not dropped or entry.kind != "sm" or entry.architecture in plan.architectures
        ]
        taken = text is not None and any(text.digest in result.cubins for result in results.values())
        packed = [
            _generalize(item.data, entry, raw[entry.start], left) if taken else raw[entry.start] for entry in kept
        ]
        if made or packed != [raw[entry.start] for entry in entries]:
            new = fatbin.compose([*packed, *made.values()])
            if blob.reference is None and len(new) > blob.container.size:
                left["fat binaries whose pointer was not found, or was found more than once"] += 1
            else:
                contents[blob.start] = new, frozenset(made)
    return contents, {reason: count for reason, count in left.items() if count}


def _generalize(data: mmap, entry: fatbin.Entry, raw: bytes, left: Counter[str]) -> bytes:
    """Return an entry whose PTX later GPUs can take too. One byte of it changes."""
    if entry.kind != "compute":
        return raw
    text = fatbin.unpack(data, entry)
    if assembly.has_no_gpu_suffix(text):
        return raw
    try:
        return fatbin.edit(raw, text, assembly.drop_gpu_suffix(text))
    except ValueError:
        left["PTX for one GPU alone, which cannot be changed in its place"] += 1
        return raw


def _reword_warning(plan: GraftPlan, data: mmap) -> dict[int, bytes]:
    """Return new words for TensorFlow's warning about a GPU that it was not built for, by their offset.

    TensorFlow compares the GPU with a list that the compiler has turned into instructions (``gpu_device.cc``), so the
    warning still appears. Its end says that kernels will be compiled for half an hour. That is no longer true, so the
    end is replaced.
    """
    start = data.find(_WARNING)
    if not plan.architectures or start < 0 or data.find(_WARNING, start + 1) >= 0:
        return {}
    names = ", ".join(f"sm_{number}" for number in plan.architectures)
    text = next(text for text in (_TRUE % names.encode(), _SHORT) if len(text) <= len(_WARNING))
    return {start: text.ljust(len(_WARNING))}
