"""A database server starts from a cold cache and reads its table into memory: PostgreSQL and pg_prewarm."""

from database import record_database
from scratch import make_sample


def make(name: str) -> None:
    record_database(name, "restart")


make_sample("database-restart", make)
