"""Writes the model card of a run, ``README.md``: ``python -m train card RUN…`` writes it again.

It is a function of the run's manifest without its times, and has the metadata that the Hugging Face Hub reads
(https://huggingface.co/docs/hub/model-cards). Its license is left to the user.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from train.config.configuration import DEFAULTS, INCIDENTAL, WHITE, TrainConfig
from train.config.origin import HUB
from train.config.presets import read_table
from train.record import reader
from train.system import output
from train.system.files import write_text
from train.system.program import explain_errors

CARD: Final = "README.md"

SHOWN: Final = 20
"""Largest number of classes in the table. Of more classes, it shows those with the lowest accuracy."""

PICTURES: Final = {
    "curves.png": "Loss and error by epoch",
    "confusion.png": "Predicted classes of each true class",
    reader.MISTAKES: "Test images with the highest loss",
    reader.SAMPLES: "Images of training",
}
"""Pictures of a run's folder that the card shows, with what they show."""

_RECIPE: Final = ("recipe", "optimizer", "learning_rate", "schedule", "momentum", "weight_decay", "epochs", "augment")
_APART: Final = {"dataset", "image_shape", "class_names", "data_sha256", "batch_size", *_RECIPE, *INCIDENTAL}


def write(folder: Path, manifest: Mapping[str, Any]) -> Path:
    pictures = [name for name in PICTURES if (folder / name).exists()]
    write_text(folder / CARD, compose(folder.resolve().name, manifest, pictures))
    return folder / CARD


def compose(name: str, manifest: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """Return the card of a run, given the name of its folder, its manifest and the pictures that are there."""
    config = TrainConfig.from_dict(manifest["config"])
    inputs = reader.read_inputs(manifest["environment"], config)
    parts = (
        _introduce(config, inputs, manifest),
        _show(pictures),
        _explain_use(),
        _describe_data(config, inputs, manifest["data"]),
        _describe_recipe(config, manifest["environment"]["batch_size"]),
        _describe_classes(inputs.class_names, manifest["result"]["per_class_accuracy"]),
        _describe_environment(manifest),
        _state_limits(config),
    )
    text = "\n".join(line for part in parts for line in (*part, ""))
    # The card may be published, and the place of the data on this machine is of no use to others.
    text = text.replace(config.data_dir, config.dataset) if len(config.data_dir) > 1 else text
    return f"---\n{_make_metadata(name, config, manifest)}---\n\n{text}"


def find_hub_name(config: TrainConfig) -> str:
    """Return the name of the data set on the Hub; an empty text if it is not there."""
    match = HUB.fullmatch(config.dataset)
    if match:
        return match["repository"]
    return str(read_table("data/sources").get(config.dataset, {}).get("hub", {}).get("repository", ""))


def _make_metadata(name: str, config: TrainConfig, manifest: Mapping[str, Any]) -> str:
    result, hub = manifest["result"], find_hub_name(config)
    measured = {"accuracy": result["test_accuracy"], "loss": result["test_loss"]}
    data = {"name": config.dataset, "type": hub or config.dataset, "split": "test"}
    entry = {
        "task": {"type": "image-classification", "name": "Image classification"},
        "dataset": data,
        "metrics": [{"type": kind, "value": value, "name": f"Test {kind}"} for kind, value in measured.items()],
    }
    fields = {
        "library_name": "keras",
        "pipeline_tag": "image-classification",
        "tags": ["tensorflow", "densenet", "image-classification"],
        **({"datasets": [hub]} if hub else {}),
        "metrics": ["accuracy"],
        "model-index": [{"name": name, "results": [entry]}],
    }
    return "# license: name one here before you publish the model\n" + yaml.safe_dump(
        fields, sort_keys=False, allow_unicode=True
    )


def _introduce(config: TrainConfig, inputs: reader.Inputs, manifest: Mapping[str, Any]) -> Iterator[str]:
    result, batch_size = manifest["result"], manifest["environment"]["batch_size"]
    height, width, channels = inputs.shape
    yield f"# DenseNet {config.model} for {config.dataset}"
    yield ""
    yield (
        f"An image classifier for {config.classes} classes, by a [DenseNet](https://arxiv.org/abs/1608.06993).\n"
        f"It takes {'gray' if channels == 1 else 'colour'} images of {height}x{width} pixels; other sizes are scaled."
    )
    yield ""
    yield "| on the test images | |"
    yield "|---|---|"
    yield f"| accuracy | {result['test_accuracy']:.2%} |"
    yield f"| mean loss | {result['test_loss']:.4f} |"
    if "validation_accuracy" in result:
        yield f"| accuracy on validation images | {result['validation_accuracy']:.2%} |"
    batch = min(batch_size, manifest["data"]["examples"]["train"])  # of few images, a batch has all
    yield f"| trained for | {result['epochs']} epochs, {result['steps']} steps of {batch} images |"
    if "continued_after" in manifest:
        yield f"| of these, by the run that it goes on from | {manifest['continued_after']} steps |"
    if "best_epoch" in result:
        yield f"| weights of epoch | {result['best_epoch']}, the best by validation |"


def _show(pictures: Sequence[str]) -> Iterator[str]:
    for name in pictures:
        yield f"![{PICTURES[name]}]({name})"


def _explain_use() -> Iterator[str]:
    yield "## Use"
    yield ""
    yield "With the toolkit that trained it, where RUN is this folder:"
    yield ""
    yield "```sh"
    yield "toolkit predict RUN photo.jpg             # or: python -m train predict RUN photo.jpg"
    yield "toolkit evaluate RUN                      # accuracy, calibration, confusions on the test images"
    yield "toolkit export RUN                        # model.keras: bytes in, probabilities out, labels.txt beside it"
    yield "toolkit verify RUN                        # compares this folder with its record"
    yield "toolkit reproduce RUN                     # the same weights again"
    yield "```"


def _describe_data(config: TrainConfig, inputs: reader.Inputs, data: Mapping[str, Any]) -> Iterator[str]:
    yield "## Data"
    yield ""
    yield f"- {config.dataset}, from {_escape(data['source'])}"
    yield f"- {data['examples']['train']} images to train on, {data['examples']['test']} to test on"
    yield f"- SHA-256 of images and labels: `{data['sha256']}`"
    mean, std = (", ".join(f"{value:.4f}" for value in values) for values in (inputs.mean, inputs.std))
    yield f"- normalized by mean {mean} and deviation {std} of bytes, by channel"
    if inputs.white != WHITE:
        yield f"- white is {inputs.white} in these images, and {WHITE} in files; classified files are scaled"
    for text in (*data["notes"], *(f"warning: {warning}" for warning in data["warnings"])):
        yield f"- {_escape(text)}"


def _describe_recipe(config: TrainConfig, batch_size: int) -> Iterator[str]:
    yield "## Recipe"
    yield ""
    yield "| option | value |"
    yield "|---|---|"
    values = config.as_dict()
    for name in _RECIPE:
        yield f"| {name.replace('_', ' ')} | {values[name]} |"
    yield f"| batch size | {batch_size} |"
    for name in sorted(values.keys() - _APART):
        if values[name] not in (DEFAULTS[name], []):
            yield f"| {name.replace('_', ' ')} | {_escape(str(values[name]))} |"


def _describe_classes(names: Sequence[str], recognized: Sequence[float | None]) -> Iterator[str]:
    shares = list(zip(names, recognized, strict=True))
    yield "## Classes"
    yield ""
    if len(shares) > SHOWN:
        shares.sort(key=lambda pair: 1 if pair[1] is None else pair[1])
        shares = shares[:SHOWN]
        yield f"The {SHOWN} of {len(names)} classes that were recognized least:"
        yield ""
    yield "| class | recognized |"
    yield "|---|---|"
    for name, share in shares:
        yield f"| {_escape(name)} | {'no test image' if share is None else f'{share:.2%}'} |"


def _describe_environment(manifest: Mapping[str, Any]) -> Iterator[str]:
    environment, software = manifest["environment"], manifest["software"]
    kernels = "native" if environment.get(reader.KERNELS) else "those of TensorFlow"
    yield "## Environment and record"
    yield ""
    yield f"- {', '.join(environment['devices'])}; {environment['threads']} threads; kernels: {kernels}"
    yield f"- {', '.join(f'{name} {version}' for name, version in software.items())}"
    yield f"- SHA-256 of the weights: `{manifest['weights_sha256']}`"
    yield f"- SHA-256 of the configuration: `{manifest['config_sha256']}`"
    yield f"- `{reader.MANIFEST}` has the whole record, `{reader.CONFIG}` the configuration"


def _state_limits(config: TrainConfig) -> Iterator[str]:
    yield "## Limits"
    yield ""
    yield f"- It knows the {config.classes} classes above, and gives one of them to every image, whatever it shows."
    yield f"- Its numbers hold for images like those of {config.dataset}; on others it can be worse."
    yield "- Probabilities can be too high. `toolkit evaluate` measures by how much."
    yield "- Nothing was done to find or remove biases of the data."


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


@explain_errors
def main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in {"-h", "--help"}:
        output.show("usage: python -m train card RUN…")
        return 0 if argv else 2
    for folder in argv:
        record = reader.read_record(Path(folder))
        output.show(str(write(record.folder, record.value)))
    return 0
