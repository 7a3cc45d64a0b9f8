"""The pictures of the README and the documentation: a report in a real browser.  `make screenshots`."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pandas as pd

import rarehmm as rh

HERE = pathlib.Path(__file__).parent


def load(path):
    """A module by its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flux(size=60_000):
    """Six weeks by the minute: two levels of ordinary life, and some twenty bursts of half an hour."""
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    rows = [[0.999, 0.0008, 0.0002], [0.0008, 0.999, 0.0002], [0.02, 0.02, 0.96]]
    truth = model.parameters(rows, mean=[-2, 0, 5], variance=[1, 1, 2])
    y, _ = rh.simulate(np.random.default_rng(4), model, truth, size)
    return pd.DataFrame({"time": pd.date_range("2026-01-01", periods=size, freq="min"), "flux": y.round(4)})


def main():
    browser = load(HERE.parent / "tests" / "browser.py")
    chromium = browser.find_browser()
    if chromium is None:
        sys.exit("no browser: install chromium")
    with tempfile.TemporaryDirectory() as folder:
        file, run = pathlib.Path(folder) / "flux.csv", pathlib.Path(folder) / "run"
        flux().to_csv(file, index=False)
        program = pathlib.Path(sys.executable).with_name("rarehmm")
        subprocess.run([program, "fit", file, "--column", "flux", "--time", "time", "--out", run], check=True)
        page = run / "report.html"
        for name, width, height, dark in (("report", 1100, 1010, False), ("report-phone", 400, 860, True)):
            with browser.Browser(chromium, width, height, dark) as one:
                one.open(page)
                one.settle()
                one.screenshot(HERE / f"{name}.png")
        with browser.Browser(chromium, 1100, 560) as one:
            one.open(page)
            one.click("button.event[data-event='3']")
            one.ask("document.getElementById('series').closest('section').scrollIntoView()")
            one.settle()
            one.screenshot(HERE / "event.png")


if __name__ == "__main__":
    main()
