"""Tasks one after the other, in this process."""

from collections.abc import Callable, Iterator

from blkreel.traces.errors import BlkreelError

from .work import partial_of


class Here:
    """A runner. parallel: how many tasks it does at once. figures: what gives those of a part, in its way."""

    parallel = 1
    figures = staticmethod(partial_of)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def run(self, function: Callable, parts: list, on_rows: Callable[[int, int], None]) -> Iterator[tuple[int, object]]:
        """(index, function(part) or the BlkreelError that it raised) of each part, in the order in which they end.

        on_rows(index, rows done) is told while a part is read, where the runner hears of it, and when it ends.
        """
        for index, part in enumerate(parts):
            try:
                result = function(part, lambda done, index=index: on_rows(index, done))
            except BlkreelError as error:
                result = error
            on_rows(index, part.rows)
            yield index, result
