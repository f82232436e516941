"""Write a table of orders as Parquet files, about 1.9 GB: generate.py DIRECTORY [ROWS]."""

import sys

import duckdb

_ROWS, _FILES = 40_000_000, 8


def main(directory: str, all_rows: int = _ROWS) -> None:
    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET memory_limit = '2GB'; SELECT setseed(0.5)")
    for number in range(_FILES):
        rows = all_rows // _FILES
        connection.execute(f"""
            COPY (SELECT {number * rows} + range AS order_key,
                         (random() * 3e6)::INTEGER AS customer_key,
                         (random() * 4e5)::INTEGER AS part_key,
                         (1 + random() * 49)::TINYINT AS quantity,
                         random() * 1e5 AS price,
                         random() / 10 AS discount,
                         DATE '2024-01-01' + (random() * 700)::INTEGER AS shipped,
                         ['A', 'N', 'R'][1 + (random() * 2.99)::INTEGER % 3] AS status,
                         md5(random()::VARCHAR)[:16] AS comment
                  FROM range({rows}))
            TO '{directory}/orders-{number}.parquet' (FORMAT parquet)""")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
