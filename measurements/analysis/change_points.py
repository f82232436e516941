"""How often a step in a series of nights is dated to within one night, and how often a series without a step is silent.

    .venv/bin/python -m measurements.analysis.change_points [--series 1000]

Simulated series of 60 nights; runs spread by 3 % (standard deviation), and a step is 5 % on a random night from the
11th to the 50th. "best possible" is the most likely night if the spread and both levels were known: no method that
does not know them dates more. Other rows change one thing: heavy tails (Student's t with 3 degrees of freedom), 3
nights 30 % off, nights that follow the night before (correlation 0.3), two opposite steps 10 nights apart, a drift of
5 % over all nights. The last table is of the nights until a new step is reported.
"""

import argparse

import numpy as np

from blkreel.analysis.stats.change_points import change_points

NIGHTS, SPREAD, STEP = 60, 0.03, np.log(1.05)
RUNS = {"normal": (1, 2, 3, 6), "heavy tails": (3,), "3 nights off": (3,), "correlated": (3,)}  # a night


def nights(kind: str, runs: int, random: np.random.Generator, count: int = NIGHTS) -> np.ndarray:
    """The logarithm of each night: the mean of its runs."""
    size = (count, runs)
    noise = random.standard_t(3, size) / np.sqrt(3) if kind == "heavy tails" else random.standard_normal(size)
    if kind == "3 nights off":
        noise[random.choice(count, 3, replace=False)] += 0.3 / SPREAD
    if kind == "correlated":
        for night in range(1, count):
            noise[night] = 0.3 * noise[night - 1] + np.sqrt(1 - 0.3**2) * noise[night]
    return SPREAD * noise.mean(axis=1)


def best_possible(logs: np.ndarray, runs: int) -> int:
    """The most likely night of the step, spread and levels known."""
    gain = STEP * logs - STEP**2 / 2
    return int(np.append(gain[::-1].cumsum()[::-1], 0).argmax())


def is_dated(indexes: list[int], step: int) -> bool:
    return any(abs(index - step) <= 1 for index in indexes)


def indexes_of(logs: np.ndarray) -> list[int]:
    return [point.index for point in change_points(np.exp(logs).tolist())]


def measure(kind: str, runs: int, series: int) -> str:
    random = np.random.default_rng(60)
    counts = dict.fromkeys(("best", "dated", "held", "more", "silent", "both", "drift"), 0)
    for _ in range(series):
        noise, step = nights(kind, runs, random), int(random.integers(10, 51))
        stepped = noise + STEP * (np.arange(NIGHTS) >= step)
        points = change_points(np.exp(stepped).tolist())
        counts["best"] += abs(best_possible(stepped, runs) - step) <= 1
        counts["dated"] += is_dated([point.index for point in points], step)
        counts["held"] += any(point.first <= step <= point.last for point in points)
        counts["more"] += len(points) > 1
        counts["silent"] += not indexes_of(noise)
        begin = min(step, 40)
        indexes = indexes_of(noise + STEP * ((np.arange(NIGHTS) >= begin) & (np.arange(NIGHTS) < begin + 10)))
        counts["both"] += is_dated(indexes, begin) and is_dated(indexes, begin + 10)
        counts["drift"] += bool(indexes_of(noise + STEP * np.arange(NIGHTS) / NIGHTS))
    return f"{kind:13} {runs:4}  " + "  ".join(f"{100 * count / series:7.1f}" for count in counts.values())


def nights_until_reported(runs: int, series: int) -> str:
    """A step after 40 nights: how many nights with it until it is reported."""
    random, delays = np.random.default_rng(61), []
    for _ in range(series):
        logs = nights("normal", runs, random) + STEP * (np.arange(NIGHTS) >= 40)
        delays.append(next((night - 40 for night in range(42, NIGHTS + 1)
                            if any(index >= 38 for index in indexes_of(logs[:night]))), NIGHTS))
    quantiles = np.quantile(delays, (0.5, 0.95), method="higher")
    return f"{runs:4}  " + "  ".join(f"{quantile:6.0f}" for quantile in quantiles)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=1000)
    series = parser.parse_args().series
    print(f"{series} series each, percent")
    print("series        runs     best    dated  in dates     more   silent     both    drift")
    for kind, all_runs in RUNS.items():
        for runs in all_runs:
            print(measure(kind, runs, series), flush=True)
    print("nights until a step of 5 % is reported\nruns  median    p95")
    for runs in (1, 3, 6):
        print(nights_until_reported(runs, max(1, series // 10)), flush=True)


if __name__ == "__main__":
    main()
