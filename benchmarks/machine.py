"""What a table was made on."""

import pathlib
import platform


def cpu():
    """The name of the processor."""
    told = pathlib.Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
