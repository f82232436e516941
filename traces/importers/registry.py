"""The formats that blkreel imports, besides the binary files of blktrace, which have a native decoder."""

from .datasets.alibaba import Alibaba
from .datasets.android_ebpf import AndroidEbpf
from .datasets.blkreplay import Blkreplay
from .datasets.fiu import Fiu
from .datasets.hfplayer import Hfplayer
from .datasets.io_tracer import IoTracer
from .datasets.msr_cambridge import MsrCambridge
from .datasets.oracle_general import OracleGeneral
from .datasets.simulators import DiskSim, MqSim
from .datasets.spc import Spc
from .datasets.systor17 import Systor17
from .datasets.tencent_cbs import TencentCbs
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
