"""Series longer than memory: from a file to a posterior at T = 1e7, 1e8 and 1e9, phase by phase, and the same posterior
wherever the data are and whoever does the work.

Each fit is a process of its own, nothing else running, so that its peak memory is its own.  Files are simulated by the
library in a streaming way, in a folder that needs 9 GB (--folder), and removed at the end.  Writes results/long.json
and long.md.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
from comparison import machine

import rarehmm as rh
from rarehmm.sampling.rule import infer

RESULTS = pathlib.Path(__file__).parent / "results"
SIZES = (10_000_000, 100_000_000, 1_000_000_000)
WANTED = 1000
TRANSITION = [[0.99, 0.00999, 1e-5], [0.01, 0.98999, 1e-5], [0.05, 0.05, 0.9]]  # one observation in 10,000 is rare
EMISSION = {"mean": [-1.0, 1.0, 6.0], "variance": [1.0, 1.0, 2.0]}
KINDS = ("memory", "memory map", "parquet", "zarr", "dask, threads", "dask, cluster")
PHASES = {
    "finding states": "finding states",
    "pass": "passes over all data",
    "climbing": "on drawn blocks",
    "refining the mode": "on drawn blocks",
    "which method": "on drawn blocks",
    "chains": "on drawn blocks",
    "checks": "on drawn blocks",
}


def true_model():
    flat = rh.Model(rh.Gaussian(), 3, rh.Priors((rh.Flat(), rh.Flat())))
    return flat, flat.parameters(TRANSITION, **EMISSION)


def simulate(path, size):
    began = time.perf_counter()
    rh.simulate_file(path, np.random.default_rng(size), *true_model(), size)
    return time.perf_counter() - began


# ---------------------------------------------------------------- one fit, in a process of its own
class Clock:
    """Seconds by phase, as the fit tells of them."""

    def __init__(self):
        self.seconds, self.now, self.since = {}, "reading", time.perf_counter()

    def __call__(self, stage, *_):
        name = next((long for short, long in PHASES.items() if stage.startswith(short)), stage)
        if name != self.now:
            moment = time.perf_counter()
            self.seconds[self.now] = self.seconds.get(self.now, 0.0) + moment - self.since
            self.now, self.since = name, moment


def fit(data, **more):
    clock, began = Clock(), time.perf_counter()
    series = rh.Series(data, **more)
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    clock("finding states")
    found = infer(np.random.default_rng(0), model, series, wanted=WANTED, on_progress=clock)
    clock("end")
    checks = {c.name: c.value for c in found.checks}
    phi, transition = found.mode.model.unpack_all(found.theta.reshape(-1, found.theta.shape[-1]))
    away = [
        np.abs((x.mean(0) - truth) / x.std(0)).max()
        for x, truth in (
            (phi[:, :, 0], EMISSION["mean"]),
            (phi[:, :, 1], EMISSION["variance"]),
            (transition, TRANSITION),
        )
    ]
    return found.theta, {
        "T": len(series),
        "seconds": time.perf_counter() - began,
        "phases": clock.seconds,
        "peak": peak(),
        "method": found.method,
        "verdict": found.verdict,
        "effective": checks["effective sample size"],
        "error": checks.get("block sampling", 0.0),
        "away": float(max(away)),
    }


def peak():
    """Peak resident memory of this process in GB (that of getrusage may be its parent's)."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def one(path, kind, out):
    """Fit a file of a kind; the record goes to standard output, the draws to a file."""
    if kind == "dask, cluster":
        from dask.distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
            Client(cluster) as client,
        ):
            theta, record = fit(dask_array(path), executor=client)
    else:
        theta, record = fit(opened(path, kind))
    np.save(out, theta)
    print(json.dumps(record))


def dask_array(path):
    import dask.array as da

    return da.from_zarr(path)


def opened(path, kind):
    if kind == "memory":
        return np.load(path)
    if kind == "memory map":
        return np.load(path, mmap_mode="r")
    return dask_array(path) if kind.startswith("dask") else path


def apart(path, kind, out):
    """The same in another process."""
    command = [sys.executable, __file__, "--one", str(path), kind, str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------- all of it
def scaling(folder, sizes):
    records = []
    for size in sizes:
        path = folder / "y.npy"
        writing = simulate(path, size)
        records.append({**apart(path, "memory map", folder / "draws.npy"), "writing": writing})
        print(json.dumps(records[-1]), flush=True)
        path.unlink()
    return records


def same(folder, size):
    import pyarrow as pa
    import pyarrow.parquet as pq
    import zarr

    simulate(folder / "y.npy", size)
    y = np.load(folder / "y.npy")
    pq.write_table(pa.table({"y": y}), folder / "y.parquet", row_group_size=1 << 20)
    zarr.create_array(str(folder / "y.zarr"), data=y, chunks=(1 << 20,))
    del y
    records, first = [], None
    for kind in KINDS:
        name = {"parquet": "y.parquet", "memory": "y.npy", "memory map": "y.npy"}.get(kind, "y.zarr")
        record = apart(folder / name, kind, folder / "draws.npy")
        theta = np.load(folder / "draws.npy")
        first = theta if first is None else first
        records.append({**record, "kind": kind, "difference": float(np.abs(theta - first).max())})
        print(json.dumps(records[-1]), flush=True)
    return records


def report(found):
    rows, phases = found["scaling"], ("reading", "finding states", "passes over all data", "on drawn blocks")
    sizes = np.array([r["T"] for r in rows], dtype=float)
    lines = [
        "# Longer than memory",
        "",
        f"{found['machine']} Made by benchmarks/long.py.",
        "",
        "Three Gaussian states, of which one has one observation in 10,000; float64 in a .npy file, simulated by the "
        "library. From the file to the posterior by the default rule, 1000 effective draws of the worst parameter "
        "asked for; warm caches of compiled code; seconds.",
        "",
        "| T | " + " | ".join(phases) + " | in all | peak memory (MB) | effective draws | standard error of the "
        "curvature | farthest parameter from the truth (sd) | verdict |",
        "|---" * (len(phases) + 7) + "|",
    ]
    for r in rows:
        each = " | ".join(f"{r['phases'].get(p, 0.0):.1f}" for p in phases)
        lines.append(
            f"| {r['T']:.0e} | {each} | {r['seconds']:.1f} | {r['peak'] * 1e3:.0f} | {r['effective']:.0f} "
            f"| {r['error']:.3f} | {r['away']:.1f} | {r['verdict']} |"
        )
    lines += [
        "",
        "Fit of seconds = a + b T, by least squares of relative errors:",
        "",
        "| phase | a (s) | b (ns) |",
        "|---|---|---|",
    ]
    for p in (*phases, "in all"):
        seconds = np.array([r["seconds"] if p == "in all" else r["phases"].get(p, 0.0) for r in rows])
        a, b = np.linalg.lstsq(
            np.column_stack([np.ones(len(sizes)), sizes]) / seconds[:, None], np.ones(len(sizes)), rcond=None
        )[0]
        lines.append(f"| {p} | {a:.1f} | {1e9 * b:.1f} |")
    lines += [
        "",
        f"The same posterior at T = {found['same'][0]['T']:.0e}, wherever the data are: largest difference of any draw "
        "of any parameter from those in memory. The cluster has two worker processes; its seconds have their start and "
        "the loading of compiled code in each.",
        "",
        "| data | seconds | peak memory (MB) | largest difference |",
        "|---|---|---|---|",
    ]
    for r in found["same"]:
        lines.append(f"| {r['kind']} | {r['seconds']:.1f} | {r['peak'] * 1e3:.0f} | {r['difference']:.1g} |")
    return "\n".join(lines) + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--folder", type=pathlib.Path, help="where 9 GB are free; by default that for temporary files")
    ask.add_argument("--quick", action="store_true", help="up to T = 1e7 only, to see that it works")
    ask.add_argument("--only", choices=("same", "scaling"), help="one of the two tables; the other stays")
    ask.add_argument("--one", nargs=3, metavar=("FILE", "KIND", "OUT"), help=argparse.SUPPRESS)
    use = ask.parse_args()
    if use.one:
        one(*use.one)
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rarehmm-long-", dir=use.folder))
    try:
        apart(prepared(folder), "memory map", folder / "draws.npy")  # compiles, if need be
        found = json.loads((RESULTS / "long.json").read_text()) if use.only else {}
        found["machine"] = machine()
        if use.only != "scaling":
            found["same"] = same(folder, SIZES[0])
        if use.only != "same":
            found["scaling"] = scaling(folder, SIZES[:1] if use.quick else SIZES)
    finally:
        shutil.rmtree(folder)
    if not use.quick:
        (RESULTS / "long.json").write_text(json.dumps(found, indent=1) + "\n")
        (RESULTS / "long.md").write_text(report(found))
    print(report(found))


def prepared(folder):
    simulate(folder / "first.npy", 5_000_000)
    return folder / "first.npy"


if __name__ == "__main__":
    main()
