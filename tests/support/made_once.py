"""Files that tests make again and again are made once in each process, and then copied."""

from functools import wraps

from blkreel.traces.format import writer


def made_once(write):
    """For functions of a path and of values with a repr(), which write the same files whatever the path."""
    made = {}

    @wraps(write)
    def write_or_copy(path, *values, **options):
        key = repr((values, sorted(options.items()), writer.ROWS_PER_GROUP))
        if key not in made:
            write(path, *values, **options)
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            made[key] = {file.relative_to(path): file.read_bytes() for file in files}
            return path
        for name, content in made[key].items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        return path

    return write_or_copy
