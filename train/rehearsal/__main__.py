from train.system.output import explain_errors


@explain_errors
def _start() -> int:
    from train.rehearsal.cli import main  # here, so that a package that is missing is one message

    return main()


if __name__ == "__main__":
    raise SystemExit(_start())
