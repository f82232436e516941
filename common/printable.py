"""Text from outside, such as names from the kernel and from users, made safe to print."""

import re
from typing import Any

# Control characters (terminal escapes, line breaks), bidirectional controls, bytes that are not UTF-8 (surrogates),
# line separators, and the two characters that XML forbids.
_NOT_PRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_BYTE = 0xDC00  # os.fsdecode() turns the byte 0xff into the surrogate 0xdcff


def printable(text: object) -> str:
    """The text with each unsafe character as an escape: ESC as `\\x1b`, a byte that is not UTF-8 as `\\xff`."""
    return _NOT_PRINTABLE.sub(_escaped, str(text))


def storable(text: str) -> str:
    """The text for a file in UTF-8: a byte of a name that is not UTF-8 as `\\xff`."""
    return _SURROGATES.sub(_escaped, text)


def within_sentence(title: str) -> str:
    """A title without its capital, which units and names keep: `Read p99` as `read p99`, `I/Os` and `IOPS` as they
    are."""
    return title if title[1:2] == "/" or title[:2].isupper() else title[:1].lower() + title[1:]


def printable_document(value: Any) -> Any:
    """A JSON document with all its texts printable; the same object if they were."""
    if isinstance(value, str):
        return printable(value) if _NOT_PRINTABLE.search(value) else value
    if isinstance(value, list):
        elements = [printable_document(element) for element in value]
        return elements if any(new is not old for new, old in zip(elements, value, strict=True)) else value
    if isinstance(value, dict):
        items = {printable_document(key): printable_document(element) for key, element in value.items()}
        same = all(new is old for new, old in zip(items.values(), value.values(), strict=False))
        return value if same and items.keys() == value.keys() else items
    return value


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if _BYTE <= code <= _BYTE + 0xFF:
        return f"\\x{code - _BYTE:02x}"
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
