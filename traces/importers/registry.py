"""The formats that blkreel imports, besides the binary files of blktrace, which have a native decoder."""

from .datasets.blkreplay import Blkreplay
from .datasets.oracle_general import OracleGeneral
from .datasets.tables import (
    Alibaba,
    AndroidEbpf,
    DiskSim,
    Fiu,
    Hfplayer,
    IoTracer,
    MqSim,
    MsrCambridge,
    Spc,
    Systor17,
    TencentCbs,
)
from .source_format import SourceFormat
from .tools.biosnoop import Biosnoop
from .tools.blkparse import Blkparse
from .tools.btrecord import Btrecord
from .tools.ftrace import Ftrace
from .tools.iolog import Iolog2, Iolog3
from .tools.vscsi import Vscsi
from .tools.wpa import Wpa
from .tools.xperf import Xperf

# In this order a file is compared with them; the first of equal likeness wins.
FORMATS: list[SourceFormat] = [
    MsrCambridge(),
    TencentCbs(),
    Alibaba(),
    Systor17(),
    Spc(),
    Fiu(),
    AndroidEbpf(),
    IoTracer(),
    MqSim(),
    DiskSim(),
    Blkreplay(),
    Hfplayer(),
    Btrecord(),
    OracleGeneral(),
    Wpa(),
    Xperf(),
    Blkparse(),
    Ftrace(),
    Iolog2(),
    Iolog3(),
    Biosnoop(),
    Vscsi(),
]
