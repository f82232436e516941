"""Empty BPF programs on three events of a request; their measured cost is the overhead of the measurement."""

import ctypes
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("null.bpf.c")
# Compiler definitions of the empty program for each kind of program.
KINDS = {"tp_btf": '-DKIND="tp_btf"', "raw_tp": '-DKIND="raw_tp"', "tp": "-DCLASSIC"}


class NullPrograms:
    """with NullPrograms("tp_btf", directory): attaches the programs and holds their file descriptors."""

    def __init__(self, kind, directory):
        self._object_file = Path(directory, f"null-{kind}.o")
        subprocess.run(["clang", "-O2", "-g", "-target", "bpf", KINDS[kind], "-c", SOURCE, "-o", self._object_file],
                       check=True)
        self._libbpf = ctypes.CDLL("libbpf.so.1")
        for name in ("bpf_object__open_file", "bpf_object__next_program", "bpf_program__attach"):
            function = getattr(self._libbpf, name)
            function.restype = ctypes.c_void_p
        self._object, self._links = None, []

    def __enter__(self):
        self._object = ctypes.c_void_p(self._libbpf.bpf_object__open_file(bytes(self._object_file), None))
        if not self._object or self._libbpf.bpf_object__load(self._object):
            raise SystemExit("cannot load an empty BPF program: refused by the kernel")
        program = None
        while program := self._libbpf.bpf_object__next_program(self._object, ctypes.c_void_p(program)):
            link = self._libbpf.bpf_program__attach(ctypes.c_void_p(program))
            if not link:
                raise SystemExit("cannot attach an empty BPF program")
            self._links.append(ctypes.c_void_p(link))
        return self

    def pids(self):
        return [os.getpid()]

    def __exit__(self, *exc):
        for link in self._links:
            self._libbpf.bpf_link__destroy(link)
        self._libbpf.bpf_object__close(self._object)
        self._object, self._links = None, []
