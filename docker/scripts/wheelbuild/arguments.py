"""The argument list of Bazel and the environment of ``./configure``: the order in both is part of the meaning.

Bazel takes the last value of a flag, and a ``--config`` stands for its flags at the very place where it is written
(https://bazel.build/run/bazelrc#config). TensorFlow's configurations carry versions of their own.
"""

from pathlib import Path

from wheelbuild.request import Request

TARGET = "//tensorflow/tools/pip_package:wheel"


def compose_startup(*, cache: Path, credentials: Path | None, trust: Path | None) -> list[str]:
    """Startup options: what comes before the word ``build``.

    Args:
        cache: folder of the cache mount; the output base must outlive the container (tensorflow#39560).
        credentials: rc file of the user, read after TensorFlow's own.
        trust: PKCS #12 store of the authorities to trust in place of Java's own.
    """
    options = [f"--output_user_root={cache / 'root'}"]
    if credentials:
        options.append(f"--bazelrc={credentials}")
    if trust:
        options += [
            f"--host_jvm_args=-Djavax.net.ssl.trustStore={trust}",
            "--host_jvm_args=-Djavax.net.ssl.trustStorePassword=toolkit",
        ]
    return options


def compose_build(request: Request, *, cache: Path, events: Path, downloads: Path, trust: Path | None) -> list[str]:
    """The command ``build`` with its target and flags.

    * ``cuda_wheel`` after ``cuda``: it switches off what the other switches on (tensorflow#86405).
    * Versions and capabilities last: ``cuda`` sets 12.5.1 and 9.3.0, and ``cuda_clang``, which ``./configure`` selects,
      sets capabilities without 7.5.
    """
    flags = ["build", TARGET, "--repo_env=WHEEL_NAME=tensorflow", "--config=cuda", "--config=cuda_wheel"]
    flags += [
        f"--disk_cache={cache / 'disk'}",
        f"--repository_cache={cache / 'repository'}",
        f"--jobs={request.jobs}",
        f"--local_ram_resources={request.memory}",
        f"--build_event_json_file={events}",
        "--curses=no",
        "--color=no",
        # BuildKit keeps 2 MiB of a step's output: 18 hours of one line in five seconds, which is the default.
        f"--show_progress_rate_limit={request.progress}",
    ]
    if (downloads / "distdir").is_dir():
        flags.append(f"--distdir={downloads / 'distdir'}")
    if request.epoch:
        flags.append(f"--action_env=SOURCE_DATE_EPOCH={request.epoch}")
    if request.remote_cache:
        flags.append(f"--remote_cache={request.remote_cache}")
    if request.remote_executor:
        # Whoever asks for an executor wants no build on this machine instead, whatever the rc files say.
        flags += [f"--remote_executor={request.remote_executor}", "--noremote_local_fallback"]
    if trust and (request.remote_cache or request.remote_executor):
        flags.append("--tls_certificate=/run/secrets/ca")
    flags += request.extra
    return [
        *flags,
        f"--repo_env=HERMETIC_PYTHON_VERSION={request.python}",
        f"--repo_env=HERMETIC_CUDA_VERSION={request.cuda}",
        f"--repo_env=HERMETIC_CUDNN_VERSION={request.cudnn}",
        f"--repo_env=HERMETIC_CUDA_COMPUTE_CAPABILITIES={request.capabilities}",
    ]


def compose_configure(request: Request, *, python: str) -> dict[str, str]:
    """Answers to ``./configure``: each question has one, so it never asks and never falls back on what it finds.

    ``LD_LIBRARY_PATH`` is left out on purpose: ``./configure`` would write it into every action's cache key.

    Args:
        request: what is wanted.
        python: interpreter that runs ``configure.py``; the wheel's own is hermetic.
    """
    return {
        "PYTHON_BIN_PATH": python,
        "USE_DEFAULT_PYTHON_LIB_PATH": "1",
        "TF_NEED_ROCM": "0",
        "TF_NEED_CUDA": "1",
        "TF_CUDA_CLANG": "1",
        "CLANG_CUDA_COMPILER_PATH": f"/usr/lib/llvm-{request.llvm}/bin/clang",
        "HERMETIC_CUDA_VERSION": request.cuda,
        "HERMETIC_CUDNN_VERSION": request.cudnn,
        "HERMETIC_CUDA_COMPUTE_CAPABILITIES": request.capabilities,
        "LOCAL_CUDA_PATH": "",
        "LOCAL_CUDNN_PATH": "",
        "LOCAL_NCCL_PATH": "",
        "CC_OPT_FLAGS": "-Wno-sign-compare",
        "TF_SET_ANDROID_WORKSPACE": "0",
    }
