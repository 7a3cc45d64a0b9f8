"""The package as users get it: what is in it, and the README's example from a wheel in environments of its own.

    python tests/packaged.py        # with the newest versions of its dependencies, a middle numba, and the lowest

The engine is also tested with the middle and the lowest numba.

Everything happens in a temporary folder: with no PYTHONPATH, another home, and an empty cache of kernels.
"""

import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
UNIT = [
    f"tests/unit/test_{name}.py" for name in ("cli", "estimator", "files", "plots", "posterior", "series", "sources")
]
ENGINE = [f"tests/unit/test_{name}.py" for name in ("dispatch", "lanes")]
TOOLS = ["hypothesis", "pytest", "pytest-xdist"]


def lowest(*requirements):
    """The lowest versions that requirements allow, as constraints: ``numpy>=2.0`` is ``numpy==2.0``."""
    return [re.sub(r"(\[.*?\])?>=([\d.]+).*", r"==\2", one) for one in requirements]


def middle(*requirements):
    """The minor version of numba in the middle of those allowed, as a constraint: ``numba>=0.60,<0.69`` is 0.64."""
    (numba,) = (one for one in requirements if one.startswith("numba>="))
    first, last = map(int, re.findall(r"0\.(\d+)", numba))
    return f"numba==0.{(first + last - 1) // 2}.*"


def program(folder, name):
    """A program of an environment."""
    return folder / ("Scripts" if os.name == "nt" else "bin") / name


def run(*command, where, home=None):
    """Run a command; with a ``home``, as one who has nothing but that."""
    print("$", *(str(part) if "\n" not in str(part) else "(program)" for part in command), flush=True)
    more = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if home:
        more |= {"HOME": str(home), "USERPROFILE": str(home), "NUMBA_CACHE_DIR": str(home / "kernels")}
    subprocess.run([str(part) for part in command], cwd=where, env=more, check=True)


def environment(folder, *what):
    """An empty environment, and what is installed in it."""
    run(sys.executable, "-m", "venv", folder, where=ROOT)
    quiet = "--quiet", "--disable-pip-version-check"
    run(program(folder, "python"), "-m", "pip", "install", *quiet, *what, where=folder)
    return program(folder, "python")


# ---------------------------------------------------------------- what is in it
def build(place):
    """The wheel, made of the sdist; it is the same as one made of the tree, and nothing is in it but the library."""
    python = environment(place / "builder", "build")
    run(python, "-m", "build", "--outdir", place / "dist", ROOT, where=place)
    run(python, "-m", "build", "--wheel", "--outdir", place / "direct", ROOT, where=place)
    (wheel,), (direct,) = (place / "dist").glob("*.whl"), (place / "direct").glob("*.whl")
    content = contents(wheel)
    assert content == contents(direct), "a wheel made of the sdist is another one than that of the tree"
    library = {f"rarehmm/{path.relative_to(ROOT / 'src/rarehmm').as_posix()}" for path in files(ROOT / "src/rarehmm")}
    about = {name for name in content if name.startswith(f"rarehmm-{PROJECT['version']}.dist-info/")}
    assert content.keys() - about == library, sorted((content.keys() - about) ^ library)
    assert "rarehmm/py.typed" in library
    (sdist,) = (place / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    wanted = {".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src"}
    assert tops == wanted, sorted(tops ^ wanted)
    print(
        f"{wheel.name}: {len(content)} files, {wheel.stat().st_size} bytes; {sdist.name}: {sdist.stat().st_size} bytes"
    )
    return wheel


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# ---------------------------------------------------------------- what it does
def try_readme(python, home):
    """What the README shows: its program, and the demo."""
    home.mkdir()
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    where = f"import rarehmm; assert rarehmm.__file__.startswith({str(python.parents[1])!r}), rarehmm.__file__\n"
    run(python, "-c", where + "\n".join(blocks), where=home, home=home)
    run(python.with_name("rarehmm"), "demo", where=home, home=home)
    assert (home / "rarehmm-demo" / "report.html").is_file()


def try_tests(python, home, *tests):
    """Run tests against the installed package; newer or older dependencies may warn of what they deprecate."""
    run(python, "-m", "pytest", "-W", "default", "-m", "not cluster", "-q", *tests, where=ROOT, home=home)


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = pathlib.Path(folder)
        wheel = build(place)
        try_readme(environment(place / "newest", wheel), place / "home of newest")
        needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["long"]]
        python, home = environment(place / "middle", wheel, *TOOLS, middle(*needed)), place / "home of middle"
        try_readme(python, home)
        try_tests(python, home, *ENGINE)
        constraints = place / "lowest.txt"
        constraints.write_text("\n".join(lowest(*needed)), encoding="utf-8")
        print(*lowest(*needed))
        python = environment(place / "lowest", f"{wheel}[long]", *TOOLS, "--constraint", constraints)
        home = place / "home of lowest"
        try_readme(python, home)
        try_tests(python, home, *ENGINE, *UNIT)


if __name__ == "__main__":
    main()
