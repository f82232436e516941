"""Aggregate all rows and columns of the Parquet files of a directory: query.py DIRECTORY."""

import sys
import time

import duckdb

_QUERY = """
    SELECT status, count(*), sum(quantity), sum(price * (1 - discount)), max(customer_key), max(part_key),
           max(order_key), max(shipped), sum(length(comment))
    FROM read_parquet($1) GROUP BY status ORDER BY status"""


def main(directory: str) -> None:
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    started = time.monotonic()
    rows = connection.execute(_QUERY, [f"{directory}/*.parquet"]).fetchall()
    print(f"{len(rows)} groups in {time.monotonic() - started:.2f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
