"""What the README shows works as it stands."""

import pathlib
import re

import pytest

README = pathlib.Path(__file__).parents[2] / "README.md"


@pytest.mark.jit
def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(code, {})
    found, share = re.search(r"(\d+) rare observations, ([\d.]+)% of the true", capsys.readouterr().out).groups()
    assert int(found) > 300
    assert float(share) > 95


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
