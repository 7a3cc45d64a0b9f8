"""The programs in examples/ run as a user would run them, and end in assertions that hold."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "examples").glob("*.py"))


AT_NIGHT = {"how_many_states", "machine_faults", "network_counts", "own_family", "the_paper"}  # those that take longest


def when(path):
    return pytest.mark.nightly if path.stem in AT_NIGHT else ()


@pytest.mark.jit
@pytest.mark.parametrize("path", [pytest.param(p, marks=when(p), id=p.stem) for p in EXAMPLES])
def test_an_example_runs_and_its_assertions_hold(path, tmp_path):
    assert "\nassert " in path.read_text(), "an example ends in assertions"
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert not any(tmp_path.iterdir())
    assert "Traceback" not in done.stderr


def test_there_are_examples():
    assert len(EXAMPLES) >= 5
