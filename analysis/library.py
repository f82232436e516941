"""Makes the chart library that stands in each page: run by the build, since putting it together takes seconds."""

import re
import sys
from pathlib import Path

import vl_convert

MAJOR = "6."  # of Vega-Lite: what the specifications are written for (exhibits/parts.py)


def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, fit to stand in a script element."""
    known = [version for version in vl_convert.get_vegalite_versions() if version.startswith(MAJOR)]
    newest = max(known, key=lambda version: [int(part) for part in version.split(".")])
    # Nothing in it may end the script element it stands in; other "</" are parts of regular expressions.
    return re.sub(r"</(?=script)", r"<\\/", vl_convert.javascript_bundle(vl_version=newest), flags=re.IGNORECASE)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(library(), encoding="utf-8")
