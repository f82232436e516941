"""NVMe over TCP on the loopback network: a connection that stalls or breaks off, during a capture and a replay."""

import json
import mmap
import os
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from blkreel.common.device import drive_of
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from tests.vm.guest.drives import counters, multipath_head
from tests.vm.guest.test_ends import make_trace

NVMET = Path("/sys/kernel/config/nvmet")
NAME, SERIAL = "blkreel-test", "GUEST006"
TARGET_PORT, PORT = 4420, 4421
LISTENING = "0A"  # TCP_LISTEN of include/net/tcp_states.h
QUEUE = 32
BLOCK_BYTES = 4096
STRIDE_BYTES = 2 * BLOCK_BYTES  # a scheduler would merge neighbors


class Connection:
    """A process that passes on what goes between PORT and TARGET_PORT, and is controlled by signals.

    SIGSTOP: the connections stall until SIGCONT. SIGUSR1: they break off, and new ones are refused until SIGUSR2.
    """

    def __init__(self):
        self._left_bytes = mmap.mmap(-1, 8)  # of both processes
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        self.pid = os.fork()
        if self.pid == 0:
            with suppress(BaseException):
                self._run()
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])

    def stall_after(self, count_bytes):
        """Stops itself when it has passed on as much to the target."""
        self._left_bytes[:] = count_bytes.to_bytes(8, "little")

    def has_stalled(self):
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].startswith("T")

    def _count(self, passed_bytes):
        if left_bytes := int.from_bytes(self._left_bytes, "little"):
            self.stall_after(max(0, left_bytes - passed_bytes))
            if left_bytes <= passed_bytes:
                os.kill(os.getpid(), signal.SIGSTOP)

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _run(self):
        signal.signal(signal.SIGUSR1, self._break_off)
        while True:
            sockets = {}  # with the other end of each; the listener has none
            with suppress(ConnectionAbortedError):
                self._pass_on(sockets)
            for each in sockets:
                each.close()
            signal.sigwait([signal.SIGUSR2])

    @staticmethod
    def _break_off(number, frame):
        raise ConnectionAbortedError

    def _pass_on(self, sockets):
        listener = socket.create_server(("127.0.0.1", PORT))
        sockets[listener] = None
        while True:
            for ready in select.select(list(sockets), [], [])[0]:
                if ready is listener:
                    accepted, _ = listener.accept()
                    far = socket.create_connection(("127.0.0.1", TARGET_PORT))
                    sockets |= {accepted: far, far: accepted}
                elif ready in sockets:
                    data = b""
                    with suppress(ConnectionResetError):
                        data = ready.recv(1 << 20)
                    if data:
                        sockets[ready].sendall(data)
                        if sockets[ready].getpeername()[1] == TARGET_PORT:
                            self._count(len(data))
                    else:
                        sockets.pop(sockets.pop(ready)).close()
                        ready.close()


@pytest.fixture
def connection():
    connection = Connection()
    yield connection
    connection.end()


@pytest.fixture
def backing(null_blk):
    """The drive of a target that accepts connections on TARGET_PORT."""
    if not Path("/dev/nvme-fabrics").exists():
        pytest.skip("needs nvme-tcp and nvmet-tcp: modprobe nvme-tcp nvmet-tcp")
    drive = null_blk(memory_backed=1, size=64)
    subsystem, port = NVMET / "subsystems" / NAME, NVMET / "ports/1"
    namespace, exported = subsystem / "namespaces/1", port / "subsystems" / NAME
    for directory, attributes in ((subsystem, {"attr_allow_any_host": 1, "attr_serial": SERIAL}),
                                  (namespace, {"device_path": drive, "enable": 1}),
                                  (port, {"addr_trtype": "tcp", "addr_adrfam": "ipv4", "addr_traddr": "127.0.0.1",
                                          "addr_trsvcid": TARGET_PORT})):
        directory.mkdir()
        for name, value in attributes.items():
            (directory / name).write_text(str(value))
    exported.symlink_to(subsystem)
    yield drive
    exported.unlink()
    (namespace / "enable").write_text("0")
    for directory in (port, namespace, subsystem):
        directory.rmdir()


@pytest.fixture
def drive(backing, connection):
    """The drive of the target, over the connection: a head with one path, whose keep-alive never ends by itself."""
    options = {"transport": "tcp", "traddr": "127.0.0.1", "trsvcid": PORT, "nqn": NAME, "queue_size": QUEUE,
               "nr_io_queues": 2, "keep_alive_tmo": 600, "reconnect_delay": 1, "ctrl_loss_tmo": 600}
    wait_until(lambda: _listens(PORT))
    fabrics = os.open("/dev/nvme-fabrics", os.O_RDWR)
    try:
        os.write(fabrics, ",".join(f"{name}={value}" for name, value in options.items()).encode())
        instance = os.read(fabrics, 100).decode().partition("instance=")[2].partition(",")[0]
    finally:
        os.close(fabrics)
    yield multipath_head(SERIAL)
    Path(f"/sys/class/nvme/nvme{instance}/delete_controller").write_text("1")


def _listens(port):
    """A connection that a test before has closed is in the table for a minute, at the same port in another state."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(address.endswith(f":{port:04X}") and state == LISTENING for _, address, _, state, *_ in lines)


def path_of(drive):
    controller, namespace = Path(drive).name.rsplit("n", 1)
    path, = Path("/sys/block").glob(f"{controller}c*n{namespace}")
    return path


def deepest(begin_ns, end_ns):
    """The most I/Os in flight at a time."""
    at_ns = np.concatenate([end_ns, begin_ns])
    return int(np.repeat([-1, 1], len(begin_ns))[np.argsort(at_ns, kind="stable")].cumsum().max())


def write(drive, count, first=0):
    return f"dd if=/dev/zero of={drive} bs={BLOCK_BYTES} seek={first} count={count} oflag=direct status=none"


def test_a_capture_has_each_io_once_with_its_wait_for_the_connection(rows_of, drive, backing, connection):
    """Of a connection that stalls, the command is in flight. If it breaks off, the head keeps the I/O for its path."""
    pid = connection.pid
    in_flight = f"until grep -q '[1-9]' {path_of(drive)}/inflight; do sleep 0.05; done; sleep 1"
    before = counters(backing)["writes"]
    rows = rows_of(drive, f"""
        {write(drive, 3)}
        kill -STOP {pid}; {write(drive, 1, 10)} & {in_flight}; kill -CONT {pid}; wait
        {write(drive, 2, 20)}
        kill -STOP {pid}; {write(drive, 1, 30)} & {in_flight}; kill -USR1 {pid}; kill -CONT {pid}
        until grep -q connecting {path_of(drive)}/device/state; do sleep 0.05; done
        {write(drive, 1, 40)} & until grep -q '^1 0x1 ' /proc/$!/syscall; do sleep 0.05; done; sleep 1
        kill -USR2 {pid}; wait
        {write(drive, 2, 50)}""", "--workload-only")
    device, = rows.attrs["metadata"]["devices"]
    assert (device["path"], device["transport"]) == (drive, "tcp")
    assert device["queue_depth"] == int((path_of(drive) / "queue/nr_requests").read_text())
    assert rows.offset_bytes.tolist() == [at * BLOCK_BYTES for at in (0, 1, 2, 10, 20, 21, 30, 40, 50, 51)]
    assert set(rows.op) == {OPS["write"]} and set(rows.status) == {0} and (rows["flags"] & FLAGS["own"]).all()
    threads = rows.attrs["metadata"]["threads"]
    assert {threads[str(tid)]["comm"] for tid in rows.tid} == {"dd"}
    waited = rows.offset_bytes.isin([at * BLOCK_BYTES for at in (10, 30, 40)])
    assert (rows.latency_ns[waited] >= 10**9).all() and (rows.latency_ns > 0).all()
    summary = rows.attrs["summary"]
    assert summary["ledger"]["failed_over"] == 1 and summary["missing"] == []
    assert summary["diskstats"]["difference"] == 0 and summary["ledger"]["not_own"] == 0
    assert counters(backing)["writes"] - before == len(rows)


@pytest.mark.parametrize("due", [True, False])
def test_a_connection_that_breaks_off_repeats_no_row_and_keeps_their_order(a_plan, issue, drive, backing, connection,
                                                                          due):
    """Rows with a deadline wait for room in the queue of the path. Others wait in the head, which then submits more at
    once than the path takes."""
    count, depth = (400, 1024) if due else (500, 4 * QUEUE)
    plan = a_plan(np.arange(count) * STRIDE_BYTES, op=OPS["write"], due_ns=np.arange(count) * 10**7 if due else -1)
    before = counters(backing)["writes"]
    os.kill(connection.pid, signal.SIGSTOP if due else signal.SIGUSR1)
    if not due:
        wait_until(lambda: (path_of(drive) / "device/state").read_text() == "connecting\n")
    goes_on = threading.Timer(2, lambda: [os.kill(connection.pid, number) for number in (
        signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)[0 if due else 1:]])

    def on_note(note):
        if note["outstanding"] and goes_on.ident is None:
            goes_on.start()

    totals, records = issue(plan, target=drive, depth=depth, may_write=True, on_note=on_note)
    goes_on.join()
    assert set(records["status"]) == {0} and totals["completed_ops"] == count
    order = np.lexsort((records["source_row"], records["submit_ns"]))
    assert records["source_row"][order].tolist() == list(range(count))
    waited = int((records["complete_ns"] - records["submit_ns"] > 10**9).sum())
    queue = drive_of(drive).queue_depth
    assert waited >= 1 and deepest(records["submit_ns"], records["complete_ns"]) <= (
        queue - queue // 4 if due else depth)
    # A write that the target had got when the connection broke off is sent again.
    written = counters(backing)["writes"] - before
    assert count <= written <= count + waited
    time.sleep(0.5)
    assert counters(backing)["writes"] - before == written, "nothing is written late"


def test_a_replay_has_the_stall_of_its_connection_in_its_verdict(blkreel, drive, backing, connection, tmp_path):
    count = 1000
    trace = make_trace(tmp_path / "t.parquet", submit_ns=np.arange(count) * 10**7, latency_ns=np.full(count, 1000),
                       length_bytes=np.full(count, BLOCK_BYTES), offset_bytes=np.arange(count) * STRIDE_BYTES,
                       op=np.full(count, OPS["write"]))
    before = counters(backing)["writes"]
    connection.stall_after(20 * BLOCK_BYTES)
    process = blkreel.start("replay", trace, "--on", drive, "--pace", "depth=4", "-o", tmp_path / "run", "--destroy",
                            SERIAL)
    wait_until(lambda: connection.has_stalled() or process.poll() is not None)
    wait_until(lambda: any(int(count) for count in (path_of(drive) / "inflight").read_text().split()))
    time.sleep(3)
    os.kill(connection.pid, signal.SIGCONT)
    code = process.wait()
    out, err = process.output()
    assert code in (0, 3), out + err
    assert counters(backing)["writes"] - before == count, "each once"
    run = open_trace(tmp_path / "run")
    rows = run.table().to_pandas()
    assert set(rows.status) == {0} and (rows.latency_ns > 2e9).any()
    assert deepest(rows.submit_ns, rows.submit_ns + rows.latency_ns) <= 4
    assert run.metadata["run"]["drive"]["transport"] == "tcp"
    entry = json.loads(blkreel("report", tmp_path / "run", "--json").stdout)["entry"]
    stall, = (reason for reason in entry["verdict"]["reasons"] if reason["code"] == "stall")
    assert stall["level"] == "qualified" and "no I/O completed for at least" in stall["text"]
    assert "the connection (tcp)" in stall["text"]
