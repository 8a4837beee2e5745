import toolkit.base.errors
import train.errors
from toolkit.base.errors import JobError, ToolkitError


def test_one_except_clause_catches_an_error_of_either_program() -> None:
    for name, kind in vars(train.errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, ToolkitError)
            assert vars(toolkit.base.errors).get(name, kind) is kind


def test_no_two_kinds_of_errors_have_the_same_exit_code() -> None:
    codes = [kind.exit_code for kind in [ToolkitError, *ToolkitError.__subclasses__()] if kind is not JobError]
    assert len(set(codes)) == len(codes) > 12
