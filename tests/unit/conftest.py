"""A command that a test runs in its own process keeps pandas out of it from then on. The tests after it need it."""

import pandas  # noqa: F401
