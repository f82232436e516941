"""A database server starts from a cold cache and finds single rows for several clients: PostgreSQL and pgbench -S."""

from database import record_database
from scratch import make_sample

_CLIENTS, _TRANSACTIONS = 8, 2500


def make(name: str) -> None:
    record_database(name, "queries", (str(_CLIENTS), str(_TRANSACTIONS)))


make_sample("database-queries", make)
