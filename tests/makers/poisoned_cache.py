from tests.integration.workspace import Workspace

NOTE = "tensorflow/core/kernels/host.cc"


def note(workspace: Workspace, word: str) -> None:
    """Put a word into the library; words of one length give libraries of one size."""
    source = workspace.source / NOTE
    kept = source.read_text().split('extern "C" const char *standin_note')[0]
    source.write_text(f'{kept}extern "C" const char *standin_note() {{ return "{word}"; }}\n')
