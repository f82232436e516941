"""Prevent the import of pandas in a process that does not need it."""

import sys


def keep_out_pandas() -> None:
    """Make `import pandas` fail. Call it before pyarrow converts the first column to an array.

    pyarrow imports pandas at that moment if it can, which takes 40 MiB and some tenths of a second.
    """
    if "pandas" not in sys.modules and _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("disabled in this command", name=name)
