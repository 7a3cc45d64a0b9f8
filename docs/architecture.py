"""The packages of rarehmm in order, the imports between them, and a picture of both: ``make architecture``.

``PACKAGES`` is the order that ``tests/unit/test_architecture.py`` enforces: a module may import only what is above it
in the list, between packages and inside each.
"""

import ast
import functools
import os
import pathlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src" / "rarehmm"

# package -> its modules in order; () for a single file, and for an extension point, whose files do not import each
# other (what they share is in files that begin with an underscore)
PACKAGES: dict[str, tuple[str, ...]] = {
    "common": ("arrays", "blas", "checks", "progress", "writing"),
    "data": (
        "sources", "tables", "input_columns", "workers", "rows", "clocks", "stamps", "zones", "domains", "summaries",
        "series", "pieces", "seasons", "trends", "inputs", "new_rows", "transforms", "files",
    ),
    "engine": ("dispatch", "lanes", "elementary", "special", "contracts", "automatic", "kernels"),
    "transitions": (),
    "model": (
        "priors", "conjugate", "scaled_priors", "parameters", "checks", "learnable", "moves", "named_priors",
        "stationary", "coordinates", "fixed", "autoregression", "unfolding", "effects", "fixed_coefficients",
        "information", "coefficients",
        "target", "model", "effect_simulation", "simulation",
    ),
    "emissions": (),
    "exact": (
        "blocks", "block_sample", "statistics", "densities", "block_pass", "edge_pass", "edge_prediction",
        "complete_data", "passes", "batched_edges", "batched", "scoring", "em",
    ),
    "search": ("labels", "initial", "alternatives", "regimes", "mode", "long_series"),
    "windows": ("windows", "gradients", "label_sums", "information", "pool"),
    "designs": (),
    "samplers": (),
    "sampling": (
        "chains", "starts", "regime_gibbs", "gibbs", "langevin", "hmc", "proposals", "importance", "variational",
        "arviz_adapter", "diagnostics", "methods", "stand_in", "paper_sampler", "rule",
    ),
    "conformance": ("requirements", "emission", "design", "sampler", "transition"),
    "posterior": (
        "model_settings", "named_coefficients", "posterior", "prediction", "regime_streams", "streaming", "forecasting",
        "components", "residuals", "predictive_checks", "model_check", "verdict", "events", "event_evidence",
        "event_threshold", "saved_fit",
    ),
    "specification": ("given", "families", "terms", "models", "restored"),
    "choosing": (
        "selection", "kinds", "held_out", "regression", "periods", "candidates", "suggestion", "suggest", "remedy",
    ),
    "estimator": (),
    "plots": (),
    "paper": (
        "common", "synthetic", "real", "grid", "eeg", "goes", "public_files", "gradients", "no_rare", "posterior",
        "rates", "runtime", "single", "sleep", "solar", "tuning_sleep", "tuning_solar", "two_rare",
    ),
    "app": ("term_texts", "settings", "input_files", "report", "runs", "cli"),
}  # fmt: skip


def imported(path: pathlib.Path, source: pathlib.Path = SOURCE) -> Iterator[str]:
    """The modules that a file imports, also inside functions; of this package by their full names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                inside = source.parent.joinpath(*str(node.module).split("."), alias.name)
                is_module = inside.with_suffix(".py").exists() or inside.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else str(node.module)


def violation(here: tuple[str, ...], other: tuple[str, ...]) -> str:
    """Why a module (its path below ``rarehmm``) may not import another one; empty if it may."""
    order = list(PACKAGES)
    for module in (here, other):
        if not module or module[0] not in order:
            return f"{'.'.join(module) or 'rarehmm'} is missing from the list in docs/architecture.py"
    if here[0] != other[0]:
        below = order.index(other[0]) > order.index(here[0])
        return f"{here[0]} imports {other[0]}, which is below it" if below else ""
    mine, theirs = (module[1] if len(module) > 1 else "" for module in (here, other))
    if mine == theirs or not theirs:
        return ""
    inside = PACKAGES[here[0]]
    if not inside:
        return (
            "" if theirs[0] == "_" or not mine else f"{mine} imports {theirs}: files of an extension point stand alone"
        )
    for name in (mine, theirs):
        if name and name not in inside:
            return f"{here[0]}.{name} is missing from the list in docs/architecture.py"
    below = mine and inside.index(theirs) > inside.index(mine)
    return f"{here[0]}.{mine} imports {theirs}, which is below it" if below else ""


# ---------------------------------------------------------------- the picture
EXTENSION_POINTS = ("emissions", "designs", "samplers")
# the nine steps of a fit, and the module and function in which each begins
STEPS = {
    "Series": ("data.series", "__init__"),
    "Model": ("model.named_priors", "default_priors"),
    "find_states": ("search.initial", "find_states"),
    "climb": ("exact.em", "climb"),
    "Windows": ("windows.windows", "__init__"),
    "pilot": ("designs.pilot", "pilot"),
    "Pool": ("windows.pool", "__init__"),
    "run": ("sampling.chains", "run"),
    "Posterior": ("posterior.posterior", "of"),
}
CAPTIONS = (  # position, title, note
    (0.1, "Packages", "amber: extensible"),
    (4.5, "Imports", "of each row, from the columns: only upwards"),
    (14.4, "One fit", "modules it enters; amber: where a step starts"),
)
INDIGO, PALE, AMBER, INK, GREY = "#3f51b5", "#f2f3fa", "#f08c00", "#24292f", "#6e7781"


@functools.cache
def module_of(file: str) -> str:
    """The module of a source file, without the name of the library ("data.series"); empty for other files."""
    path = pathlib.Path(file)
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts) if path.is_relative_to(SOURCE) else ""


def modules() -> dict[str, list[pathlib.Path]]:
    """The files of each package; empty ones do not count."""
    files = {name: [*(SOURCE / name).rglob("*.py"), *SOURCE.glob(f"{name}.py")] for name in PACKAGES}
    return {name: [path for path in paths if path.stat().st_size] for name, paths in files.items()}


def import_counts() -> Counter[tuple[str, str]]:
    """Number of imports from each package into each other one: (importer, imported) -> count."""
    counts: Counter[tuple[str, str]] = Counter()
    for package, paths in modules().items():
        for path in paths:
            others = [name.split(".")[1] for name in set(imported(path)) if name.startswith("rarehmm.")]
            counts.update((package, other) for other in others if other != package)
    return counts


def trace_fit() -> list[Counter[str]]:
    """Number of modules of each package that each step of a small fit enters.

    Kernels run without the compiler: a profiler does not see what they call once they are compiled.
    """
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    import numpy as np

    from rarehmm import RareHMM

    begins, step = list(STEPS.values()), -1
    entered: list[set[str]] = [set() for _ in STEPS]

    def enter(frame: Any, event: str, _: Any) -> None:
        nonlocal step
        if event == "call" and (module := module_of(frame.f_code.co_filename)):
            if begins[step + 1 :][:1] == [(module, frame.f_code.co_name)]:
                step += 1
            entered[max(step, 0)].add(module)

    y = np.random.default_rng(0).normal(size=200)
    y[70:90] += 6
    hmm = RareHMM(2, method="chain", n_draws=1, n_jobs=1, verbose=0)
    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        hmm.fit(y)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if step + 1 < len(STEPS):
        raise RuntimeError(f"the fit never called {' '.join(begins[step + 1])}; update STEPS.")
    return [Counter(name.split(".")[0] for name in names) for names in entered]


def draw(path: pathlib.Path = SOURCE.parent.parent / "docs" / "architecture.png") -> None:
    """Draw the packages, the imports between them and the way of one fit through them, a row for each package."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyBboxPatch

    rows = {name: -i for i, name in enumerate(PACKAGES)}
    figure, axes = plt.subplots(figsize=(9.2, 8))
    axes.set(xlim=(0, 23.6), ylim=(0.5 - len(rows), 4.8))
    axes.axis("off")
    for (name, y), files in zip(rows.items(), modules().values(), strict=True):
        axes.axhspan(y - 0.5, y + 0.5, color=PALE if y % 2 else "white", lw=0)
        colour = AMBER if name in EXTENSION_POINTS else INDIGO
        shape = "round,pad=0,rounding_size=0.15"
        axes.add_patch(FancyBboxPatch((0.1, y - 0.35), 4.05, 0.7, shape, fc=colour, ec="none"))
        axes.text(0.3, y, name, color="white", weight="bold", size=9.5, va="center_baseline")
        axes.text(4.0, y, len(files), color="white", size=8, ha="right", va="center_baseline")
    draw_imports(axes, rows, left=4.75, width=0.53)
    draw_fit(axes, rows, left=14.8, width=0.97)
    for x, title, note in CAPTIONS:
        axes.text(x, 4.3, title, color=INK, size=10.5, weight="bold")
        axes.text(x, 3.75, note, color=GREY, size=8.5)
    figure.savefig(path, dpi=180, bbox_inches="tight", pad_inches=0.05, facecolor="white")
    plt.close(figure)


def draw_imports(axes: Any, rows: dict[str, int], left: float, width: float) -> None:
    """A matrix of the number of imports, from the package of a row to that of a column."""
    from matplotlib.patches import Rectangle

    def cell(x: float, y: float, colour: str, alpha: float) -> None:
        box = Rectangle((x - width / 2 + 0.03, y - 0.42), width - 0.06, 0.84, fc=colour, ec="none", alpha=alpha)
        axes.add_patch(box)

    for name, y in rows.items():
        header(axes, left - y * width, name, 7.5)
        cell(left - y * width, y, GREY, 0.25)
    for (importer, other), count in import_counts().items():
        x, y, alpha = left - rows[other] * width, rows[importer], min(1.0, 0.18 + count / 30)
        cell(x, y, INDIGO, alpha)
        axes.text(x, y, count, size=6.5, color="white" if alpha > 0.5 else INK, ha="center", va="center_baseline")


def draw_fit(axes: Any, rows: dict[str, int], left: float, width: float) -> None:
    """A column for each step of a fit: dots for the packages it enters, a line through those in which it begins."""
    across = [left + i * width for i in range(len(STEPS))]
    starts = [rows[module.split(".")[0]] for module, _ in STEPS.values()]
    for i, (x, entered) in enumerate(zip(across, trace_fit(), strict=True)):
        header(axes, x, f"{i + 1} {list(STEPS)[i]}", 8.5)
        for package, count in entered.items():
            y, colour = rows[package], AMBER if rows[package] == starts[i] else "#8c96d4"
            axes.scatter(x, y, s=70 + 16 * count, color=colour, lw=0, zorder=3)
            axes.text(x, y, count, size=7.5, color="white", ha="center", va="center_baseline", zorder=4)
    axes.plot(across, starts, color=AMBER, lw=2, zorder=2)


def header(axes: Any, x: float, text: str, size: float) -> None:
    axes.text(x - 0.1, 0.7, text, color=INK, size=size, rotation=60, ha="left", va="bottom", rotation_mode="anchor")


if __name__ == "__main__":
    draw()
