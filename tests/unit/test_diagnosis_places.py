"""Answers fit the log: commands that run where it was written, and versions that it does not exclude."""

import io
import re
from collections.abc import Iterator, Mapping

import pytest

from toolkit import diagnosis
from toolkit.diagnosis import answers, packages, places, pythons, specifiers, wheels
from toolkit.diagnosis.table import Answer

ROWS = diagnosis.load().rows

UNIX = r"(?:^|\| ?|; )(?:sudo|apt[\w-]*|export|unset|ldd|ldconfig|grep|dmesg|ls|cat|df|free)\b|LD_LIBRARY_PATH|\$\("
INSTALLS = r"^(?:python -m )?pip "
FORBIDDEN: Mapping[str, tuple[Mapping[str, str], str]] = {
    "Windows": ({"Windows": "yes"}, UNIX),
    "PowerShell": ({"Windows": "yes", "PowerShell": "yes"}, UNIX),
    "Command Prompt": ({"Windows": "yes", "Command Prompt": "yes"}, UNIX),
    "macOS": ({"macOS": "yes"}, r"\bapt-get\b|^ldd |^export LD_|tensorflow\[and-cuda\]|^nvidia-smi"),
    "ARM": ({"ARM": "yes"}, r"tensorflow\[and-cuda\]"),
    "Jetson": ({"ARM": "yes", "Jetson": "yes"}, r"tensorflow\[and-cuda\]|^conda "),
    "Colab": ({"Colab": "yes"}, rf"\bsudo\b|^export |modprobe|systemctl|^uv venv --python|{INSTALLS}"),
    "Kaggle": ({"Kaggle": "yes", "conda environment": "yes"}, rf"\bsudo\b|^export |modprobe|systemctl|{INSTALLS}"),
    "notebook": ({"notebook": "yes"}, rf"^sudo\b|^export |modprobe|uv venv --python|{INSTALLS}"),
    "Slurm": ({"Slurm": "yes"}, r"^(?!.*(?:slurm|munge|scontrol)).*\bsudo\b"),
    "image build": ({"image build": "yes"}, r"\bsudo (?!.*# on the host)|^export |^pip (?:un)?install "),
    "container": ({"container": "yes"}, r"\bsudo (?!.*# on the host)"),
    "Red Hat": ({"Red Hat": "yes"}, r"\bapt-get\b"),
    "Podman": ({"Podman": "yes"}, r"^docker run"),
    "project of uv": ({"project of uv": "yes"}, INSTALLS),
    "Poetry": ({"Poetry": "yes"}, INSTALLS),
    "pixi": ({"pixi": "yes"}, INSTALLS),
    "conda": ({"conda install": "yes"}, r"^(?:python -m )?pip install (?:'?numpy\S*|h5py|protobuf)$"),
    "TensorFlow 1": ({"TensorFlow": "1.15.0"}, r"tensorflow\[and-cuda\]|TF_USE_LEGACY_KERAS=1$|^pip install tf-keras$"),
    "TensorFlow 2.10": ({"TensorFlow": "2.10.1"}, r"tensorflow\[and-cuda\]|TF_USE_LEGACY_KERAS=1$"),
    "no TensorFlow": ({"no TensorFlow": "yes"}, r"^toolkit (?!doctor|diagnose)"),
    "JAX": ({"JAX": "yes", "no TensorFlow": "yes"}, r"tensorflow|\bTF_(?!FORCE_UNIFIED)[A-Z]"),
    "PyTorch": ({"PyTorch": "yes", "no TensorFlow": "yes"}, r"tensorflow|\bTF_[A-Z]"),
    "CuPy": ({"CuPy": "yes", "no TensorFlow": "yes"}, r"tensorflow|\bTF_[A-Z]"),
    "numba": ({"numba": "yes", "no TensorFlow": "yes"}, r"tensorflow|\bTF_[A-Z]"),
}
"""By where a log was written: the facts that show it, and what no command may have there."""


def list_answers() -> Iterator[Answer]:
    for row in ROWS.values():
        yield from (
            Answer(commands=each.commands) for each in (row, *row.answers, *row.places.values()) if each.commands
        )


ANSWERS = list(list_answers())


def find_misleading(pattern: str, said: list[Answer]) -> list[str]:
    commands = (command for answer in said for command in answer.commands if not re.search("# in WSL 2", command))
    return [command for command in commands if re.search(pattern, command)]


@pytest.mark.parametrize(("facts", "pattern"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_no_command_of_any_row_misleads_where_the_log_was_written(facts: Mapping[str, str], pattern: str) -> None:
    assert find_misleading(pattern, ANSWERS)
    assert find_misleading(pattern, [places.adapt(answer, facts) for answer in ANSWERS]) == []


def test_a_log_without_a_place_has_the_commands_of_the_row_alone() -> None:
    for answer in ANSWERS:
        assert places.adapt(answer, {}).commands == tuple(dict.fromkeys(answer.commands))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ([], ["pip install 'numpy<2'"]),
        (["uv pip"], ["uv pip install 'numpy<2'"]),
        (["project of uv"], ["uv add 'numpy<2'"]),
        (["conda install"], ["conda install -c conda-forge 'numpy<2'"]),
        (
            ["conda environment"],
            [
                "python -m pip install 'numpy<2'",
                "conda install -c conda-forge 'numpy<2'    # where conda installs the packages",
            ],
        ),
        (["conda environment", "pip install"], ["python -m pip install 'numpy<2'"]),
    ],
)
def test_packages_are_installed_by_the_program_that_the_log_shows_else_by_pip(
    facts: list[str], said: list[str]
) -> None:
    assert say("pip install 'numpy<2'", *facts) == said


def say(command: str, *facts: str) -> list[str]:
    return list(places.adapt(Answer(commands=(command,), remedy="Do it."), dict.fromkeys(facts, "yes")).commands)


@pytest.mark.parametrize(
    ("command", "facts", "said"),
    [
        ("pip install 'numpy<2'", ["pip install"], ["pip install 'numpy<2'"]),
        ("pip install 'numpy<2'", ["project of uv"], ["uv add 'numpy<2'"]),
        ("pip install 'numpy<2'", ["uv pip"], ["uv pip install 'numpy<2'"]),
        ("pip install 'numpy<2'", ["Poetry"], ["poetry add 'numpy<2'"]),
        ("pip install 'numpy<2'", ["pixi"], ["pixi add --pypi 'numpy<2'"]),
        ("pip install 'numpy<2'", ["Pipenv", "pip install"], ["pipenv install 'numpy<2'"]),
        ("pip check", ["Pipenv"], ["pipenv run pip check"]),
        ("pip install 'numpy<2'", ["conda install"], ["conda install -c conda-forge 'numpy<2'"]),
        ("pip install 'numpy<2'", ["conda install", "micromamba"], ["micromamba install -c conda-forge 'numpy<2'"]),
        ("pip install frob", ["conda install"], ["python -m pip install frob"]),
        ("pip install 'numpy<2'", ["Windows", "pip install"], ['python -m pip install "numpy<2"']),
        ("pip install 'numpy<2'", ["Colab"], ["%pip install 'numpy<2'"]),
        ("pip install 'numpy<2'", ["image build"], ["RUN pip install 'numpy<2'"]),
        ("pip install --upgrade keras", ["project of uv"], ["uv lock --upgrade-package keras"]),
        (
            "pip list | grep -iE 'keras|tensorflow'",
            ["Windows", "pip install"],
            ['python -m pip list | findstr /i "keras tensorflow "'],
        ),
        ("export A=1 B=x", ["Windows", "PowerShell"], ["$env:A = '1'", "$env:B = 'x'"]),
        ("export A=1", ["Windows", "Command Prompt"], ['set "A=1"']),
        ("export A=1", ["notebook"], ["%env A=1"]),
        ("export A=1", ["image build"], ["ENV A=1"]),
        ("A=1 python x.py", ["Windows", "PowerShell"], ["$env:A = '1'", "python x.py"]),
        ("pip install 'x; os == \"a\"'", ["Windows", "pip install"], ["python -m pip install \"x; os == 'a'\""]),
        ("uv add \"x; os == 'a'\"", ["Windows"], ["uv add \"x; os == 'a'\""]),
        ("A=1 python x.py", ["notebook"], ["!A=1 python x.py"]),
        ("sudo apt-get install ffmpeg", ["Colab"], ["!apt-get install -y ffmpeg"]),
        ("sudo apt-get install ffmpeg", ["image build"], ["RUN apt-get update && apt-get install -y ffmpeg"]),
        ("sudo apt-get install ffmpeg", ["container"], ["apt-get install ffmpeg"]),
        ("sudo apt-get install ffmpeg", ["macOS"], ["brew install ffmpeg"]),
        ("sudo apt-get install ffmpeg", ["Slurm"], []),
        ("sudo modprobe nvidia", ["container"], ["sudo modprobe nvidia    # on the host"]),
        ("sudo systemctl restart slurmd", ["Slurm"], ["sudo systemctl restart slurmd"]),
        ("uv venv --python 3.11 && uv pip install x", ["image build"], ["FROM python:3.11-slim", "RUN pip install x"]),
        (
            "uv venv --python 3.11 && uv pip install x",
            ["Windows"],
            ["py -3.11 -m venv new", "new\\Scripts\\activate", "python -m pip install x"],
        ),
        (
            "uv venv --python 3.11 && uv pip install x",
            ["conda install"],
            ["conda create -n new -c conda-forge python=3.11 && conda activate new && python -m pip install x"],
        ),
        ("uv venv --python 3.11 && uv pip install x", ["Colab"], []),
        ("ldd x.so", ["macOS"], ["otool -L x.so"]),
        ("sudo apt-get install python3-dev", ["Red Hat"], ["sudo dnf install python3-devel gcc"]),
        ("docker run --gpus all …", ["Podman"], ["podman run --device nvidia.com/gpu=all …"]),
        ("docker run --gpus all …", ["Apptainer"], ["apptainer exec --nv IMAGE.sif …"]),
        ("cd x && make", ["notebook"], ["!cd x && make"]),
        ("pip install 'tf-keras~=2.17.0'", ["R"], ["R -e 'reticulate::py_install(\"tf-keras~=2.17.0\", pip = TRUE)'"]),
        ("export A=1", ["R"], ["Sys.setenv(A = \"1\")    # in R, before library(keras)"]),
        ("pip install 'tensorflow[and-cuda]'", ["Serving"], ["docker pull tensorflow/serving:latest-gpu"]),
        ("toolkit install", ["Serving"], []),
    ],
)  # fmt: skip
def test_a_command_is_said_as_the_place_of_the_log_has_it(command: str, facts: list[str], said: list[str]) -> None:
    assert say(command, *facts) == said


def test_where_nothing_can_be_run_the_remedy_says_who_can() -> None:
    answer = Answer(remedy="Install it.", commands=("sudo apt-get install x",))
    assert "administrators" in places.adapt(answer, {"Slurm": "yes"}).remedy
    assert "administrators" not in places.adapt(answer, {}).remedy


def test_a_notebook_is_to_be_started_anew_after_packages_were_installed() -> None:
    answer = Answer(remedy="Install it.", commands=("pip install x",))
    assert "restart the runtime" in places.adapt(answer, {"Colab": "yes"}).remedy
    assert "restart" not in places.adapt(replace_commands(answer, "pip check"), {"Colab": "yes"}).remedy


def replace_commands(answer: Answer, *commands: str) -> Answer:
    return Answer(remedy=answer.remedy, commands=commands)


def test_a_notebook_gets_another_python_as_another_kernel() -> None:
    answer = Answer(remedy="Use Python 3.11.", commands=("uv venv --python 3.11 && uv pip install x",))
    said = places.adapt(answer, {"notebook": "yes"})
    assert said.commands == ()
    assert "`uv venv --python 3.11`" in said.remedy


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.15.0", "Read it with Keras 2. Use tf.keras.optimizers.legacy."),
        ("2.17.0", "Read it with Keras 2, or by tf-keras with TF_USE_LEGACY_KERAS=1."),
    ],
)
def test_a_remedy_does_not_send_to_a_keras_that_the_log_excludes(version: str, said: str) -> None:
    remedy = "Read it with Keras 2, or by tf-keras with TF_USE_LEGACY_KERAS=1. Use tf.keras.optimizers.legacy."
    assert places.adapt(Answer(remedy=remedy), {"TensorFlow": version}).remedy == said
    assert places.adapt(Answer(remedy=remedy), {}).remedy == remedy
    for_3 = Answer(cause="It is Keras 3.", remedy="Use Keras 2 (tf-keras).", commands=("pip install tf-keras",))
    assert places.adapt(for_3, {"TensorFlow": version, "pip install": "yes"}) == for_3


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"TensorFlow": "2.10.0"}, "Install CUDA and cuDNN by conda."),
        ({"Windows": "yes"}, "Install tensorflow[and-cuda] in WSL 2."),
        ({"ARM": "yes"}, "Install a TensorFlow for ARM with CUDA."),
        ({}, "Install tensorflow[and-cuda]."),
    ],
)
def test_a_remedy_names_what_brings_cuda_there(facts: dict[str, str], said: str) -> None:
    assert places.adapt(Answer(remedy="Install tensorflow[and-cuda]."), facts).remedy == said


def test_a_card_without_a_closed_kernel_module_gets_no_option_of_it() -> None:
    line = (
        "NVRM: Xid (PCI:0000:3b:00): 119, pid=42, name=python, Timeout waiting for RPC from GSP! Expected function 76."
    )
    assert any("NVreg_EnableGpuFirmware" in command for command in read(line).commands)
    for name in ("NVIDIA GeForce RTX 5080", "NVIDIA B200", "RTX PRO 6000 Blackwell"):
        cause = read(f"{name}\n{line}")
        assert not any("NVreg_EnableGpuFirmware" in text for text in (cause.remedy, *cause.commands))


def test_a_container_is_not_told_to_restart_its_host() -> None:
    answer = Answer(remedy="Restart.", commands=("sudo update-initramfs -u && sudo reboot",))
    said = places.adapt(answer, {"container": "yes"})
    assert said.commands == ("sudo update-initramfs -u && sudo reboot    # on the host",)
    assert "administrator" in said.remedy
    assert "administrator" not in places.adapt(answer, {}).remedy


def test_later_sentences_about_what_is_not_there_are_left_out() -> None:
    answer = Answer(remedy="Use less memory. Look at `dmesg` for more; unset LD_LIBRARY_PATH.")
    said = "Use less memory. Take other copies of CUDA out of PATH."
    assert places.adapt(answer, {"Windows": "yes"}).remedy == said
    assert places.adapt(Answer(remedy="Look at `dmesg`."), {"Windows": "yes"}).remedy == "Look at `dmesg`."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Install numpy<2, or a TensorFlow that is built for NumPy 2 (2.18 or later).", "Install numpy<2."),
        ("Take Keras (2.2, or 2.4 with TensorFlow 2.2).", "Take Keras (2.2, or 2.4 with TensorFlow 2.2)."),
        ("The PyTorch (not TensorFlow) is old.", "The PyTorch is old."),
        ("Let TensorFlow's memory grow.", "Let PyTorch's memory grow."),
        ("Install the cuDNN of TensorFlow; update TensorFlow to 2.18.", "Install the cuDNN of PyTorch."),
    ],
)
def test_a_remedy_for_another_framework_does_not_send_to_tensorflow(text: str, said: str) -> None:
    answer = Answer(remedy=text)
    assert places.adapt(answer, {"PyTorch": "yes", "no TensorFlow": "yes"}).remedy == said
    assert places.adapt(answer, {"PyTorch": "yes"}).remedy == text


@pytest.mark.parametrize(
    ("framework", "said"),
    [
        ("JAX", "Let memory grow (XLA_PYTHON_CLIENT_PREALLOCATE=false), and end what else uses the GPU."),
        ("PyTorch", "End what else uses the GPU."),
        ("CuPy", "End what else uses the GPU."),
    ],
)
def test_memory_grows_by_the_setting_of_the_framework(framework: str, said: str) -> None:
    answer = Answer(remedy="Let memory grow (TF_FORCE_GPU_ALLOW_GROWTH=true), and end what else uses the GPU.")
    assert places.adapt(answer, {framework: "yes", "no TensorFlow": "yes"}).remedy == said
    assert places.adapt(answer, {framework: "yes"}).remedy == answer.remedy


CASES = "Do it. With TensorFlow before 2.16 install Keras 2. On Windows use WSL 2. Else y."


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, CASES),
        ({"TensorFlow": "2.15.0"}, "With TensorFlow before 2.16 install Keras 2. Do it. On Windows use WSL 2. Else y."),
        ({"TensorFlow": "2.17.0", "Linux": "yes", "project of uv": "yes"}, "Do it. Else y."),
        ({"Windows": "yes", "TensorFlow": "2.16.1"}, "On Windows use WSL 2. Do it. Else y."),
        ({"WSL": "yes", "Windows": "yes"}, "Do it. With TensorFlow before 2.16 install Keras 2. Else y."),
    ],
)  # fmt: skip
def test_a_sentence_for_one_place_or_version_comes_first_there_and_nowhere_else(
    facts: dict[str, str], said: str
) -> None:
    assert places.adapt(Answer(remedy=CASES), facts).remedy == said


@pytest.mark.parametrize(
    ("opening", "version", "holds"),
    [
        ("With TensorFlow 2.16 or later", "2.16.1", True),
        ("With TensorFlow 2.16 or later", "2.15.1", False),
        ("with TensorFlow 2.14 to 2.17", "2.17.1", True),
        ("with TensorFlow 2.14 to 2.17", "2.18.0", False),
        ("With TensorFlow 2.10 ", "2.10.1", True),
        ("With TensorFlow itself", "2.10.1", None),
    ],
)
def test_a_remark_behind_a_command_names_versions_for_which_it_is(
    opening: str, version: str, holds: bool | None
) -> None:
    command = f"pip check    # {opening}"
    commands = places.adapt(Answer(commands=(command,)), {"TensorFlow": version}).commands
    assert commands == (() if holds is False else (command,))


def test_what_holds_elsewhere_alone_is_kept_where_nothing_else_is_said() -> None:
    answer = Answer(remedy="On Windows use WSL 2.")
    assert places.adapt(answer, {"Linux": "yes"}).remedy == answer.remedy


KNOWN = answers.load_knowledge()
ASKED = re.compile(
    r"(?:pip install|(?:uv|poetry) add|pipenv install|conda install(?: -c [\w-]+)?) (?!.*--dry-run)(?P<what>[^&#]*)"
)


def list_excluded(command: str, facts: Mapping[str, str]) -> Iterator[str]:
    """Yield what a command asks for that has no wheel for the log's Python, or that its TensorFlow does not take."""
    new = re.search(r"(?:--python|python pin|env use|py -|FROM python:|python=) ?(3\.\d+)", command)
    python = new[1] if new else specifiers.read_minor(facts.get("Python", ""))
    for asked in ASKED.finditer(command):
        wanted = list(wheels._WANTED.finditer(asked["what"]))
        renewed = any(each["name"] in KNOWN["tensorflows"] for each in wanted)
        for name, spec in ((each["name"], (each["spec"] or "").strip()) for each in wanted):
            fitting = pythons.list_pythons(name, re.sub("^=(?!=)", "==", spec), KNOWN)
            held = packages.find_wish(name, facts, KNOWN) if name != "python" and not renewed else ""
            if (python and fitting and python not in fitting) or (held and spec and not specifiers.overlap(spec, held)):
                yield f"{name}{spec}"


EXCLUDING = [
    {"Python": "3.14.0"},
    {"Python": "3.8.10", "pip install": "yes"},
    {"Python": "3.13.1", "conda install": "yes"},
    {"TensorFlow": "2.10.0", "Python": "3.10.4"},
    {"TensorFlow": "2.19.0", "Python": "3.12.3", "project of uv": "yes"},
]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_no_command_asks_for_what_the_log_excludes(row: diagnosis.Row) -> None:
    for cause in (cause for example in row.examples for cause in find(example).causes):
        for facts in ({**cause.facts, **more} for more in ({}, *EXCLUDING)):
            said = answers.tell(cause.row, cause.match.words, facts, "", lines=cause.match.told)
            assert [(each, facts) for command in said.commands for each in list_excluded(command, facts)] == []
            assert not any(re.search(r"\bX\.Y|3\.X", command) for command in said.commands), said.commands


def test_a_command_that_the_log_excludes_is_seen() -> None:
    assert list(list_excluded("pip install 'tensorflow<2.16'", {"Python": "3.13.1"})) == ["tensorflow<2.16"]
    assert list(list_excluded("uv add 'numpy<1.24'", {"TensorFlow": "2.19.0"})) == ["numpy<1.24"]
    assert list(list_excluded("uv venv --python 3.11 && uv pip install 'tensorflow<2.16'", {"Python": "3.13"})) == []


def list_comparisons() -> Iterator[tuple[diagnosis.Cause, str, str, str]]:
    """Yield each answer that names two versions, the one that is here and what is wanted, as they stand and turned."""
    naming = [row for row in ROWS.values() if any("{found:" in line.text for line in row.sign.lines)]
    for cause in (cause for row in naming for example in row.examples for cause in find(example).causes):
        words = cause.match.words
        if "found" in words and (spec := words.get("spec", "").strip()):
            yield cause, answers.tell(cause.row, words, cause.facts, "", lines=(words,)).cause, words["found"], spec
        if {"found", "wanted"} <= words.keys():
            for one, other in ((words["found"], words["wanted"]), (words["wanted"], words["found"])):
                if one == words["found"] or not cause.row.sign.when:
                    said = answers.tell(cause.row, {**words, "found": one, "wanted": other}, cause.facts, "").cause
                    yield cause, said, one, f">={other}"


def test_no_answer_says_too_old_of_what_is_newer() -> None:
    seen = list(list_comparisons())
    assert len(seen) > 5
    for cause, said, found, spec in seen:
        direction = specifiers.compare(found, spec)
        assert direction == "old" or not re.search(r"too old|is older", said), (cause.row.id, said)
        assert direction == "new" or "too new" not in said, (cause.row.id, said)


@pytest.mark.parametrize(
    ("command", "facts", "why"),
    [
        ("pip install 'numpy<2'", {"NumPy": "1.26.4"}, "shows numpy 1.26.4, which is <2 already"),
        ("pip install --upgrade 'keras>=3'", {"Keras": "3.5.0"}, "shows keras 3.5.0"),
        ("pip install 'numpy<1.24'", {"TensorFlow": "2.19.0"}, "wants numpy>=1.26,<2.2"),
        ("pip install keras==2.3.1", {"TensorFlow": "2.10.0"}, "wants keras"),
        ("pip install --upgrade tensorflow", {"TensorFlow": "2.21.0"}, "no newer one is known"),
    ],
)
def test_what_the_log_shows_already_or_excludes_is_not_asked_for(command: str, facts: dict[str, str], why: str) -> None:
    obstacle = wheels.find_obstacle(command, facts, KNOWN)
    assert obstacle
    assert why in obstacle.remedy
    assert wheels.find_obstacle(command, {}, KNOWN) is None
    assert wheels.find_obstacle(command.replace("install ", "install --force-reinstall "), facts, KNOWN) is None


@pytest.mark.parametrize(
    ("command", "python", "said"),
    [
        ("pip install 'tensorflow<2.16'", "3.13.1", "uv venv --python 3.11 && uv pip install 'tensorflow<2.16'"),
        ("pip install 'tensorflow<2.16'", "3.11", "pip install 'tensorflow<2.16'"),
        ("pip install 'tensorflow~=2.18.0'", "3.7.9", "uv venv --python 3.12 && uv pip install 'tensorflow~=2.18.0'"),
        ("pip install 'numpy<1.24'", "3.12", "uv venv --python 3.11 && uv pip install 'numpy<1.24'"),
        ("pip install --upgrade tensorflow", "3.14", "uv venv --python 3.13 && uv pip install tensorflow"),
        ("pip install frob", "3.14", "pip install frob"),
        ("uv venv && uv pip install tensorflow", "3.14", "uv venv --python 3.13 && uv pip install tensorflow"),
        (
            "python3 -m venv .venv && .venv/bin/pip install tensorflow",
            "3.14",
            "uv venv --python 3.13 && uv pip install tensorflow",
        ),
        (
            "pip uninstall -y keras && pip install tensorflow",
            "3.14",
            "uv venv --python 3.13 && uv pip install tensorflow",
        ),
        ("A=1 uv pip install tensorflow", "3.14", "uv venv --python 3.13 && A=1 uv pip install tensorflow"),
        ("cd x && pip install tensorflow", "3.14", "cd x && pip install tensorflow"),
        (
            "pip install 'tensorflow==2.10.*' 'numpy<1.22'",
            "3.12",
            "uv venv --python 3.10 && uv pip install 'tensorflow==2.10.*' 'numpy<1.22'",
        ),
        (
            "pip install 'tensorflow[and-cuda]'",
            "3.8",
            "uv venv --python 3.13 && uv pip install 'tensorflow[and-cuda]'",
        ),
    ],
)
def test_what_has_no_wheel_for_the_python_of_the_log_gets_an_environment(command: str, python: str, said: str) -> None:
    assert wheels.take_fitting_python(command, {"Python": python}, KNOWN) == said


@pytest.mark.parametrize(
    ("command", "facts", "said"),
    [
        ("pip install --upgrade 'numpy>=1.25'", {}, "pip install --upgrade 'numpy>=1.25,<2'"),
        ("pip install 'numpy>=1.25'", {"TensorFlow": "2.17.0"}, "pip install 'numpy>=1.25,<2'"),
        ("pip install 'numpy>=1.25'", {"TensorFlow": "2.19.0"}, "pip install 'numpy>=1.26,<2.2'"),
        ("pip install 'numpy>=1.25'", {"Python": "3.13"}, "pip install 'numpy>=1.25'"),
        ("pip install 'numpy>=2'", {}, "pip install 'numpy>=2'"),
        ("pip install numpy==1.26.4", {}, "pip install numpy==1.26.4"),
        ("pip install --upgrade tensorflow numpy", {"TensorFlow": "2.17.0"}, "pip install --upgrade tensorflow numpy"),
        ("pip install 'nvidia-cudnn-cu12>=9.3'", {}, "pip install 'nvidia-cudnn-cu12>=9.3,<10'"),
        ("pip install 'nvidia-cudnn-cu12>=8.6'", {}, "pip install 'nvidia-cudnn-cu11>=8.6,<9'"),
        ("pip install nvidia-cudnn-cu12", {"TensorFlow": "2.16.1"}, "pip install 'nvidia-cudnn-cu12>=8,<9'"),
        ("pip install nvidia-cudnn-cu12", {"cuDNN library": "9"}, "pip install 'nvidia-cudnn-cu12>=9,<10'"),
        ("pip install nvidia-cudnn-cu12", {}, "pip install nvidia-cudnn-cu12"),
        ("pip install 'nvidia-cudnn-cu12<9'", {"TensorFlow": "2.18.0"}, "pip install 'nvidia-cudnn-cu12<9'"),
        ("pip uninstall -y numpy", {"TensorFlow": "2.17.0"}, "pip uninstall -y numpy"),
        (
            "pip install --no-cache-dir keras",
            {"TensorFlow": "2.12.0"},
            "pip install --no-cache-dir 'keras>=2.12,<2.13'",
        ),
        (
            "pip install --force-reinstall tensorflow keras",
            {"TensorFlow": "2.12.0"},
            "pip install --force-reinstall 'tensorflow==2.12.*' 'keras>=2.12,<2.13'",
        ),
        ("pip install --upgrade tensorflow keras", {"TensorFlow": "2.12.0"}, "pip install --upgrade tensorflow keras"),
    ],
)
def test_what_is_installed_stays_below_the_version_that_breaks_the_rest(
    command: str, facts: dict[str, str], said: str
) -> None:
    assert wheels.bound(command, facts, KNOWN) == said


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "nvidia-cudnn-cu12 nvidia-cublas-cu12"),
        ({"TensorFlow": "2.14.0"}, "nvidia-cudnn-cu11 nvidia-cublas-cu11"),
        ({"TensorFlow": "2.16.1", "CUDA": "11.8"}, "nvidia-cudnn-cu12 nvidia-cublas-cu12"),
        ({"CUDA wheels": "118"}, "nvidia-cudnn-cu11 nvidia-cublas-cu11"),
        ({"CUDA wheels": "130"}, "nvidia-cudnn-cu13 nvidia-cublas"),
        ({"CUDA": "10.1"}, "nvidia-cudnn-cu12 nvidia-cublas-cu12"),
    ],
)
def test_packages_are_of_the_cuda_that_the_log_shows(facts: dict[str, str], said: str) -> None:
    assert wheels.take_log_cuda("pip install nvidia-cudnn-cu12 nvidia-cublas-cu12", facts) == f"pip install {said}"


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("2.10.0", "conda install -c conda-forge cudatoolkit=11.2 cudnn=8.1"),
        ("2.16.1", "wsl.exe --install"),
    ],
)
def test_an_answer_may_be_for_a_range_of_the_version_that_the_log_shows(version: str, command: str) -> None:
    line = "dso_loader.cc:64] Could not load dynamic library 'cudart64_110.dll'; dlerror: cudart64_110.dll not found"
    assert read(f"TensorFlow version: {version}\n{line}").commands[0] == command
    assert "TensorFlow (2.4 to 2.10" in read(line).cause


def find(log: str) -> diagnosis.Diagnosis:
    return diagnosis.diagnose([("", io.BytesIO(log.encode()))])


def read(log: str) -> diagnosis.Cause:
    return find(log).serious[0]


def test_a_name_that_the_version_of_the_log_has_is_not_said_to_be_lost() -> None:
    lost = "AttributeError: module 'numpy' has no attribute 'bool'"
    assert "pip install 'numpy<1.24'" in read(lost).commands
    told = read(f"numpy                1.23.5\n{lost}")
    assert "NumPy 1.24" not in told.cause
    assert "pip install 'numpy<1.24'" not in told.commands


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (r"(base) C:\Users\me>python train.py", "Command Prompt"),
        (r"PS C:\Users\me\p> python train.py", "PowerShell"),
        (r'  File "C:\Users\me\p\venv\lib\site-packages\x.py", line 3', "Windows"),
        (r"File format not supported: filepath=E:\models\weights.", "Windows"),
        ("the tool runs in a Singularity container", "Apptainer"),
        ('  File "/Users/me/p/train.py", line 3', "macOS"),
        ("Linux box 6.8.0-1012-aws #13 SMP aarch64 GNU/Linux", "ARM"),
        ("<ipython-input-3-5f2a> in main()\n/usr/local/lib/python3.10/dist-packages/x/core.py in run(x)", "Colab"),
        ("[<ipython-input-12-0458>](https://localhost:8080/#) in <cell line: 0>()", "Colab"),
        ("/kaggle/input/data/train.csv", "Kaggle"),
        ("- **OS Platform and Distribution (e.g., Linux Ubuntu 16.04)**: Windows 10", "Windows"),
        ("Johans-MacBook-Pro:~ johan$ pip install x", "macOS"),
        ("/tmp/ipykernel_123/2132.py in <module>", "notebook"),
        ("srun: error: node12: task 0: Exited with exit code 1", "Slurm"),
        ("#12 [stage-1 4/7] RUN pip install x", "image build"),
        ("Step 5/9 : RUN pip install x", "image build"),
        ("$ uv sync", "project of uv"),
        ("$ poetry run python train.py", "Poetry"),
        ("$ pixi run train", "pixi"),
        ("$ conda install numpy", "conda install"),
        ('  File "/home/me/miniconda3/envs/x/lib/python3.10/site-packages/x.py", line 5', "conda environment"),
        ("import torch", "PyTorch alone"),
        ('  File "/home/me/lib/python3.10/site-packages/frob/x.py", line 5', "no TensorFlow"),
    ],
)
def test_a_log_shows_where_it_was_written(line: str, place: str) -> None:
    facts = diagnosis.diagnose([("", io.BytesIO(line.encode()))]).found.facts
    assert place in places.list_places(facts)
    assert place not in places.list_places({})


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("Step 200/1000: loss 0.3", "image build"),
        (r'  File "C:/Users/me/p/train.py", line 3', "macOS"),
        ("tf-slim            1.1.0", "TensorFlow"),
        ("foo 1.0 requires numpy==1.19.5, but you have numpy 2.1 which is incompatible", "NumPy"),
        ("/mnt/c/Users/me\nC:\\Users\\me", "Windows"),
        ("import torch\nimport tensorflow", "PyTorch alone"),
        ("ImportError: libcudart.so.12: cannot open shared object file", "no TensorFlow"),
    ],
)
def test_what_looks_alike_shows_no_place(line: str, place: str) -> None:
    facts = diagnosis.diagnose([("", io.BytesIO(line.encode()))]).found.facts
    assert place not in places.list_places(facts)


@pytest.mark.parametrize(
    ("lines", "commands"),
    [
        ("", ["pip install --upgrade 'jax[cuda12]'"]),
        ("jaxlib-0.4.20+cuda12.cudnn89", ["pip install --upgrade 'jax[cuda12]'"]),
        ("jaxlib-0.4.20+cuda11.cudnn86", ["pip install --upgrade 'jax[cuda12]'    # with driver 525 or later"]),
        ("jaxlib-0.4.20+cuda11.cudnn86\nDriver Version: 535.54.03", ["pip install --upgrade 'jax[cuda12]'"]),
        ("jaxlib-0.4.20+cuda11.cudnn86\nDriver Version: 470.182.03", []),
    ],
)
def test_a_jax_for_cuda_12_is_for_a_driver_that_takes_it(lines: str, commands: list[str]) -> None:
    cause = read(f"{lines}\nXlaRuntimeError: INTERNAL: cudaGetErrorString symbol not found.")
    assert [each for each in cause.commands if "jax[" in each] == commands
    assert ("525 or later" in cause.remedy) is (commands != ["pip install --upgrade 'jax[cuda12]'"])


AGAIN = "pip install --force-reinstall"
OLDER = f"{AGAIN} 'keras==2.NUMBER.*'    # with TensorFlow 2.NUMBER before 2.16"


@pytest.mark.parametrize(
    ("command", "facts", "said"),
    [
        (f"{AGAIN} keras", {"Keras": "2.15.0"}, [f"{AGAIN} 'keras==2.15.*'"]),
        (f"{AGAIN} keras", {"Keras 2": "yes"}, [OLDER]),
        (f"{AGAIN} keras", {"Python": "3.8"}, [OLDER]),
        (
            f"{AGAIN} keras",
            {},
            [
                f"{AGAIN} 'keras>=3'    # with TensorFlow 2.16 or later",
                OLDER,
            ],
        ),
        (f"{AGAIN} keras", {"TensorFlow": "2.12.0"}, [f"{AGAIN} keras"]),  # bounded by its TensorFlow
        (f"{AGAIN} keras", {"no TensorFlow": "yes"}, [f"{AGAIN} keras"]),
        (f"{AGAIN} tensorflow keras", {}, [f"{AGAIN} tensorflow keras"]),
        ("pip install --upgrade keras", {}, ["pip install --upgrade keras"]),
    ],
)
def test_keras_is_installed_again_in_the_version_of_its_tensorflow(
    command: str, facts: dict[str, str], said: list[str]
) -> None:
    assert list(wheels.fit_keras(command, facts)) == said


@pytest.mark.parametrize(
    ("line", "consequence"),
    [
        ("this is WSL 1, which gives Linux no GPU", True),
        ("cuda_driver.cc:282] failed call to cuInit: CUDA_ERROR_NOT_FOUND: named symbol not found", True),
        ("#11 0x00007fff111b2a6b in cuInit () from /usr/lib/wsl/drivers/x/libcuda.so.1.1", True),
        ("Linux x 5.15.90.1-microsoft-standard-WSL2", False),
    ],
)
def test_that_no_device_is_there_follows_from_what_is_said_of_wsl(line: str, consequence: bool) -> None:
    causes = find(f"{line}\nCUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected").causes
    assert [each.consequence for each in causes if each.row.id == "no-device"] == [consequence]


def test_what_a_build_keeps_is_said_of_a_build_alone() -> None:
    gone = "rpc error: code = Unavailable desc = error reading from server: EOF"
    assert "build" not in read(gone).remedy
    assert "build" not in read(f"Failed: a test of x\n{gone}").remedy
    assert "What a build has compiled is kept." in read(f"FAILED: x/y.o\n{gone}").remedy
    assert "What a build has compiled is kept." in read(f"ERROR: failed to receive status: {gone}").remedy
