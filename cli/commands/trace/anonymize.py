"""`blkreel anonymize`: remove the names from a trace, so that it can be shared."""

import secrets
import tempfile
from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.types import SIZE_BYTES, as_json, force, public, trace_output
from blkreel.cli.ui.progress import progress
from blkreel.cli.ui.trace_summary import certificate_words, show_transformed
from blkreel.common.errors import UsageError, os_errors
from blkreel.replay.predict.prediction import certify
from blkreel.traces.format.metadata_types import ShareCertificate
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.trace import Trace
from blkreel.traces.format.writer import refuse_output
from blkreel.traces.transform.anonymize import anonymize

_LEAST_KEY_BYTES, _MOST_KEY_BYTES = 16, 4096


@click.command()
@click.argument("trace", type=click.Path(readable=False), shell_complete=completion.traces)
@trace_output
@click.option("--key-file", type=click.Path(readable=False, path_type=Path), metavar="FILE",
              help="Key of the hashes, at least 16 bytes; keep it secret. [default: a random key that is not stored]")
@click.option("--permute-offsets", "region_bytes", type=SIZE_BYTES, metavar="SIZE",
              help="Permute regions of this size on each device. [default: offsets stay]")
@click.option("--certify", "certifies", is_flag=True,
              help="Replay original and result on the typical drives, simulated, and store how far they agree.")
@force
@public
@as_json
def command(trace: str, output: Path, key_file: Path | None, region_bytes: int | None, certifies: bool, force: bool,
            public: bool, as_json: bool) -> None:
    """Remove the names of programs, files, machines and drives from a trace, so that it can be shared.

    Names of processes, threads, cgroups, files and drive models become hashes. Host, command, title, serial, firmware,
    date and the text of warnings are removed. Times, lengths, operations, thread ids and dependencies stay, so a
    replay gives the same figures. With one --key-file, a name has the same hash in several traces.

    \b
    blkreel anonymize game.parquet -o share.parquet --public
    blkreel anonymize game.parquet -o share.parquet --permute-offsets 1GiB --certify
    """
    key = _key(key_file) if key_file else secrets.token_bytes(32)
    original = open_trace(trace)
    certificate = _certificate(original, output, key, region_bytes, force) if certifies else None
    result = anonymize(original, output, key=key, region_bytes=region_bytes, force=force, public=public,
                       certificate=certificate)
    show_transformed(result, as_json)
    if certificate and not as_json:
        print("  " + certificate_words(certificate))


def _certificate(original: Trace, output: Path, key: bytes, region_bytes: int | None, force: bool) -> ShareCertificate:
    """Of a first copy, since a finished trace does not change."""
    refuse_output(output, force)
    with tempfile.TemporaryDirectory() as directory:
        copy = anonymize(original, Path(directory, output.name), key=key, region_bytes=region_bytes)
        return certify(original, open_trace(str(copy.path)), progress)


def _key(path: Path) -> bytes:
    remedy = f"make a key: openssl rand -out {path} 32"
    with os_errors(UsageError, f"cannot read {path}", remedy), path.open("rb") as file:
        key = file.read(_MOST_KEY_BYTES)
    if len(key) < _LEAST_KEY_BYTES:
        raise UsageError(f"{path} has {len(key)} bytes, and a key has at least {_LEAST_KEY_BYTES}", remedy)
    return key
