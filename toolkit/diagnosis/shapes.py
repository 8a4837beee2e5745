"""Computes what shapes say: where two of them do not go together, and how much room a tensor takes."""

import re
from collections.abc import Mapping
from math import prod, sqrt
from typing import Any, Final

Words = Mapping[str, str]

_BYTES: Final = {
    name: size
    for size, names in {
        1: "bool int8 uint8",
        2: "half bfloat16 int16",
        4: "float int32",
        8: "double int64 complex64",
        16: "complex128",
    }.items()
    for name in names.split()
}
"""How many bytes a number of each type takes, by the names of TensorFlow's messages."""
_DIGITS: Final = 18
"""Digits that are read of a number."""
_LITTLE: Final = 64
"""A request of fewer MiB fails only where the memory is full."""
_SCANT: Final = 1_000
"""MB of which TensorFlow gets more on the smallest card in use."""
_VAST: Final = 1 << 37
"""Bytes that few machines have."""
_HALVES: Final = {"float64": "float32", "int64": "int32", "complex128": "complex64"}
"""Types of numbers that take half the room."""
_LARGE: Final = 1 << 28
"""Bytes from which on one tensor says more of the data than of what else fills the memory."""
_FILLS: Final = 1 << 30
"""Bytes of one operation's arrays from which on its trials may fill a card."""
_ARRAY: Final = re.compile(r"\b(?:pred|(?:b?f|[suc])(\d+)(?:e\w+)?)\[([\d,]*)\]")
"""An array in a line of XLA: the bits of a number, and the sizes."""
_SLOT: Final = re.compile(
    r"(?:^|[/`' ])(?:adam\w*|nadam|rmsprop|sgd|ada(?:grad|delta)|ftrl|momentum|lion|optimizer|training)/"
    r"|/(?:adam\w*|rmsprop|momentum|ada(?:grad|delta))(?:_\d+)?(?::0)?$|/\.OPTIMIZER_SLOT/",
    re.IGNORECASE,
)
"""The name of a variable of an optimizer."""
_LABELS: Final = frozenset({"classes", "columns", "steps", "results"})
_COLOURS: Final = frozenset({"1", "3", "4"})
_BATCH: Final = 512
"""Most examples of a batch, as far as two tables of one column and of several are taken for one."""
_PIXELS: Final = 8192
"""More are the points of pictures that were joined into one dimension."""
_GREYS: Final = 255
"""The white of a picture."""
_COLUMNS: Final = 1000
"""Most columns of a table. More numbers of each example are of pictures."""
_LISTED: Final = 5
"""Arrays from which on they are samples that nobody joined, and no inputs of a model."""
_WINDOW: Final = 128
"""Most samples that a window of steps before each one takes from a series."""
_PARTS: Final = (0.1, 0.15, 0.2, 0.25, 0.3, 1 / 3, 0.33, 0.4)
"""Usual shares of the data for a test."""
_TESTS: Final = ((10000, 60000), (10000, 50000))
"""Numbers of samples for test and training of MNIST and CIFAR."""
_ALL: Final = 2048
"""Examples of one tensor from which on they are more than a batch."""


def compare(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return where two shapes differ: ``batch``, ``last``, ``channels`` or ``size``; nothing if that is unclear.

    ``narrow``: the labels or the results lack a last dimension of 1 alone.
    The batch is ``empty``, if one has none, and ``pixels`` in place of examples, if there are very many.
    """
    told: dict[str, str] = {}
    if {"logits", "labels"} <= words.keys():
        told = {"one": words["logits"], "other": words["labels"]}
        sides = [_read(each) for each in told.values()]
        told |= _compare_labels(*sides) or _compare_depth(*sides)
    elif {"left", "right"} <= words.keys():
        told = {"one": words["left"], "other": words["right"]}
    one, other = (_read({**words, **told}.get(name, "")) for name in ("one", "other"))
    few, many = sorted((one, other), key=len)
    if len(many) == len(few) + 1 and few != [*many[:-1]]:
        spare = [at for at, size in enumerate(many) if size == "1" and _agree([*many[:at], *many[at + 1 :]], few)]
        if spare and 0 < spare[0] < len(few):
            return {**told, "spare": "yes", "fat": words.get("left" if many is one else "right", "")}
    if "labels" in words and [*few, "1"] == many:
        return {**told, "narrow": "labels" if many is one else "logits"}
    if len(one) != len(other) or len(one) < 2 or one == other:
        return told
    if told and len(one) == 2 and one[0] == other[0] and "1" in (one[1], other[1]) and not told.keys() & _LABELS:
        return {**told, **_compare_columns(one, other, {**told, **words})}
    found = _find_place(one, other)
    if found.get("differ") == "last" and "labels" in words:
        found |= {"told_classes": "yes", "outputs": one[-1], "label_width": other[-1]}
    return {**told, **found}


def _find_place(one: list[str], other: list[str]) -> dict[str, str]:
    places = [i for i, (first, second) in enumerate(zip(one, other, strict=True)) if first != second]
    if not {value for i in places for value in (one[i], other[i])}.isdisjoint({"1", "none"}):
        return {}
    if places == [0]:
        sizes = int(one[0]), int(other[0])
        if min(sizes) == 0:
            return {"differ": "empty"}
        return {"differ": "pixels" if len(one) == 2 and min(sizes) > _PIXELS else "batch"}
    if places == [len(one) - 1]:
        return {"differ": "last"}
    if places == [1] and len(one) == 4 and one[2] == one[3]:  # channels before two sides that are the same
        return {"differ": "channels"}
    return {"differ": "size"} if 0 not in places and len(one) > 2 else {}


def _compare_columns(one: list[str], other: list[str], words: Words) -> Words:
    """Return what two tables say of which one has a single column, if they may be labels and results of one batch."""
    if "none" in (one[1], other[1]) or (one[0] != "none" and int(one[0]) > _BATCH):
        return {}
    if one[1] == "1" and "logits" not in words:  # a loss names the labels first
        return {"logits": words["other"], "labels": words["one"], "classes": other[1]}
    return {"width": max(one[1], other[1], key=int)}


def _compare_labels(logits: list[str], labels: list[str]) -> Words:
    """Return what labels are that do not go with results.

    They are numbers of ``classes``, or each example has several ``steps``, ``columns`` (of classes) or ``results``.
    """
    if len(logits) > 1 and logits[-1] not in {"1", "none"}:
        if labels == logits:  # only a loss for numbers of classes wants another shape
            return {"columns": logits[-1]}
        if labels in ([*logits[:-1], "1"], logits[:-1]):
            return {"classes": logits[-1]}
    if len(logits) == 2 and labels == ["1", logits[0]] and logits[1] != "1":
        return {"classes": logits[-1]}
    if len(labels) == 1 < len(logits) and {logits[0], labels[0]}.isdisjoint({"0", "none"}):
        few, many = sorted((int(logits[0]), int(labels[0])))
        steps, rest = divmod(many, few) if few else (1, 0)
        if rest or steps == 1:
            return {}
        kind = "results" if many == int(logits[0]) else "columns" if logits[1:] == [str(steps)] else "steps"
        return {"batch": str(few), kind: str(steps)}
    return {}


def _compare_depth(logits: list[str], labels: list[str]) -> Words:
    """Return which of results and labels are maps or sequences where the others are single values for each example."""
    depth, other = (sum(size != "1" for size in shape[1:]) for shape in (logits, labels))
    if other > max(depth, 1):
        return {"deeper": "labels"} if depth < 2 else {}
    alike = logits[-1:] == labels[-1:] and other == 1
    return {"deeper": "logits"} if depth > other + 1 or (depth > other and alike) else {}


def judge_weights(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return how saved weights differ from those of a model: in batch, outputs, order of axes, or by another layer.

    ``plain``: they are no weights of a layer. ``slot``: the optimizer keeps them.
    """
    variable, layer = words.get("variable", "") or words.get("key", ""), words.get("layer", "")
    if _SLOT.search(variable):
        return {"slot": variable}
    if not layer and re.fullmatch(r"variable(?:_\d+)?(?::0)?", variable, re.IGNORECASE):
        return {"plain": "variable"}  # the name of one that a program makes itself
    return _compare_weights(words, variable, layer)


def _compare_weights(words: Words, variable: str, layer: str) -> Words:
    one, other = (_read(words.get(name, "")) for name in ("one", "other"))
    told = {"holder": f"The layer {layer}" if layer else variable or "A weight"}
    places = [place for place, (mine, saved) in enumerate(zip(one, other, strict=False)) if mine != saved]
    if len(one) == len(other) and len(places) == 1:
        first = re.search(r"\.(?:weight|bias)$", variable)  # PyTorch has the outputs first, Keras last
        if places[0] == (0 if first else len(one) - 1):
            return {**told, "outputs": one[places[0]], "saved_outputs": other[places[0]]}
        if places == [0] and len(one) > 2 and not re.search("kernel|weight|embedding|gamma|beta|moving", variable):
            return {**told, "batch": one[0], "saved_batch": other[0]}
        return {}
    if places and sorted(one) == sorted(other):
        return {**told, "turned": words["other"]}
    if places and re.search(r"_\d+(?:[/:]|$)", variable):
        return {"holder": told["holder"].replace("The", "the", 1), "shifted": words["other"]}
    return {}


def compare_lengths(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return what the numbers of samples say that Keras prints of inputs (``xs``) and labels (``ys``).

    ``listed``: one of the two is a list of samples, each taken for an input of its own. ``once``: it is one sample.
    ``own``: the inputs differ among themselves. ``parts``: the two are parts of one data set, for training and a test.
    """
    sizes = {name: re.findall(r"\d+", words.get(name, "")) for name in ("xs", "ys")}
    if not all(sizes.values()) or any("0" in each for each in sizes.values()):
        return {}
    for side, other in (("xs", "ys"), ("ys", "xs")):
        if len(sizes[side]) >= _LISTED:
            return {"listed": side[0], "items": str(len(sizes[side])), "item": sizes[side][0]}
        if sizes[side] == ["1"] != sizes[other]:
            return {"once": side[0], "many": max(sizes[other], key=int)}
    if len({*sizes["xs"]}) > 1:
        return {"own": ", ".join(sizes["xs"]), "least": min([*sizes["xs"], *sizes["ys"]], key=int)}
    first, second = (int(sizes[name][0][:_DIGITS]) for name in ("xs", "ys"))
    return _compare_numbers(first, second, len(sizes["xs"]))


def _compare_numbers(one: int, other: int, inputs: int) -> Words:
    told = {"x_size": str(one), "y_size": str(other)}
    least, most = sorted((one, other))
    if most <= least + _WINDOW and most < 2 * least:
        return {**told, "over": str(most - least), "longer": "x" if one > other else "y"}
    if most % least == 0 and inputs == most // least:
        return {**told, "joined": str(most // least)}
    share = least / (one + other)
    parted = any(abs(share - part) * (one + other) <= 1 for part in _PARTS) or (least, most) in _TESTS
    return {**told, "parted": "yes"} if parted else told


def find_cut(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return whether the training or the validation after it was cut short, by the steps of the epoch."""
    if "done" not in words:
        return {}
    return {"cut": "validation" if words["done"] == words["steps"] else "training"}


def judge_label(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return how a label lies beside the classes: ``next_to`` them, or as the grey of a ``mask``."""
    if "classes" not in words or not words.get("label", "").isdigit():
        return {}
    label, classes = (int(words[name][:_DIGITS]) for name in ("label", "classes"))
    told = {"last": str(classes - 1)}
    if label == classes > 1:
        return {**told, "next_to": str(classes)}
    return {**told, "mask": "yes"} if label == _GREYS > classes > 1 else told


def ranks(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the numbers of dimensions that a layer wants and gets, as in ``4 3``, where they differ.

    ``extra`` and ``lacks`` say which dimension is too many or missing, if the others are as wanted. ``single``: the
    input is one example, whose numbers are as many as a layer behind Flatten wants of each.
    """
    other = _read(words.get("other", ""))
    # A layer takes no more than one dimension of unknown size in front of those that it needs.
    batches = {"batches": "two"} if other[:2] == ["none", "none"] else {}
    if "kernel" in words:
        rank = len(_read(words["kernel"]))
        told = {"ranks": f"{rank} {len(other)}"} if rank != len(other) else {}
        return {**told, **batches, "kernel_rank": "less"} if rank == len(other) - 1 else told
    if {"wanted", "other"} <= words.keys():
        shapes = [_read(words[name]) for name in ("wanted", "other")]
        told = {"ranks": f"{len(shapes[0])} {len(shapes[1])}"} if len(shapes[0]) != len(shapes[1]) else {}
        return {**told, **(_find_axis(*shapes) or _find_other_size(*shapes))}
    if {"size", "other"} <= words.keys():
        return _find_single(words["size"], other) or _find_picture(words) or _find_last(words["size"], other)
    if {"rank", "found"} <= words.keys():
        told = {"ranks": f"{words['rank']} {words['found']}"} if words["rank"] != words["found"] else {}
        return {**told, **batches} if int(words["found"]) == int(words["rank"]) + 1 else told
    return {}


def _find_single(size: str, sizes: list[str]) -> Words:
    """Return the number of a layer's inputs if the shape that it gets is one example of as many numbers."""
    whole = len(sizes) > 1 and "none" not in sizes and prod(map(int, sizes)) == int(size)
    # One square picture whose rows were taken for a batch of examples.
    square = len(sizes) == 2 and sizes[1] != "none" and int(sizes[1]) > 1 and int(sizes[1]) ** 2 == int(size)
    return {"single": size} if whole or (square and sizes[0] in {"none", sizes[1]}) else {}


def _find_last(size: str, other: list[str]) -> Words:
    """Return what the last size of data is that a layer refuses: the colours of pictures, or features of a table."""
    if len(other) == 4 and size in {"1", "3", "4"}:
        return {"differ": "colours", "channels": size}
    table = len(other) == 2 and other[1] != "none" and max(int(size), int(other[1])) <= _COLUMNS
    return {"differ": "features", "features": size} if table else {}


def _find_picture(words: Words) -> Words:
    """Return the size of the pictures for which a layer behind Flatten was made, by the size of those that come."""
    *_, came = _read(words["other"])
    if "height" not in words or came == "none" or not int(came):
        return {}
    scale = sqrt(int(words["size"]) / int(came))
    sides = [int(words[name]) * scale for name in ("height", "width")]
    return {"built": " x ".join(f"{side:.0f}" for side in sides)} if all(side % 1 == 0 for side in sides) else {}


def _read(shape: str) -> list[str]:
    return re.findall(r"\d+|none", shape.lower().replace("?", "none"))


def _find_other_size(wanted: list[str], other: list[str]) -> Words:
    """Return which sizes of data are not those of the model: of a picture, its colours, steps or features."""
    if len(wanted) != len(other) or len(wanted) < 2:
        return {}
    pairs = enumerate(zip(wanted, other, strict=True))
    places = [at for at, pair in pairs if pair[0] != pair[1] and "none" not in pair]
    if len(wanted) == 4 and wanted[3] in {"1", "3"} and other[1] == wanted[3] != other[3]:
        return {"differ": "turned"}
    if places == [3] and len(wanted) == 4:
        return {"differ": "colours", "channels": wanted[3]}
    if places and {1, 2} >= {*places} and len(wanted) == 4 and "none" not in wanted[1:3]:
        return {"differ": "picture", "sides": " x ".join(wanted[1:3]), "sides_argument": ", ".join(wanted[1:3])}
    if places == [len(wanted) - 1]:
        return {"differ": "features", "features": wanted[-1]}
    return {"differ": "steps", "steps": wanted[1]} if places == [1] and len(wanted) == 3 else {}


def _find_axis(wanted: list[str], other: list[str]) -> Words:
    """Return the one dimension of a shape that is too many or missing, if the rest of it is as wanted."""
    if len(other) == len(wanted) + 1:
        if _agree(other[1:], wanted):
            return {"extra": "front"}
        single = (other[:at] + other[at + 1 :] for at, size in enumerate(other) if size == "1")
        return {"extra": "single"} if any(_agree(rest, wanted) for rest in single) else {}
    if len(wanted) == len(other) + 1:
        if wanted[0] in {"none", "1"} and _agree(wanted[1:], other):
            return {"lacks": "front"}
        if wanted[-1] == "1" and _agree(wanted[:-1], other):
            return {"lacks": "last"}
        picture = len(other) == 3 and {wanted[-1], other[-1]} <= _COLOURS and "none" not in wanted[1:]
        return dict(zip(("tall", "wide", "deep"), wanted[1:], strict=True)) if picture else {}
    return {}


def _agree(one: list[str], other: list[str]) -> bool:
    """Return whether two shapes are the same as far as both name sizes."""
    pairs = list(zip(one, other, strict=True))
    return all(first == second or "none" in (first, second) for first, second in pairs)


def compare_elements(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return in what elements differ that make no batch: their channels, their size as pictures, or their length."""
    one, other = (_read(words.get(name, "")) for name in ("one", "other"))
    if not one or len(one) != len(other):
        return {}
    if len(one) == 3 and {one[2], other[2]} <= {"1", "2", "3", "4"}:
        return {"differ": "channels" if one[:2] == other[:2] else "pictures"}
    return {"differ": "sequences"} if len(one) <= 2 and one[1:] == other[1:] else {}


def measure_operands(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return how much room the arrays of an operation of XLA take, if that is large."""
    arrays = _ARRAY.findall(words.get("operation", "").partition("window=")[0])
    room = sum(prod(map(int, filter(None, sizes.split(",")))) * int(bits or 8) // 8 for bits, sizes in arrays)
    return {"arrays": f"{room / 2**30:.1f} GiB"} if room >= _FILLS else {}


def count_processes(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return how many processes came, as ``fewer`` or ``more`` than a run expects."""
    size, joined = (int(words.get(name, "0")[:_DIGITS]) for name in ("size", "joined"))
    return {} if joined == size else {"more" if joined > size else "fewer": words["joined"]}


def measure(words: Words, facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return how much room a large tensor takes, and whether it is of a ``single`` example or of the ``whole`` data.

    ``little`` is a request so small that it says nothing of the data. ``scant`` is what TensorFlow got of the card,
    and ``compiled`` says that XLA asked.
    ``filled`` is what this program itself holds of the ``most`` that it may take.
    """
    taken = facts.get("GPU memory of TensorFlow", "")
    if taken and int(taken[:_DIGITS]) < _SCANT:
        return {"scant": f"{taken} MB"}
    limit, used = (int(facts.get(f"{name} of the GPU allocator", "0")[:_DIGITS]) for name in ("limit", "use"))
    filled = {"filled": f"{used / 2**30:.1f}", "most": f"{limit / 2**30:.1f} GiB"} if 2 * used > limit else {}
    if "bytes" in words:
        request = int(words["bytes"][:_DIGITS]) >> 20
        return {**filled, "little": f"{max(request, 1)} MiB"} if request < _LITTLE else {**filled, "compiled": "yes"}
    sizes = [int(size) for size in re.findall(r"\d+", words.get("shape", ""))]
    room = prod(sizes) * _BYTES.get(words.get("type", "").lower(), 0)
    if room < _LARGE or len(sizes) < 3:
        return filled
    told = {**filled, "tensor": f"{room / 2**30:.1f} GiB", "batch": str(sizes[0])}
    return {**told, **({"single": "yes"} if sizes[0] == 1 else {"whole": "yes"} if sizes[0] >= _ALL else {})}


def double_memory(_words: Words, facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return what a job is to ask for in place of the memory that the log shows it asked for, or a usual size."""
    asked = re.fullmatch(r"(\d{1,9}) ?([kmgt]?)", facts.get("memory of the job", "").lower())
    return {"more": f"{2 * int(asked[1])}{asked[2].upper() or 'M'}" if asked else "32G"}


def measure_array(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return whether an array for which there is no room is so large that it can not be meant, or says nothing.

    ``half`` is the type of numbers by which it takes half the room.
    """
    number, _, unit = words.get("need", "").partition(" ")
    size = float(number) * 1024 ** " KMGT".find(unit[0].upper()) if unit else int(words.get("bytes", "0")[:_DIGITS])
    said = words.get("need") or f"{size / 2**30:.1f} GiB"
    if size >= _VAST:
        return {"vast": said}
    if 0 < size < _LITTLE << 20:
        return {"few": words.get("need") or f"{size / 2**20:.1f} MiB"}
    half = _HALVES.get(words.get("dtype", ""), "")
    return {"half": half} if half else {}
