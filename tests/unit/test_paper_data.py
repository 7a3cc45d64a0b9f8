"""The paper's data: files in the archive's formats, written here; the true ones where RAREHMM_DATA has them."""

import gzip

import h5py
import numpy as np
import pytest
from scipy.io import netcdf_file
from small_models import DATA
from typer.testing import CliRunner

from rarehmm.app.cli import app
from rarehmm.data.transforms import baseline
from rarehmm.paper import eeg, goes, public_files

pytestmark = pytest.mark.plain

NAN = np.nan
HEADER = """:title = "GOES X-ray Sensor"
:satellite_id = "GOES-15"
B_AVG:missing_value = "-99999"

satellite location:
time_tag,west_longitude,inclination
2017-09-01 00:00:00.000,135.0,0.1

data:
time_tag,A_QUAL_FLAG,A_NUM_PTS,A_AVG,B_QUAL_FLAG,B_NUM_PTS,B_AVG
"""


def minutes(start, n):
    return np.datetime64(start, "m") + np.arange(n)


def write_csv(path, flux, start="2017-09-01T00:00", flag=None, header=HEADER):
    flag = np.zeros(len(flux), int) if flag is None else flag
    rows = [
        f"{str(t).replace('T', ' ')}:00.000,0,30,1e-9,{q},30,{b}\n"
        for t, q, b in zip(minutes(start, len(flux)), flag, flux, strict=True)
    ]
    with gzip.open(path, "wt") if path.suffix == ".gz" else open(path, "w") as file:
        file.write(header + "".join(rows))
    return path


def write_netcdf3(path, flux, start="2017-09-01T00:00", flag=None):
    with netcdf_file(path, "w") as file:
        file.createDimension("record", None)
        for name, values in (
            ("time_tag", minutes(start, len(flux)).astype("datetime64[ms]").astype(float)),
            ("B_AVG", flux),
            ("B_QUAL_FLAG", np.zeros(len(flux)) if flag is None else flag),
        ):
            variable = file.createVariable(name, "d", ("record",))
            variable[:] = values
            variable.units = "milliseconds since 1970-01-01 00:00:00.0 UTC" if name == "time_tag" else "1"
    return path


def write_hdf5(path, flux, start="2017-09-01T00:00", flag=None, flag_name="xrsb_flag", units="seconds since {}"):
    seconds = (minutes(start, len(flux)) - np.datetime64("2000-01-01T12:00")) / np.timedelta64(1, "s")
    with h5py.File(path, "w") as file:
        file["time"] = seconds
        file["time"].attrs["units"] = units.format("2000-01-01 12:00:00")
        file["xrsb_flux"] = np.array(flux, "float32")
        file[flag_name] = np.zeros(len(flux), "uint16") if flag is None else np.array(flag, "uint16")
    return path


def true(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand: set RAREHMM_DATA to the folder that holds it")
    return path


# ---------------------------------------------------------------- one file
@pytest.mark.parametrize("name", ["g15_xrs_1m_201709.csv", "g15_xrs_1m_201709.csv.gz"])
@pytest.mark.parametrize("header", [HEADER, HEADER.splitlines(keepends=True)[-1]], ids=["archive", "bare"])
def test_csv_gives_long_wave_flux_with_gaps(tmp_path, name, header):
    path = write_csv(tmp_path / name, [1e-7, -99999, 3e-7, 4e-7], flag=[0, 0, 0, 1048576], header=header)
    times, flux = goes.read_csv(path)
    assert times.dtype == "datetime64[m]"
    np.testing.assert_array_equal(times, minutes("2017-09-01T00:00", 4))
    np.testing.assert_array_equal(flux, [1e-7, NAN, 3e-7, NAN])


@pytest.mark.parametrize(
    ("write", "missing"), [(write_netcdf3, -99999), (write_hdf5, -9999)], ids=["netCDF-3", "netCDF-4"]
)
def test_netcdf_gives_long_wave_flux_with_gaps(tmp_path, write, missing):
    path = write(tmp_path / "file.nc", [1e-7, missing, 3e-7, 4e-7], start="2017-09-06T11:58", flag=[0, 0, 0, 2])
    times, flux = goes.read_netcdf(path)
    np.testing.assert_array_equal(times, minutes("2017-09-06T11:58", 4))
    np.testing.assert_allclose(flux, [1e-7, NAN, 3e-7, NAN], rtol=1e-7)
    assert flux.dtype == np.dtype("=f8")


def test_a_flag_by_its_other_name_counts_too(tmp_path):
    path = write_hdf5(tmp_path / "file.nc", [1e-7, 2e-7], flag=[0, 1], flag_name="xrsb_flags")
    np.testing.assert_array_equal(np.isnan(goes.read_netcdf(path)[1]), [False, True])


def test_files_that_are_something_else_are_named(tmp_path):
    other = tmp_path / "g15_xrs_1m_x.csv"
    other.write_text("time_tag,xs,xl\n2001-01-01 00:00:00.000,1,2\n")
    with pytest.raises(ValueError, match=r"g15_xrs_1m_x\.csv has no line with the columns time_tag"):
        goes.read_csv(other)
    other.write_text(HEADER)
    with pytest.raises(ValueError, match=r"g15_xrs_1m_x\.csv ends after the column names"):
        goes.read_csv(other)
    write_csv(other, [1e-7, "oops"])
    with pytest.raises(ValueError, match=r"g15_xrs_1m_x\.csv cannot be read after the column names: .*oops"):
        goes.read_csv(other)
    page = tmp_path / "file.nc"
    page.write_text("<html>404</html>")
    with pytest.raises(ValueError, match=r"file\.nc starts with b'<htm'"):
        goes.read_netcdf(page)
    with pytest.raises(ValueError, match=r"day\.nc has none of the sets of variables"):
        goes.read_netcdf(write_hdf5(tmp_path / "day.nc", [1e-7], flag_name="quality"))
    with pytest.raises(ValueError, match=r"days\.nc has time in 'days since 2000"):
        goes.read_netcdf(write_hdf5(tmp_path / "days.nc", [1e-7], units="days since {}"))
    with pytest.raises(ValueError, match=r"empty\.nc holds no data"):
        goes.read_netcdf(write_hdf5(tmp_path / "empty.nc", []))


def test_half_downloaded_files_are_named(tmp_path):
    def half(path):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return path

    with pytest.raises(ValueError, match=r"half\.csv\.gz cannot be read"):
        goes.read_csv(half(write_csv(tmp_path / "half.csv.gz", np.linspace(1e-7, 2e-7, 100))))
    with pytest.raises(ValueError, match=r"half3\.nc cannot be read as netCDF-3"):
        goes.read_netcdf(half(write_netcdf3(tmp_path / "half3.nc", np.linspace(1e-7, 2e-7, 100))))
    with pytest.raises(ValueError, match=r"half4\.nc cannot be read as netCDF-4"):
        goes.read_netcdf(half(write_hdf5(tmp_path / "half4.nc", np.linspace(1e-7, 2e-7, 1000))))


# ---------------------------------------------------------------- a folder
def test_two_satellites_are_averaged_on_a_regular_grid(tmp_path):
    write_csv(tmp_path / "g13_xrs_1m_20170901_20170930.csv", [2e-7, -99999, 4e-7, -99999])
    write_csv(tmp_path / "g15_xrs_1m_20170901_20170930.csv.gz", [4e-7, 5e-7, -99999, -99999])
    write_netcdf3(tmp_path / "g15_xrs_1m_20171001_20171031.nc", [7e-7], start="2017-09-01T00:06")
    (tmp_path / "notes.csv").write_text("not of the archive")
    write_csv(tmp_path / "g15_xrs_2s_20170901.csv", [9e-7])  # another product
    times, flux = goes.load(tmp_path)
    np.testing.assert_array_equal(times, minutes("2017-09-01T00:00", 7))
    np.testing.assert_allclose(flux, [3e-7, 5e-7, 4e-7, NAN, NAN, NAN, 7e-7])


def test_overlaps_take_the_later_name_and_gaps_hide_nothing(tmp_path):
    write_hdf5(tmp_path / "sci_xrsf-l2-avg1m_g15_d20170901_v1-0-0.nc", [1e-7, 2e-7, 3e-7])
    write_hdf5(tmp_path / "sci_xrsf-l2-avg1m_g15_d20170901_v2-2-1.nc", [6e-7, -9999], start="2017-09-01T00:01")
    write_hdf5(tmp_path / "sci_xrsf-l2-avg1m_g16_d20170901_v2-2-1.nc", [9e-7, 9e-7, 9e-7])  # another satellite
    np.testing.assert_allclose(goes.load(str(tmp_path))[1], [1e-7, 6e-7, 3e-7], rtol=1e-6)


def test_folders_without_what_is_needed_say_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        goes.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"has no file of GOES-13 or GOES-15\. Keep the names of the archive"):
        goes.load(tmp_path)
    write_csv(tmp_path / "g16_xrs_1m_20170904_08.csv.gz", [1e-7])
    with pytest.raises(FileNotFoundError, match=r"has no file of GOES-13 or GOES-15, only of GOES-16\."):
        goes.load(tmp_path)
    write_csv(tmp_path / "g15_xrs_1m_201709.csv", [1e-7])
    write_hdf5(tmp_path / "sci_xrsf-l2-avg1m_g13_d20170901_v2-2-1.nc", [1e-7])
    with pytest.raises(ValueError, match=r"legacy files \(g15_xrs_1m_201709\.csv\).*science-quality files \(sci_"):
        goes.load(tmp_path)


def test_the_true_months():
    folder = true("goes_2017_pieces")
    times, flux = goes.read_csv(folder / "g15_xrs_1m_201709.csv.gz")
    assert (len(times), np.isnan(flux).sum()) == (43_200, 1_964)
    peak = int(np.nanargmax(flux))
    assert str(times[peak]) == "2017-09-06T12:02"  # the X9.3 flare
    assert flux[peak] == pytest.approx(9.3e-4, rel=0.01)
    grid, both = goes.load(folder)
    assert (str(grid[0]), str(grid[-1])) == ("2017-07-01T00:00", "2017-09-30T23:59")
    assert len(grid) == 92 * 1440
    july = slice(0, 44_640)
    assert not np.isnan(both[july]).any()  # each satellite fills the other's gaps
    assert np.isnan(both[44_640 : 62 * 1440]).all()  # August is not at hand
    np.testing.assert_array_equal(both[62 * 1440 :], flux)
    g13, g15 = (goes.read_csv(folder / f"{name}_xrs_1m_201707.csv.gz")[1] for name in ("g13", "g15"))
    assert np.nanmedian(g13 / g15) == pytest.approx(0.90, abs=0.01)
    np.testing.assert_allclose(both[july][~np.isnan(g13 + g15)], ((g13 + g15) / 2)[~np.isnan(g13 + g15)])


def test_good_minutes_of_goes_16(tmp_path):
    path = tmp_path / "g16.npz"
    flux, flag = np.array([-9999, 1e-7, 2e-7, 3e-7, 4e-7], "f4"), np.array([0, 1, 2, 4, 0], "u1")
    np.savez(path, time_start=np.array("2022-01-01T00:00"), dt_seconds=60, xrsb_flux=flux, xrsb_flag=flag)
    times, good = goes.load_g16(path)
    np.testing.assert_array_equal(times, minutes("2022-01-01T00:03", 2))
    np.testing.assert_allclose(good, [3e-7, 4e-7], rtol=1e-6)
    np.savez(path, xrsb_flux=flux)
    with pytest.raises(ValueError, match=r"g16\.npz has no time_start; it holds xrsb_flux"):
        goes.load_g16(path)


# ---------------------------------------------------------------- baseline and residual
def test_paper_knots_are_four_blocks_in_proportion():
    knots = goes.paper_knots(347_875)
    assert len(knots) == 198  # four times fifty, two ends shared
    assert (knots[0], knots[49], knots[50], knots[-1]) == (1, 1.86e4, 1.9e4, 347_875)
    for first, last in ((1, 1.86e4), (1.9e4, 2.2e5), (2.2e5, 2.5e5), (2.5e5, 347_875)):
        inside = knots[(knots >= first) & (knots <= last)]
        np.testing.assert_allclose(np.diff(inside), (last - first) / 49)
    np.testing.assert_allclose(goes.paper_knots(1000), knots * 1000 / 347_875)


def test_a_piecewise_quadratic_is_its_own_baseline():
    t = np.arange(1.0, 1001)
    y = 2 - 0.01 * t + 1e-5 * t**2 + 3e-5 * np.maximum(t - 400.5, 0) ** 2
    y[[0, 1, 500, 998, 999]] = NAN
    fitted = baseline(y, np.array([200.0, 400.5, 800.0]))
    there = ~np.isnan(y)
    np.testing.assert_allclose(fitted[there], y[there], atol=1e-10)
    assert np.isfinite(fitted).all()
    assert np.abs(baseline(y, np.array([200.0, 800.0])) - fitted)[there].max() > 0.1  # the knot matters


def test_the_baseline_is_least_squares():
    rng = np.random.default_rng(1)
    y = rng.standard_normal(300)
    y[100:140] = NAN
    t, knots = np.arange(1.0, 301), [60.0, 150.0, 220.0]
    columns = np.stack([t**0, t, t**2, *(np.maximum(t - k, 0) ** 2 for k in knots)], axis=1)
    there = ~np.isnan(y)
    best = columns @ np.linalg.lstsq(columns[there], y[there], rcond=None)[0]
    np.testing.assert_allclose(baseline(y, np.array(knots)), best, atol=1e-9)


def test_knots_without_observations_between_are_dropped():
    rng = np.random.default_rng(2)
    y = rng.standard_normal(200)
    y[50:150] = NAN  # positions 51 to 150
    crowded = np.array([-5.0, 1.0, 20.0, 60.0, 70.0, 80.0, 170.0, 170.0, 170.2, 200.0, 300.0])
    np.testing.assert_array_equal(baseline(y, crowded), baseline(y, np.array([20.0, 60.0, 170.0])))
    with pytest.raises(ValueError, match="y has 2 observations and a quadratic spline with 0 knots has 3"):
        baseline(np.array([1.0, NAN, 2.0]), np.array([]))
    with pytest.raises(ValueError, match="y has 0 observations"):
        baseline(np.array([NAN, NAN]), np.array([1.5]))


def test_residual_is_log_flux_minus_baseline_in_either_logarithm():
    rng = np.random.default_rng(3)
    flux = 1e-7 * np.exp(rng.standard_normal(5000))
    flux[17] = NAN
    natural = goes.residual(flux)
    np.testing.assert_allclose(natural, np.log(flux) - baseline(np.log(flux), goes.paper_knots(5000)))
    np.testing.assert_allclose(goes.residual(flux, log=np.log10), natural / np.log(10), atol=1e-12)
    flux[3] = 0
    with pytest.raises(ValueError, match=r"flux\[3\] is 0; it must be positive"):
        goes.residual(flux)


def test_residual_of_goes_16_is_the_stored_one():
    folder = true("goes_g16_2022")
    times, flux = goes.load_g16(folder / "g16_xrs_1m_20220101_20220814.npz")
    T = len(flux)
    assert T == 320_871
    with np.load(folder / "derived_paperstyle_residual.npz", allow_pickle=False) as file:
        stored, index = file["ln_residual"], file["minute_index"]
    np.testing.assert_array_equal((times - np.datetime64("2022-01-01T00:00")).astype(int), index)
    even = np.linspace(1, T, 202)[1:-1]  # 200 evenly spaced over the good minutes
    np.testing.assert_allclose(goes.residual(flux, even), stored, atol=5e-7)  # stored in single precision
    paper = goes.residual(flux)
    assert (paper > 1).mean() == pytest.approx(0.0365, abs=1e-4)
    assert len(goes.crossings(paper[-47_875:])) == 61


def test_crossings_start_above_after_an_observation_at_or_below():
    y = np.array([2.0, 0.0, 1.0, 1.5, 3.0, NAN, 2.0, 0.5, NAN, NAN, 1.2, NAN])
    np.testing.assert_array_equal(goes.crossings(y), [3, 10])
    np.testing.assert_array_equal(goes.crossings(y, threshold=1.8), [4])
    assert len(goes.crossings(np.full(3, NAN))) == 0


# ---------------------------------------------------------------- EEG
def write_excerpt(folder, number, values, rate=200):
    np.savez(folder / f"excerpt{number}.npz", uV_x1e4=np.array(values, np.int32), fs=rate)


def test_excerpts_are_separate_sequences_in_microvolts(tmp_path):
    write_excerpt(tmp_path, 2, [-18316, 11])
    write_excerpt(tmp_path, 4, [30000, 0, 1])
    write_excerpt(tmp_path, 3, [1], rate=50)
    first, second = eeg.load(tmp_path, (2, 4))
    np.testing.assert_allclose(first, [-1.8316, 0.0011])
    np.testing.assert_allclose(second, [3.0, 0.0, 0.0001])
    with pytest.raises(FileNotFoundError, match=r"excerpt5\.npz does not exist"):
        eeg.load(tmp_path)
    with pytest.raises(ValueError, match=r"\{2: 200, 3: 50\}\); a model needs a single rate"):
        eeg.load(tmp_path, (2, 3))


def test_transform_is_the_log_of_size_and_offset():
    np.testing.assert_allclose(eeg.transform(np.array([-1.0, 0.0, NAN]), 0.5), [np.log(1.5), np.log(0.5), NAN])
    assert eeg.transform(np.array([0.0]))[0] == np.log(0.01)
    with pytest.raises(ValueError, match=r"x\[1\] is 0"):
        eeg.transform(np.array([1.0, 0.0]), 0.0)
    with pytest.raises(ValueError, match="offset is -1"):
        eeg.transform(np.array([1.0]), -1.0)


def test_spikes_are_the_lower_tail():
    y = np.arange(100.0, 0, -1)
    y[5] = NAN
    np.testing.assert_array_equal(eeg.spikes(y, 0.02), [98, 99])
    with pytest.raises(ValueError, match="quantile is 1; it must be between 0 and 1"):
        eeg.spikes(y, 1.0)


def test_the_true_excerpts():
    folder = true("dreams_spindles")
    sequences = eeg.load(folder, (*eeg.TRAIN, *eeg.TEST))
    assert sum(map(len, sequences)) == 2_160_140
    assert not any((x == 0).any() for x in sequences)
    bare = [eeg.transform(x, 0.0) for x in sequences]
    offset = [eeg.transform(x) for x in sequences]
    assert min(y.min() for y in bare) == pytest.approx(-9.21, abs=0.01)
    assert all(-4.61 < y.min() < -4.23 for y in offset)
    for x, y in zip(bare, offset, strict=True):
        assert 0 < np.quantile(y, 0.01) - np.quantile(x, 0.01) < 0.08
    paper = np.concatenate(bare) <= 3.8 - np.log(1000)  # nanovolts
    assert paper.mean() == pytest.approx(eeg.SHARE, rel=0.01)
    for y in offset:
        rare = y[eeg.spikes(y)]
        assert (rare < rare.max()).sum() < eeg.SHARE * len(y) <= len(rare)  # the last of equal values all count


# ---------------------------------------------------------------- public files
@pytest.fixture
def two_days(monkeypatch):
    first = np.datetime64("2022-01-01T00:00", "m")
    monkeypatch.setattr(goes, "G16_PERIOD", (first, first + 2 * 1440 - 1))


def write_days(folder, version="v2-2-1", days=("20220101", "20220102"), factor=1.0):
    """Daily files in folders by year and month, as in NOAA's archive."""
    for number, day in enumerate(days):
        path = folder / day[:4] / day[4:6] / f"sci_xrsf-l2-avg1m_g16_d{day}_{version}.nc"
        path.parent.mkdir(parents=True, exist_ok=True)
        flux = factor * 1e-7 * (1 + number + np.arange(1440) / 1440)
        flux[5], flag = -9999, np.zeros(1440, int)
        flag[7:11] = 1, 2, 4, 16  # eclipse, bad data, and two that are kept
        write_hdf5(path, flux, f"{day[:4]}-{day[4:6]}-{day[6:]}T00:00", flag)


def test_daily_files_become_what_the_solar_experiment_reads(tmp_path, two_days):
    write_days(tmp_path / "downloads", "v2-1-0", factor=2.0)
    write_days(tmp_path / "downloads", "v2-2-1")  # the later version wins
    write_days(tmp_path / "downloads", days=["20220103"])  # after the period
    command = ["convert", "goes", str(tmp_path / "downloads"), "--data", str(tmp_path / "data")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    path = tmp_path / "data" / goes.G16_FOLDER / goes.G16_FILE
    assert goes.G16_FILE in "".join(done.output.split())
    times, flux = goes.load_g16(path)
    dropped = [5, 7, 8, 1445, 1447, 1448]
    np.testing.assert_array_equal(times, np.delete(minutes("2022-01-01T00:00", 2880), dropped))
    want = np.delete(1e-7 * (1 + np.repeat([0, 1], 1440) + np.tile(np.arange(1440) / 1440, 2)), dropped)
    np.testing.assert_array_equal(flux, want.astype("f4"))


def test_a_file_of_the_year_is_cut_to_the_period(tmp_path, two_days):
    flux = np.full(4 * 1440, 1e-7)
    flux[100] = np.nan
    write_hdf5(tmp_path / "sci_xrsf-l2-avg1m_g16_y2022_v2-2-1.nc", flux, "2021-12-31T00:00", flag_name="xrsb_flags")
    (path,) = public_files.convert_goes(tmp_path, tmp_path / "data")
    times, _ = goes.load_g16(path)
    assert (times[0], times[-1]) == goes.G16_PERIOD
    assert len(times) == 2 * 1440


def test_days_that_were_not_downloaded_are_named(tmp_path, two_days):
    with pytest.raises(FileNotFoundError, match=r"has no sci_xrsf-l2-avg1m_g16_\*\.nc; download .* https://data\.ngdc"):
        public_files.convert_goes(tmp_path, tmp_path / "data")
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        public_files.convert_goes(tmp_path / "nowhere", tmp_path / "data")
    write_days(tmp_path, days=["20220101"])
    with pytest.raises(ValueError, match=r"has 2022-01-02: 1,440 of 2,880 minutes .* are missing"):
        public_files.convert_goes(tmp_path, tmp_path / "data")
    assert not (tmp_path / "data").exists()


SCALE = 656.0 / 65535  # microvolts per digital step: the range is -328 to 328


def write_edf(path, digital, labels=("FP1-A2", "CZ-A1"), rate=4, records=None, unit="uV"):
    """An EDF file with records of two seconds; the second signal, the others are constant."""
    n, count = 2 * rate, len(labels)
    table = np.asarray(digital, "<i2").reshape(-1, n)

    def field(values, width):
        return "".join(str(value).ljust(width) for value in values)

    head = field(["0"], 8) + field(["X X X X", "Startdate X"], 80) + "01.01.0522.00.00" + field([256 * (1 + count)], 8)
    head += " " * 44 + field([len(table) if records is None else records, 2], 8) + field([count], 4)
    head += field(labels, 16) + field(["AgAgCl"] * count, 80) + field([unit] * count, 8)
    head += field([-328] * count, 8) + field([328] * count, 8) + field([-32768] * count, 8) + field([32767] * count, 8)
    head += field(["HP:0.1Hz"] * count, 80) + field([n] * count, 8) + " " * 32 * count
    assert len(head) == 256 * (1 + count)
    others = np.full((len(table), n), 7, "<i2")
    path.write_bytes(head.encode("latin-1") + np.hstack([others, table][:count]).tobytes())
    return path


def test_edf_gives_one_channel_in_microvolts(tmp_path):
    digital = np.random.default_rng(0).integers(-32768, 32768, 24)
    recording = public_files.read_edf(write_edf(tmp_path / "a.edf", digital))
    assert recording[:2] == ("CZ-A1", 4)
    np.testing.assert_allclose(recording.signal, -328 + (digital + 32768) * SCALE, atol=1e-9)
    unknown = public_files.read_edf(write_edf(tmp_path / "a.edf", digital, records=-1))  # a recorder that was cut off
    np.testing.assert_array_equal(unknown.signal, recording.signal)
    milli = public_files.read_edf(write_edf(tmp_path / "a.edf", digital, unit="mV", labels=("O1-A2", "EEG C3-A1")))
    assert milli.channel == "C3-A1"
    np.testing.assert_allclose(milli.signal, 1000 * recording.signal)


def test_edf_files_that_are_something_else_are_named(tmp_path):
    digital = np.zeros(24, int)
    path = write_edf(tmp_path / "a.edf", digital, labels=("FP1-A2", "O1-A2"))
    with pytest.raises(ValueError, match=r"a\.edf has none of CZ-A1, C3-A1; its channels are FP1-A2, O1-A2"):
        public_files.read_edf(path)
    with pytest.raises(ValueError, match="has CZ-A1 in 'bpm'; it must be in uV"):
        public_files.read_edf(write_edf(path, digital, unit="bpm"))
    with pytest.raises(ValueError, match="ends after 3 of 9 records"):
        public_files.read_edf(write_edf(path, digital, records=9))
    damaged = write_edf(path, digital).read_bytes().replace(b"-32768  ", b"32767   ")
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"a\.edf is not an EDF file: a signal has no samples or no range"):
        public_files.read_edf(path)
    path.write_bytes(b"<html>" * 100)
    with pytest.raises(ValueError, match=r"a\.edf is not an EDF file"):
        public_files.read_edf(path)


def write_dreams(folder, monkeypatch, text=()):
    """Excerpts of two seconds; those in ``text`` as text, the others as EDF."""
    monkeypatch.setattr(public_files, "SECONDS", 2)
    monkeypatch.setattr(public_files, "RATES", (200,))
    folder.mkdir()
    signals = {}
    for n in (*eeg.TRAIN, *eeg.TEST):
        digital = np.random.default_rng(n).integers(-32768, 32768, 400)
        signals[n] = np.round(-328 + (digital + 32768) * SCALE, 4)
        if n in text:
            rows = "".join(f"{value:10.4f}\n" for value in signals[n])
            (folder / f"excerpt{n}.txt").write_text(f"[CZ-A1]\n{rows}")
        else:
            write_edf(folder / f"excerpt{n}.edf", digital, rate=200)
    return signals


def test_excerpts_become_what_the_sleep_experiment_reads(tmp_path, monkeypatch):
    signals = write_dreams(tmp_path / "DatabaseSpindles", monkeypatch, text=(2, 5))
    (tmp_path / "DatabaseSpindles" / "Hypnogram_excerpt2.txt").write_text("[Hypnogram]\n2\n-1\n")
    (tmp_path / "DatabaseSpindles" / "Visual_scoring1_excerpt2.txt").write_text(
        "[vis1_Spindles/CZ-A1]\n    0.5000\t    0.2500\n    1.9000\t    0.5000\n"
    )
    done = CliRunner().invoke(app, ["convert", "dreams", str(tmp_path), "--data", str(tmp_path / "data")])
    assert done.exit_code == 0, done.output
    numbers = (*eeg.TRAIN, *eeg.TEST)
    for n, x in zip(numbers, eeg.load(tmp_path / "data" / eeg.FOLDER, numbers), strict=True):
        np.testing.assert_allclose(x, signals[n], rtol=0, atol=1e-9)
    with np.load(tmp_path / "data" / eeg.FOLDER / "excerpt2.npz") as file:
        assert set(file) == {"uV_x1e4", "fs", "channel", "hypnogram_5s", "spindle_expert1"}
        assert str(file["channel"]) == "CZ-A1"
        assert file["hypnogram_5s"].tolist() == [2, -1]
        assert np.flatnonzero(file["spindle_expert1"]).tolist() == [*range(100, 150), *range(380, 400)]


def test_files_of_dreams_that_are_not_there_or_damaged_are_named(tmp_path, monkeypatch):
    folder = tmp_path / "downloads"
    write_dreams(folder, monkeypatch, text=(2,))
    (folder / "excerpt2.txt").write_text("[CZ-A1]\n" + "1.0\n" * 30)
    with pytest.raises(ValueError, match=r"excerpt2\.txt has 30 samples, 15 per second"):
        public_files.convert_dreams(folder, tmp_path / "data")
    (folder / "excerpt2.txt").write_text("[CZ-A1]\n1.0\nx\n")
    with pytest.raises(ValueError, match=r"excerpt2\.txt cannot be read after its title"):
        public_files.convert_dreams(folder, tmp_path / "data")
    (folder / "excerpt2.txt").write_text("1.0\n2.0\n")
    with pytest.raises(ValueError, match=r"excerpt2\.txt starts with '1.0'; it must have a title in brackets"):
        public_files.convert_dreams(folder, tmp_path / "data")
    (folder / "excerpt7.edf").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither excerpt7\.edf nor excerpt7\.txt; unpack https://zenodo"):
        public_files.convert_dreams(folder, tmp_path / "data")
    wrong = CliRunner().invoke(app, ["convert", "sunspots", str(folder)])
    assert wrong.exit_code == 2
    assert "Choose from: goes, dreams" in " ".join(wrong.output.replace("│", " ").split())


def test_converting_the_true_series_leaves_it_as_it_is(tmp_path):
    """Files in NOAA's format made of the stored series come back as the same series."""
    stored = true(goes.G16_FOLDER) / goes.G16_FILE
    with np.load(stored) as file:
        flux, flag = file["xrsb_flux"], file["xrsb_flag"]
    write_hdf5(tmp_path / "sci_xrsf-l2-avg1m_g16_y2022_v2-1-0.nc", flux, "2022-01-01T00:00", flag)
    (path,) = public_files.convert_goes(tmp_path, tmp_path / "data")
    for ours, theirs in zip(goes.load_g16(path), goes.load_g16(stored), strict=True):
        np.testing.assert_array_equal(ours, theirs)
