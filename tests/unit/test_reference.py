import shutil
import subprocess

import pytest

from tools import pages, reference

COMMANDS = reference.read_commands()


def test_the_manual_says_what_the_code_says() -> None:
    assert reference.render_manual(pages.list_job_options()) == pages.MANUAL.read_text(), "run: python -m tools.pages"


def test_an_option_that_is_described_once_means_the_same_in_every_command() -> None:
    for panel in reference.SHARED:
        found = {(each.name, each.written, each.help) for command in COMMANDS for each in command.list_shared(panel)}
        assert sorted(name for name, *_ in found) == sorted(reference.SHARED[panel])


def lint(text: str) -> list[str]:
    done = subprocess.run(
        ["mandoc", "-Tlint", "-W", "warning"], input=text, capture_output=True, text=True, check=False
    )
    # Without a date it has the same bytes whenever it is made.
    return [line for line in done.stdout.splitlines() if "missing date" not in line]


@pytest.mark.skipif(not shutil.which("mandoc"), reason="needs mandoc")
def test_the_manual_is_well_formed() -> None:
    assert lint(pages.MANUAL.read_text()) == []
    head = ".TH A 1\n.SH NAME\na \\- b\n"
    assert lint(head + ".XX\n"), "a page that is not is found"
    for text in (".toolkit", "'a'", "\\n"):
        assert lint(f"{head}{reference.escape(text)}\n") == []
