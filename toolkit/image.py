"""The plan of an image: which stage, arguments and contexts, and the digest that names the result."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit import digest, naming, project
from toolkit.lock import SOURCE_DATE_EPOCH
from toolkit.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """One ``docker buildx build``.

    Attributes:
        target: stage of docker/Dockerfile.
        tag: name of the result.
        digest: content digest of all that goes in; kept in the image as a label.
        argv: the command.
    """

    target: str
    tag: str
    digest: str
    argv: tuple[str, ...]


def plan(recipe: Recipe, *, target: str, base: str, base_id: str, ca_bundle: str = "", tag: str = "") -> ImagePlan:
    """Plan an image. Pure: reads the project's files, starts nothing.

    Args:
        recipe: what the image must hold.
        target: ``runtime`` or ``train``.
        base: reference of the base image.
        base_id: its content digest, or the reference again where it is not known before the pull.
        ca_bundle: PEM file, handed to the build as a secret: it is in no layer.
        tag: name of the result; by default one made of the digest.
    """
    arguments = {
        "BASE_IMAGE": base,
        "REQUIREMENTS": recipe.requirements,
        "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
    }
    content = digest.digest_value(
        {
            "target": target,
            "base": base_id,
            "arguments": arguments,
            "files": digest.digest_paths(project.ROOT, _inputs(recipe, target)),
            "wheel": digest.digest_file(recipe.wheel) if recipe.wheel else None,
        }
    )
    labels = {
        naming.OWNER_LABEL: "toolkit",
        naming.PLAN_LABEL: content,
        f"{naming.LABEL_PREFIX}.tensorflow": recipe.tensorflow,
        f"{naming.LABEL_PREFIX}.cuda": recipe.cuda,
        f"{naming.LABEL_PREFIX}.cudnn": recipe.cudnn,
        f"{naming.LABEL_PREFIX}.lock": digest.digest_file(_locked(recipe)),
        "org.opencontainers.image.base.name": base,
    }
    if recipe.wheel:
        labels[f"{naming.LABEL_PREFIX}.wheel"] = digest.digest_file(recipe.wheel)
    name = tag or naming.name_image(target, recipe.variant, content)
    argv: list[str] = ["docker", "buildx", "build", "--file", str(project.locate("docker/Dockerfile"))]
    argv += ["--target", target, "--tag", name, "--load", "--provenance", "false", "--progress", "rawjson"]
    argv += _repeat("--build-arg", [f"{key}={value}" for key, value in arguments.items()])
    argv += _repeat("--label", [f"{key}={value}" for key, value in labels.items()])
    if recipe.wheel:
        argv += ["--build-context", f"wheel={recipe.wheel.resolve().parent}"]
    if ca_bundle:
        argv += ["--secret", f"id=ca,src={ca_bundle}"]
    argv.append(str(project.ROOT))
    return ImagePlan(target=target, tag=name, digest=content, argv=tuple(argv))


def _inputs(recipe: Recipe, target: str) -> list[Path]:
    """What the stage reads: a change in any of it makes another image, a change elsewhere does not."""
    inputs = [project.locate("docker/Dockerfile"), project.locate("docker/scripts"), _locked(recipe)]
    if target == "train":
        inputs.append(project.locate("train"))
    return inputs


def _locked(recipe: Recipe) -> Path:
    return project.locate(f"docker/requirements/{recipe.requirements}.txt")


def _repeat(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]
