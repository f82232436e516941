"""The application that the demo launches: `python3 -I -S -B application.py LIBRARIES LAUNCH [DATASET]`.

A separate interpreter runs this file with LIBRARIES as its only package directory, so that imports read the drive under
capture. It imports nothing of blkreel.
"""

import sys


def dataframes(dataset: str | None) -> None:
    """Import pandas, as most analysis scripts do."""
    import pandas
    import pyarrow.parquet  # noqa: F401

    pandas.DataFrame({"a": range(10)}).describe()


def scan(dataset: str | None) -> None:
    """Read a dataset of several files with the threads of Arrow's pool."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    table = ds.dataset(dataset).to_table(filter=pc.field("size") > 0.5)
    print(pc.mean(table["latency"]))


def chart(dataset: str | None) -> None:
    """Draw a chart and print its data: many small modules, and a large shared library, mapped and read page by page."""
    import pandas
    import rich
    import rich.table
    import vl_convert

    frame = pandas.DataFrame({"x": range(20), "y": range(20)})
    table = rich.table.Table(*frame.columns)
    for row in frame.astype(str).itertuples(index=False):
        table.add_row(*row)
    rich.print(table)
    encoding = {name: {"field": name, "type": "quantitative"} for name in frame}
    vl_convert.vegalite_to_svg({"data": {"values": frame.to_dict("records")}, "mark": "point", "encoding": encoding})


def main() -> None:
    libraries, launch, *dataset = sys.argv[1:]
    sys.path.insert(0, libraries)
    {"dataframes": dataframes, "scan": scan, "chart": chart}[launch](dataset[0] if dataset else None)


if __name__ == "__main__":
    main()
