"""Computes what the path of a file says: whose it is, and for a library of CUDA of which CUDA."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolkit.diagnosis.packages import find_distribution

_NAMED_PARTS: Final = {"cudnn": "CUDNN", "nccl": "NCCL", "nvinfer": "TENSORRT"}
"""Parts of CUDA whose versions a build of TensorFlow names apart, by how their headers begin."""

Words = Mapping[str, str]
Knowledge = Mapping[str, Any]


def read_file(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return the name of a shared library without its folder, and the package in whose folder it is to lie.

    ``dependent`` is the library that was asked for, if it is there and this one is what it needs.
    """
    if "alone" in words:
        words = {**words, "library": words["alone"], "bare": "yes"}
    if "library" not in words:
        return {}
    path = words["library"].replace("\\", "/")
    match = re.search(r"/(?:site|dist)-packages/(\w+)/", path) or re.search(r"/(\w+)/\1/[^/]+$", path)
    major = re.search(r"\.so\.(\d+)", path)
    told = {"file": path.rpartition("/")[2], "library": words["library"], "bare": words.get("bare", "")}
    if plugin := re.search(r"/tensorflow-plugins/(?:lib)?(tfdml|metal)_plugin\.", path.lower()):
        told |= {"plugin": "yes", **known["plugins"][plugin[1]]}
    if facts.get("L4T of the image", here := facts.get("L4T", "")) != here:
        told |= {"image": facts["L4T of the image"], "board": here} if here else {}
    framework = facts.get("CUDA wheels", "")[:2]
    if framework and (wanted := _find_cuda(told["file"], known).partition(".")[0]) not in {"", framework}:
        told |= {"foreign_cuda": wanted, "framework_cuda": framework}
    asked = words.get("asked", "").rpartition("/")[2]
    if asked and asked != told["file"]:
        here, wanted = facts.get("CUDA library", ""), _find_cuda(told["file"], known)
        mix = f": it is of CUDA {wanted}, and this program of CUDA {here}" if here and wanted not in {"", here} else ""
        told |= {"dependent": asked, "mix": mix}
    if re.search(r"/[^/]*(?:\.dist|~\d\.dis|_mei\d+)/", path.lower()):
        return {**told, "frozen": "yes"}
    # Since CUDA 13 the names of NVIDIA's packages have no number; before 11 there are none.
    if major is None or int(major[1]) >= 11:
        told["suffix"] = f"-cu{major[1]}" if major and int(major[1]) < 13 else ""
    if match is None or match[1] in known["foundations"] or match[1] == "nvidia":
        return told
    return {**told, "owner": find_distribution(match[1], known)}


def _find_cuda(file: str, known: Knowledge) -> str:
    """Return the major version of CUDA of which a library is, by the number in its name; empty if it does not say."""
    match = re.match(r"lib(\w+?)(?:Lt)?\.so\.(\d+)", file)
    return (
        str(known["cuda_numbers"].get(match[1], {}).get(int(match[2]), match[2]))
        if match and match[1] in known["cuda_numbers"]
        else ""
    )


def find_majors(lines: Sequence[Words], known: Knowledge) -> Words:
    """Return the major versions of CUDA whose libraries one process opened, if there are several."""
    files = {
        _find_cuda(each["library"].rpartition("/")[2], known): each["library"].rpartition("/")[2] for each in lines
    }
    files.pop("", None)
    majors = sorted(files, key=int)
    return (
        {"majors": " and ".join(majors), "files": ", ".join(files[each] for each in majors)} if len(majors) > 1 else {}
    )


def date_missing(lines: Sequence[Words], known: Knowledge) -> Words:
    """Return of which CUDA the libraries are that a TensorFlow before 2.14 lacks, or that it is cuDNN 8 alone.

    Later ones do not name them.
    """
    asked = [each["asked"].lower() for each in lines if "asked" in each]
    if asked and all(each.startswith("libcudnn") for each in asked):
        return {"lone": "cuDNN 8"} if ".so.8" in asked[0] else {}
    exact = [found[1] for each in asked if (found := re.search(r"\.so\.(10\.\d)$", each))]
    if exact or any(each.startswith("libcudnn.so.7") for each in asked):
        return {"era": exact[0] if exact else "10.1"}
    cudas = {_find_cuda(each, known) for each in asked}
    return {"era": "11"} if "11" in cudas or any(each.startswith("libcudnn.so.8") for each in asked) else {}


def find_own(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return whether the file that was imported as a module is one of one's own."""
    file = words.get("file", "")
    module = words.get("module", re.split(r"[\\/]", file)[-1].removesuffix(".py"))
    top = module.partition(".")[0]
    told = {"top": top, "package": find_distribution(top, known).replace("_", "-")}
    if not file:
        return told
    installed = re.search(r"(?:site|dist)-packages[\\/]|[\\/]lib[\\/]python", file.lower())
    return {**told, "half": module} if installed else {**told, "own": file}


_FOLDER: Final = re.compile(
    r"(?:[a-z]:)?(?:[\\/](?:users|home)[\\/][^\\/]+(?:[\\/](?:desktop|documents|downloads))?|[\\/]root|[\\/]content(?:/drive(?:/mydrive)?)?"
    r"|/kaggle/(?:input|working)|/(?:tmp|app|workspace|mnt|data))?[\\/]?|~[\\/]?",
    re.IGNORECASE,
)
"""A folder of a user, or of a system or service, in which there is more than one model."""


_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def compare_sizes(words: Words, _facts: Words, _known: Knowledge) -> Words:
    """Return whether a file that was downloaded is about as large as the one that was expected, or a page of a host."""
    sizes = {name: _read_size(words[name]) for name in ("wanted", "got") if name in words}
    if len(sizes) < 2 or not all(size for size, _ in sizes.values()):
        return {}
    (wanted, expected), (got, came) = sizes["wanted"], sizes["got"]
    if abs(got - wanted) <= wanted / 10:
        return {"wanted": expected, "renewed": came}
    return {"wanted": expected, "page": came} if got < min(2**20, wanted / 10) else {}


def _read_size(text: str) -> tuple[float, str]:
    """Return a size as a number of bytes, 0 if it has no known unit, and as programs write it."""
    number, _, unit = text.partition(" ")
    for power, name in enumerate(_UNITS):
        if name.lower() == unit.lower():
            return float(number) * 1024.0**power, f"{number} {name}"
    return 0.0, text


def read_path(words: Words, _facts: Words, _known: Knowledge) -> Words:
    """Return whether a path in a message is empty, or that of a folder which is no model's."""
    if words.get("file", "x") == "":
        return {"nothing": "yes"}
    return {"folder": words["file"]} if _FOLDER.fullmatch(words.get("file", "x")) else {}


def find_headers(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the variable that names the version of which a build of TensorFlow wants headers, and their package."""
    file, wanted = words.get("file", ""), words.get("wanted", "")
    part = next((each for each in ("cudnn", "nccl", "nvinfer", "cu") if file.lower().startswith(each)), "")
    if not part:
        return {}
    told = {"variable": f"TF_{_NAMED_PARTS.get(part, 'CUDA')}_VERSION"}
    major = wanted.partition(".")[0]
    if part == "cudnn" and major in {"7", "8"}:
        return {**told, "debian": f"libcudnn{major}-dev"}
    if part == "cudnn" and wanted:
        return {**told, "debian": f"libcudnn{major}-dev-cuda-12"}
    if part == "nccl":
        return {**told, "debian": "libnccl-dev"}
    numbered = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", wanted)
    return {**told, "debian": f"cuda-toolkit-{numbered[1]}-{numbered[2]}"} if part == "cu" and numbered else told
