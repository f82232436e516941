"""The command blkreel with the capture helper that keeps its privileges and detaches its programs on request."""

from pathlib import Path

from blkreel.capture import helper
from blkreel.cli.main import main

MEASURED_HELPER = Path(__file__).resolve().parents[2] / "build/capture/blkreel-capture-measured"

if __name__ == "__main__":
    helper.HELPER = MEASURED_HELPER
    main()
