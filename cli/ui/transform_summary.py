"""What the commands print that make a trace from other traces."""

from blkreel.cli.ui.trace_summary import show_trace, trace_document
from blkreel.common.console import notice
from blkreel.common.files.json_file import print_json
from blkreel.traces.transform.output import Transformed


def show_transformed(result: Transformed, as_json: bool) -> None:
    """Print the trace that was written, on stderr what was lost or assumed."""
    document = trace_document(result.path, result.ios, result.bytes, result.duration_ns, result.metadata)
    if as_json:
        print_json({**document, "cut_dependencies": result.cut_dependencies,
                    "restored_dependencies": result.restored_dependencies, "notes": result.notes})
    else:
        show_trace(document)
    for note in result.notes:
        notice(note)
