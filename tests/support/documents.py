"""JSON documents of commands, validated against their schemas."""

import json
from pathlib import Path

import blkreel

# Their keys are those of reports and runs, which grow with the metrics.
_GROWING = ("replay", "test", "report", "compare")
SCHEMAS = Path(blkreel.__path__[0]) / "schema"


def valid_document(command, text):
    """The document that a command printed. Fails if it does not match its schema or has a key beyond it."""
    import jsonschema

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(text, parse_constant=refuse)
    schema = json.loads((SCHEMAS / f"{command}.json").read_text())
    variants = schema.get("anyOf", [schema])
    validators = [jsonschema.Draft202012Validator(variant) for variant in variants]
    failures = [next(validator.iter_errors(document), None) for validator in validators]
    assert None in failures, [f"{failure.json_path}: {failure.message[:300]}" for failure in failures]
    variant = variants[failures.index(None)]
    undocumented = document.keys() - variant["properties"].keys()
    assert not undocumented or command in _GROWING, f"{command} --json: undocumented keys {undocumented}"
    return document
