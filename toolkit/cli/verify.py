from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.base.keys import Type
from toolkit.cli.command import Session, Trust, command

if TYPE_CHECKING:
    from toolkit.base.console import Console
    from toolkit.records.verification import Verification


@command(long=True)
def verify(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            help="A wheel's folder (dist/NAME), a run's (runs/NAME), an environment into which `install` has put "
            "TensorFlow, an environment's or image's folder below the state folder, a smoke report in it, or an image "
            "as NAME:TAG.",
        ),
    ],
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail too for what is absent, and for files of a run that no record covers."),
    ] = False,
    trust: Trust = None,
) -> None:
    """Check that a wheel, an environment, an image or a run is what its record says, and the chain behind it.

    It reads records, files and signatures, and runs nothing: `toolkit reproduce` builds or trains again.

    Each finding is ok, fail, absent (a link of the chain is not on this machine), skipped (the check was not made) or
    warn (a file is there that no record covers). Exit code 0: nothing failed, and with --strict nothing is absent or
    warned of either; 7: a finding failed; 8: the record itself is missing or damaged, or with --trust a signature is.
    Without --trust no signature is checked: whoever can write a folder can write a record that fits it.

    Results of a Bazel cache or executor are not checked, so everyone who can write there is trusted. For a wheel, the
    line `trust` says how many results came from where.
    """
    from toolkit import records
    from toolkit.base import keys
    from toolkit.records import verification

    policy = records.read_policy(trust or ())
    for signatory in policy:
        session.console.heading("key", f"{signatory.name}, key {keys.shorten(signatory.key.keyid)}")
    outcome = verification.verify(records.find(target, Path(session.settings.state)), policy)
    value, text = _describe(session.console, outcome, signed=bool(policy))
    session.console.result(value, text)
    outcome.require(strict=strict)


def _describe(console: "Console", outcome: "Verification", *, signed: bool) -> tuple[dict[str, object], str]:
    """Print the findings; return them for --json, and a line that sums them up."""
    from toolkit.base import findings, signing

    artifact, all_findings = outcome.artifact, outcome.findings
    # Without all signatures there are no other findings, and the error at the end says which of them fail.
    shown = [item for item in all_findings if outcome.signatures_hold or item.state == "ok"]
    if shown:
        console.say(findings.render(shown).rstrip())
    value: dict[str, object] = {"kind": artifact.kind, "findings": [finding.as_dict() for finding in all_findings]}
    value |= artifact.describe_place()
    if outcome.signatures_hold and (trust := artifact.describe_trust()):
        console.heading("trust", trust)
        value["trust"] = artifact.count_actions()
    if not signed and not artifact.reference:
        value["signature"] = signing.describe(artifact.path)
        console.heading("signature", signing.describe(artifact.path))
    return value, f"{artifact.kind} {artifact.name}: {outcome.summarize()}"


@command()
def sign(
    session: Session,
    target: Annotated[str, typer.Argument(help="What `toolkit verify` takes.")],
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="The file of a private key, or env:NAME.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the signatures of what was there before.")
    ] = False,
) -> None:
    """Verify a wheel, environment, image, smoke report or run, and sign it if it holds.

    The envelope attestation.dsse.json lies beside it. Further keys add their signatures to it. What has changed since
    it was signed is refused.
    """
    from toolkit import records
    from toolkit.base import keys
    from toolkit.records import attestation, verification

    signer = keys.load(key)
    artifact = records.find(target, Path(session.settings.state))
    done = attestation.sign(artifact, signer, replace=replace)
    session.console.result({"key": signer.public_key.keyid, "done": done}, done)
    if unsigned := verification.list_unsigned(artifact):
        session.console.say("`verify --trust` asks for a signature of what it was made from too:")
        for behind in unsigned:
            session.console.say(f"  {behind.describe_signing(key)}")


@command()
def make_key(
    session: Session,
    file: Annotated[Path, typer.Argument(help="File of the private key; the public one is FILE.pub.")],
    type_: Annotated[
        Type,
        typer.Option("--type", help="p256: ECDSA, for programs that know no ed25519."),
    ] = "ed25519",
) -> None:
    """Make a key pair. The private key is not encrypted, and only its owner can read it."""
    from toolkit.base import keys

    made = keys.make(file, type_)
    public = f"{file}.pub"
    if keys.would_be_published(file):
        session.console.say(
            f"{file} lies in a git work tree, and `git add .` would publish it: move it elsewhere, or write its name "
            "into .git/info/exclude"
        )
    session.console.result({"key": made, "private": str(file), "public": public}, f"{public}  key {keys.shorten(made)}")
