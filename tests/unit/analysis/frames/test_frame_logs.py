"""Logs of frame times: formats and versions, and what is wrong with a file, in one line."""

import json

import numpy as np
import pytest
from rendering import FRAME_NS, MS, STALL_NS, capframex, frame_ends, mangohud, presentmon

from blkreel.analysis.frames.frame_log import FrameLogError, read_frame_log
from blkreel.common.errors import UsageError

STALLS = {40: STALL_NS, 90: STALL_NS}


@pytest.mark.parametrize("options", [{}, {"versioned": True}, {"unit": 1000}], ids=["ms", "versioned", "us"])
def test_mangohud_of_each_version(tmp_path, options):
    ends, time_ns = frame_ends(STALLS, 2)
    log = read_frame_log(mangohud(tmp_path, ends, time_ns, **options))
    assert (log.format, log.program, log.rejected) == ("MangoHud", "kart", 0)
    assert (log.end_ns == ends - 400 * MS).all() and (log.time_ns == time_ns).all()
    # Up to 0.6.8 the times were in µs, and the file was named at the end.
    assert log.named_end == (options.get("unit") == 1000) and log.named_s is not None


def test_presentmon_takes_the_process_with_the_most_frames(tmp_path):
    ends, time_ns = frame_ends(STALLS, 2)
    path = presentmon(tmp_path / "frames.csv", ends - time_ns, time_ns, others=30)
    log = read_frame_log(path)
    assert (log.program, log.pid, log.frames_elsewhere) == ("kart.exe", 100, 30)
    assert (log.time_ns == time_ns).all() and (np.diff(log.start_ns) == time_ns[:-1]).all()
    assert len(read_frame_log(path, "dwm").time_ns) == 30
    with pytest.raises(UsageError, match=r"no frames of 'doom'; name one of: kart.exe, dwm.exe"):
        read_frame_log(path, "doom")


@pytest.mark.parametrize(("header", "row"), [
    ("Application,ProcessID,SwapChainAddress,Runtime,TimeInSeconds,msInPresentAPI,msBetweenPresents",
     lambda start, time: f"kart.exe,7,0x1,DXGI,{(start + time) / 1e9:.9f},0.1,{time / MS:.6f}"),
    ("Application,ProcessID,SwapChainAddress,CPUStartTime,MsCPUBusy,MsCPUWait,MsBetweenPresents",
     lambda start, time: f"kart.exe,7,0x1,{start / MS:.6f},{time / MS - 1:.6f},1,16.6"),
    ("Application,ProcessID,SwapChainAddress,CPUStartQPC,FrameTime",
     lambda start, time: f"kart.exe,7,0x1,{start // 100},{time / MS:.6f}"),
], ids=["version 1", "CPU busy and wait", "QPC"])
def test_presentmon_of_each_version(tmp_path, header, row):
    ends, time_ns = frame_ends(STALLS, 2)
    starts = ends - time_ns
    path = tmp_path / "PresentMon.csv"
    path.write_text("\n".join([header, *map(row, starts.tolist(), time_ns.tolist())]))
    log = read_frame_log(path)
    assert np.abs(log.time_ns - time_ns).max() <= 1 and np.abs(log.start_ns - starts).max() <= 100


def test_capframex(tmp_path):
    ends, time_ns = frame_ends(STALLS, 2)
    log = read_frame_log(capframex(tmp_path / "record.json", ends, time_ns))
    assert (log.format, log.program) == ("CapFrameX", "kart") and (log.time_ns == time_ns).all()
    assert np.abs(log.end_ns - ends).max() <= 1


def run_of(count, **changes):
    capture = {"TimeInSeconds": [0.01 * at for at in range(count)], "MsBetweenPresents": [10.0] * count} | changes
    return {"CaptureData": capture}


HEADER = "os,cpu,gpu,ram,kernel,driver,cpuscheduler\nLinux,c,g,r,k,d,s\nfps,frametime,elapsed\n"
PRESENTMON = "Application,ProcessID,TimeInSeconds,msBetweenPresents\n"
BAD = {
    "empty.csv": ("", "no frame log"),
    "photo.png": ("\x89PNG\r\n\x1a\n\0\0" * 500, "no frame log"),
    "kart_summary.csv": ("0.1% Min FPS,1% Min FPS,97% Percentile FPS\n1,2,3\n", "without _summary"),
    "headers.csv": (HEADER, "no frames"),
    "short.csv": (HEADER + "100,10,10000000\n" * 3, "3 frames, at least 10"),
    "sampled.csv": (HEADER + "".join(f"100,10,{at * 100_000_000}\n" for at in range(50)), "log_interval=0"),
    "back.csv": (HEADER + "".join(f"100,10,{(50 - at) * 10_000_000}\n" for at in range(50)), "steps back"),
    "units.csv": (HEADER + "".join(f"100,33,{at * 10_000_000}\n" for at in range(50)), "contradict"),
    "damaged.csv": (HEADER + "".join(f"100,10,{at * 10_000_000}\nnan,x\n" for at in range(50)), "50 rows without"),
    "dropped.csv": (PRESENTMON + "".join(f"a.exe,1,{at * 0.03},10\n" for at in range(50)), "do not add up"),
    "unknown.csv": ("Application,ProcessID,Time\n", "no columns of frame times"),
    "other.json": ('{"a": 1}', "no record of CapFrameX"),
    "deep.json": ('{"a":' * 50_000, "no record of CapFrameX"),
    "two.json": (json.dumps({"Runs": [run_of(20)] * 2}), "2 runs, each on a clock of its own"),
    "uneven.json": (json.dumps({"Runs": [run_of(20, MsBetweenPresents=[10.0])]}), "not equally many"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name):
    text, words = BAD[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FrameLogError) as error:
        read_frame_log(tmp_path / name)
    assert words in str(error.value) and name in error.value.message and error.value.remedy
    assert "\n" not in str(error.value)


def test_a_frame_ends_where_the_next_one_begins(tmp_path):
    """Rounded frame times make no frames overlap."""
    ends, time_ns = frame_ends({}, 2)
    log = read_frame_log(mangohud(tmp_path, ends, time_ns + 400))
    assert (log.start_ns[1:] >= log.end_ns[:-1]).all() and abs(int(log.time_ns.sum()) - 200 * FRAME_NS) <= 400
