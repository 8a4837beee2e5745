"""Makes libraries that stand in for those of TensorFlow and of NVIDIA."""

import os
import shutil
import subprocess
from pathlib import Path

ANSWERS = """
#include <stddef.h>
int cudaRuntimeGetVersion(int *version) { *version = %(cuda)d; return %(error)d; }
size_t cudnnGetVersion(void) { return %(cudnn)d; }
size_t cublasLtGetVersion(void) { return 120601; }
"""


OPENS = """
#include <dlfcn.h>
int _ZN3tsl8internal18LoadDynamicLibraryEPKcPPv(const char *name) {
    void *opened = dlopen(name, RTLD_NOW);
    return opened != 0 && dlclose(opened) == 0;
}
void _ZN3tsl8internal9DsoLoader20GetCusolverDsoHandleEv(void) {}
void _ZN3tsl8internal9DsoLoader20GetCusparseDsoHandleEv(void) {}
"""


class Compiler:
    """Compiles small libraries, each once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Keep PATH: some tests empty it.
        self._environment = dict(os.environ)
        self._gcc = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), "")
        self._made: dict[tuple[str, tuple[str, ...]], bytes] = {}

    @property
    def available(self) -> bool:
        return bool(self._gcc)

    def __call__(self, source: str, *flags: str) -> bytes:
        key = (source, flags)
        if key not in self._made:
            target = self._folder / f"{len(self._made)}.so"
            argv = [self._gcc, "-shared", "-fPIC", *flags, "-x", "c", "-", "-o", str(target)]
            subprocess.run(argv, input=source, text=True, check=True, env=self._environment)
            self._made[key] = target.read_bytes()
        return self._made[key]

    def answering(self, *, cuda: int = 12060, cudnn: int = 90500, error: int = 0) -> bytes:
        return self(ANSWERS % {"cuda": cuda, "cudnn": cudnn, "error": error})

    def open_libraries(self, *parts: str) -> bytes:
        """Return a library that opens cuSOLVER and cuSPARSE as TensorFlow does, with a search path of these parts."""
        return self(OPENS, f"-Wl,-rpath,{':'.join(parts)}", "-ldl")
