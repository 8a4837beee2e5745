from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.base.project import DIST
from toolkit.cli.command import DryRun, Session, command
from toolkit.jobs.wheels import obtain_graft, order
from toolkit.versions.set import VERSIONS

if TYPE_CHECKING:
    from toolkit.graft.graft_plan import GraftPlan
    from toolkit.wheel.wheel_folder import FinishedWheel


@command(*VERSIONS, "card", "ca_bundle", "downloads", engine="host", long=True)
def try_card(session: Session, dry_run: DryRun = False) -> None:
    """Try all that a card is for, and write card-report.md, which holds nothing personal.

    That is: what fits the card, a graft if it needs one, an environment in card-test, the checks, and digits trained
    twice on the processor and twice on the card, with equal bits and a profiled step. It needs neither Docker nor a
    compiler, at most 15 minutes and 8 GB. After Ctrl-C the same command goes on.

    Exit code 7: a step did not work; 12: all before the card worked, and no card can be used here.
    """
    from toolkit.jobs import card_test
    from toolkit.jobs.choice import Manner

    def make(planned: "GraftPlan") -> "FinishedWheel | None":
        return obtain_graft(planned, order(session.settings, session.console, DIST, dry_run=dry_run))

    card_test.CardTest(
        settings=replace(session.settings, state=str(card_test.FOLDER / "state")),
        how=Manner(console=session.console, dry_run=dry_run),
        make_graft=make,
        report=card_test.CardReport(path=card_test.REPORT, console=session.console, writes=not dry_run),
    ).run()
