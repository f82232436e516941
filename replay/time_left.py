"""How long a whole preparation still takes: from the bytes that are left, at the rates seen, and the rests."""

from blkreel.traces.steady import ROUNDS
from blkreel.traces.units import format_ns

from .preparation_progress import Record
from .states import State


class TimeLeft:
    """Learns the rate of each kind of step as it goes on."""

    def __init__(self, state: State):
        self._state = state
        self._bytes_per_s: dict[str, float] = {}

    def saw(self, kind: str, bytes_per_s: float) -> None:
        if bytes_per_s > 0:
            self._bytes_per_s[kind] = bytes_per_s

    def left(self, record: Record, done_bytes: int) -> tuple[float, bool]:
        """Seconds, and whether it may well take longer. done_bytes: of the current round.

        A kind of step that was not seen yet is taken to go as fast as another, and a series of rounds to end as soon
        as it can; then it may. An erase that was not seen counts for nothing.
        """
        seconds, longer = 0.0, False
        for index, step in enumerate(self._state.steps[record.step:], record.step):
            current = index == record.step
            seconds += step.rest_ns / 1e9
            if step.plan is None:
                continue
            left_bytes = step.total_bytes - (done_bytes if current else 0)
            if step.rounds > 1:
                left_bytes += step.total_bytes * max(0, ROUNDS - 1 - (record.round if current else 0))
                longer = True
            rate = self._bytes_per_s.get(step.kind)
            if not rate:
                longer = True
                rate = 0 if step.erases else self._any_rate()
            seconds += max(0, left_bytes) / rate if rate else 0
        return seconds, longer

    def words(self, record: Record, done_bytes: int) -> str:
        """`; 12 min 3 s left in all`. Nothing where there is no rate to tell it by."""
        if not self._bytes_per_s:
            return ""
        seconds, longer = self.left(record, done_bytes)
        return f"; {'at least ' if longer else ''}{format_ns(round(seconds) * 1e9)} left in all"

    def _any_rate(self) -> float:
        rates = [rate for kind, rate in self._bytes_per_s.items() if kind != "erase"]
        return min(rates, default=0.0)
