"""From a run's manifest back to the arguments that give exactly that run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolkit.audit.record import RunRecord, digest_config
from toolkit.errors import UnsupportedError
from train.cli import parse
from train.config import INCIDENTAL, read_table
from train.errors import TrainError

Words = tuple[str, ...]

_MODEL: Final = frozenset({"dataset", "model", "stem", "layers", "growth", "bottleneck", "compression"})
_SWITCHES: Final = frozenset({"extra", "jit", "augment", "tf32"})


def recall_arguments(record: RunRecord) -> list[str]:
    """The shortest arguments of ``python -m train`` that mean the recorded configuration.

    They are found by trying and proven by the digest of the configuration, so they cannot mean another run.

    Raises:
        UnsupportedError: the training job of this clone cannot be told to do that run.
    """
    config, wanted = record.config, digest_config(record.config)
    others = [_write(name, value) for name, value in config.items() if name not in _MODEL | INCIDENTAL]
    for model in _describe_models(config):
        options = [*model, *filter(None, others)]
        if _digest(config, options) == wanted:
            kept = _shorten(config, options, wanted)
            return [config["dataset"], *_join(kept), *_recall_rhythm(config)]
    raise UnsupportedError(
        "the training job of this clone cannot do that run",
        why="no arguments give its recorded configuration, so the job has changed since",
        remedy="check out the revision that the run was made with",
    )


def settle(record: RunRecord) -> list[str]:
    """What the run found out for itself on its machine, as arguments: threads and batch size decide the bits."""
    found = []
    for name, option in (("threads", "--threads"), ("batch_size", "--batch-size")):
        if not record.config.get(name):
            found += [option, str(record.environment[name])]
    return found


def _recall_rhythm(config: Mapping[str, Any]) -> list[str]:
    """How often losses are written: that decides no bit, but which losses can be compared."""
    default = parse([config["dataset"]]).log_every
    return [] if config.get("log_every") == default else ["--log-every", str(config["log_every"])]


def _describe_models(config: Mapping[str, Any]) -> Iterator[list[Words]]:
    """Options that may give the recorded network: a preset, or one with changes."""
    layers = list(config["layers"])
    depth = 4 + sum(layers) * (2 if config["bottleneck"] else 1)
    shape = [
        ("--growth", str(config["growth"])),
        ("--compression", repr(config["compression"])),
        ("--bottleneck" if config["bottleneck"] else "--no-bottleneck",),
    ]
    for name, preset in read_table("presets").items():
        if preset["stem"] == config["stem"]:
            yield [("--model", name)]
            yield [("--model", name), *shape, *([("--depth", str(depth))] if "depth" in preset else [])]


def _write(name: str, value: Any) -> Words:
    """One field of the configuration as an option; nothing where there is nothing to say."""
    option = f"--{name.replace('_', '-')}"
    if name in _SWITCHES:
        return (option,) if value else (f"--no-{name}",)
    if isinstance(value, list):
        return (option, ",".join(map(str, value))) if value else ()
    if name == "batch_size":
        return option, str(value or "auto")
    return option, repr(value) if isinstance(value, float) else str(value)


def _shorten(config: Mapping[str, Any], options: Sequence[Words], wanted: str) -> list[Words]:
    """Without the options that are defaults, so that a person can read the rest."""
    kept = list(options)
    for option in options:
        fewer = [each for each in kept if each != option]
        if _digest(config, fewer) == wanted:
            kept = fewer
    return kept


def _digest(config: Mapping[str, Any], options: Sequence[Words]) -> str:
    try:
        return parse([config["dataset"], *_join(options)]).digest
    except TrainError:
        return ""


def _join(options: Sequence[Words]) -> list[str]:
    return [word for option in options for word in option]
