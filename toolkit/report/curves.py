"""Draws the curves of a run, and says in words what they show."""

from collections.abc import Iterator, Sequence

from toolkit.report.page_model import Chart, Series, Table, Text
from toolkit.report.run_files import RunFolder
from train.record.metrics import EpochRecord

TEST, TRAIN = 0, 1
"""Colours of curves."""


def draw(run: RunFolder) -> Iterator[Chart | Text]:
    if not run.epochs and not run.steps:
        yield Text(text="No epoch is recorded yet.")
        return
    ends, watched = [epoch.step for epoch in run.epochs], run.watched
    steps = Series(
        name="training, single steps",
        xs=[step["step"] for step in run.steps],
        ys=[step["loss"] for step in run.steps],
        color=TRAIN,
        faint=True,
    )
    few = len(ends) <= 60
    loss = [
        Series(name="training, by epoch", xs=ends, ys=[e.train_loss for e in run.epochs], color=TRAIN, dots=few),
        Series(name=watched, xs=ends, ys=[e.test_loss for e in run.epochs], color=TEST, dots=few),
    ]
    error = [
        Series(name="training", xs=ends, ys=[1 - e.train_accuracy for e in run.epochs], color=TRAIN, dots=few),
        Series(name=watched, xs=ends, ys=[1 - e.test_accuracy for e in run.epochs], color=TEST, dots=few),
    ]
    yield Chart(
        id="loss",
        title="Loss",
        x="step",
        y="mean loss",
        series=[series for series in (steps, *loss) if series.xs],
        text=_tell("loss", watched, run.epochs, [e.test_loss for e in run.epochs], [e.train_loss for e in run.epochs]),
    )
    if run.epochs:
        yield Chart(
            id="error",
            title="Error",
            x="step",
            y="share of images",
            series=error,
            text=_tell("error", watched, run.epochs, error[1].ys, error[0].ys, percent=True),
            unit="%",
            values=_tabulate_epochs(run.epochs, watched),
        )


def _tell(
    name: str,
    watched: str,
    epochs: Sequence[EpochRecord],
    seen: Sequence[float],
    trained: Sequence[float],
    *,
    percent: bool = False,
) -> str:
    """Describe two curves in words, for those who do not see them."""
    if not epochs:
        return f"The {name} by step; the first epoch is not over."

    def show(value: float) -> str:
        return f"{value:.2%}" if percent else f"{value:.4g}"

    if len(epochs) == 1:
        return f"After one epoch, the {watched} {name} is {show(seen[0])} and the training {name} {show(trained[0])}."
    best = min(range(len(seen)), key=seen.__getitem__)
    lowest = f", its lowest {show(seen[best])} after epoch {epochs[best].epoch}" if seen[best] < seen[-1] else ""
    return (
        f"The {watched} {name} went from {show(seen[0])} after epoch {epochs[0].epoch} to {show(seen[-1])} after epoch "
        f"{epochs[-1].epoch}{lowest}; the training {name} from {show(trained[0])} to {show(trained[-1])}."
    )


def _tabulate_epochs(epochs: Sequence[EpochRecord], watched: str) -> Table:
    return Table(
        caption="Numbers of each epoch",
        columns=(
            "Epoch", "Step", "Learning rate", "Training loss", "Training accuracy", f"{watched.capitalize()} loss",
            f"{watched.capitalize()} accuracy", "Images/s", "Seconds",
        ),
        rows=[
            (
                str(e.epoch), f"{e.step:,}", f"{e.learning_rate:.3g}", f"{e.train_loss:.4f}", f"{e.train_accuracy:.2%}",
                f"{e.test_loss:.4f}", f"{e.test_accuracy:.2%}", f"{e.images_per_second:,.0f}", f"{e.seconds:,.1f}",
            )
            for e in epochs
        ],
        numeric=frozenset(range(9)),
        folded="Numbers of each epoch",
    )  # fmt: skip
