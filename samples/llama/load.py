"""Load a model with llama.cpp and plain reads (no mmap), and exit when it is ready: load.py FILE.

Only the environment of model-load.py has xllamacpp.
"""

import os
import sys
import time

import xllamacpp

_STARTED = time.monotonic()
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
parameters.n_ctx = 256
parameters.n_parallel = 1
parameters.cpuparams.n_threads = 2
parameters.warmup = False
server = xllamacpp.Server(parameters)
print(f"ready in {time.monotonic() - _STARTED:.2f} s", flush=True)
os._exit(0)  # without the seconds in which the server shuts down
