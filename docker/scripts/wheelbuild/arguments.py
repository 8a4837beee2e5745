"""Makes the arguments of Bazel and the environment of ``./configure``.

Bazel takes the last value of a flag, and a ``--config`` stands for its flags at the place where it is written
(https://bazel.build/run/bazelrc#config). TensorFlow's configurations carry versions of their own.
"""

from pathlib import Path

from wheelbuild.request import LIBRARIES, Request
from wheelbuild.trust import PASSWORD

PROCESSORS = {
    "x86_64": ("--config=avx_linux",),
    "aarch64": ("--config=linux_arm64", "--config=mkl_aarch64_threadpool", "--copt=-flax-vector-conversions"),
}
"""Flags of the published wheels by the kernel's name of the machine. For aarch64 they were read, and not yet run."""

TARGET = "//tensorflow/tools/pip_package:wheel"
VARIABLE = "TOOLKIT_TOOLCHAIN"
"""Variable of actions with the toolchain's name."""

TOOLCHAIN = "{toolchain}"
"""Place for the toolchain's name, whose files are no inputs of actions: a cache would take all for one."""

INSTANCE = f"toolkit-{TOOLCHAIN}"
"""Instance name of a gRPC service, unless another is asked for. Without a slash, which justbuild does not take."""


def compose_startup(*, cache: Path, logging: Path, credentials: Path | None, trust: Path | None) -> list[str]:
    """Return the options before the word ``build``.

    ``command.log``, ``java.log`` and heap dumps, which would hold the values of rc files, are switched off.
    ``logging``: properties for Java's logging. ``cache``: the cache mount; the output base must outlive the container
    (tensorflow#39560). ``credentials``: rc file of the user. ``trust``: store of authorities, as Java reads it.
    """
    options = [
        f"--output_user_root={cache / 'root'}",
        "--nowrite_command_log",
        f"--host_jvm_args=-Djava.util.logging.config.file={logging}",
        "--host_jvm_args=-XX:-HeapDumpOnOutOfMemoryError",
    ]
    if credentials:
        options.append(f"--bazelrc={credentials}")
    if trust:
        options += [
            f"--host_jvm_args=-Djavax.net.ssl.trustStore={trust}",
            f"--host_jvm_args=-Djavax.net.ssl.trustStorePassword={PASSWORD}",
        ]
    return options


def compose_build(
    request: Request, *, cache: Path, events: Path, downloads: Path, trust: Path | None, rules: Path | None = None
) -> list[str]:
    """Return the command ``build`` with its target and flags; docker/flags.yaml has the sources.

    ``rules``: configuration of Bazel's downloader.

    * ``cuda_wheel`` after ``cuda``: it switches off what the other switches on (tensorflow#86405).
    * Versions and capabilities last: ``cuda`` sets 12.5.1 and 9.3.0, and ``cuda_clang``, which ``./configure`` selects,
      sets capabilities without 7.5.
    * None of them for processors: no configuration, version or capability.
    * The compiler last: with CUDA, ``./configure`` tells it to ``@local_config_cuda`` only. ``@local_config_cc`` reads
      CC and BAZEL_COMPILER and otherwise looks for gcc, which the toolchain stage does not have under that name.
    """
    flags = ["build", TARGET, "--repo_env=WHEEL_NAME=tensorflow"]
    flags += ["--config=cuda", "--config=cuda_wheel"] if request.cuda else []
    flags += [*PROCESSORS[request.machine], "--linkopt=-Wl,--undefined-version"]
    flags += [
        f"--disk_cache={cache / 'disk'}",
        f"--repository_cache={cache / 'repository'}",
        f"--jobs={request.jobs}",
        f"--local_ram_resources={request.memory}",
        f"--build_event_json_file={events}",
        # With a gRPC service, Bazel otherwise writes `bytestream://` addresses there, and the wheel is not found.
        "--nobuild_event_json_file_path_conversion",
        "--curses=no",
        "--color=no",
        # BuildKit keeps 2 MiB of a step's output: 18 hours of one line in five seconds, which is the default.
        f"--show_progress_rate_limit={request.progress}",
    ]
    if (downloads / "distdir").is_dir():
        flags.append(f"--distdir={downloads / 'distdir'}")
    if (downloads / "repository_cache").is_dir():
        # Otherwise an archive is taken only if it was downloaded from the same addresses, whatever its hash.
        flags.append("--repo_env=BAZEL_HTTP_RULES_URLS_AS_DEFAULT_CANONICAL_ID=0")
    if (downloads / "packages").is_dir():
        # rules_python calls pip with --isolated, which makes it ignore its variables.
        flags += ["--repo_env=RULES_PYTHON_PIP_ISOLATED=0", "--repo_env=PIP_NO_INDEX=1"]
        flags.append(f"--repo_env=PIP_FIND_LINKS={downloads / 'packages'}")
    if rules:
        flags.append(f"--experimental_downloader_config={rules}")
    if request.epoch:
        flags.append(f"--action_env=SOURCE_DATE_EPOCH={request.epoch}")
    if request.remote_cache:
        flags.append(f"--remote_cache={request.remote_cache}")
    if request.remote_executor:
        # TensorFlow's rc file sets `--spawn_strategy=standalone`, with which the executor is never used. `local` is for
        # actions that are marked to run here (`no-remote-exec`: the wheel needs two); all others stay remote.
        flags += [
            f"--remote_executor={request.remote_executor}",
            "--spawn_strategy=remote,local",
            "--noremote_local_fallback",
            # Seconds of a call. With Bazel's 60, a file that needs longer on its line is sent again and again.
            "--remote_timeout=1800",
        ]
    if request.remote_executor or request.remote_cache:
        # Part of the cache key of every action; justbuild ignores the instance name and platform properties.
        flags += [f"--{option}={VARIABLE}={request.toolchain}" for option in ("action_env", "host_action_env")]
    if request.remote_executor or request.remote_cache.startswith("grpc"):
        flags.append(f"--remote_instance_name={name_instance(request)}")
    if trust and (request.remote_cache or request.remote_executor):
        flags.append("--tls_certificate=/run/secrets/ca")
    flags += request.extra
    return [
        *flags,
        f"--repo_env=HERMETIC_PYTHON_VERSION={request.python}",
        *(f"--repo_env={name}={value}" for name, value in list_cuda(request).items()),
        f"--repo_env=CC={locate_clang(request)}",
        f"--repo_env=BAZEL_COMPILER={locate_clang(request)}",
    ]


WITHOUT_CACHE = "--remote_cache="
"""Added last, it takes the remote cache out of a build. The keys of actions stay."""


def list_cuda(request: Request) -> dict[str, str]:
    """Return the variables of upstream's rules for CUDA; none for a wheel for processors."""
    values = {
        **{f"HERMETIC_{name.upper()}_VERSION": getattr(request, name) for name in LIBRARIES},
        "HERMETIC_CUDA_COMPUTE_CAPABILITIES": request.capabilities,
    }
    return {name: value for name, value in values.items() if value}


def name_instance(request: Request) -> str:
    return (request.remote_instance or INSTANCE).replace(TOOLCHAIN, request.toolchain)


def locate_clang(request: Request) -> str:
    return f"/usr/lib/llvm-{request.llvm}/bin/clang"


def compose_configure(request: Request, *, python: str) -> dict[str, str]:
    """Return an answer for each question of ``./configure``, so that it never asks. ``python`` runs ``configure.py``.

    ``LD_LIBRARY_PATH`` is left out, because ``./configure`` would write it into every action's cache key.
    """
    answers = {
        "PYTHON_BIN_PATH": python,
        "USE_DEFAULT_PYTHON_LIB_PATH": "1",
        "TF_NEED_ROCM": "0",
        "TF_NEED_CUDA": "1" if request.cuda else "0",
        "TF_SET_ANDROID_WORKSPACE": "0",
    }
    if not request.cuda:
        return answers | {"TF_NEED_CLANG": "1", "CLANG_COMPILER_PATH": locate_clang(request)}
    local = dict.fromkeys(("LOCAL_CUDA_PATH", "LOCAL_CUDNN_PATH", "LOCAL_NCCL_PATH"), "")
    compiler = {"TF_CUDA_CLANG": "1", "CLANG_CUDA_COMPILER_PATH": locate_clang(request)}
    return answers | compiler | list_cuda(request) | local
