"""What a drive predicts that is fitted to replays of other programs' traces, of what the guest has measured."""

from contextlib import chdir

from blkreel.analysis.metrics.partials.distributions import PERCENTILES
from blkreel.common.errors import BlkreelError
from blkreel.common.progress import unseen
from blkreel.common.verdict import enough
from blkreel.replay.predict.fit import fit_drives
from blkreel.replay.predict.measured_run import read_run
from blkreel.replay.predict.prediction import predict
from blkreel.traces.format.reader import open_trace

P99 = PERCENTILES["p99"]


def predict_held_out(rows, directory):
    """The rows. Those of `fitted`, whose `predicted` are paths below the directory, get the load time and the p99 of
    1,000 reads or more of their trace on a drive that is fitted to the runs of the other programs of the direction.
    Where there are none, they are left out."""
    drives = {}
    for row in rows:
        if row["replay"] == "fitted":
            drives.setdefault((row["pair"], row["direction"]), []).append(row)
    predicted = [row for row in rows if row["replay"] != "fitted"]
    for rows_of_drive in drives.values():
        with chdir(directory):
            runs = [run_of(row) for row in rows_of_drive]
            for number, row in enumerate(rows_of_drive):
                others = [run for index, run in enumerate(runs) if run and index != number]
                if not others:
                    print(f"{row['program']}, {row['direction']}: not predicted: no other program has a run")
                    continue
                drive = fit_drives(others, unseen)[0].drive()
                found = predict(open_trace(row["predicted"]["part"]), drive, None, unseen)
                figures = {"load_s": found.load_time_ns / 1e9, "limits": [f"fit of {len(others)} runs"],
                           "reads": {"p99_us": found.read_p99_ns / 1e3} if enough(found.reads, P99) else None}
                predicted.append({**row, "predicted": figures})
    return predicted


def run_of(row):
    """None for a run that no drive can be fitted to."""
    try:
        return read_run(row["predicted"]["run"])
    except BlkreelError as error:
        print(f"{row['program']}, {row['direction']}: not fitted: {error}")
        return None
