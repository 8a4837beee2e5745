from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.command import Session, Trust, command
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.record.log import Log

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the log.")]
Key = Annotated[
    str,
    typer.Option("--key", metavar="KEY", help="The file of a private key of ed25519, env:NAME or agent:NAME."),
]


@command()
def new(
    session: Session,
    folder: Folder,
    key: Key,
    origin: Annotated[
        str, typer.Option(metavar="NAME", help="Its name in each head, such as example.org/builds. It stays.")
    ],
) -> None:
    """Make an empty log, whose heads this key signs.

    The folder has the layout of https://c2sp.org/tlog-tiles. Other programs can read it there or by a web server.
    """
    from toolkit import keys
    from toolkit.record import head, log

    signer = keys.load(key)
    made = log.create(folder, origin, signer)
    verifier = head.describe_key(origin, signer.public_key)
    session.console.result(_describe(made) | {"verifier": verifier}, f"{folder}: the log {origin}, key {verifier}")


@command()
def append(
    session: Session,
    folder: Folder,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="What `toolkit verify` takes.")],
    key: Key,
) -> None:
    """Add what is signed of a wheel, an environment, an image, a smoke report or a run to a log, and of its chain.

    An entry has the digest of a statement, what it is about, and who signed it. What the log has already is not added
    again. The log and all its entries are checked first. A command that is killed leaves the log as it was.
    """
    from toolkit import keys, record
    from toolkit.record import transparency

    signer, added = keys.load(key), 0
    for target in targets:
        done, count = transparency.append(folder, record.find(target), Path(session.settings.state), signer)
        added += count
    text = f"{folder}: {added} added, {done.head.size} entries of {done.head.origin}"
    session.console.result(_describe(done) | {"added": added}, text)


@command()
def show(session: Session, folder: Folder, trust: Trust = None) -> None:
    """Check all entries and tiles of a log, and print its head and its entries.

    With --trust, also whether a key that may sign a `log` has signed the head.
    """
    from toolkit import signing
    from toolkit.findings import printable
    from toolkit.record import head, log, transparency

    known = log.read(folder)
    signed = head.require_signer(known.note, signing.read_policy(trust)).name if trust else ""
    value = _describe(known) | {"signed": signed, "entries": []}
    lines = []
    for index, content in enumerate(known.entries):
        entry = transparency.parse(content)
        value["entries"].append(entry.__dict__ if entry else None)
        said = f"{entry.kind} {entry.about} by {', '.join(each[:8] for each in entry.signers)}" if entry else "foreign"
        lines.append(f"{index}  {printable(said)}")
    by = f"signed by {signed}" if signed else "its signature is not checked: --trust names the keys to trust"
    head_ = f"{printable(known.head.origin)}: {known.head.size} entries, root {value['root']}; {by}"
    session.console.result(value, "\n".join([*lines, head_]))


@command()
def witness(
    session: Session,
    folder: Folder,
    key: Key,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The cosigned head, for others; its older content is compared first.")
    ],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What the witness calls itself in it, such as example.org/witness.")
    ],
    trust: Trust = None,
) -> None:
    """Cosign the head of a log, if the log goes on from every head that was seen of it.

    It is compared with the head in FILE and with what this machine has seen. A log that was rolled back or forked is
    refused (exit code 8). Run it where the log's owner cannot write, after each `append`, and publish FILE: with it
    `verify --log DIR --witness FILE` finds a log that has less or something else. The format is that of
    https://c2sp.org/tlog-cosignature.
    """
    from toolkit import keys, signing
    from toolkit.record import head, transparency

    if not trust:
        raise UsageError("a witness needs --trust", remedy="give the public key of the log, or a policy")
    signer = keys.load(key)
    policy, state = signing.read_policy(trust), Path(session.settings.state)
    note = transparency.witness(folder, out, state, policy=policy, name=name, signer=signer)
    verifier = head.describe_key(name, signer.public_key, head.COSIGNED)
    value = {"origin": note.head.origin, "size": note.head.size, "verifier": verifier}
    session.console.result(value, f"{out}: {note.head.size} entries of {note.head.origin} cosigned, key {verifier}")


def _describe(known: "Log") -> dict[str, Any]:
    import base64

    found = known.head
    return {"origin": found.origin, "size": found.size, "root": base64.b64encode(found.root).decode()}
