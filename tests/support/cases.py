"""How many cases of a property are tried: some in `make test`, the same ones each time, and many in `make fuzz`."""

from hypothesis import HealthCheck, settings

FUZZ_FACTOR = 50


def is_fuzzing() -> bool:
    return settings.get_current_profile_name() == "random"


def cases(count: int) -> settings:
    """Settings of a property that tries `count` cases in `make test`. Its fixtures may be those of the function."""
    return settings(max_examples=count * (FUZZ_FACTOR if is_fuzzing() else 1),
                    suppress_health_check=[HealthCheck.function_scoped_fixture])
