"""Models of workloads: fitted to a trace, kept as a TOML file, and played into new traces."""

from .fio_job import FioJob, fio_job
from .fit import modeled_trace
from .generate import generated, write_generated
from .measurement import measured
from .model_file import SUFFIX, model_text, read_model
from .placement import MOST_SAMPLED_IOS, sampled_ios
from .properties import PROPERTIES, Comparison, compared, properties
from .workload_model import WorkloadModel

__all__ = ["MOST_SAMPLED_IOS", "PROPERTIES", "SUFFIX", "Comparison", "FioJob", "WorkloadModel", "compared", "fio_job",
           "generated", "measured", "model_text", "modeled_trace", "properties", "read_model", "sampled_ios",
           "write_generated"]
