"""Bundles the chart library of the pages. The build runs it, because it takes seconds."""

import re
import sys
from pathlib import Path

import vl_convert

MAJOR = "6."  # of Vega-Lite: what the specifications are written for (analysis/charts/spec.py)


def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, safe inside a script element."""
    versions = [version for version in vl_convert.get_vegalite_versions() if version.startswith(MAJOR)]
    newest = max(versions, key=lambda version: [int(part) for part in version.split(".")])
    # "</script" would end the element; other "</" are parts of regular expressions.
    script = vl_convert.javascript_bundle(vl_version=newest)  # type: ignore[call-arg]  # the stub lacks a default
    return re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(library(), encoding="utf-8")
