"""What a table was made on, and what it took."""

import pathlib
import platform
import re
import subprocess


def cpu():
    """The name of the processor."""
    given = pathlib.Path("/proc/cpuinfo")
    lines = given.read_text().splitlines() if given.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory():
    """The most memory that this process has had so far, in MB."""
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024


def commit():
    """The commit that is checked out, with a plus sign if files differ from it."""
    show = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(
        show, cwd=pathlib.Path(__file__).parent, check=True, capture_output=True, text=True
    ).stdout.strip()
