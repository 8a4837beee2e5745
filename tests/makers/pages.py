from pathlib import Path

from toolkit.cli.help import read_examples

ROOT = Path(__file__).parents[2]
EXAMPLES = {f"help of {name or 'toolkit'}: {line}": line for name, lines in read_examples().items() for line in lines}
