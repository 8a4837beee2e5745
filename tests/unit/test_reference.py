from tools import pages, reference


def test_the_manual_says_what_the_code_says() -> None:
    assert reference.render_manual(pages.list_job_options()) == pages.MANUAL.read_text(), "run: python -m tools.pages"
