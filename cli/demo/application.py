"""The application that the demo launches: `python3 -I -S -B application.py LIBRARIES LAUNCH [DATASET]`.

Run as a file by an interpreter that sees no library but those below LIBRARIES, so that what it loads is read from the
drive under capture. It imports nothing of blkreel.
"""

import sys


def dataframes(dataset):
    """What most analysis scripts begin with."""
    import pandas
    import pyarrow.parquet  # noqa: F401

    pandas.DataFrame({"a": range(10)}).describe()


def scan(dataset):
    """Open a dataset of several files and read through it, in the threads of Arrow's pool."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    found = ds.dataset(dataset).to_table(filter=pc.field("size") > 0.5)
    print(pc.mean(found["latency"]))


def chart(dataset):
    """Draw a chart: a big shared library, mapped and read page by page."""
    import altair
    import pandas
    import vl_convert

    frame = pandas.DataFrame({"x": range(20), "y": range(20)})
    vl_convert.vegalite_to_svg(altair.Chart(frame).mark_point().encode(x="x", y="y").to_json())


def main():
    libraries, launch, *dataset = sys.argv[1:]
    sys.path.insert(0, libraries)
    {"dataframes": dataframes, "scan": scan, "chart": chart}[launch](*dataset or [None])


if __name__ == "__main__":
    main()
