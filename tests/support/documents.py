"""JSON documents of commands and specifications of charts, validated against their schemas."""

import json
from functools import cache
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


@cache
def _vega_lite():
    """altair's own check takes ten times as long."""
    import altair
    import jsonschema

    from blkreel.analysis.charts.spec import SCHEMA

    assert altair.SCHEMA_URL.startswith(SCHEMA.removesuffix("json"))
    path = Path(altair.__file__).parent / "vegalite/v6/schema/vega-lite-schema.json"
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


def check_vega_lite(specification):
    """Fails if it does not match the schema of Vega-Lite."""
    failure = next(_vega_lite().iter_errors(specification), None)
    assert failure is None, f"{specification['description']}: {failure.json_path}: {failure.message[:300]}"
