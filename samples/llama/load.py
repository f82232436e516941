"""Load a model with llama.cpp, and exit when it is ready: load.py FILE read|mmap|direct.

Only the environment that recipes.py makes has xllamacpp.
"""

import os
import sys
import time

import xllamacpp

_STARTED = time.monotonic()
_MODES = {"read": xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE,
          "mmap": xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_MMAP,
          "direct": xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_DIRECT_IO}
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.load_mode = _MODES[sys.argv[2]]
parameters.n_ctx = 256
parameters.n_parallel = 1
parameters.cpuparams.n_threads = 2
parameters.warmup = False
server = xllamacpp.Server(parameters)
print(f"ready in {time.monotonic() - _STARTED:.2f} s", flush=True)
os._exit(0)  # without the seconds in which the server shuts down
