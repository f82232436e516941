"""Power that others measured: their clocks, their gaps, what is under their curve."""

import time

import numpy as np
import pytest
from helpers import lives
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.replay.telemetry.options import TelemetryOptions, parse_sample_hz
from blkreel.replay.telemetry.power.command import PowerCommand, parse_line
from blkreel.replay.telemetry.power.log import PowerLog, parse_power_log
from blkreel.replay.telemetry.power.samples import ClockPairs, cleaned, gaps_of, integral

S = 10**9
UNIX = 1_800_000_000
# The machine had been up for 1000 s when it was UNIX; both clocks go alike.
PAIRS = ClockPairs((1000 * S, UNIX * S), (1100 * S, (UNIX + 100) * S))
TIMES = st.lists(st.integers(-10**6, 10**6), min_size=1, max_size=60, unique=True).map(sorted)


@given(TIMES, st.floats(-5, 5), st.floats(-100, 100), st.tuples(*[st.integers(-2 * 10**6, 2 * 10**6)] * 2))
def test_under_a_straight_line_lies_what_the_formula_says(times_us, slope, level, between):
    """However unevenly it is sampled, and wherever it is cut."""
    time_ns, (begin, end) = np.array(times_us) * 1000, sorted(between)
    area, covered = integral(time_ns, level + slope * time_ns / S, begin * 1000, end * 1000)
    first, last = max(begin, times_us[0]) * 1e-6, min(end, times_us[-1]) * 1e-6
    if last <= first:
        assert (area, covered) == (0, 0)
        return
    assert covered == pytest.approx((last - first) * S, abs=2)
    assert area == pytest.approx(level * (last - first) + slope * (last**2 - first**2) / 2, rel=1e-6, abs=1e-6)


@given(st.lists(st.integers(1, 199), min_size=1, max_size=50, unique=True), st.floats(0.1, 50))
def test_what_lies_in_a_gap_is_neither_in_the_energy_nor_in_the_time(lost, watts):
    """2 Hz for 100 s; some samples are lost, and where more than four in a row are, nobody knows what was there."""
    kept = np.array([index for index in range(201) if index not in lost])
    time_ns = kept * (S // 2)
    gaps = gaps_of(time_ns)
    area, covered = integral(time_ns, np.full(len(kept), watts), 0, 100 * S, gaps)
    usual = np.median(np.diff(time_ns))
    expected = sum(int(apart) for apart in np.diff(time_ns) if apart <= 5 * usual)
    assert covered == expected
    assert area == pytest.approx(watts * expected / S)


def test_clocks_that_drift_apart_are_followed_and_a_jump_is_not():
    slewed = ClockPairs((0, 0), (1000 * S, 1000 * S + S // 10))
    assert slewed.monotonic_ns(np.array([500 * S + S // 20])).tolist() == [500 * S]
    set_by_hand = ClockPairs((0, 0), (1000 * S, 4600 * S))
    assert set_by_hand.monotonic_ns(np.array([500 * S])).tolist() == [500 * S]


@pytest.mark.parametrize(("times", "apart_s", "note"), [
    ((UNIX, UNIX + 1), 3600, "was set ahead by 60 min 0 s"), ((UNIX, UNIX + 1), -5, "was set back by 5.00 s"),
    ((UNIX, UNIX + 1), 0, None), ((0, 1), 3600, None)])
def test_a_meter_on_a_clock_that_was_set_has_a_note(tmp_path, times, apart_s, note):
    pairs = ClockPairs((1000 * S, UNIX * S), (1100 * S, (UNIX + 100 + apart_s) * S))
    notes = log_of(tmp_path, "".join(f"{at},1\n" for at in times)).read(pairs, 1000 * S).notes
    assert not notes if note is None else note in notes[0]


# -- a program

@pytest.mark.parametrize(("line", "values"), [
    (b"1.5 4.25", (1.5, 4.25)), (b"1.5,4.25\r", (1.5, 4.25)), (b" 1 ; -2e-3 ", (1, -0.002)), (b"1 2 3", None),
    (b"1", None), (b"time watts", None), (b"nan 1", None), (b"1 inf", None), (b"\xff\xfe 1", None), (b"1e300 1", None)])
def test_lines_of_a_meter(line, values):
    assert parse_line(line) == values


def ran(script, lines=0, seconds=0.0):
    """What a program gave that ran until so many of its lines were there, and so much longer."""
    taken = []
    command = PowerCommand(script, lambda time_ns, watts: taken.append((time_ns, watts)))
    first = _pair()
    command.begin()
    wait_until(lambda: len(taken) >= lines)
    time.sleep(seconds)
    command.end()
    found = command.result(ClockPairs(first, _pair()))
    assert len(taken) >= len(found.time_ns)
    return found, first[0]


def _pair():
    return time.monotonic_ns(), time.time_ns()


def test_a_clock_of_its_own_is_placed_by_the_line_that_came_quickest():
    """Lines 0.1 s apart by the program's clock; some reach us late, none early."""
    found, began_ns = ran("for i in 1000.0 1000.1; do echo $i 4; done; sleep 0.3; echo 1000.2 5; sleep 50", 3)
    assert np.diff(found.time_ns).tolist() == pytest.approx([S / 10, S / 10], abs=2)
    assert found.watts.tolist() == [4, 4, 5]
    assert began_ns - S < found.time_ns[0] < time.monotonic_ns()


def test_unix_times_are_placed_by_the_clock():
    found, began_ns = ran("date '+%s.%N 3.5'; sleep 0.2; date '+%s.%N 4.5'; sleep 50", 2)
    assert found.watts.tolist() == [3.5, 4.5]
    assert 0 <= found.time_ns[0] - began_ns < 10 * S
    assert found.time_ns[1] - found.time_ns[0] >= S // 5 - 2


def test_rubbish_is_counted_and_costs_nothing_else():
    found, _ = ran("echo power meter v1; echo 1 2; echo; echo 2 x; echo 2 3; echo err 7 7; echo 3 4; sleep 50", 3)
    assert found.watts.tolist() == [2, 3, 4]
    assert "3" in found.notes[0] and "power meter v1" in found.notes[0]


@pytest.fixture
def short_times(monkeypatch):
    """After 0.2 s, a program has fallen silent, and is killed that does not end."""
    monkeypatch.setattr("blkreel.replay.telemetry.power.command._SILENT_NS", S // 5)
    monkeypatch.setattr("blkreel.replay.telemetry.power.command._END_S", 0.2)


def test_a_program_that_dies_leaves_what_it_had_said_and_a_gap(short_times):
    found, _ = ran("echo 0 5; echo 1 5; echo broken pipe of meter >&2; exit 3", 2, 0.5)
    assert found.watts.tolist() == [5, 5]
    assert "exited with 3" in found.notes[-1] and "broken pipe of meter" in found.notes[-1]
    assert found.gaps[-1][0] == found.time_ns[-1] and found.gaps[-1][1] - found.gaps[-1][0] > S // 5


def test_a_program_that_falls_silent_has_a_gap(short_times):
    found, _ = ran("echo 0 5; sleep 0.01; echo 0.01 5; sleep 60", 2, 0.5)
    assert "printed nothing in the last" in found.notes[-1] and len(found.gaps) == 1


@pytest.mark.parametrize(("script", "words", "wait_s"), [
    ("exit 0", "exited with 0", 300), ("/nowhere/meter", "not found", 300), ("echo hello", "hello", 300),
    ("sleep 600", "printed nothing", 0.3)])
def test_a_program_that_says_nothing_of_power(script, words, wait_s, monkeypatch):
    monkeypatch.setattr("blkreel.replay.telemetry.power.command._FIRST_LINE_S", wait_s)
    found, _ = ran(script)
    assert len(found.time_ns) == 0 and words in "; ".join(found.notes)


def test_nothing_that_the_program_started_outlives_it(tmp_path, short_times):
    ran(f"sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done' & sleep 0.3; echo 0 1; wait", 1)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not lives(pid))


# -- a log

def log_of(tmp_path, text, encoding="utf-8", **more):
    (tmp_path / "log.csv").write_text(text, encoding)
    return PowerLog(tmp_path / "log.csv", **more)


START = 1010 * S  # the run began ten seconds after the first pair


@pytest.mark.parametrize(("text", "more"), [
    ("time,power\n0,4\n0.5,5\n1,6\n", {}),
    ("0 4\n0.5 5\n1 6\n", {}),
    ("# a meter\n\n0;4,0\n0,5;5,0\n1,0;6,0\n", {}),
    ("Sample,Time (s),Vbus,Power (W)\n1,0,12,4\n2,0.5,12,5\n3,1,12,6\n", {}),
    ("t\tvolts\tamps\n0\t2\t2\n0.5\t2\t2.5\n1\t2\t3\n", {"columns": ("t", "volts", "amps")}),
    ("9,0,4\n9,0.5,5\n9,1,6\n", {"columns": ("2", "3")}),
    (f"time,power\n{UNIX + 10},4\n{UNIX + 10.5},5\n{UNIX + 11},6\n", {}),
    (f"time,power\n{UNIX + 10}000,4\n{UNIX + 10}500,5\n{UNIX + 11}000,6\n", {}),
    ("timestamp,watts\n2027-01-15T08:00:10+00:00,4\n2027-01-15 08:00:10.500Z,5\n2027-01-15T09:00:11+01:00,6\n", {}),
    ("time,power\n-60,4\n-59.5,5\n-59,6\n", {"offset_s": 60.0}),
    (f"time,power\n{UNIX + 13},4\n{UNIX + 13.5},5\n{UNIX + 14},6\n", {"offset_s": -3.0}),
    ("\ufefftime,power\r\n0,4\r\n0.5,5\r\n1,6\r\n", {}),
    # The units of the names count.
    ("Time uS,5V power uW,12V power uW,Tot power uW\n0,1,1,4000000\n500000,1,1,5000000\n1000000,1,1,6000000\n", {}),
    ("time,power,power factor\n0,4,1\n0.5,5,1\n1,6,1\n", {}),
    ("Time uS,12V voltage mV,12V power uW\n0,12000,4000000\n500000,12000,5000000\n1000000,12000,6000000\n", {}),
    ("t (ms),Bus (V),I [mA]\n0,2,2000\n500,2,2500\n1000,2,3000\n", {"columns": ("1", "Bus (V)", "I [mA]")}),
    (f"time (s),power_mW\n{UNIX + 10}000,4000\n{UNIX + 10}500,5000\n{UNIX + 11}000,6000\n", {}),
])
def test_a_log_of_any_make_comes_onto_the_runs_clock(tmp_path, text, more):
    found = log_of(tmp_path, text, **more).read(PAIRS, START)
    assert (found.time_ns - START).tolist() == pytest.approx([0, S // 2, S], abs=1000)
    assert found.watts.tolist() == [4, 5, 6]
    assert found.rate_hz == pytest.approx(2, rel=1e-3)
    assert not found.gaps and not found.notes


@given(st.permutations(range(30)), st.integers(-1000, 1000), st.booleans())
def test_an_offset_moves_a_log_and_its_order_does_not_matter(tmp_path_factory, order, offset, absolute):
    zero = UNIX + 10 if absolute else 0
    text = "time,power\n" + "".join(f"{zero + index - offset},{index * index}\n" for index in order)
    found = log_of(tmp_path_factory.mktemp("log"), text, offset_s=float(offset)).read(PAIRS, START)
    assert (found.time_ns - START).tolist() == [index * S for index in range(30)]
    assert found.watts.tolist() == [index**2 for index in range(30)]
    assert any("out of order" in note for note in found.notes) == (list(order) != sorted(order))


def test_an_hour_that_the_clock_shows_twice_is_not_joined(tmp_path, monkeypatch):
    """Summer time ends during the log, at 01:00 UTC."""
    begin = 1_792_886_400  # 2026-10-25 00:00 UTC
    with monkeypatch.context() as context:
        context.setenv("TZ", "Europe/Berlin")
        time.tzset()
        texts = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin + 600 * index)) for index in range(15)]
        log = log_of(tmp_path, "".join(f"{text},{index}\n" for index, text in enumerate(texts)))
        found = log.read(ClockPairs((0, begin * S), (8400 * S, (begin + 8400) * S)), 0)
    time.tzset()
    assert texts[0] == texts[6] == "2026-10-25 02:00:00"
    assert found.time_ns.tolist() == [600 * index * S for index in range(15)]
    assert found.watts.tolist() == list(range(15)) and not found.notes


def test_gaps_of_a_log_are_told(tmp_path):
    seconds = [*range(20), *range(40, 60)]
    found = log_of(tmp_path, "".join(f"{at},2\n" for at in seconds)).read(PAIRS, START)
    assert found.gaps == [(START + 19 * S, START + 40 * S)]


def test_lines_that_are_none_are_counted(tmp_path):
    found = log_of(tmp_path, "time,power\n0,4\noverload,\n1,OL\n\n2,6\n3\n").read(PAIRS, START)
    assert found.watts.tolist() == [4, 6] and "3" in found.notes[0]


@pytest.mark.parametrize(("text", "more", "words"), [
    ("", {}, "is empty"), ("time,power\n", {}, "no line with"), ("a,b,c\n1,2,3\n", {}, "columns of time and.*a, b, c"),
    ("time,3.3V power,12V power\n0,1,2\n", {}, "several columns of power"),
    ("1,2,3\n", {}, "columns of time and"), ("time,power\n0,1\n", {"columns": ("time", "watts")}, "no column 'watts'"),
    ("0,1\n", {"columns": ("1", "3")}, "no column '3'"), ("hello\nworld\n", {}, "columns of time and|no line")])
def test_a_log_that_cannot_be_read_says_how_it_could(tmp_path, text, more, words):
    with pytest.raises(BlkreelError, match=words) as raised:
        log_of(tmp_path, text, **more).read(PAIRS, START)
    assert raised.value.remedy
    with pytest.raises(BlkreelError, match="cannot be read"):
        PowerLog(tmp_path / "none.csv").read(PAIRS, START)


@given(st.binary(max_size=300))
def test_no_file_breaks_the_reader(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "log.csv"
    path.write_bytes(data)
    try:
        found = PowerLog(path).read(PAIRS, START)
    except BlkreelError as error:
        assert error.remedy
    else:
        assert np.all(np.diff(found.time_ns) > 0)


@pytest.mark.parametrize(("text", "log"), [
    ("a.csv", ("a.csv", 0.0, ())), ("a,b.csv,offset=-1.5", ("a,b.csv", -1.5, ())),
    ("a.csv,columns=Time (s):V*A,offset=3", ("a.csv", 3.0, ("Time (s)", "V", "A")))])
def test_words_of_the_option(text, log):
    found = parse_power_log(text)
    assert (str(found.path), found.offset_s, found.columns) == log


@pytest.mark.parametrize("text", ["", "a.csv,offset=soon", "a.csv,columns=t", "a.csv,columns=t:a*b*c",
                                  "a.csv,offset=1,color=red", "a.csv,offset=1e12", "a.csv,offset=-1e10"])
def test_words_that_are_refused(text):
    with pytest.raises(UsageError) as raised:
        parse_power_log(text)
    assert raised.value.remedy


def test_one_meter_at_one_drive():
    with pytest.raises(UsageError, match="--power-command and --power-log"):
        TelemetryOptions(power_command="meter", power_log=PowerLog("a"))
    assert parse_sample_hz("2") == parse_sample_hz("2 Hz") == 2
    for text in ("0.5", "51Hz", "2/s", ""):
        with pytest.raises(UsageError):
            parse_sample_hz(text)


def test_samples_that_all_come_at_one_time_are_one():
    found = cleaned([5, 5, 5], [1.0, 2.0, 3.0])
    assert found.watts.tolist() == [3] and found.rate_hz is None and "2 samples at one time" in found.notes[0]


def test_a_meter_the_wrong_way_round_is_none():
    with pytest.raises(BlkreelError, match=r"average power -3 W is negative"):
        cleaned([0, 1, 2], [-2.0, -3.0, -4.0])
    assert len(cleaned([0, 1, 2], [-0.1, 3.0, 4.0]).watts) == 3  # noise around nothing


GOOD = "time,watts\n" + "".join(f"{UNIX + second},{second}.5\n" for second in range(4))


@pytest.mark.parametrize(("text", "encoding"), [
    (GOOD, "utf-16"),                                             # a logger on Windows
    (GOOD, "utf-8-sig"),
    (GOOD.replace(",1.5", ",\0" + "1.5"), "utf-8"),               # a block that was not written yet
    ("time,watts\n" + '"' + "x" * 200_000 + '",1\n' + GOOD, "utf-8"),
    (GOOD.replace("2.5", '"2.5'), "utf-8")])                      # a quotation mark that nothing closes
def test_files_that_are_not_quite_a_csv(tmp_path, text, encoding):
    found = log_of(tmp_path, text, encoding).read(PAIRS, 1000 * S)
    assert len(found.watts) == 4 and found.watts[0] == 0.5


def test_times_since_a_start_are_of_no_run_of_a_test(tmp_path):
    """Each of its runs would get the watts of the first seconds of the log."""
    waiting = log_of(tmp_path, "time,watts\n").for_several_runs()
    relative = log_of(tmp_path, "time,watts\n0,1\n1,2\n")
    assert len(relative.read(PAIRS, 1000 * S).watts) == 2
    for refuse in (relative.for_several_runs, TelemetryOptions(power_log=relative).for_several_runs):
        with pytest.raises(UsageError, match="not since 1970, but a test has several runs"):
            refuse()
    with pytest.raises(BlkreelError, match="not since 1970"):
        waiting.read(PAIRS, 1000 * S)  # which turns out only now
    log_of(tmp_path, GOOD)
    assert waiting.read(PAIRS, 1000 * S).watts.tolist() == [0.5, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("told", ["a.csv", "a,b.csv,offset=0.1,columns=Time (s):Voltage*Current"])
def test_a_test_that_goes_on_has_the_meter_it_was_begun_with(told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = TelemetryOptions(sample_hz=5.0, power_log=parse_power_log(told)).for_several_runs()
    account = begun.account()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = TelemetryOptions().resumed_from(account)
    assert (again.sample_hz, again.power_log.path, again.power_log.offset_s, again.power_log.columns) == (
        5.0, tmp_path / begun.power_log.path, begun.power_log.offset_s, begun.power_log.columns)
    assert again.power_log.of_several_runs
    other, command = TelemetryOptions(power_command="meter"), TelemetryOptions(power_command="meter --lines")
    assert other.resumed_from(account) == other
    assert TelemetryOptions().resumed_from(None) == TelemetryOptions()
    assert TelemetryOptions().resumed_from(command.account()) == command
