"""Says what a file is by its first bytes, so that a message can name it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

START: Final = 560
"""Number of bytes of a file that tell what it is. Those of a tar are at 257; a drawing may begin with a comment."""

CONVERT: Final = "convert it to PNG or JPEG"
TABLES: Final = frozenset(("Parquet file", "Arrow file"))
PACKED: Final = frozenset(("zip archive", "tar archive", "gzip file", "bzip2 file", "xz file"))
"""Names of kinds that are archives which can be unpacked."""


@dataclass(frozen=True)
class Kind:
    """What a file is: its name in a message, and what to do with it in place of an image.

    Only an image that can be read has a suffix.
    """

    name: str
    remedy: str = ""
    suffix: str = ""

    @property
    def described(self) -> str:
        """What the file is, with an article."""
        if not self.name:
            return "a file of an unknown kind"
        if self.suffix or self.remedy == CONVERT:
            return f"one image ({self.name})"
        return self.name if self.name == "text" else f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


_PAGES: Final = "draw its pages as PNG"
_UNPACK: Final = "unpack it"
_TABLE: Final = (
    (rb"\x89PNG\r\n\x1a\n", Kind("PNG", suffix=".png")),
    (rb"\xff\xd8\xff", Kind("JPEG", suffix=".jpg")),
    (rb"GIF8[79]a", Kind("GIF", suffix=".gif")),
    (rb"II[*+]\0|MM\0[*+]", Kind("TIFF", suffix=".tif")),
    (rb"RIFF.{4}WEBP", Kind("WebP", suffix=".webp")),
    (rb"BM.{4}\0{4}", Kind("BMP", suffix=".bmp")),
    (rb"P[1-6][ \t\r\n#]", Kind("netpbm", suffix=".pnm")),
    (rb"\0{3}\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51", Kind("JPEG 2000", suffix=".jp2")),
    (rb".{4}ftyp(?:.{4}){0,15}?avi[fs]", Kind("AVIF", suffix=".avif")),
    (rb".{4}ftyp(?:.{4}){0,15}?(?:hei[cxms]|hev[cx]|mif1|msf1)", Kind("HEIC", CONVERT)),
    (rb".{4}ftypcrx |FUJIFILMCCD-RAW", Kind("raw photograph", CONVERT)),
    (rb"\xff\x0a|\0{3}\x0cJXL \r\n\x87\n", Kind("JPEG XL", CONVERT)),
    (rb"8BPS", Kind("Photoshop", CONVERT)),
    (rb"gimp xcf", Kind("GIMP", CONVERT)),
    (rb"\0\0\x01\0|icns", Kind("icon", CONVERT)),
    (rb"DDS ", Kind("DirectDraw surface", CONVERT)),
    (rb"BLP[12]", Kind("BLP", CONVERT)),
    (rb"v/1\x01", Kind("OpenEXR", CONVERT)),
    (rb"#\?RADIANCE", Kind("Radiance HDR", CONVERT)),
    (rb"qoif", Kind("QOI", CONVERT)),
    (rb".{128}DICM", Kind("DICOM", CONVERT)),
    (rb"%PDF", Kind("PDF", _PAGES)),
    (rb"%!PS|\xc5\xd0\xd3\xc6", Kind("PostScript", _PAGES)),
    (rb"PK(?:\x03\x04|\x05\x06)", Kind("zip archive", _UNPACK)),
    (rb".{257}ustar", Kind("tar archive", _UNPACK)),
    (rb"\x1f\x8b", Kind("gzip file", _UNPACK)),
    (rb"BZh", Kind("bzip2 file", _UNPACK)),
    (rb"\xfd7zXZ\0", Kind("xz file", _UNPACK)),
    (rb"\(\xb5/\xfd", Kind("Zstandard file", _UNPACK)),
    (rb"7z\xbc\xaf\x27\x1c", Kind("7z archive", _UNPACK)),
    (rb"Rar!\x1a\x07", Kind("RAR archive", _UNPACK)),
    (rb"PAR1", Kind("Parquet file")),
    (rb"ARROW1|\xff{4}.{4}\x10\0\0\0", Kind("Arrow file")),
    (rb"\x93NUMPY", Kind("NumPy array")),
    (rb"\x89HDF\r\n\x1a\n", Kind("HDF5 file")),
    (rb"SQLite format 3\0", Kind("SQLite database")),
    (rb"\x7fELF|MZ", Kind("program")),
    (rb"\x1aE\xdf\xa3|RIFF.{4}AVI |.{4}ftyp", Kind("video")),
    (rb"version https://git-lfs", Kind("pointer of Git LFS", "get the file itself by `git lfs pull`")),
    (rb"(?i)[^\0]*<svg", Kind("SVG", CONVERT)),
    (rb"(?i)(?:\xef\xbb\xbf)?\s*<(?:!doctype )?html", Kind("HTML page", "get the file itself, not a page about it")),
    (rb"[^\x00-\x08\x0e-\x1a\x1c-\x1f]+\Z", Kind("text")),
    (rb"\Z", Kind("empty file")),
)
_KINDS: Final = tuple((re.compile(pattern, re.DOTALL), kind) for pattern, kind in _TABLE)


def name_kind(start: bytes) -> Kind:
    """Return what a file is that begins with these bytes; the name of an unknown kind is empty."""
    return next((kind for pattern, kind in _KINDS if pattern.match(start)), Kind(""))


def read_kind(path: Path) -> Kind:
    """Return what the file at a path is, by its first bytes. A file that cannot be read is of an unknown kind."""
    try:
        with path.open("rb") as file:
            return name_kind(file.read(START))
    except OSError:
        return Kind("")
