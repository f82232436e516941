"""What `blkreel capture` and `blkreel import` print about the trace that they wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blkreel.analysis.metrics.definitions.registry import METRICS
from blkreel.common.console import notice
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable
from blkreel.common.units import counted, format_bytes, format_count, format_ns, format_share
from blkreel.traces.format.metadata_types import ShareCertificate, Volume, layers_of
from blkreel.traces.format.reader import counts_by_op
from blkreel.traces.format.trace import Trace
from blkreel.traces.transform.output import Transformed

_MAX_NAMES = 6  # in one line


def trace_document(path: Path, ios: Mapping[str, int], bytes_: Mapping[str, int], duration_ns: int,
                   metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the JSON documents of both commands have. ios, bytes_: by operation."""
    rows, file_bytes = sum(ios.values()), path.stat().st_size
    return {"version": 1, "path": str(path), "rows": rows, "ios": ios, "bytes": bytes_, "duration_ns": duration_ns,
            "file_bytes": file_bytes, "bytes_per_io": round(file_bytes / rows, 2) if rows else None,
            "devices": [device_name(device) for device in metadata.get("devices") or []],
            "source_format": metadata.get("source_format"), "lost": (metadata.get("lost") or {}).get("total"),
            "in_flight_at_start": metadata.get("in_flight_at_start"),
            "in_flight_at_end": metadata.get("in_flight_at_end"), "ledger": metadata.get("ledger")}


def layer_documents(trace: Trace) -> list[dict[str, Any]]:
    """I/Os and bytes by operation of each layer, where a trace has a volume and a device below it; else none."""
    devices = trace.metadata.get("devices") or []
    documents = []
    for numbers in layers_of(trace.metadata):
        ios, moved = counts_by_op(trace, numbers)
        documents.append({"devices": [device_name(devices[number]) for number in numbers], "ios": ios, "bytes": moved})
    return documents


def device_name(device: Mapping[str, Any]) -> str:
    return device.get("path") or device.get("name") or "unnamed"


def volume_words(volume: Volume) -> str:
    """`/dev/dm-0 (home), dm-linear on nvme0n1 from byte 1,048,576`."""
    label = f" ({volume['label']})" if volume["label"] else ""
    places = [part["name"] + ("" if part["offset_bytes"] is None else f" from byte {part['offset_bytes']:,}")
              for part in volume["parts"]]
    return f"{volume['path']}{label}, {volume['kind']} on {first_names(places, 'part')}"


def first_names(names: Sequence[str], noun: str) -> str:
    """`sda, sdb`, and of more than fit into a line how many follow: a published trace may have thousands of volumes."""
    more = f" and {counted(len(names) - _MAX_NAMES, f'more {noun}')}" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def show_trace(document: Mapping[str, Any]) -> None:
    """Print a document as two lines; of several layers one line each, because an I/O is in each of them."""
    devices = printable(first_names(document["devices"], "device") or "an unknown device")
    layers = document.get("layers") or []
    print(f"{printable(document['path'])}: {counted(document['rows'], 'row' if layers else 'I/O')} of "
          f"{devices} over {format_ns(document['duration_ns'])}, "
          f"{file_size(document['file_bytes'], document['rows'])}")
    for layer in layers:
        print(f"  {printable(first_names(layer['devices'], 'device'))}: {', '.join(_op_words(layer))}")
    parts = [] if layers else _op_words(document)
    parts.append("lost unknown" if document["lost"] is None else f"lost {format_count(document['lost'])}")
    if document["in_flight_at_end"]:
        parts.append(f"in flight at end {format_count(document['in_flight_at_end'])}")
    print("  " + ", ".join(parts))


def _op_words(document: Mapping[str, Any]) -> list[str]:
    return [f"{op} {format_count(count)} ({format_bytes(document['bytes'][op])})"
            for op, count in document["ios"].items() if count]


def file_size(file_bytes: int, rows: int) -> str:
    """`file of 678 KB, 7.4 bytes a row`"""
    return f"file of {format_bytes(file_bytes)}" + (f", {file_bytes / rows:.1f} bytes a row" if rows else "")


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


def certificate_words(certificate: ShareCertificate) -> str:
    """`replays on 8 simulated drives: load time and read latency p99 within 0.2 % of those of the original,
    order equal`."""
    first: Mapping[str, Any] = next(iter(certificate["drives"].values()), {})
    titles = " and ".join(METRICS[key].title.lower() for key, value in first.items()
                          if key in METRICS and value is not None)
    swapped = certificate["swapped"]
    order = f"{swapped} of {certificate['pairs']} pairs of drives in another order" if swapped else "order equal"
    return (f"replays on {len(certificate['drives'])} simulated drives: {titles} within "
            f"{format_share(certificate['largest'])} of those of the original, {order}")
