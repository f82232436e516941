"""A benchmark of two measurements that runs in this process."""

import textwrap

from fake_engine import FakeEngine
from quiet import progress

from blkreel.benchmarks.benchmark_file import read_test
from blkreel.benchmarks.recipe.recipe import parse_recipe
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.benchmarks.runner.record import BenchmarkRecord, create
from blkreel.benchmarks.runner.runner import BenchmarkRunner

RECIPE = """
title = "t"
explain = "e"
report = "depths"
steps = [
  { do = "state", state = "full" },
  { each = { depth = [1, 4] }, steps = [
    { do = "measure", role = "depth", name = "depth-{depth}", streams = [
      { op = "write", block = "64K", depth = "= depth", volume = "1MiB" }] },
    { do = "rest", time = "1ms" }] }]
"""
TWO_DEPTHS = """
title = "two depths"
explain = "writes at random, at two depths"
report = "depths"
parameters = { time = { kind = "time", value = "50ms", about = "how long each" } }
steps = [
  { each = { depth = [1, 8] }, do = "measure", role = "depth", name = "depth {depth}", time = "= time", streams = [
    { name = "writer", op = "write", block = "4K", depth = "= depth" }] }]
"""
STEPS = ["state full", "depth-1", "rest", "depth-4", "rest"]


def runner_of(directory, target, text=RECIPE, engine=None, **options):
    """A runner of the recipe in that directory; of a test that is there already, as --resume makes it.

    Its attributes `done` and `said` collect the titles of its steps and its messages.
    """
    recipe = parse_recipe("mine", textwrap.dedent(text).encode())
    steps = steps_of(recipe, recipe.resolve({}), size_bytes=target.size_bytes, block_bytes=512, seed=1)
    if directory.exists():
        stored, _ = read_test(directory)
        for step, document in zip(steps, stored["steps"], strict=True):
            step.restore(document)
        head = {key: value for key, value in stored.items() if key not in ("steps", "version")}
        record = BenchmarkRecord(directory, head, steps)
    else:
        record = create(directory, {"test": "mine", "label": "L", "ended_at": None}, steps, force=False)
    done, said = [], []
    runner = BenchmarkRunner(record, target, 1, progress, engine=engine or FakeEngine(), notify=said.append,
                             on_step=lambda number, steps: done.append(steps[number - 1].title), **options)
    runner.done, runner.said = done, said
    return runner
