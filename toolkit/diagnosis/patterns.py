"""Compiles the patterns of failures, and the filter that finds in a block of a log the lines worth reading.

A pattern is a part of a line, written as programs print it. Upper and lower case do not count.
``*`` stands for any text, ``<a|b>`` for one of several words, and ``^`` and ``$`` for the ends of the line.
Quotation marks of any kind count as one outside of ``<…|…>``, as compilers, web pages and releases write others. One
that ends a pattern may be missing at the end of a line. A word between grave accents may also stand there bare.
``{name}`` stands for a word that the cause and the remedy may repeat. ``{name:version}``, ``{name:number}`` and
``{name:tag}`` stand for such words alone, and ``{name=some text}`` for this text with the rest of the line.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, chain, filterfalse
from typing import Final, Generic, Protocol, TypeVar

from toolkit.diagnosis.languages import translate

_PIECE: Final = re.compile(
    r"\*|<([^<>|]*(?:\|[^<>|]*)+)>|\{(\w+)(?::(\w+))?\}|`([^`*<>{}]+)`|\{(\w+)=([^{}]+)\}|[`'\"\u2018\u2019\u201c\u201d]"
)
_QUOTE: Final = r"[`'\"\u2018\u2019\u201c\u201d]"
_TOOLS: Final = (
    *("bazelisk", "bazel", "docker", "ffmpeg", "mksquashfs", "nvcc", "nvidia-smi", "patchelf", "protoc", "python3"),
    *("python", "realpath", "squashfs"),
)
_ABSENT: Final = (": command not found", ": not found", " not found")
_KINDS: Final[Mapping[str, str]] = {
    "word": r"\w(?:[\w.+/@:-]*\w)?",
    "version": r"\d+(?:\.\d+)+\w*",
    "blanks": " *",
    "release": r"\d+(?:\.\d+)+",
    "number": r"\d+",
    "python": r"[23]\.\d{1,2}(?:\.\d+)?(?![\d.])",
    "three": "3",
    "zero": r"0(?!\d)",
    "tornbuild": "bazel-out|pybind11_protobuf",
    "newstring": r"(?=\w*(?:tensorflow|3tsl|4absl|google8protobuf|3xla|stream_executor))_z\w*(?:b5cxx11|__cxx11)\w*",
    "oldstring": r"(?=\w*(?:tensorflow|3tsl|4absl|google8protobuf|3xla|stream_executor))_z\w*[ek]ss\w*",
    "delegate": r"tflite(?:xnnpack|gpu|nnapi|hexagon|coreml)delegate\w*",
    "pointer": r"(?:ve?|vers|ion ?)(?=['\"])",
    "markup": r"(?:<|<!|<h|<!do|<htm|ctyp|tml)(?=['\">])",
    "filename": r"(?:(?!\. )[^\s'\"`])*",
    "cudasymbol": r"(?:__)?cuda[a-z]\w+|(?:cudnn|cublas|cufft|curand|cusolver|cusparse|nccl)[a-z]\w+",
    "cachefolder": r"(?:[^\s'\"]*/\.cache/(?:huggingface|torch|torch_extensions|matplotlib|jax|keras|triton|uv|numba"
    r"|pip|fontconfig|kagglehub)|/\.(?:cache|config|local|keras|triton|nv|numba|matplotlib|cupy|kaggle|jupyter|ipython)"
    r"|/nonexistent|/home/sbx_user|[^\s'\"]*/\.(?:keras|triton|cupy|nv|theano|kaggle)(?![\w.-]))[^\s'\"]*",
    "cudalibrary": r"lib(?:cublas(?:lt)?|cufft|curand|cusolver|cusparse|cudnn\w*|cupti|nccl|nvjitlink|nvrtc)"
    r"\.so(?:\.\d+)*",
    "cardname": r"(?:geforce (?:gtx|rtx|gt) ?\d{3,4}|quadro (?:rtx )?[a-z]*\d+|(?:rtx|gtx) ?\d{4}(?:[ -]ada)?"
    r"|rtx a\d000|tesla [kmpvt]\d+"
    r"|nvidia (?:a10|a16|a30|a40|a100|h100|h200|h800|h20|l4|l40s?|b200|b300|gb200))(?!\d)",
    "kerastwo": r"(?:tensorflow\.python\.)?(?:tf_)?keras\.(?:src\.)?engine\.(?:sequential|functional|training)\.\w+",
    "kerasmetric": r"(?:mean(?:absoluteerror|squarederror|iou)?|sum|accuracy|(?:sparse)?(?:topk)?categoricalaccuracy"
    r"|binaryaccuracy|precision|recall|auc|rootmeansquarederror|[tf](?:rue|alse)(?:positives|negatives))(?!\w)",
    "poetrylimits": r"[\w.,<>=!~^* |-]+",
    "dottedmodule": r"[a-z_]\w*(?:\.[a-z_]\w*)+",
    "driveletter": r"[a-z]:(?=\\[^<>|]*>\s?\w)",
    "memory": r"\d+(?:\.\d+)? (?:[kmgt]i?b|bytes)",
    "notnumber": r"[a-z][\w. ]*",
    "gpupackage": "tensorflow-gpu",
    "savedmodel": r"[^\s'\"]+(?=/\{saved_model)",
    "ioscheme": r"(?:s3e?|hdfs|viewfs|har|azfs|az|abfss?|wasbs?|oss|https?|gs)(?=')",
    "cudabuild": r"cuda\d[\w.]*",
    "importerror": "importerror",
    "dunder": "__version__",
    "clock": r"\d\d:\d\d:\d\d\.\d{3}(?= \[)",
    "exitsignal": r"(?:129|13[0-79]|141|143|152|159|241|245|247|249|250|252)(?!\d)",
    "notice": r"(?:hangup|trace/breakpoint trap|aborted|bus error|floating point exception|terminated"
    r"|cpu time limit exceeded|bad system call)(?!\w)",
    "standard": r"(?:std::)?(?:u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?int(?:ptr|max)_t|s?size_t|ptrdiff_t|nullptr_t"
    r"|numeric_limits|unique_ptr|shared_ptr|make_unique|optional|nullopt|variant|string_view|runtime_error|logic_error"
    r"|invalid_argument|out_of_range|setw|setprecision|setfill|stringstream|ostringstream|istringstream|mem(?:cpy|set|cmp)"
    r"|strlen|strcmp|strerror|isnan|isinf|accumulate|iota|exchange|condition_variable|this_thread|bit_cast)(?!\w)",
    "systemname": r"(?:cuda-?toolkit|cuda-\w+|cudnn(?==)|cucim|cudf|cuml|cugraph|cupy|pytorch-cuda|nccl|rapids|triton"
    r"|faiss-gpu|lib(?:gcc|stdcxx)(?:-ng)?|lib(?:gomp|gfortran-ng|protobuf|uuid|nsl|cxx)|ld_impl_linux-64|_libgcc_mutex"
    r"|_openmp_mutex|intel-openmp|mkl(?:[_-]\w+)?|vs2015_runtime|vc14_runtime|pywin(?:32|pty)|wincertstore|win_inet_pton|ucrt"
    r"|m2w64-[\w-]+|readline|ncurses|dbus|tensorflow-(?:gpu|macos|deps|metal)|coin-or-cbc|sysroot_linux-64|appnope|samtools|pysam)(?![\w-])",
    "removed": r"cusparse[sdcz](?:csrgemm2?|csrmm2?|csrmv(?:_mp)?|csr2csc|gthr|sctr|axpyi|doti|bsrmm)\w*",
    "driver": r"\d{3}(?:\.\d{1,6}){1,3}",
    "tag": r"[\w.]+",
    "exception": r"[\w.]*(?:error|exception)",
    "gpu": r"(?:sm|compute)_\d*[af]?",
    "card": r"\w[\w .()/-]*",
    "library": r"(?:[a-z]:[\w .~\\+-]*\\|[\w@./+-]*/)?"
    r"(?:lib[\w.+-]+?\.(?:so|dylib)(?:\.\d+)*|[\w.-]+\.dll|[\w.-]+\.so)",
    "dotted": r"[a-z_]\w*(?:\.\w+)*",
    "topmost": r"[a-z_]\w*",
    "package": r"[a-z0-9](?:[\w.-]*[a-z0-9])?",
    "spec": r" ?[<>=!~]=?[\w.,<>=!~* ]*[\w*]",
    "limits": r" ?[<>=!~]=?(?:[\w.,<>=!~* ]|and)*[\w*]",
    "path": r"[^\s'\"`:]*[^\s'\"`:.,;)]",
    "virtual": r"__[a-z]+",
    "code": r"(?:cuda_error|cudnn_status|cublas_status|cusolver_status|cusparse_status|cufft)_[a-z_]+",
    "option": r"-{1,2}[\w-]+",
    "shape": r"[\[(][\d, none?]*[\])]",
    "tool": rf"(?:{'|'.join(_TOOLS)}|python3?\.\d+)",
    "container": r"[0-9a-f]{12}",
    "cxx": r"3\.\d+(?:\.\d+)*",
    "httpcode": r"[45]\d\d(?!\d)",
    "httpanswer": "401(?= unauthorized)|403(?= forbidden)|404(?= not found)|410(?= gone)",
    "absent": rf"(?:{'|'.join(_TOOLS)})(?={'|'.join(_ABSENT)})",
    "buildkit": r"#\d+ \d+\.\d+ (?:traceback|\w*error|collecting|get:|running|building|cmake|/bin/sh)",
    "requirement": r"[a-z0-9](?:[\w.\[\],<>=!~+-]*[\w\]])?",
    "clang": "clang",
    "tcc": r"(?:tcc|gcc|cl\.exe).*returned non-zero exit status",
    "kerasmodule": r"(?:tensorflow\.)?keras(?:\.\w+)*",
    "keraspart": r"keras(?:\.\w+)+",
    "kerasinner": r"tensorflow\._api\.v\d(?:\.compat\.v\d)?\.(?:(?:__)?internal(?:__)?|keras)(?:\.\w+)*"
    r"|tensorflow\.compat\.v\d\.keras(?:\.\w+)*|tensorflow\.python\.keras(?:\.\w+)*",
    "quoted": r"[^'\"`\u2018\u2019\u201c\u201d]+",
    "namespace": r"\w+(?:::\w+)*",
    "systemfolder": r"(?<![\w.-])/(?:usr/)?lib(?:64|32|/[a-z0-9_]+-linux-gnu)?/",
    "branch": r"(?:master|main|develop)(?=\.)",
    "binfolder": r"(?:/usr(?:/local)?)?/s?bin/",
    "rest": r"(?:\S.*)?[^\s.]",
    "any": r".*?",
    "unmarked": r"[^`]*?",
    "header": r"[\w./+-]+\.(?:h|hh|hpp|hxx|inc|cuh)(?=[:'\"])",
    "unread": "function(?=['\"])",
    "kerasapi": r"tensorflow\.keras(?:\.(?:layers|models|optimizers|losses|metrics|utils|callbacks|backend))?(?=['\"])",
    "marker": r"(?: ?;.*?)?(?: \(from (?!versions).*?\)+)?",
    "kerasname": r"(?:load_model|save_model|model_from_json|clone_model|dense|conv2d|lstm|flatten|dropout|embedding"
    r"|adamw?|sgd|rmsprop|to_categorical|plot_model|image_dataset_from_directory|get_file|earlystopping|modelcheckpoint"
    r"|load_img|img_to_array|pad_sequences)(?!\w)",
    "kerasoption": r"(?:time_major|fused|renorm)(?=')",
    "kerassort": r"(?:activation|initializer|loss|metric|optimizer|regularizer|constraint)",
    "datasetstep": r"_?\w*dataset(?:v\d)?(?=['\"])",
    "jaxplatform": r"(?:tpu|rocm|metal|oneapi|interpreter|plugin)(?!\w)",
    "visualstudio": "unsupported microsoft visual studio version",
    "textfile": r"[\w.-]+\.(?:txt|ya?ml|toml|whl|py)(?!\w)",
    "someversions": r"\d+(?:\.(?:\d+|\*))*",
    "api": r"0x[0-9a-f]+",
    "brace": r"\{(?=['\"])",
    "environment": r"(?<![\w.-])(?!usr|local)[\w.-]+",
    "torchname": r"(?:named_parameters|parameters|state_dict|load_state_dict|named_modules|zero_grad|requires_grad_"
    r"|cuda|cpu|to|eval|train|half|register_buffer)(?=['\"])",
    "optimizer": r"(?:adam|adamw|adamax|nadam|adagrad|adadelta|sgd|rmsprop|ftrl)(?=['\"])",
    "localbuild": r"(?:torch|torchvision|torchaudio)==[\d.]+\+[a-z][\w.]*",
    "intname": r"u?int\w*_t(?=['\"])",
    "submodule": r"(?:[^'\"`]*/)?(?:dependencies|third[_-]?party|3rdparty|external|submodules|extern)/[^'\"`]+"
    r"\.(?:c|cc|cpp|cxx|cu|h|hpp)(?=['\"])",
    "tfio": "tensorflow_io",
    "platformtag": r"(?:linux|manylinux|musllinux|macosx|win|any)[\w.]*",
    "objectfile": r"(?:\[code=\d+\] )?[\w./+@-]*\.(?:c|cc|cpp|cu|o|obj|so|a|lib|dll|pyd|h|stamp)(?![\w.])",
    "wslcode": "0x8037[0-9a-f]{4}|0x800701bc|0x8007019e|0x80040326",
    "flaxerror": r"(?:scope(?:param|collection|variable)\w+|applyscopeinvalid\w+|invalidrngerror"
    r"|modifyscopevariableerror|immutablevariableerror|jaxtransformerror|nameinuseerror|multiplemethodscompacterror|assignsubmoduleerror"
    r"|setattribute(?:in|frozen)module\w*error|reservedmoduleattributeerror|incorrectpostinitoverrideerror"
    r"|descriptorattributeerror|invalidinstancemoduleerror|call\w+unboundmoduleerror|mpa(?:checkpointing|restore)\w+error"
    r"|invalidcheckpointerror|tracecontexterror)",
    "cudnnop": r"cudnn\w+",
    "rfunction": r"(?:(?:keras|layer|optimizer|callback|dataset|application|loss|metric|k|op|random|use|install"
    r"|flow_images|image|text|timeseries|tf)_\w+|fit|compile|evaluate|to_categorical|pad_sequences|predict_\w+|fit_\w+)(?=\")",
    "kerastype": r"(?:tensorflow\.python\.|tf_)?keras\.[\w.]+",
    "jaxmodule": r"jax(?:\.[a-z_]\w*)*",
    "streampart": r"(?:write|writelines|flush|isatty|fileno)(?=')",
    "tfjspart": r"(?:model_config|producer|weightsmanifest)(?=')",
    "vccode": r"(?:lnk(?!2019|2001|1120)|[cd])\d{4}",
    "ntstatus": r"(?<!\w)(?:0xc0000[0-9a-f]{3}|-10737\d{5}|322122[5-6]\d{3})(?!\w)",
}
_ESCAPED: Final = re.compile(r"\\+[nrt\"'][\\nrt\"': ]*(?:unknown)?\Z")
"""How engines end a message of another program that they quote in one of their own."""
_FIXED: Final = {
    "flaxerror": (
        *("scopeparam", "scopecollection", "scopevariable", "applyscopeinvalid", "invalidrngerror", "nameinuseerror"),
        *("modifyscopevariable", "immutablevariable", "jaxtransformerror", "multiplemethodscompact", "setattribute"),
        *("assignsubmodule", "reservedmoduleattribute", "incorrectpostinit", "descriptorattribute", "unboundmodule"),
        *("invalidinstancemodule", "mpacheckpointing", "mparestore", "invalidcheckpoint", "tracecontexterror"),
    ),
    "code": ("cuda_error_", "cudnn_status_", "cublas_status_", "cusolver_status_", "cusparse_status_", "cufft_"),
    "ntstatus": ("0xc0000", "-10737", "322122"),
    "wslcode": ("0x8037", "0x800701bc", "0x8007019e", "0x80040326"),
    "vccode": ("lnk", *(f"{letter}{digit}" for letter in "cd" for digit in range(10))),
    "absent": tuple(f"{tool}{words}" for tool in _TOOLS for words in _ABSENT),
    "cxx": ("3.",),
    "systemname": (
        *(
            "cu",
            "pytorch-cuda",
            "nccl",
            "rapids",
            "faiss-gpu",
            "triton",
            "lib",
            "ld_impl",
            "_libgcc",
            "_openmp",
            "intel-openmp",
            "mkl",
        ),
        *("vs2015", "vc14", "pywin", "wincert", "win_inet", "ucrt", "m2w64", "readline", "ncurses", "dbus", "coin-or"),
        *(
            "tensorflow-gpu",
            "tensorflow-macos",
            "tensorflow-deps",
            "tensorflow-metal",
            "sysroot",
            "appnope",
            "samtools",
            "pysam",
        ),
    ),
    "cardname": (
        "geforce ",
        "rtx",
        "gtx",
        "quadro ",
        "tesla ",
        "nvidia a",
        "nvidia h",
        "nvidia l",
        "nvidia b",
        "nvidia gb",
    ),
    "cudalibrary": (
        *("libcublas", "libcufft", "libcurand", "libcusolver", "libcusparse", "libcudnn", "libcupti", "libnccl"),
        *("libnvjitlink", "libnvrtc"),
    ),
    "notice": (
        *("hangup", "trace/breakpoint trap", "aborted", "bus error", "floating point exception", "terminated"),
        *("cpu time limit exceeded", "bad system call"),
    ),
    "exitsignal": ("129", "13", "14", "152", "159", "24", "25"),
    "httpcode": ("4", "5"),
    "httpanswer": ("401 unauthorized", "403 forbidden", "404 not found", "410 gone"),
    "buildkit": tuple(f"#{digit}" for digit in range(10)),
}
"""Texts of which each word of a kind has one."""
_SAMPLES: Final[Mapping[str, str]] = {
    "version": "1.2.3",
    "cxx": "3.4.32",
    "httpcode": "403",
    "httpanswer": "403 Forbidden",
    "absent": "nvcc: command not found",
    "buildkit": "#1 2.3 error",
    "release": "1.2.3",
    "standard": "uint32_t",
    "kerastwo": "keras.engine.training.Model",
    "notice": "Bus error",
    "exitsignal": "134",
    "cardname": "geforce gtx 1080",
    "cudalibrary": "libcublas.so",
    "cachefolder": "/.cache",
    "intname": "uint32_t",
    "localbuild": "torch==1.2.3+cu118",
    "systemname": "cudatoolkit",
    "number": "3",
    "python": "3.11",
    "three": "3",
    "zero": "0",
    "tornbuild": "bazel-out",
    "newstring": "_ZN10tensorflow3fooB5cxx11Ev",
    "oldstring": "_ZN10tensorflow3fooERKSs",
    "delegate": "TfLiteXNNPackDelegate",
    "pointer": "v'",
    "markup": "<'",
    "path": "x.h",
    "systemfolder": "/lib64/",
    "rest": "of x",
    "marker": "; x",
    "header": "x.h",
    "unread": "function",
    "kerasapi": "tensorflow.keras",
    "gpu": "sm_1",
    "ntstatus": "0xc0000409",
    "flaxerror": "TraceContextError",
    "cudnnop": "CudnnRNN",
    "kerastype": "keras.engine.sequential.Sequential",
    "rfunction": "layer_dense",
    "jaxmodule": "jax.core",
    "streampart": "write",
    "tfjspart": "producer",
    "vccode": "lnk1000",
    "wslcode": "0x80370102",
    "tfio": "tensorflow_io",
    "gpupackage": "tensorflow-gpu",
    "platformtag": "linux_x86_64",
    "objectfile": "x.o",
    "optimizer": "adam",
    "kerassort": "loss",
    "kerasmetric": "Mean",
    "dottedmodule": "jax.x",
    "kerasoption": "fused",
    "jaxplatform": "tpu",
    "datasetstep": "_MapDataset",
    "submodule": "extern/x.c",
    "kerasname": "load_model",
    "kerasmodule": "keras.x",
    "keraspart": "keras.x",
    "kerasinner": "tensorflow.compat.v2.keras",
}
"""Words of kinds that ``x`` is not one of."""
_COMMON: Final = re.compile(
    r"not found|(?<![a-z])(?:argument|attribute|but|channels|code|command|directory|does|environment|error|expected"
    r"|failed|fetch|file|found|function|gone|gradient|has|http|implementation|include|incompatible|installed|invalid|is"
    r"|line|make|manifest|memory|module|no|none|not|number|of|ops|or|out|packages|python|received|required|requires|site"
    r"|stalled|such|supported|tensorflow|to|unable|variable|version|wheel)(?![a-z])"
)
"""Words that ordinary logs have often."""
_LETTERS: Final = re.compile(r"[\w`\u2018\u2019(\[<>|&*#@!\\%]")
"""Letters, digits, and signs that ordinary logs have seldom."""
LEAST: Final = 2
"""Least weight of a text by which logs are searched: a common word alone is in too many lines."""
_ENOUGH: Final = 8
"""Weight from which on a text is rare."""
_PRODUCT: Final = 32
"""Most texts that are made of one part of a pattern."""
_LONGEST: Final = 12
"""Characters of a word that are looked for after its rare one."""
_FOLD: Final = bytes.maketrans(b"0123456789abcdef", b"0" * 16)
"""Takes digits and letters of hexadecimal numbers as one."""
_LEFT: Final = 3
"""Least length of a word without what is folded at its ends: a shorter one is in too many folded lines."""
_REMEMBERED: Final = 50_000
"""Folded lines that are remembered."""
_SHORT: Final = 1 << 18
"""Bytes of a text of which each word is looked for on its own."""
LONG: Final = 16 << 20
"""Bytes of logs after which it is worth to compare lines before they are searched."""
_BYTES: Final = "latin-1"
"""Takes each byte for a character: those of other alphabets begin with few different bytes."""
_RARE: Final = "*`\"&<+|%>#@j;()z[]q,=hykx'vw7b95648gd3:.21_0pmfu/s-acriltneo "
"""Characters of logs in lower case, the rarest first."""
_PREFIX: Final = re.compile(
    r"(?:\s|[│|>\"]|\[rank\d+\]:|\[\d+,\d+\]<std(?:err|out)>:"
    r"|#\d+ \d+\.\d+|\[?\d{4}-\d\d-\d\d[t ][\d:.,+-]+z?\]?|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?"
    r"|\[\s*\d+\.\d+\]|[\w.-]+(?:-\d+)?\s+\|)+"
)
"""What engines, schedulers and CI put in front of each line."""


@dataclass(frozen=True)
class Pattern:
    text: str

    @cached_property
    def _parts(self) -> tuple[re.Pattern[str], ...]:
        """Regular expressions of the parts between the ``*``. Searched one after the other, they take linear time."""
        sources = [""]
        position = 0
        text = self._inner
        for match in _PIECE.finditer(text):
            sources[-1] += re.escape(text[position : match.start()].lower())
            position = match.end()
            if match[0] == "*":
                sources.append("")
            elif re.fullmatch(_QUOTE, match[0]):
                sources[-1] += _QUOTE
            elif match[4] is not None:
                sources[-1] += f"{_QUOTE}?{re.escape(match[4].lower())}{_QUOTE}?"
            elif match[5] is not None:
                sources[-1] += rf"(?P<{match[5]}>{re.escape(match[6].lower())}(?:.*[^\s.])?)"
            elif match[1] is not None:
                sources[-1] += f"(?:{'|'.join(re.escape(word.lower()) for word in match[1].split('|'))})"
            else:
                sources[-1] += f"(?P<{match[2]}>{_KINDS[match[3] or 'word']})"
        sources[-1] += re.escape(text[position:].lower())
        sources[-1] += r"\s*\Z" if self.text.endswith("$") else ""
        return tuple(re.compile(source) for source in sources)

    @cached_property
    def _cut(self) -> re.Pattern[str] | None:
        """The last part without the quotation mark at its end, which who copies a line may lose."""
        last = self._parts[-1].pattern
        return re.compile(rf"{last.removesuffix(_QUOTE)}\s*\Z") if last.endswith(f"){_QUOTE}") else None

    @cached_property
    def _inner(self) -> str:
        return translate(self.text.removeprefix("^").removesuffix("$"))

    @property
    def sample(self) -> str:
        """A line that matches."""
        return _PIECE.sub(_give_sample, self._inner)

    @property
    def _anchored(self) -> bool:
        return self.text.startswith("^")

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Texts in lower case of which one stands in every line that matches: those that logs have most seldom."""
        plain = self.text.removeprefix("^").removesuffix("$")
        best = _choose(list(_list_runs(plain))) if _PIECE.search(plain) else (plain.lower(),)
        if plain == self._inner:
            return best
        runs = list(_list_runs(self._inner))  # a run in more languages is not more usual
        return next((run for run in runs if run[0] == best[0]), None) or _choose(runs)

    def match(self, line: str, lowered: str) -> dict[str, str] | None:
        """Return the words that the pattern names if it stands in a line, else None."""
        for word in self.literals:  # any() would take three times as long, and most patterns end here
            if word in lowered:
                break
        else:
            return None
        words: dict[str, str] = {}
        position = 0
        if self._anchored and (prefix := _PREFIX.match(lowered)):
            position = prefix.end()
        for number, part in enumerate(self._parts):
            last = number == len(self._parts) - 1
            for one in (part, *((self._cut,) if last and self._cut else ())):
                found = one.match(lowered, position) if self._anchored and not number else one.search(lowered, position)
                if found:
                    break
            if not found:
                return None
            position = found.end()
            words |= {name: _close(line[slice(*found.span(name))]) for name in part.groupindex}
        return words

    def stands_in(self, text: str) -> bool:
        """Return whether the pattern stands in one of the lines of a text in lower case."""
        return any(word in text for word in self.literals) and any(
            self.match(line, line) is not None for line in text.split("\n")
        )


def _close(word: str) -> str:
    """Return a word without what is not of the message at its end: a grave accent of the page, escapes of engines."""
    word = _ESCAPED.sub("", word)
    return word[:-1] if word.endswith("`") and word.count("`") % 2 else word


def _give_sample(piece: re.Match[str]) -> str:
    if re.fullmatch(_QUOTE, piece[0]):
        return piece[0]
    return piece[1].split("|")[0] if piece[1] else piece[4] or piece[6] or _SAMPLES.get(piece[3], "x")


def _list_runs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield for each part without free words the texts of which one stands there."""
    run: tuple[str, ...] = ("",)
    position = 0
    inner = text.lower()
    for match in _PIECE.finditer(inner):
        run = tuple(word + inner[position : match.start()] for word in run)
        position = match.end()
        words = tuple(match[1].split("|")) if match[1] is not None else _FIXED.get(match[3], ())
        words = (match[6],) if match[6] is not None else words
        joined = tuple(start + word for start in run for word in words)
        if match[1] is not None and len(joined) <= _PRODUCT:
            run = joined
            continue
        yield joined if 0 < len(joined) <= _PRODUCT else run
        if other := words or ((match[4],) if match[4] else ()):
            yield other
        run = words if match[1] is not None else ("",)
    yield tuple(word + inner[position:] for word in run)


def _choose(runs: list[tuple[str, ...]]) -> tuple[str, ...]:
    return runs[0] if len(runs) == 1 else max(runs, key=_judge)


def _judge(run: tuple[str, ...]) -> tuple[int, int, int]:
    return min(_ENOUGH, *map(weigh, run)), -len(run), len(run[0])


def weigh(text: str) -> int:
    """Return how seldom logs have a text in lower case: how many letters it has, where a common word counts as one."""
    return len(_LETTERS.findall(_COMMON.sub("0", text)))


@dataclass(frozen=True)
class Text:
    """A part of a log, in lower case."""

    lowered: bytes

    @cached_property
    def folded(self) -> list[bytes]:
        """Its lines, with digits and letters of hexadecimal numbers taken as one."""
        return self.lowered.translate(_FOLD).split(b"\n")

    @cached_property
    def distinct(self) -> frozenset[bytes]:
        return frozenset(self.folded)


T = TypeVar("T")


class Filter(Generic[T]):
    """Finds in a log in lower case where a line may match a pattern, and says of what the pattern is."""

    def __init__(self, patterns: Iterable[tuple[Pattern, T]]) -> None:
        self._owners: dict[str, dict[int, T]] = {}
        self._searched = 0
        for pattern, owner in patterns:
            for word in pattern.literals:
                self._owners.setdefault(word, {})[id(owner)] = owner

    def open(self, text: "Text") -> "Search[T]":
        """Return what searches a text. In a short one each word is looked for; to compile all of them takes longer."""
        size = len(text.lowered)
        if size <= _SHORT:
            return _Words(text.lowered, self._words)
        self._searched += size
        suspects = self._lines.list_suspects(text) if self._searched > LONG else [(0, size)]
        return _Compiled(text.lowered, self, suspects)

    @cached_property
    def _words(self) -> Mapping[bytes, Mapping[int, T]]:
        return {word.encode(): owners for word, owners in self._owners.items()}

    @cached_property
    def expression(self) -> "_Expression[T]":
        return _Expression(self._owners)

    @cached_property
    def _lines(self) -> "_Lines":
        return _Lines(self._owners)


class Search(Protocol[T]):
    def find(self, position: int) -> tuple[int, int] | None:
        """Return the place of the first word at or after a position."""

    def list_owners(self, line: bytes) -> list[T]:
        """Return what the patterns are of that may match a line, each once."""


class _Words(Generic[T]):
    def __init__(self, text: bytes, owners: Mapping[bytes, Mapping[int, T]]) -> None:
        self._owners = {word: found for word, found in owners.items() if word in text}
        self._places = sorted((at, at + len(word)) for word in self._owners for at in _list_places(text, word))

    def find(self, position: int) -> tuple[int, int] | None:
        at = bisect_left(self._places, (position, 0))
        return self._places[at] if at < len(self._places) else None

    def list_owners(self, line: bytes) -> list[T]:
        found: dict[int, T] = {}
        for word in sorted((word for word in self._owners if word in line), key=line.find):
            found |= self._owners[word]
        return list(found.values())


class _Compiled(Generic[T]):
    def __init__(self, text: bytes, words: Filter[T], suspects: list[tuple[int, int]]) -> None:
        self._text, self._words = text, words
        self._suspects = suspects[::-1]

    def find(self, position: int) -> tuple[int, int] | None:
        while self._suspects:
            start, end = self._suspects[-1]
            if match := self._words.expression.search(self._text, max(position, start), end):
                return match.span()
            self._suspects.pop()
        return None

    def list_owners(self, line: bytes) -> list[T]:
        return self._words.expression.list_owners(line)


class _Lines:
    """Tells lines that need no search, because one that has only other digits or letters from a to f had no word.

    Most lines of a long log are so, and to compare is quicker than to search.
    """

    def __init__(self, words: Iterable[str]) -> None:
        folded = {word: word.encode().translate(_FOLD).decode() for word in words}
        self._weak = [word.encode() for word, left in folded.items() if len(left.strip("0")) < _LEFT]
        self._search = _Expression({left: {} for left in folded.values() if len(left.strip("0")) >= _LEFT}).search
        self._known: dict[bool, set[bytes]] = {True: set(), False: set()}  # lines by whether a word may stand in them

    def list_suspects(self, text: Text) -> list[tuple[int, int]]:
        """Return the parts of a text in which a word may stand."""
        if any(word in text.lowered for word in self._weak):
            return [(0, len(text.lowered))]
        lines = text.folded
        suspect, clear = self._known[True], self._known[False]
        if len(clear) + len(suspect) > _REMEMBERED:
            clear.clear()
            suspect.clear()
        new = text.distinct - clear - suspect
        if 2 * len(new) > len(lines):
            return [(0, len(text.lowered))]
        for line in new:
            self._known[self._search(line) is not None].add(line)
        if suspect.isdisjoint(text.distinct):
            return []
        starts = accumulate((len(line) + 1 for line in lines), initial=0)
        return [(start, start + len(line)) for start, line in zip(starts, lines, strict=False) if line in suspect]


class _Expression(Generic[T]):
    """Looks for each word at a rare character of it, because the search skips all other characters quickly.

    What stands before that character is compared last.
    """

    def __init__(self, owners: Mapping[str, Mapping[int, T]]) -> None:
        owners = {word.encode().decode(_BYTES): found for word, found in owners.items()}
        # A word that contains another is found by the shorter one.
        longer = _find_longer(list(owners))
        words = owners.keys() - {each for holders in longer.values() for each in holders}
        leads = _choose_leads(words)
        self._tails: dict[str, dict[int, T]] = {}
        wholes: list[tuple[str, str]] = []
        for word in sorted(words):
            begin = min((at for at, letter in enumerate(word) if letter in leads), key=partial(_rank_pair, word))
            whole = word[: begin + _LONGEST]
            wholes.append((whole[begin:], whole))
            found = self._tails.setdefault(whole[begin:], {})
            for each in (word, *longer[word]):
                found |= owners[each]
        self._known: dict[bytes, list[T]] = {}
        self.search = re.compile(_join(sorted(set(wholes)), 0).encode(_BYTES)).search

    def list_owners(self, line: bytes) -> list[T]:
        owners: dict[int, T] = {}
        position = 0
        while match := self.search(line, position):
            owners |= {id(owner): owner for owner in self._look_up(match[0])}
            position = match.start() + 1
        return list(owners.values())

    def _look_up(self, tail: bytes) -> list[T]:
        """Return what may stand where a word was found: this one, and those that begin or go on as it does."""
        if tail not in self._known:
            word = tail.decode(_BYTES)
            found: dict[int, T] = {}
            for other, owners in self._tails.items():
                if other.startswith(word) or word.startswith(other):
                    found |= owners
            self._known[tail] = list(found.values())
        return self._known[tail]


def _list_places(text: bytes, word: bytes) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _find_longer(words: list[str]) -> dict[str, list[str]]:
    """Return for each word the others that contain it."""
    holders: dict[str, dict[str, None]] = {}  # words by each four letters in them
    for word in words:
        for at in range(len(word) - 3):
            holders.setdefault(word[at : at + 4], {})[word] = None
    return {
        word: [other for other in holders.get(word[:4], words) if word in other and other != word] for word in words
    }


def _choose_leads(words: set[str]) -> set[str]:
    """Return a few rare characters of which each word has one, of another alphabet where it has such."""
    letters = [frozenset(filterfalse(str.isascii, word)) or frozenset(word) for word in words]
    leads: set[str] = set()
    rest = letters
    while rest:
        counts = Counter(chain.from_iterable(rest))
        best = max(sorted(counts), key=lambda letter: counts[letter] / 1.12 ** _rank(letter))
        leads.add(best)
        rest = [each for each in rest if best not in each]
    for letter in sorted(leads, key=_rank, reverse=True):
        if all(not each.isdisjoint(leads - {letter}) for each in letters):
            leads.discard(letter)
    return leads


def _join(words: list[tuple[str, str]], depth: int) -> str:
    """Return an expression for sorted words, each with the whole that must stand there, from a depth on."""
    branches: list[str] = []
    ended = [whole for tail, whole in words if len(tail) == depth]
    for letter in dict.fromkeys(tail[depth] for tail, _ in words if len(tail) > depth):
        below = [(tail, whole) for tail, whole in words if len(tail) > depth and tail[depth] == letter]
        branches.append(re.escape(letter) + _join(below, depth + 1))
    branches += [f"(?<={re.escape(whole)})" for whole in ended]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _rank(character: str) -> int:
    return max(_RARE.find(character), 0)


def _rank_pair(word: str, at: int) -> tuple[int, int]:
    """Return how usual a character of a word is together with the next one, and its place: rare pairs are quick."""
    return _rank(word[at]) + (_rank(word[at + 1]) if at + 1 < len(word) else len(_RARE)), at
