"""Runs the command in forks of one process that has imported it, because each new Python imports for half a second.

`CommandServer.run` takes and returns what subprocess.run does, `CommandServer.start` what subprocess.Popen does. A fork
differs from a new process only in what is imported before. The server imports a module after the first command that
used it, and never pandas, which the command does without.
"""

import atexit
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

# Variables that Python or a library reads once, when it is imported, are not among these.
FREE_VARIABLES = {"BLKREEL_STATE_DIR", "BLKREEL_CACHE_DIR", "COLUMNS", "PATH", "PYTEST_CURRENT_TEST"}
# Modules of other packages may start threads when they are imported, which a fork would lose.
PACKAGES = {"blkreel", "click", "jinja2", "numpy", "pyarrow", "rich", "scipy"} | sys.stdlib_module_names
MESSAGE_BYTES = 1 << 20


class CommandServer:
    def __init__(self):
        self._environment = dict(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
        with theirs:
            # -P: a script of the package has only the installed packages on its path.
            self._process = subprocess.Popen([sys.executable, "-P", __file__, str(theirs.fileno())],
                                             pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                             start_new_session=True)

    def close(self):
        self._socket.close()
        self._process.wait(300)

    def takes(self, environment):
        """Whether a command with this environment can be a fork: what was imported has read the same variables."""
        names = (environment.keys() | self._environment.keys()) - FREE_VARIABLES
        return all(environment.get(name) == self._environment.get(name) for name in names)

    def run(self, command, *, env, timeout, cwd=None):
        """The result of a command, as text. Raises TimeoutExpired after the command was killed."""
        with self.start(command, env=env, cwd=cwd) as process:
            try:
                output, errors = process.communicate(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def start(self, command, *, env, cwd=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
              start_new_session=False):
        """A Process. stdout, stderr: PIPE, DEVNULL or an open file."""
        request = {"argv": list(map(str, command)), "cwd": str(Path(cwd or ".").resolve()), "env": env,
                   "new_session": start_new_session}
        status, status_end = os.pipe()
        reads, ends = zip(_pipe_for(stdout), _pipe_for(stderr), strict=True)
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [0, *ends, status_end])
        finally:
            for descriptor in (*ends, status_end):
                os.close(descriptor)
        return Process(command, status, *reads)


def _pipe_for(target):
    """(the end to read from or None, the end of the command)."""
    if target == subprocess.PIPE:
        return os.pipe()
    return None, os.open(os.devnull, os.O_WRONLY) if target == subprocess.DEVNULL else os.dup(target.fileno())


class Process:
    """A fork that is a command, with what tests use of subprocess.Popen in text mode."""

    def __init__(self, command, status, output, errors):
        self.args, self._status, self.returncode = command, open(status), None
        self.stdout, self.stderr = (None if end is None else open(end) for end in (output, errors))
        self.pid = int(self._status.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait()

    def poll(self, timeout_s=0.0):
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def wait(self, timeout=None):
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout=None):
        """What is left of both outputs, when both have ended, and the command."""
        deadline = None if timeout is None else time.monotonic() + timeout
        streams = [stream for stream in (self.stdout, self.stderr) if stream and not stream.closed]
        read = dict(zip(streams, _read_all([stream.fileno() for stream in streams], deadline), strict=True))
        output, errors = (_text(read[stream]) if stream in read else None for stream in (self.stdout, self.stderr))
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if self.poll(left) is None:
            raise subprocess.TimeoutExpired(self.args, timeout, output, errors)
        for stream in streams:
            stream.close()
        return output, errors

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


def _read_all(descriptors, deadline):
    """The bytes of each pipe until all of them have ended, or until the deadline."""
    parts = {descriptor: [] for descriptor in descriptors}
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    waiting = set(descriptors)
    while waiting and (deadline is None or deadline > time.monotonic()):
        for descriptor, _ in poll.poll(None if deadline is None else max(0, (deadline - time.monotonic()) * 1000)):
            if data := os.read(descriptor, 1 << 16):
                parts[descriptor].append(data)
            else:
                poll.unregister(descriptor)
                waiting.discard(descriptor)
    return [b"".join(parts[descriptor]) for descriptor in descriptors]


def _text(data):
    return io.TextIOWrapper(io.BytesIO(data)).read()


class _Server:
    """Takes requests until the other end closes. In each fork, `serve` returns, and the process becomes the command."""

    def __init__(self, connection):
        self._connection = connection
        self._status_pipes = {}
        self._modules, self._modules_pipe = os.pipe()
        wakes, self._wakes = os.pipe()
        for descriptor in (wakes, self._wakes, self._modules, self._modules_pipe):
            os.set_blocking(descriptor, False)
        self._wakeups = wakes
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def serve(self):
        poll = select.poll()
        for descriptor in (self._connection.fileno(), self._wakeups):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            self._reap()
            if self._connection.fileno() not in ready:
                continue
            message, descriptors, _, _ = socket.recv_fds(self._connection, MESSAGE_BYTES, 4)
            if not message:
                sys.exit()
            self._import_what_was_used()
            gc.freeze()  # a collection in the fork would copy the pages of all objects
            pid = os.fork()
            if pid == 0:
                self._become(json.loads(message), descriptors)
                return
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            os.write(descriptors[3], f"{pid}\n".encode())
            self._status_pipes[pid] = descriptors[3]

    def _reap(self):
        try:
            os.read(self._wakeups, 4096)
        except BlockingIOError:
            pass
        while self._status_pipes:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            pipe = self._status_pipes.pop(pid)
            try:
                os.write(pipe, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            except BrokenPipeError:
                pass  # its timeout has expired
            os.close(pipe)

    def _import_what_was_used(self):
        try:
            names = os.read(self._modules, MESSAGE_BYTES).decode().split("\n")
        except BlockingIOError:
            return
        for name in names[:-1]:
            try:
                import_module(name)
            except ImportError:
                pass

    def _become(self, request, descriptors):
        """In the fork: no trace of the server, but for the pipe that takes the names of modules."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGHUP):  # below nohup, the tests ignore the latter
            signal.signal(number, signal.SIG_DFL)
        self._connection.close()
        for descriptor in (self._modules, self._wakeups, self._wakes, descriptors[3], *self._status_pipes.values()):
            os.close(descriptor)
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if request["new_session"]:
            os.setsid()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        Path("/proc/self/comm").write_text(Path(request["argv"][0]).name)
        sys.argv[:] = request["argv"]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        self._known = set(sys.modules)

    def name_what_was_used(self):
        new = [name for name in list(sys.modules) if name not in self._known and name.partition(".")[0] in PACKAGES]
        try:
            os.write(self._modules_pipe, "".join(f"{name}\n" for name in new).encode())
        except BlockingIOError:
            pass  # the next command names them


def _serve(descriptor):
    command = import_module("blkreel.cli.main")
    command.keep_out_pandas()
    server = _Server(socket.socket(fileno=descriptor))
    server.serve()
    try:
        command.main()
    except SystemExit as ended:
        server.name_what_was_used()
        _end(ended)
        raise
    except BaseException:
        server.name_what_was_used()
        raise


def _end(ended):
    """End with the code of `ended` as Python does, but do not free the objects first: that takes three quarters of the
    time of a short command, because the pages that a fork shares with the server are copied. Returns if stdout cannot
    be written, for Python's own end of that."""
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(ended.code)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
