from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.command import Session, command
from toolkit.keys import Type


@command()
def sign(
    session: Session,
    target: Annotated[str, typer.Argument(help="What `toolkit verify` takes.")],
    key: Annotated[
        str, typer.Option("--key", metavar="KEY", help="The file of a private key, env:NAME or agent:NAME.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the signatures of what was there before.")
    ] = False,
    model_signing: Annotated[
        bool,
        typer.Option(
            "--model-signing",
            help="For a run: write model.sig for OpenSSF Model Signing in place of the envelope; by a key of P-256, "
            "P-384 or P-521.",
        ),
    ] = False,
) -> None:
    """Verify a wheel, environment, image, smoke report or run, and sign it if it holds.

    The envelope attestation.dsse.json lies beside it. Further keys add their signatures to it. What has changed since
    it was signed is refused.

    With --model-signing, one key signs the digest of each file in the run's folder. `model_signing verify key` checks
    it, and so does --trust where the run has no envelope.
    """
    from toolkit import artifacts, keys
    from toolkit.record import attestation

    signer = keys.load(key)
    artifact = artifacts.find(target, Path(session.settings.state))
    write = attestation.sign_model if model_signing else attestation.sign
    done = write(artifact, signer, replace=replace)
    session.console.result({"key": signer.public_key.keyid, "done": done}, done)


@command()
def make_key(
    session: Session,
    file: Annotated[Path, typer.Argument(help="File of the private key; the public one is FILE.pub.")],
    type_: Annotated[
        Type,
        typer.Option("--type", help="p256: ECDSA, for `sign --model-signing` and programs that know no ed25519."),
    ] = "ed25519",
) -> None:
    """Make a key pair. The private key is not encrypted, and only its owner can read it."""
    from toolkit import keys

    made = keys.make(file, type_)
    public = f"{file}.pub"
    session.console.result({"key": made, "private": str(file), "public": public}, f"{public}  key {made[:8]}")
