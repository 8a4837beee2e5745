"""Puts the pieces of a kit together on a machine without a network, and asks the card, the smallest question first.

`python3 join.py` needs Python and nothing else, and writes kit-report.md beside itself. Exit codes: 0 all
questions have an answer; 7 one has none; 8 a piece is damaged or missing; 12 there is no card: all before it worked.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / "env"
SITE = ENVIRONMENT / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
NO_CARD = 12
ON_CARD = "import tensorflow as tf\nwith tf.device('/GPU:0'):\n "
SEES = f"sees = tf.config.list_physical_devices('GPU'); print(sees); raise SystemExit(0 if sees else {NO_CARD})"
PROGRAMS = {
    "import": "import tensorflow as tf; print(tf.__version__)",
    "card": f"import tensorflow as tf; {SEES}",
    "elementwise operation": f"{ON_CARD}assert float((tf.range(9.0) * 2 + 1)[3]) == 7",
    "matrix product": f"{ON_CARD}a = tf.ones((512, 512)); assert float((a @ a)[0, 0]) == 512",
    "convolution by cuDNN": f"{ON_CARD}y = tf.nn.conv2d(tf.ones((1, 8, 8, 3)), tf.ones((3, 3, 3, 4)), 1, 'VALID')\n"
    " assert float(y[0, 0, 0, 0]) == 27",
    "training step": f"{ON_CARD}w = tf.Variable(3.0)\n with tf.GradientTape() as tape:\n  loss = w * w\n"
    " w.assign_sub(0.1 * tape.gradient(loss, w)); assert abs(float(w) - 2.4) < 1e-5",
}
DIGITS = ["-P", "-m", "train", "digits", "--epochs", "4", "--out", str(HERE / "runs")]
QUESTIONS = {**{title: ["-c", program] for title, program in PROGRAMS.items()}, "digits": DIGITS}


class DamagedError(Exception):
    """A piece or a wheel is not what the list says."""


def put_together(folder: Path) -> list[Path]:
    """Write the wheels from their pieces, and return them. Raises DamagedError, which names what is wrong."""
    listed: list[dict[str, Any]] = json.loads((folder / "pieces.json").read_text())["wheels"]
    (folder / "wheels").mkdir(exist_ok=True)
    missing = [piece["name"] for wheel in listed for piece in wheel["pieces"] if not (folder / piece["name"]).is_file()]
    if missing:
        raise DamagedError(f"missing: {', '.join(missing)}")
    made = []
    for wheel in listed:
        target, whole = folder / "wheels" / wheel["name"], hashlib.sha256()
        with target.open("wb") as stream:
            for piece in wheel["pieces"]:
                content = (folder / piece["name"]).read_bytes()
                if hashlib.sha256(content).hexdigest() != piece["sha256"]:
                    raise DamagedError(f"damaged: {piece['name']}: copy it again")
                whole.update(content)
                stream.write(content)
        if whole.hexdigest() != wheel["sha256"]:
            raise DamagedError(f"damaged: the list of {wheel['name']}: copy pieces.json again")
        made.append(target)
    return made


def unpack(wheels: list[Path]) -> None:
    """Unpack the wheels into an environment, which needs no pip. Raises DamagedError for another Python."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    other = [
        wheel.name
        for wheel in wheels
        if "-cp3" in wheel.name and f"-{tag}-" not in wheel.name and "-abi3-" not in wheel.name
    ]
    if other:
        raise DamagedError(f"this Python is {tag}, and {other[0]} is for another: start join.py by that Python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(ENVIRONMENT)], check=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            for item in opened.infolist():
                path = Path(opened.extract(item, SITE))
                if item.external_attr >> 16 & 0o111:  # ptxas is a program
                    path.chmod(0o755)
        wheel.unlink()


def ask() -> int:
    """Ask one question after the other until one has no answer, and write the report. Returns the exit code."""
    folders = sorted(str(path) for path in SITE.glob("nvidia/*/lib"))
    variables = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}
    compiler = next((path.parents[1] for path in SITE.glob("nvidia/*/bin/ptxas")), SITE)
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={compiler}"}
    variables |= {"PATH": f"{compiler / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    lines, code = [], 0
    for title, words in QUESTIONS.items():
        begun = time.monotonic()
        requires = {"TOOLKIT_REQUIRE_GPU": "1"} if title == "digits" else {}
        done = subprocess.run(
            [str(ENVIRONMENT / "bin/python"), *words],
            env={**variables, **requires},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        said = (
            " ".join(done.stdout.split("\n")[-2 if done.returncode in {0, NO_CARD} else -4 :])
            .replace(str(HERE), ".")
            .replace(str(Path.home()), "~")
        )
        state = "failed" if done.returncode else "worked"
        lines.append(f"- {title}: {state}, {time.monotonic() - begun:.0f} s: {said}")
        print(lines[-1], flush=True)
        if done.returncode:
            code = NO_CARD if title == "card" and done.returncode == NO_CARD else 7
            break
    worked = len(lines) - bool(code)
    (HERE / "kit-report.md").write_text(f"# worked: {worked} of {len(QUESTIONS)}\n\n" + "\n".join(lines) + "\n")
    return code


def main() -> int:
    try:
        unpack(put_together(HERE))
    except DamagedError as error:
        print(error, file=sys.stderr)
        return 8
    return ask()


if __name__ == "__main__":
    sys.exit(main())
