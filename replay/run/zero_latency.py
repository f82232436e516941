"""The load time of a plan on a drive that takes no time: what the application's own think times leave at least.

The plan runs on a simulated drive without latency on the virtual clock. The result does not depend on the machine, and
is cached by the trace's checksum, the options of the plan and the version of planner and engine.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from blkreel import __version__
from blkreel.common.errors import BlkreelError
from blkreel.common.files.typed_document import document_of
from blkreel.common.progress import Progress
from blkreel.replay.engine.engine import HELPER, Engine, run_engine
from blkreel.replay.engine.spans import RunSpan
from blkreel.replay.plan import survey_cache
from blkreel.replay.plan.plan import TracePlan
from blkreel.replay.simulated.spec import ZERO_LATENCY
from blkreel.traces.format.metadata_types import ZeroLatency

from .simulate import simulate

_PLANNER = Path(survey_cache.__file__).parent


def zero_latency(plan: TracePlan, sha256: str | None, progress: Progress,
                 engine: Engine = run_engine) -> dict[str, Any] | None:
    """A document of ZeroLatency, from the cache, or by running the plan. None without a dependent pace, or if the run
    did not complete.

    sha256: of the trace; without it nothing is cached.
    """
    if not any(pace.dependent for pace in plan.paces):
        return None
    key = plan_key(plan, sha256)
    load_time_ns = _cached(key) if sha256 else None
    if load_time_ns is None:
        load_time_ns = _measured(plan, progress, engine)
        if load_time_ns is None:
            return None
        if sha256:
            survey_cache.store_facts(facts_name("zero latency", key), {"key": key, "load_time_ns": load_time_ns})
    return document_of(ZeroLatency(load_time_ns=load_time_ns, engine_version=engine_version()))


@cache
def engine_version() -> str:
    """The version of blkreel and a checksum of the helper and the planner."""
    digest = hashlib.sha256()
    try:
        for path in (HELPER, *sorted(_PLANNER.glob("*.py"))):
            digest.update(path.read_bytes())
        return f"{__version__}+{digest.hexdigest()[:12]}"
    except OSError:
        return __version__


def _measured(plan: TracePlan, progress: Progress, engine: Engine) -> int | None:
    span = RunSpan()
    try:
        whole = simulate(plan, ZERO_LATENCY, span.add, progress, "computing the load time without latency", engine)
    except BlkreelError:
        return None  # it must not cost the run that was measured
    return span.load_time_ns if whole else None


def plan_key(plan: TracePlan, sha256: str | None) -> dict[str, Any]:
    """Everything that determines the times of the plan, as in JSON.

    Of the maps only the copies: a drive without latency takes no time for any offset, and the engine counts overlaps of
    I/Os in flight without delaying them.
    """
    return {"sha256": sha256, "devices": [drive.device for drive in plan.drives], "pace": plan.pace.account(),
            "streams": {str(stream): pace.account() for stream, pace in plan.stream_paces.items()},
            "idle_cap_ns": plan.idle.cap_ns, "without": list(plan.without), "copies": plan.mapping.copies,
            "threads": plan.sharding.account(),
            "observed": plan.observed, "engine": engine_version()}


def facts_name(kind: str, key: dict[str, Any]) -> str:
    """The name of a cache entry."""
    return f"{kind} {json.dumps(key, sort_keys=True)}"


def _cached(key: dict[str, Any]) -> int | None:
    facts = survey_cache.load_facts(facts_name("zero latency", key)) or {}
    load_time_ns = facts.get("load_time_ns")
    is_valid = facts.get("key") == key and type(load_time_ns) is int and load_time_ns >= 0
    return load_time_ns if is_valid else None
