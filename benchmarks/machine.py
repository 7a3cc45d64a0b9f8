"""What a table was made on."""

import pathlib
import platform


def cpu():
    """The name of the processor."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
