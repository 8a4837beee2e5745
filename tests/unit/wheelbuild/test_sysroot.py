from runpy import run_path

import pytest

from tests.unit.wheelbuild.conftest import SCRIPTS

SCRIPT = run_path(str(SCRIPTS / "make-sysroot"))
NEWEST = SCRIPT["NEWEST"]["2.28"]
TABLE = """
   Num:    Value          Size Type    Bind   Vis       Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT   UND malloc@GLIBC_2.2.5
     2: 00000000000a0000   123 FUNC    GLOBAL DEFAULT    14 wait@@GLIBCXX_3.4.30
     3: 00000000000a0010   120 FUNC    GLOBAL DEFAULT    14 wait@GLIBCXX_3.4.11
     4: 00000000000a0020   119 FUNC    GLOBAL DEFAULT    14 wait@GLIBCXX_3.4.9
     5: 00000000000a0030   272 OBJECT  GLOBAL DEFAULT    26 cout@@GLIBCXX_3.4
     6: 0000000000000010     8 TLS     GLOBAL DEFAULT    22 once@@GLIBCXX_3.4.11
     7: 00000000000a0040    99 FUNC    WEAK   DEFAULT    14 young@@GLIBCXX_3.4.26
     8: 00000000000a0050    99 FUNC    WEAK   DEFAULT    14 clone@@CXXABI_TM_1
     9: 0000000000000000     0 OBJECT  GLOBAL DEFAULT   ABS GLIBCXX_3.4@@GLIBCXX_3.4
    10: 00000000000a0060    99 FUNC    GLOBAL DEFAULT    14 find@@GCC_12.0.0
"""


def test_each_name_has_the_newest_version_that_the_tag_promises() -> None:
    chosen = {item.name: item for item in SCRIPT["choose"](TABLE, NEWEST) if "GLIBCXX" not in item.name}
    assert {name: item.version for name, item in chosen.items()} == {
        "wait": "GLIBCXX_3.4.11",
        "cout": "GLIBCXX_3.4",
        "once": "GLIBCXX_3.4.11",
        "clone": "CXXABI_TM_1",
    }
    assert (chosen["cout"].size, chosen["once"].kind) == (272, "tls_object")


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("GLIBCXX_3.4.24", True),
        ("GLIBCXX_3.4.25", False),
        ("GLIBCXX_3.4.9", True),
        ("CXXABI_1.3.12", False),
        ("GCC_7.0.0", True),
        ("GCC_12.0.0", False),
        ("OTHER_1.0", False),
    ],
)
def test_versions_are_numbers(version: str, old: bool) -> None:
    assert SCRIPT["is_promised"](version, NEWEST) is old


def test_the_script_of_versions_has_each_name_once() -> None:
    text = "\n".join(SCRIPT["write_script"](SCRIPT["choose"](TABLE, NEWEST)))
    assert "GLIBCXX_3.4.11 { once; wait; };" in text
    assert "young" not in text


def test_an_unknown_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert SCRIPT["main"]("2.17", "17", "14", "/nowhere", "/nowhere") == 1
    assert "no glibc 2.17 is known here, but 2.28" in capsys.readouterr().err
