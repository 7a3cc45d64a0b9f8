"""The commands in this process, on small inputs."""

from typer.testing import CliRunner

from rarehmm import cli
from rarehmm.cli import kernels


def invoke(*args):
    done = CliRunner().invoke(cli.app, list(args))
    assert done.exit_code == 0, done.output
    return done.output


def test_demo(tmp_path):
    out = invoke("demo", "--size", "10000", "--out", str(tmp_path))
    assert "States: mean and 90 % interval" in out
    assert "Nothing speaks against this posterior." in out
    assert "rare events" in out
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_warm_up_names_the_families():
    assert "poisson" in invoke("warm-up", "poisson")
    assert kernels.of_one_column() == ["gaussian", "negative_binomial", "poisson", "student_t"]


def test_a_family_that_is_not_there_is_refused():
    done = CliRunner().invoke(cli.app, ["warm-up", "gausian"])
    assert done.exit_code == 2
    assert "gaussian" in done.output


def test_cache_clear_removes_what_is_listed(tmp_path, monkeypatch):
    files = [tmp_path / name for name in ("a.nbc", "b.nbc")]
    for file in files:
        file.write_bytes(b"0" * 1_000_000)
    monkeypatch.setattr(kernels, "cached_files", lambda: iter(files))
    assert "removed 2 compiled kernels, 2.0 MB" in invoke("cache", "clear")
    assert not list(tmp_path.iterdir())


def test_a_size_that_is_too_small_is_refused():
    done = CliRunner().invoke(cli.app, ["demo", "--size", "9"])
    assert done.exit_code == 2
    assert "10000" in done.output
