"""The paper's tables and figures, in their quick form: each runs and writes its page, numbers and picture."""

import json

import pytest
from small_models import DATA
from typer.testing import CliRunner

from rarehmm import paper
from rarehmm.app.cli import app

EXPERIMENTS = paper.experiments()


def test_all_of_the_paper_is_there():
    wanted = "single two-rare no-rare runtime posterior gradients solar sleep tuning-solar tuning-sleep rates"
    assert set(EXPERIMENTS) == set(wanted.split())


BY_DAY = {"single", "posterior", "gradients", "solar"}  # the others in small by tests/unit/test_paper.py


@pytest.mark.jit
@pytest.mark.parametrize(
    "name", [n if n in BY_DAY else pytest.param(n, marks=pytest.mark.nightly) for n in EXPERIMENTS]
)
def test_quick_form(name, tmp_path):
    needed = EXPERIMENTS[name].DATA
    if needed and not (DATA / needed).is_dir():
        pytest.skip(f"no {needed} in {DATA}")
    found = CliRunner().invoke(app, ["reproduce", name, "--quick", "--out", str(tmp_path), "--data", str(DATA)])
    assert found.exit_code == 0, found.output
    page = (tmp_path / f"{name}.md").read_text()
    assert "A quick run" in page
    assert page.count("|---|") >= 1
    assert "\n- " in page  # a sentence on what differs, and why
    numbers = json.loads((tmp_path / f"{name}.json").read_text())
    assert numbers
    picture = (tmp_path / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_names_are_listed_and_a_wrong_one_is_told_apart():
    run = CliRunner()
    listed = run.invoke(app, ["reproduce"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in EXPERIMENTS)
    wrong = run.invoke(app, ["reproduce", "singel"])
    assert wrong.exit_code == 2
    assert "Did you mean 'single'?" in wrong.output
    absent = run.invoke(app, ["reproduce", "solar", "--data", "nowhere"])
    assert absent.exit_code == 2
    assert "goes_g16_2022" in absent.output
