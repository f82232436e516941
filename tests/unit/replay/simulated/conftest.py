"""The engine on simulated drives."""

import pytest
from columns import in_plan_order

from blkreel.replay.drive.target import engine_options, find_target
from blkreel.replay.simulated import state


@pytest.fixture
def on_drive(issue):
    """on_drive(spec, plan block or lane, ...): totals, and records in the plan's order. fresh: forgets earlier runs."""
    def run(spec, *plans, fresh=False, **options):
        targets = [find_target(each) for each in ([spec] if isinstance(spec, str) else spec)]
        for target in targets if fresh else ():
            state.erase(target.simulated)
        totals, records = issue(*plans, **engine_options(targets), **{"depth": 1, "may_write": True} | options)
        return totals, in_plan_order(records)

    return run
