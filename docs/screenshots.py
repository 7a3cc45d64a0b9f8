"""The pictures of the README and the documentation: the report of the demo in a real browser.  `make screenshots`."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def load(path):
    """A module by its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    browser = load(HERE.parent / "tests" / "browser.py")
    chromium = browser.find_browser()
    if chromium is None:
        sys.exit("no browser: install chromium")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(sys.executable).with_name("rarehmm")
        subprocess.run([program, "demo", "--out", folder], check=True)
        page = pathlib.Path(folder) / "report.html"
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
