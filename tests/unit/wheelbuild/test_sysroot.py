from runpy import run_path

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
