"""What a drive predicts that is fitted to replays of other programs' traces, of what the guest has measured."""

from contextlib import chdir

from blkreel.common.errors import BlkreelError
from blkreel.common.progress import unseen
from blkreel.replay.predict.fit import fit_drives
from blkreel.replay.predict.measured_run import read_run
from blkreel.replay.predict.prediction import predict
from blkreel.traces.format.reader import open_trace


def predict_held_out(rows, directory):
    """Gives each row of `fitted`, whose `predicted` are paths below the directory, the load time and the p99 of the
    reads of its trace on a drive that is fitted to the runs of the other programs of its direction."""
    drives = {}
    for row in rows:
        if row["replay"] == "fitted":
            drives.setdefault((row["pair"], row["direction"]), []).append(row)
    for rows_of_drive in drives.values():
        with chdir(directory):
            runs = [run_of(row) for row in rows_of_drive]
            for number, row in enumerate(rows_of_drive):
                others = [run for index, run in enumerate(runs) if run and index != number]
                drive = fit_drives(others, unseen)[0].drive()
                found = predict(open_trace(row["predicted"]["part"]), drive, None, unseen)
                row["predicted"] = {"load_s": found.load_time_ns / 1e9, "limits": [f"fit of {len(others)} runs"],
                                    "reads": found.read_p99_ns and {"p99_us": found.read_p99_ns / 1e3}}


def run_of(row):
    """None for a run that no drive can be fitted to."""
    try:
        return read_run(row["predicted"]["run"])
    except BlkreelError as error:
        print(f"{row['program']}, {row['direction']}: not fitted: {error}", flush=True)
        return None
