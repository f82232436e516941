"""Documents and metadata with a wrong part, and what a command says about them."""

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
from cases import is_fuzzing

from blkreel.cli.command_table import find_command
from blkreel.cli.failures import failure_of
from blkreel.traces.format.schema import KEY_PREFIX

WRONG = [None, "x", -1, 1 << 70, 1.5, [None], {"constructor": None}]
ABSENT = object()
NO_DOCUMENT = [b"", b"{", b"\xff\xfe{", b'{"a": "\xff"}', b"null", b"[]", b"5", b"[" * 100_000,
               b'{"a": ' + b"9" * 5000 + b"}"]


def damaged(document, wrong=WRONG):
    """The texts of documents with another type in each key, without it, and of no document.

    In `make test` each key is absent or has one of the wrong values, in turn.
    """
    yield from NO_DOCUMENT
    for number, path in enumerate(places(document)):
        in_turn = ABSENT if number % 2 else wrong[number // 2 % len(wrong)]
        for value in [*wrong, ABSENT] if is_fuzzing() else [in_turn]:
            yield json.dumps(placed(document, path, value)).encode()


def each_damage(path, document=None, wrong=WRONG):
    """Writes the damaged texts of a document to its file, one after the other, and gives each; then it is whole."""
    whole = json.loads(path.read_text()) if document is None else document
    for text in damaged(whole, wrong):
        path.write_bytes(text)
        yield text
    path.write_text(json.dumps(whole))


def places(part, path=()):
    """Of lists the first element: the others are alike."""
    parts = part.items() if isinstance(part, dict) else enumerate(part[:1]) if isinstance(part, list) else ()
    for key, value in parts:
        yield (*path, key)
        yield from places(value, (*path, key))


def placed(document, path, value):
    """The document with the value at that place, or without the place. What lies beside it is shared."""
    key, *rest = path
    copy = document.copy()
    if rest:
        copy[key] = placed(document[key], rest, value)
    elif value is ABSENT:
        del copy[key]
    else:
        copy[key] = value
    return copy


def outcome(*words):
    """None of a command that did its work, otherwise its message; fails for one that ends in an internal error."""
    try:
        find_command(words[0]).main([str(word) for word in words[1:]], words[0], standalone_mode=False)
    except Exception as error:  # as cli/main.py
        failure = failure_of(error)
        if failure.code == "internal":
            raise
        return failure.message
    return None


class StoredMetadata:
    """The metadata of a trace or of a run's records, which is replaced without a change of a byte before the footer.

    So `survey`, `integrity` and the like stay those of the rows.
    """

    def __init__(self, path):
        self.path = Path(path)
        content = self.path.read_bytes()
        self._pages = content[:-8 - int.from_bytes(content[-8:-4], "little")]
        self._layout = pq.read_metadata(path)
        self.whole = {key.decode().removeprefix(KEY_PREFIX): json.loads(text)
                      for key, text in self._layout.metadata.items() if key.startswith(KEY_PREFIX.encode())}

    def replace(self, metadata):
        """metadata: values by key, or texts as bytes."""
        with io.BytesIO() as made, io.BytesIO() as footer:
            with pq.ParquetWriter(made, self._layout.schema.to_arrow_schema().remove_metadata(),
                                  store_schema=False) as writer:
                writer.add_key_value_metadata({
                    KEY_PREFIX + key: value.decode() if isinstance(value, bytes) else json.dumps(value)
                    for key, value in metadata.items()})
            made.seek(0)
            layout = pq.read_metadata(made)
            layout.append_row_groups(self._layout)
            layout.write_metadata_file(footer)
            self.path.write_bytes(self._pages + footer.getvalue()[4:])
