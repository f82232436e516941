"""A run's telemetry as one line for a terminal."""

from blkreel.traces.units import format_ns


def telemetry_line(told: dict | None) -> str:
    """Temperature and power, where they were measured; "" where neither was."""
    parts = []
    heat = (told or {}).get("temperature_c")
    if heat:
        parts.append(f"drive at {heat['start']:.0f} C, then {heat['end']:.0f} C, {heat['max']:.0f} C at most")
    power = (told or {}).get("power")
    if power:
        gaps = f", {power['gaps']:,} gaps" if power["gaps"] else ""
        parts.append(f"{power['average_w']:.4g} W on average, {power['energy_j']:.4g} J in "
                     f"{format_ns(power['covered_ns'])} ({power['meter']}{gaps})")
    return "; ".join(parts)
