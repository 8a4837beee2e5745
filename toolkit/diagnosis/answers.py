"""Chooses what to say of a failure: the first answer of its row of which all words are known.

Words are those that the pattern names in the log, what knowledge.yaml has for one of them, and what is computed of the
versions of packages (packages.py), the names that they have (names.py), their wheels (pythons.py), paths of files
(files.py), names that a linker lacks (linking.py), names that are like a refused one (spelling.py), shapes (shapes.py)
and cards (cards.py).
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from toolkit.diagnosis import (
    cards,
    constraints,
    done,
    files,
    linking,
    names,
    packages,
    places,
    pythons,
    shapes,
    specifiers,
    spelling,
    wheels,
)
from toolkit.diagnosis.table import Answer, Row
from toolkit.versions.table import read_yaml
from train.system.output import inline

KNOWLEDGE: Final = Path(__file__).with_name("knowledge.yaml")
_TABLE: Final = re.compile(r"(?m)^(\w+):")
_WORD: Final = re.compile(r"\{(\w+)\}")
_NO_RELEASE: Final = "X.Y"
"""Stands for the release of TensorFlow where the log does not say it."""
_OF_NO_RELEASE: Final = re.compile(rf"'?([\w.-]+)[~=]={re.escape(_NO_RELEASE)}[\w.*]*'?")

Words = Mapping[str, str]


class Knowledge(Mapping[str, Any]):
    """The tables of knowledge.yaml by their names. Each is parsed when it is asked for, as an answer needs few."""

    def __init__(self, text: str) -> None:
        parts = _TABLE.split(text)[1:]
        self._texts = dict(zip(parts[::2], parts[1::2], strict=True))
        self._parsed: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._parsed:
            self._parsed[name] = read_yaml(self._texts[name])
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@functools.cache
def load_knowledge() -> Knowledge:
    return Knowledge(KNOWLEDGE.read_text(encoding="utf-8"))


def tell(
    row: Row, words: Words, facts: Words, place: str, *, lines: Sequence[Words] = (), ran: Sequence[str] = ()
) -> Answer:
    """Return what to say.

    ``facts``: what the log says of versions and of the machine; ``place``: one of PLACES; ``lines``: the words of each
    line that shows the failure, where the log has several; ``ran``: the commands that stand in the log.
    """
    known = {**gather(row, words, facts, lines), "place": place}
    general = Answer(cause=row.cause, remedy=row.remedy, commands=row.commands)
    there = row.places.get(place, Answer())
    fitting = [answer for answer in row.answers if _fits(answer, known, facts)] or [Answer()]
    told = [_fill(answer, there, general, known, facts) for answer in fitting]
    weighed = [wheels.weigh(answer, facts, load_knowledge()) for answer in told]
    possible = [each for each in weighed if isinstance(each, Answer)]
    useful = (done.weigh(each, ran) for each in possible)
    best = next((each for each in useful if each), None) or done.repeat(possible[0] if possible else told[0], ran)
    if isinstance(obstacle := weighed[0], wheels.Obstacle) and not possible:
        best = replace(best, remedy=obstacle.remedy, commands=obstacle.commands)
    return places.adapt(replace(best, commands=tuple(_suit(best.commands, known, facts))), facts)


def _suit(commands: Sequence[str], known: Words, facts: Words) -> Iterator[str]:
    """Yield commands that install what goes with the versions of the log."""
    for command in (each for whole in wheels.bring_legacy_keras(commands) for each in wheels.fit_keras(whole, facts)):
        # The number of a library says of itself for which CUDA it is.
        said = _OF_NO_RELEASE.sub(r"\1", command)
        said = said if "suffix" in known else wheels.take_log_cuda(said, facts)
        for fit in (wheels.take_old_jax, wheels.bound, wheels.take_fitting_python):
            said = fit(said, facts, load_knowledge())
        yield said


def _fill(answer: Answer, there: Answer, general: Answer, known: Words, facts: Words) -> Answer:
    commands = answer.commands or there.commands or general.commands
    # A command of which a word is not known is left out: not each library is in each distribution.
    runnable = [each for each in commands if not answer.commands or _list_words(each) <= known.keys()]
    return Answer(
        cause=fill(answer.cause or general.cause, known),
        remedy=fill(answer.remedy or there.remedy or general.remedy, known),
        commands=tuple(fill(each, known) for each in runnable),
        certainty="likely" if _supposes(answer, known, facts) else answer.certainty,
    )


def _supposes(answer: Answer, known: Words, facts: Words) -> bool:
    """Return whether an answer says since or until when a package has a name, and the log shows no version of it."""
    dated = {"gone", "since"} & {*_list_words(answer.cause), *answer.needs}
    holders = {known.get("package", ""), *(("tensorflow",) if known.get("package") == "keras" else ())}
    return (
        bool(dated)
        and "member" in known
        and "early" not in known
        and not any(packages.find_version(each, facts) for each in holders)
    )


def knows(row: Row, words: Words, facts: Words, lines: Sequence[Words]) -> bool:
    """Return whether a row has an answer of which all words are known; so has a row without answers."""
    known = gather(row, words, facts, lines)
    return not row.answers or any(_fits(answer, known, facts) for answer in row.answers)


def gather(row: Row, words: Words, facts: Words, lines: Sequence[Words] = ()) -> dict[str, str]:
    """Return the words of a failure together with what is known and computed of them."""
    minor = specifiers.read_minor(facts.get("TensorFlow", ""))
    marks = {name: value for name, value in facts.items() if value == "yes"}
    known = {**marks, "minor": minor or _NO_RELEASE, **words}
    # TensorFlow 1.15 to 2.1 looks names up for the one who calls it.
    raiser = words.get("caller" if words.get("raiser") == "tensorflow_core" else "raiser", "")
    if raiser and "answered" not in words and raiser not in load_knowledge()["foundations"]:
        file = words.get("raising", "") if raiser == words["raiser"] else raiser
        known["culprit"] = packages.find_distribution(file or raiser, load_knowledge())
    if (asker := words.get("caller", "")) and asker not in load_knowledge()["foundations"]:
        known["asker"] = packages.find_distribution(asker, load_knowledge())
    known["applicant"] = known.get("culprit", "the program")
    known |= _find_ended(words, facts)
    if compute := _COMPUTED.get(row.id):
        known |= compute(known, facts, load_knowledge())
    for word, table in row.look_up.items():
        if word in known:
            known = {**_look_up(load_knowledge()[table], known[word], known), **known}
    known = dict(pythons.judge_systems(known, facts))
    if row.id in _TOGETHER:
        known |= _TOGETHER[row.id](lines, load_knowledge())
    return known


def _find_ended(words: Words, facts: Words) -> Words:
    """Return what is known of a package that ended, in whose file the traceback ends or which called that file.

    Where no traceback is shown, it is the one that the log names.
    """
    ended = load_knowledge()["ended"]
    named = [each for each in (words.get("raiser", ""), words.get("caller", "")) if each]
    named = named or [module for module, row in ended.items() if packages.find_version(row["ended"], facts)]
    return next(({name: str(value) for name, value in ended[each].items()} for each in named if each in ended), {})


def _look_up(table: Any, text: str, known: Words) -> dict[str, str]:
    """Return the row of a table for a word: by the word itself, or the first whose expression the word begins with."""
    if isinstance(table, dict):
        row = table.get(text, {}) or table.get(text.upper(), {})
        values = row if isinstance(row, dict) else {"what": row}
        return {key: fill(str(value), known) for key, value in values.items()}
    for row in table:
        expression = re.compile(row["match"], re.IGNORECASE)
        if match := expression.match(text) or expression.match(re.split(r"[/\\]", text)[-1]):
            numbers = {name: value for name, value in match.groupdict().items() if value}
            known = {**known, **numbers}
            told = {key: fill(str(value), known) for key, value in row.items() if key != "match"}
            # What has a word that is not known is left out: not each library is a package of each index.
            return numbers | {key: value for key, value in told.items() if not _list_words(value)}
    return {}


def fill(text: str, words: Words) -> str:
    """Return a text with its words filled in. One that is not known stays as it is."""
    return _WORD.sub(lambda found: inline(words.get(found[1], found[0])), text)


def _fits(answer: Answer, known: Words, facts: Words) -> bool:
    said = {**facts, **known}
    return _list_words(answer.cause + answer.remedy) <= known.keys() and all(
        specifiers.fits(facts.get(name, ""), value) if value[:1] in tuple("<>=") else said.get(name, "") == value
        for name, value in answer.needs.items()
    )


def _list_words(text: str) -> set[str]:
    return {*_WORD.findall(text)}


_TOGETHER: Final[Mapping[str, Callable[[Sequence[Words], Mapping[str, Any]], Words]]] = {
    "versions-exclude": constraints.reconcile,
    "pip-unsatisfiable": constraints.find_conflict,
    "python-range": constraints.bound_python,
    "conda-not-there": constraints.list_systems,
    "conda-unsatisfiable": wheels.find_absent,
    "cuda-majors-mixed": files.find_majors,
    "gpu-library-missing": files.date_missing,
    "link-undefined": linking.count,
    "gpu-memory": cards.list_full,
}
"""What is computed of all lines that show one failure."""
_COMPUTED: Final[Mapping[str, Callable[[Words, Words, Mapping[str, Any]], Words]]] = {
    "versions-exclude": packages.weigh,
    "own-module": files.find_own,
    "numpy-import": packages.name_builder,
    "protobuf-descriptors": packages.name_maker,
    "torch-without-cuda": packages.choose_torch,
    "link-undefined": linking.read_symbol,
    "library-missing": files.read_file,
    "wheel-other-python": pythons.compare_tag,
    "cudnn-part-missing": files.read_file,
    "gpu-library-missing": files.read_file,
    "custom-op-symbol": packages.find_release,
    "symbol-undefined": packages.judge_extension,
    "package-wants-version": packages.find_release,
    "torch-companions": packages.pair_with_torch,
    "requirement-absent": packages.find_part,
    "name-missing": names.date_name,
    "package-missing": names.date_name,
    "jax-name-frames": names.date_name,
    "object-attribute": names.date_attribute,
    "keras-internals": names.date_name,
    "keras-object": names.find_inner,
    "pip-version-too-old": pythons.find_pythons,
    "pip-version-too-new": pythons.find_pythons,
    "python-not-accepted": pythons.fit_python,
    "uv-no-wheel": pythons.read_tags,
    "poetry-no-wheel": pythons.find_wheels,
    "pip-no-wheel": pythons.find_wheels,
    "pip-builds-from-source": pythons.find_source_release,
    "release-not-found": pythons.find_wanted,
    "tensorflow-gpu-package": pythons.find_wheels,
    "pip-unsatisfiable": pythons.read_requirement,
    "nvidia-package-platform": pythons.read_marker,
    "keras-format": files.read_path,
    "keras-identifier": spelling.find_identifier,
    "keras-custom-object": spelling.find_identifier,
    "keras-argument": spelling.find_layer_argument,
    "argument-unknown": spelling.find_argument,
    "argument-refused": spelling.find_listed,
    "keras-no-layer": spelling.find_listed,
    "saved-model-endpoint": spelling.find_listed,
    "download-differs": files.compare_sizes,
    "protobuf-runtime-older": packages.compare_protobuf,
    "jax-backend": packages.keep_jax,
    "jax-versions": packages.read_library,
    "conda-virtual-package": packages.read_virtual,
    "compiler-does-not-know-card": cards.date_card,
    "xla-ptx-target": cards.date_card,
    "conda-unsatisfiable": packages.name_asker,
    "host-compiler-too-new": cards.name_older_compiler,
    "nvcc-and-host-compiler": cards.name_older_compiler,
    "cudnn-handle": cards.measure_memory,
    "cudnn-older": cards.fit_cudnn,
    "pytorch-card": cards.find_torch_index,
    "keras-private": packages.judge_copy,
    "driver-too-old": cards.find_driver,
    "torch-cuda-differs": cards.find_torch_build,
    "ptx-newer-than-ptxas": cards.find_driver,
    "card-outside-cuda": cards.judge_age,
    "libcuda-missing": cards.find_loaded,
    "gpu-error-shown": cards.judge_head,
    "data-ran-out": shapes.find_cut,
    "batch-shapes": shapes.compare_elements,
    "label-range": shapes.judge_label,
    "torch-rendezvous": shapes.count_processes,
    "shape-of-input": shapes.ranks,
    "session-feed": shapes.ranks,
    "cuda-config-not-found": files.find_headers,
    "data-lengths-differ": shapes.compare_lengths,
    "keras-callback-monitor": spelling.find_logged,
    "keras-data-shape": shapes.ranks,
    "shapes-differ": shapes.compare,
    "gpu-memory": shapes.measure,
    "host-memory": shapes.measure_array,
    "kernel-out-of-memory": shapes.double_memory,
    "program-killed": shapes.double_memory,
    "weights-shape": shapes.judge_weights,
    "checkpoint-differs": shapes.judge_weights,
    "convolution-no-algorithm": shapes.measure_operands,
    "xla-autotuning": shapes.measure_operands,
}
"""What is computed of the words of a failure and of the facts of its log."""
