"""What a table was made on, and what it took."""

import pathlib
import platform
import re
import subprocess
from datetime import date


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
    """The commit that is checked out, with a plus sign if files other than results differ from it."""
    differ = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return git("rev-parse", "--short", "HEAD") + ("+" if differ else "")


def git(*words):
    top = pathlib.Path(__file__).parents[1]
    return subprocess.run(["git", *words], cwd=top, check=True, capture_output=True, text=True).stdout.strip()


def made_by(target):
    """Who wrote a table: the make target, the day, the commit and the processor."""
    return f"Written by `make {target}` on {date.today()}, commit {commit()}, {cpu()}; do not edit."
