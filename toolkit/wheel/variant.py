"""Makes variants of wheels, which an installer chooses by the card, and reads them.

They are a preview of a draft standard: PEP 825 (the package) and PEP 850 (providers of properties), in the form of
version 0.2.0 of their schema, which variantlib 0.2.2 writes and uv 0.13 reads with ``--preview-features
wheel-variants``. A later draft may have another form. Installers that do not know variants ignore them.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from toolkit.base import digest, files
from toolkit.base.errors import IntegrityError, UnsupportedError, UsageError
from toolkit.versions import bounds, numbers
from toolkit.versions.table import load_table
from toolkit.wheel import archive, inspection, repack, wheel_documents, wheel_folder
from toolkit.wheel.inspection import Inspection

SCHEMA: Final = "https://variants-schema.wheelnext.dev/v0.2.0.json"
"""The draft that is written and read."""
FILE: Final = "variant.json"
NAMESPACE: Final = "nvidia"
ARCHITECTURE, DRIVER = "sm_arch", "cuda_version_lower_bound"
"""Features of NVIDIA's provider: the card's architecture, and the CUDA of its driver."""

PROVIDERS: Final = {
    NAMESPACE: {
        "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
        "requires": ["nvidia-variant-provider"],
    }
}
BUILD_TYPE: Final = "urn:x-tensorflow-toolkit:variant:v1"
AUTO: Final = "auto"
"""The label that follows from the wheel."""
NULL: Final = "null"
"""The label of a variant without properties, which the draft has. None is made."""
REPAIRED: Final = "repaired"
"""The local version of a wheel in which only search paths and the like were corrected."""
_LABEL: Final = re.compile(r"[0-9a-z._]{1,16}")
_NAME: Final = re.compile(r"(?P<plain>[^-]+-[^-]+(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+?)-(?P<label>[0-9a-z._]+)\.whl")

Properties = Mapping[str, Mapping[str, list[str]]]
"""Values of each feature, by namespace and feature."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    label: str
    properties: Properties


def split_name(name: str) -> tuple[str, str]:
    """Return the name of a wheel without its variant's label, and the label; it is empty for a plain wheel."""
    match = _NAME.fullmatch(name)
    return (f"{match['plain']}.whl", match["label"]) if match else (name, "")


def compose(variants: Iterable[Variant]) -> bytes:
    """Return the JSON text that names the properties of labels: in a wheel, and beside the wheels of an index."""
    value = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [NAMESPACE]},
        "providers": PROVIDERS,
        "variants": {variant.label: variant.properties for variant in variants},
    }
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def describe(wheel: Inspection, label: str = AUTO) -> Variant:
    """Return the variant that a wheel is: its machine code, and the driver that its newest card needs.

    ``label``: the variant's label; with ``auto``, it follows from the wheel. Raises UnsupportedError if the wheel
    has no machine code that a property can name.
    """
    cards = [part for part in _list_local(wheel) if re.fullmatch(r"sm\d+", part)]
    # NVIDIA's provider has no word for code with a suffix (sm_90a), which runs on fewer GPUs than its number says.
    names = [name for name in wheel.architectures if re.fullmatch(r"sm_\d+", name)]
    if not names:
        others = ", ".join(name for name in wheel.architectures if name.startswith("sm_"))
        raise UnsupportedError(
            f"{wheel.file} has no machine code that a variant can name",
            why=f"it has {others}, for one GPU alone" if others else "it has none for any GPU",
            remedy="leave out --label, or the wheel",
        )
    chosen = label if label != AUTO else _join(cards or [name.replace("_", "") for name in names])
    table = load_table()
    built = wheel.build.cuda or table.published_code.cuda
    cuda = bounds.find_first_cuda(table, built, map(numbers.to_plain, names))
    driver = ".".join((cuda or built).split(".")[:2])
    return Variant(
        label=chosen,
        properties={
            NAMESPACE: {
                ARCHITECTURE: sorted(f"{name.removeprefix('sm_')}_real" for name in names),
                DRIVER: [driver],
            }
        },
    )


def _join(names: Sequence[str]) -> str:
    """Return a label of all names, or of the first and the last, because a label is short."""
    whole = "_".join(names)
    return whole if _LABEL.fullmatch(whole) else f"{names[0]}_to_{names[-1]}"


def require_label(label: str) -> None:
    """Raise UsageError if a text cannot be the label of a variant. Empty: none is wanted."""
    if label and (label == NULL or not _LABEL.fullmatch(label)):
        raise UsageError(
            f"not a label of a variant: {label[:60]!r}",
            why=f"it has up to 16 small letters, digits, dots and underscores, and is not {NULL}",
            remedy="choose one: --label sm120, or --label auto",
        )


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a wheel says about itself."""

    identity: archive.Identity
    metadata: bytes
    variant: Variant | None  # None: a plain wheel


def read(path: Path) -> Head:
    """Check every file of a wheel of TensorFlow, variant or not, and return what it says about itself.

    Raises what :func:`toolkit.wheel.inspection.inspect` and :func:`describe` raise, and IntegrityError if a variant is
    not the one that this version makes of these files. So nobody else decides which machines take a wheel.
    """
    label = split_name(path.name)[1]
    with _naming_plainly(path) as plain:
        inspected = inspection.inspect(plain)
        with archive.open_wheel(plain) as opened:
            text = opened.read_text(f"{opened.folder}/{FILE}")
            identity, metadata = opened.identity, opened.read_metadata().encode()
    variant = describe(inspected, label) if label else None
    if text != (compose([variant]).decode() if variant else None):
        raise IntegrityError(
            f"{path.name} is not the variant that this version makes of its files",
            why=f"it has no {FILE}" if text is None else f"its {FILE} says something else",
            remedy="make it again from the wheel: toolkit index --label",
        )
    return Head(identity=identity, metadata=metadata, variant=variant)


def require_draft(name: str, schema: object) -> None:
    """Raise UnsupportedError unless an index is of the draft that this version knows."""
    if schema != SCHEMA:
        raise UnsupportedError(
            f"{name} is of another draft of wheel variants",
            why=f"its schema is {str(schema)[:80]!r}; {SCHEMA} is known",
            remedy="make the variants again with this version, in another folder",
        )


@contextmanager
def _naming_plainly(path: Path) -> Iterator[Path]:
    """Yield the path of a wheel under a name without the label of a variant, which readers of names do not know."""
    plain, label = split_name(path.name)
    if not label:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, plain)
        link.symlink_to(path.resolve())
        yield link


@dataclass(frozen=True, kw_only=True)
class Source:
    """A wheel that somebody named, as it was when it was hashed."""

    path: Path
    digest: str
    status: os.stat_result  # from before it was hashed


def find_wheel(source: Path) -> Source:
    """Return the wheel that a path names: a file, or the one in a folder, whose sums are checked.

    Raises UsageError if there is no wheel, and IntegrityError if it has changed since it was made.
    """
    if source.is_dir():
        wheels = sorted(source.glob("*.whl"))
        if len(wheels) != 1:
            raise UsageError(
                f"{source} has {len(wheels) or 'no'} wheels, and the folder of one is expected",
                remedy="give dist/NAME, or a .whl file",
            )
        status = wheels[0].stat()
        return Source(path=wheels[0], digest=wheel_folder.check_sums(source)[wheels[0].name], status=status)
    if not source.is_file() or source.suffix != ".whl":
        raise UsageError(f"there is no wheel {source}", remedy="give dist/NAME, or a .whl file")
    status = source.stat()
    return Source(path=source, digest=wheel_folder.check_sum(source) or digest.digest_file(source), status=status)


def make(wheel: Path, folder: Path, label: str = AUTO) -> Path:
    """Write the variant of a wheel into a new folder, with its provenance; return its path.

    The files are those of the wheel. Its version loses the local part, because a variant is told apart by its label.
    A repaired wheel becomes a plain one, which installers take where no variant fits. Raises
    UnsupportedError, IntegrityError.
    """
    inspected = inspection.inspect(wheel)
    variant = None if _list_local(inspected) == [REPAIRED] else describe(inspected, label)
    name = wheel.name.replace(f"-{inspected.version}-", f"-{inspected.public_version}-")
    made = folder / (f"{name.removesuffix('.whl')}-{variant.label}.whl" if variant else name)
    folder.mkdir(parents=True)
    versions = inspected.version, inspected.public_version
    with files.writing(made):
        repack.repack(wheel, made, {}, versions, added={FILE: compose([variant])} if variant else {})
    statement = _describe_provenance(made, wheel, inspected.digest, variant)
    files.write_json(folder / wheel_documents.PROVENANCE, statement)
    return made


def _list_local(wheel: Inspection) -> list[str]:
    return (Version(wheel.version).local or "").split(".")


def _describe_provenance(made: Path, wheel: Path, original: str, variant: Variant | None) -> dict[str, Any]:
    """Return a statement without times, so that the same wheel has the same one."""
    return {
        "_type": wheel_documents.STATEMENT,
        "subject": [{"name": made.name, "digest": wheel_documents.split(digest.digest_file(made))}],
        "predicateType": wheel_documents.PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": asdict(variant) if variant else {},
                "resolvedDependencies": [{"name": wheel.name, "digest": wheel_documents.split(original)}],
            },
            "runDetails": {"builder": {"id": "urn:x-tensorflow-toolkit:builder:host"}},
        },
    }
