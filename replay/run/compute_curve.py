"""Load time over compute speed: the same plan on its simulated drive, with the computing divided more and more."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from blkreel.common.errors import BlkreelError
from blkreel.common.progress import Progress
from blkreel.replay.engine.engine import Engine
from blkreel.replay.engine.spans import RunSpan
from blkreel.replay.plan import survey_cache
from blkreel.replay.plan.plan import TracePlan
from blkreel.traces.format.condition import NO_COMPUTING

from .simulate import simulate
from .zero_latency import facts_name, plan_key

FACTORS = (1, 2, 4, 8, 16, math.inf)
# A longer trace would be simulated for minutes.
MOST_IOS = 500_000


def compute_curve(plan: TracePlan, sha256: str | None, progress: Progress,
                  engine: Engine) -> list[dict[str, Any]] | None:
    """A document of metadata_types.ComputePoint for each of FACTORS, of a fresh drive; from the cache if it has them.

    None unless the plan runs at dependent pace and at the recorded compute speed on one simulated drive with a virtual
    clock, has at most MOST_IOS, and can be simulated. sha256: of the trace; without it nothing is cached.
    """
    drive = plan.target.simulated
    if (not drive or not drive.is_virtual or len(plan.targets) > 1 or plan.total_ios > MOST_IOS
            or not plan.pace.dependent or plan.pace.compute != 1 or plan.stream_paces):
        return None
    key = {**plan_key(plan, sha256), "drive": drive.identity, "map": plan.mapping.account(), "factors": len(FACTORS)}
    if sha256 and (points := _cached(key)):
        return points
    points = []
    try:
        for factor in FACTORS:
            span = RunSpan()
            faster = replace(plan, pace=replace(plan.pace, compute=factor))
            if not simulate(faster, drive, span.add, progress, "computing load times over compute speed", engine):
                return None
            points.append({"compute": factor if math.isfinite(factor) else NO_COMPUTING,
                           "load_time_ns": span.load_time_ns})
    except BlkreelError:
        return None  # it must not cost the run that was measured
    if sha256:
        survey_cache.store_facts(facts_name("compute curve", key), {"key": key, "points": points})
    return points


def _cached(key: dict[str, Any]) -> list[dict[str, Any]] | None:
    facts = survey_cache.load_facts(facts_name("compute curve", key)) or {}
    points: Sequence[Any] = facts.get("points") or ()
    is_valid = facts.get("key") == key and len(points) == len(FACTORS) and all(
        isinstance(point, dict) and type(point.get("load_time_ns")) is int for point in points)
    return list(points) if is_valid else None
