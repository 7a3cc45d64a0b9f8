"""What a table was made on, and what it took."""

import pathlib
import platform
import re


def cpu():
    """The name of the processor."""
    given = pathlib.Path("/proc/cpuinfo")
    lines = given.read_text().splitlines() if given.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory():
    """The most memory that this process has had so far, in MB."""
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
