"""Charts: layout arithmetic, what each one says of a fake run, what stands where nothing was measured."""

import itertools
import json
import math

import pytest

from escherlib.report import charts, charts_base, theme
from escherlib.report.display import Card
from escherlib.run import load_results
from tests.report.factory import FakeRun, fake_run, fill_bandwidth, fill_compute
from tests.report.factory_workload import fake_workload_run

NAMES = charts.__all__
LIGHT = {*theme.FILLS.values(), "#E69F00", "#56B4E9", "#F0E442"}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """Results of a whole fake run of all families on a fake GPU."""
    return load_results(fake_workload_run(tmp_path_factory.mktemp("gpu")))


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    """The same on a fake CPU host."""
    return load_results(fake_workload_run(tmp_path_factory.mktemp("cpu"), "cpu", "cpu_zen4"))


def marks(node):
    """Every mark definition of a spec."""
    if isinstance(node, dict):
        if isinstance(node.get("mark"), dict):
            yield node["mark"]
        for value in node.values():
            yield from marks(value)
    elif isinstance(node, list):
        for value in node:
            yield from marks(value)


def test_labels_move_apart_as_little_as_possible():
    assert charts_base.spread([10, 50], 15, 0, 100) == [10, 50]
    assert charts_base.spread([40, 50], 20, 0, 100) == [35, 55]  # centred on 45
    assert charts_base.spread([50, 40], 20, 0, 100) == [55, 35]  # order of the input is kept
    assert charts_base.spread([98, 99], 10, 0, 100) == [90, 100]  # pushed back inside
    assert charts_base.spread([0, 0, 0], 10, 0, 100) == [0, 10, 20]


def test_labels_never_overlap_whatever_the_values():
    placed = sorted(charts_base.spread([3, 3, 4, 90, 91, 95, 96, 50], 12, 0, 100))
    assert all(b - a >= 12 - 1e-9 for a, b in itertools.pairwise(placed))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_every_chart_is_drawn_with_alt_text_caption_and_units(name, kind, request):
    spec = theme.spec_of(getattr(charts, name)(request.getfixturevalue(kind)))
    assert len(spec["description"]) > 20 and any(char.isdigit() for char in spec["description"])
    assert spec["usermeta"]["caption"].endswith(".")
    assert spec["title"]["text"] and spec["title"]["subtitle"]
    getattr(charts, name)(request.getfixturevalue(kind)).to_dict(validate=True)
    assert "$schema" not in spec and '"url"' not in json.dumps(spec)
    json.dumps(spec, allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_light_colours_are_fills_and_never_lines_or_text(name, gpu):
    for mark in marks(theme.spec_of(getattr(charts, name)(gpu))):
        if mark["type"] in ("line", "rule", "text", "point"):
            assert mark.get("color") not in LIGHT


def test_titles_say_the_finding_and_match_the_records(gpu):
    best = max(row.get("states", "burst", "tflops") for row in gpu.rows("01_bf16_compute", "square/"))
    sweep = theme.spec_of(charts.gemm_sweep(gpu))
    assert f"{best:.0f} TFLOP/s burst" in str(sweep["title"]["text"])
    assert "HBM bandwidth" in str(theme.spec_of(charts.bandwidth(gpu))["title"])


def test_a_cpu_host_has_memory_not_hbm(cpu):
    title = str(theme.spec_of(charts.bandwidth(cpu))["title"])
    assert "Memory bandwidth" in title and "HBM" not in title


def test_a_run_without_rows_gives_boxes_with_reasons(tmp_path):
    run = FakeRun(tmp_path, profile=None)
    run.finish("01_bf16_compute", status="failed", reason="the kernel died")
    results = load_results(run.write())
    for name in set(NAMES) - {"usable"}:  # usable reads env.json, which every run has
        box = getattr(charts, name)(results)
        assert isinstance(box, Card) and "not measured" in box.to_text()
    assert "the kernel died" in charts.gemm_sweep(results).to_text()
    assert "not run" in charts.bandwidth(results).to_text()
    assert "TESTCASE=compute" in charts.roofline(results).to_text()


def test_failed_rows_leave_their_reason_in_the_box(tmp_path):
    run = FakeRun(tmp_path)
    run.add("01_bf16_compute", "square/1024", status="refused", reason="wrong result", m=1024, n=1024, k=1024)
    run.finish("01_bf16_compute")
    assert "square/1024: wrong result" in charts.gemm_sweep(load_results(run.write())).to_text()


def test_charts_survive_missing_peaks_roofs_and_single_rows(tmp_path):
    run = FakeRun(tmp_path, profile=None)
    fill_compute(run)
    run.add("01_bf16_compute", "peak", status="failed", reason="lost")
    rows = run.records["01_bf16_compute"]
    for name in [name for name in rows if name.startswith("square/")][1:]:
        run.add("01_bf16_compute", name, status="failed", reason="lost")
    sweep = theme.spec_of(charts.gemm_sweep(load_results(run.write())))
    assert "The peak was not measured." in sweep["usermeta"]["caption"]


def test_roofline_knows_its_ridge_and_the_row_furthest_below(tmp_path):
    run = FakeRun(tmp_path)
    fill_compute(run)
    fill_bandwidth(run)
    spec = theme.spec_of(charts.roofline(load_results(run.write()), "01_bf16_compute"))
    assert "152 FLOP/byte" in str(spec["title"])  # 670 TFLOP/s over 4412 GB/s
    assert math.isclose(670e12 / 4412e9, 151.9, rel_tol=1e-3)
    assert "square/1024 with 78 %" in spec["description"]  # 520 burst of 670 sustained


def test_before_measuring_the_roofline_shows_what_is_rated(tmp_path):
    run = FakeRun(tmp_path)
    run.finish("00_environment")
    spec = theme.spec_of(charts.roofline(load_results(run.write()), "00_environment"))
    assert "rated ridge lies at 206 FLOP/byte" in str(spec["title"])  # 989.4 TFLOP/s over 4800 GB/s
    assert "Not measured when this was drawn: the compute roof" in spec["usermeta"]["caption"]


def test_renderer_speaks_the_mime_type_jupyterlab_knows(gpu):
    data, metadata = theme.bundle({"$schema": "x", "mark": "point", "description": "says what is seen"})
    assert set(data) == {"application/vnd.vegalite.v5+json", "text/plain"}
    assert data["text/plain"] == "says what is seen" == metadata["alt"]
    assert "$schema" not in data[theme.MIME]


def test_show_displays_chart_and_caption(gpu, monkeypatch):
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda data, **options: seen.append((data, options)))
    theme.show(charts.capacity(gpu), alt="own words", caption="own caption")
    (chart, options), (caption, marked) = seen
    assert chart["text/plain"] == "own words" == chart[theme.MIME]["description"]
    assert options["metadata"]["escher"]["caption"] == "own caption"
    assert caption["text/markdown"] == "*own caption*" and marked["metadata"]["escher"]["role"] == "caption"
    theme.show(Card("missing", "t", ("x",)))
    assert isinstance(seen[-1][0], Card)


def test_a_second_reading_gives_the_same_spec(tmp_path):
    results = load_results(fake_run(tmp_path))
    assert theme.spec_of(charts.bandwidth(results)) == theme.spec_of(charts.bandwidth(results))
