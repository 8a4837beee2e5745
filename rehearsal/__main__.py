from train.__main__ import lead
from train.system.program import explain_errors


@explain_errors
def start() -> int:
    from rehearsal.cli import main  # takes long to load, and a signal may come meanwhile

    return main()


if __name__ == "__main__":
    lead(start)
