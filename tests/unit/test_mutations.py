from tests.mutations import run


def test_the_entries_fit_the_code() -> None:
    mutations = run.read()
    assert [f"{each.name}: {problem}" for each in mutations if (problem := each.find_problem())] == []
    assert [each.name for each in mutations if each.text == each.replacement] == []
