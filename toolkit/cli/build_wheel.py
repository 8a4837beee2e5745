"""``toolkit build-wheel``: TensorFlow from source, for one exact CUDA and cuDNN."""

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command


@command("tensorflow", "python", "cuda", "cudnn", "base_image", "ca_bundle", engine="docker")
def build_wheel(
    session: Session,
    compute_capability: options.Capabilities = None,
    source: options.Source = "",
    bazel: options.Bazel = "",
    bazel_argument: Annotated[list[str] | None, typer.Option(metavar="--FLAG", help="For Bazel; repeatable.")] = None,
    jobs: options.Jobs = 0,
    memory: Annotated[
        int, typer.Option(min=0, metavar="GIB", help="Memory for Bazel to plan with; 0: by machine.")
    ] = 0,
    remote_cache: Annotated[str, typer.Option(metavar="URL", help="An existing Bazel cache.")] = "",
    remote_executor: Annotated[str, typer.Option(metavar="URL", help="An existing Bazel executor.")] = "",
    remote_instance_name: Annotated[
        str, typer.Option(metavar="NAME", help="Instance of these services; some need one.")
    ] = "",
    bazelrc: options.Bazelrc = "",
    downloads: Annotated[str, typer.Option(metavar="DIR", help="What Bazel would fetch, brought along.")] = "",
    cache: Annotated[str, typer.Option(metavar="NAME", help="Name of the build caches.")] = "tensorflow",
    apt_snapshot: options.Snapshot = "",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of finished wheels.")] = Path("dist"),
    dry_run: options.DryRun = False,
) -> None:
    """Build a TensorFlow wheel. What cannot work is refused at once; an up-to-date wheel is not built again."""
    from toolkit import project
    from toolkit.wheel import making
    from toolkit.wheel.plan import Means
    from toolkit.wheel.preparation import Wish

    console, settings = session.console, session.settings
    wish = Wish(
        capabilities=compute_capability or (),
        apt_snapshot=apt_snapshot,
        source=source,
        bazel=bazel,
        bazel_arguments=bazel_argument or (),
        means=Means(
            jobs=jobs,
            memory=memory * 1024,
            remote_cache=remote_cache,
            remote_executor=remote_executor,
            remote_instance=remote_instance_name,
            bazelrc=bazelrc,
            ca_bundle=settings.ca_bundle,
            downloads=downloads,
            cache_id=cache,
        ),
    )
    prepared, found = making.prepare(settings, wish, console, out=out, dry_run=dry_run)
    plan = prepared.plan
    if dry_run:
        options.print_commands(console, [plan.command(out / plan.name)])
        return
    built = making.make(prepared, found, settings, console, out=out)
    folder, spec, ran = project.shorten(built.folder), plan.lock.spec, built.record.facts["bazel"]
    console.result(
        {
            "wheel": str(built.wheel),
            "digest": built.record.digest,
            "folder": str(built.folder),
            "plan": plan.digest,
            "reused": built.reused,
            "rung": plan.rung,
            "floating": list(plan.floating),
            "seconds": built.record.facts["seconds"],
            "actions": {name: ran.get(name) for name in ("executed", "cached", "cached_by", "remote")},
        },
        f"{folder}/{built.wheel.name}\n{built.record.digest}\n\n"
        f"check it:   toolkit verify {folder}\n"
        f"install it: toolkit build-image --wheel {folder} --cuda {spec['cuda']} --cudnn {spec['cudnn']}",
    )
