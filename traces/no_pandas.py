"""Keeping pandas out of a process that has no use for it."""

import sys


def keep_out_pandas() -> None:
    """For a process of blkreel's own, before its first column of rows; later ones of this process cannot import it."""
    if "pandas" not in sys.modules and _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


class _NoPandas:
    """Keeps pyarrow from importing pandas, which it does with the first column that becomes an array: 40 MiB and some
    tenths of a second. pyarrow takes it for not installed, and goes without.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError("the command goes without pandas", name=name)
