"""Gives a wheel another platform tag: TensorFlow's own rule writes ``linux_x86_64``, whatever it was linked to."""

import base64
import csv
import hashlib
import io
import re
import shutil
import zipfile
from pathlib import Path

MANYLINUX = "manylinux_{version}"


def name_platform(glibc: str, machine: str) -> str:
    """Return the tag for wheels that need no more than a glibc (PEP 600)."""
    return f"{MANYLINUX.format(version=glibc.replace('.', '_'))}_{machine}"


def change(wheel: Path, folder: Path, platform: str) -> Path:
    """Write a copy of a wheel with another platform tag, in its name and in its files, into a folder.

    Time stamps and modes of the files stay, so the same wheel gives the same copy. Raises ValueError: it is no wheel.
    """
    parts = wheel.stem.split("-")
    target = folder / f"{'-'.join([*parts[:-1], platform])}.whl"
    info = f"{parts[0]}-{parts[1]}.dist-info"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        if not {f"{info}/WHEEL", f"{info}/RECORD"} <= {*old.namelist()}:
            raise ValueError(f"{wheel.name} has no {info} with WHEEL and RECORD")
        text = re.sub(rb"(?m)^(Tag: [^-\r\n]+-[^-\r\n]+)-\S+", rb"\1-" + platform.encode(), old.read(f"{info}/WHEEL"))
        changed = {f"{info}/WHEEL": text}
        changed[f"{info}/RECORD"] = _correct(old.read(f"{info}/RECORD").decode(), f"{info}/WHEEL", text).encode()
        for item in old.infolist():
            entry = zipfile.ZipInfo(item.filename, item.date_time)
            entry.external_attr, entry.compress_type = item.external_attr, item.compress_type
            entry.file_size = item.file_size
            with new.open(entry, "w") as stream:
                if item.filename in changed:
                    stream.write(changed[item.filename])
                else:
                    with old.open(item) as content:
                        shutil.copyfileobj(content, stream, 1 << 20)
    return target


def _correct(record: str, name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    rows = [
        [name, f"sha256={digest}", str(len(content))] if row[0] == name else row
        for row in csv.reader(io.StringIO(record))
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
