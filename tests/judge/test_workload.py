"""Families 4 and 5 as the judge reads them, on invented records: every figure is worked out again from raw values."""

import math
import statistics
from dataclasses import replace

import pytest

from escherlib.accounting import paths
from escherlib.errors import UserError
from escherlib.judge import account, criteria, e2e, headlines, scorecard, whatif, workload, workload_criteria
from escherlib.judge.roofs import read_roofs
from escherlib.parameters import load_scoring, load_workload
from escherlib.run import load_results
from tests.report.factory_workload import fake_workload_run

SCORING = load_scoring()
FLOP = 185_621_080_965_120  # one forward: 40 × 4640.499… GFLOP + the time MLP once


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    return load_results(fake_workload_run(tmp_path_factory.mktemp("gpu")))


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    return load_results(fake_workload_run(tmp_path_factory.mktemp("cpu"), "cpu", "cpu_zen4"))


def make(tmp_path, **options):
    return load_results(fake_workload_run(tmp_path, **options))


def ops_of(results, path="optimized"):
    roofs = read_roofs(results, SCORING)
    return workload.read_ops(results, workload.timed_workload(results), roofs, path, SCORING)


def scopes_of(results):
    return e2e.read_scopes(results, read_roofs(results, SCORING), SCORING)


def edited(results, family, name, **changes):
    """Results with values of one record replaced."""
    rows = dict(results.records[family])
    record = rows[name]
    rows[name] = replace(record, result={**record.result, **changes})
    return with_rows(results, family, rows)


def with_rows(results, family, rows):
    """Results with all rows of one family replaced."""
    return replace(results, records={**results.records, family: rows})


def test_mfu_is_flop_over_median_chunk_over_the_sustained_peak(gpu):
    """From the raw samples, with nothing of the code under test."""
    flop = 40 * 2 * 4680 * 5120 * (6 * 5120 + 2 * 13824) + 40 * 4 * 4680 * (18720 + 512) * 5120
    flop += 2 * 3 * (256 * 5120 + 5120 * 5120 + 5120 * 30720)
    peak = gpu.row("01_bf16_compute", "peak").get("states", "sustained", "tflops")
    for (path, scope), found in scopes_of(gpu).items():
        record = gpu.row("05_e2e_mfu", f"e2e/{path}/{scope}")
        median_s = statistics.median(record.get("states", "sustained", "samples_ns")) / 1e9
        assert found.flop == flop
        assert found.mfu_sustained == pytest.approx(flop / median_s / 1e12 / peak, rel=2e-3)
        mean = statistics.mean(b["tflops"] for b in record.get("brackets"))
        assert found.mfu_in_state == pytest.approx(flop / median_s / 1e12 / mean, rel=2e-3)
        assert found.of_floor == pytest.approx(flop / median_s / 1e12 / record.get("floor", "tflops"), rel=2e-3)
        energy = record.telemetry["sustained"]["energy_j"]["value"]
        assert found.joules_per_chunk == pytest.approx(energy / 24)


def test_chunk_time_is_the_median_of_the_samples(gpu):
    for (path, scope), found in scopes_of(gpu).items():
        samples = sorted(gpu.row("05_e2e_mfu", f"e2e/{path}/{scope}").get("states", "sustained", "samples_ns"))
        assert samples[11] / 1e9 <= found.chunk_s <= samples[12] / 1e9


def test_a_kernel_is_held_against_the_slower_of_its_two_roofs(gpu):
    roofs, ops = read_roofs(gpu, SCORING), {op.kernel.name: op for op in ops_of(gpu)}
    product, norm = ops["self_attn.qkv"], ops["fused.qk_norm"]
    assert product.bound == "compute"
    assert product.floor_s == pytest.approx(2 * 4680 * 15360 * 5120 / (1e12 * roofs.sustained.value))
    assert norm.bound == "memory"
    assert norm.floor_s == pytest.approx((4 * 4680 * 5120 + 2 * 5120) * 2 / (1e9 * roofs.memory.value))


def test_kernels_that_mostly_read_use_the_plateau_of_reads(gpu):
    roofs, ops = read_roofs(gpu, SCORING), {op.kernel.name: op for op in ops_of(gpu)}
    op = ops["time_proj"]
    assert op.kernel.read_share > 0.8
    assert op.floor_s == pytest.approx(op.kernel.nbytes / (1e9 * roofs.read.value))


@pytest.mark.parametrize(("ratio", "word"), [(1.10, "at limit"), (1.11, "tunable"), (1.50, "tunable"), (1.51, "flag"), (None, None)])
def test_classes(ratio, word):
    assert workload.classify(ratio, SCORING.classes) == word


def test_the_sum_counts_launches_and_is_none_with_a_gap(gpu):
    ops = ops_of(gpu)
    by_hand = math.fsum(op.kernel.count * gpu.row("04_workload_ops", op.kernel.row).get("states", "sustained", "median_s") for op in ops)
    assert workload.sum_of_ops(ops).seconds == pytest.approx(by_hand)
    rows = {name: row for name, row in gpu.records["04_workload_ops"].items() if name != "op/shared/ffn.linear2"}
    holed = with_rows(gpu, "04_workload_ops", rows)
    found = workload.sum_of_ops(ops_of(holed))
    assert found.seconds is None and found.missing == ("ffn.linear2",)
    assert 0.8 < workload.coverage(ops_of(holed)) < 0.9 and workload.coverage(ops) == 1


def test_the_fastest_backend_of_each_attention_is_chosen(gpu):
    assert workload.chosen_attention(gpu) == {"self_attn.flash": "fa4", "cross_attn.flash": "sdpa:cudnn"}
    assert workload.attention_choices(gpu, "05_e2e_mfu") == ()
    alone = replace(gpu, records={})
    assert workload.attention_choices(alone, "05_e2e_mfu") == ("auto",) and workload.chosen_attention(alone) == {}


def test_a_gpu_times_all_of_it_and_a_host_what_it_can_compute(gpu, cpu):
    assert workload.workload_to_time(gpu, 10.0).scale_note == ""
    half, whole = workload.workload_to_time(cpu, 0.2), workload.workload_to_time(cpu, 0.4)
    peak = read_roofs(cpu, SCORING).sustained.value
    for timed, budget_s in ((half, 0.2), (whole, 0.4)):
        assert timed.blocks == 2 and paths.forward_flop(timed, "optimized") <= 1e12 * peak * budget_s
        assert timed.kv_tokens == 4 * timed.query_tokens and "of 40 blocks" in timed.scale_note
    assert half.query_tokens < whole.query_tokens


def test_a_window_that_is_no_ring_is_refused(gpu):
    manifest = {**gpu.manifest, "workload": load_workload("escher_14b_480p", window=10).model_dump(mode="json")}
    with pytest.raises(UserError, match="WINDOW=10: the ring holds whole chunks of 3"):
        workload.workload_to_time(replace(gpu, manifest=manifest), 1.0)


def test_the_account_closes_and_the_waterfall_adds_up_to_the_chunk(gpu):
    roofs, scopes = read_roofs(gpu, SCORING), scopes_of(gpu)
    for path in paths.PATHS:
        scope = scopes[path, "eager"]
        found = account.read_account(scope, ops_of(gpu, path), SCORING)
        assert found.closed and found.coverage == pytest.approx(1)
        assert math.fsum(e.in_situ_s for e in found.entries) == pytest.approx(found.in_situ_s)
        steps = account.waterfall(scope, found, roofs)
        assert math.fsum(seconds for _, seconds in steps) == pytest.approx(scope.chunk_s, abs=1e-12)
        assert steps[0][1] == pytest.approx(scope.flop / (1e12 * roofs.sustained.value))


def test_marks_that_do_not_add_up_leave_the_account_open(gpu):
    situ = gpu.row("05_e2e_mfu", "e2e/optimized/eager").get("in_situ")
    slow = edited(gpu, "05_e2e_mfu", "e2e/optimized/eager", in_situ={**situ, "chunk_s": 1.1 * situ["chunk_s"]})
    found = account.read_account(scopes_of(slow)["optimized", "eager"], ops_of(slow), SCORING)
    assert not found.closed and "marks add up to" in found.why and "of one without" in found.why


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flop": 3 * FLOP}, "of the rated peak: FLOP or chunk time must be wrong"),
        ({"flop": int(1.12 * FLOP)}, "the peak search missed the peak"),
        ({"floor": {"tflops": 500.0}}, "takes less time than its matrix kernels alone"),
        ({"brackets": [{"tflops": 600.0}, {"tflops": 601.0}]}, "the peak GEMM beside it gave"),
        ({"brackets": [{"tflops": 690.0}, {"tflops": 650.0}]}, "its brackets lie 6.2 % apart"),
        ({"throughput": {"chunks": 24, "s_per_chunk": 0.4}}, "single chunks were held up"),
    ],
)
def test_whatever_is_doubtful_is_a_finding(gpu, changes, said):
    doubtful = edited(gpu, "05_e2e_mfu", "e2e/optimized/eager", **changes)
    found = scopes_of(doubtful)["optimized", "eager"].findings
    assert any(said in text for text in found), found
    assert scopes_of(gpu)["optimized", "eager"].findings == ()


def test_faster_than_its_kernels_least_times_is_a_finding(gpu):
    ops = {path: ops_of(gpu, path) for path in paths.PATHS}
    roofs = read_roofs(gpu, SCORING)
    assert e2e.audit(scopes_of(gpu), ops, roofs, SCORING) == ()
    states = gpu.row("05_e2e_mfu", "e2e/optimized/compiled").get("states")
    fast = edited(gpu, "05_e2e_mfu", "e2e/optimized/compiled", states={"sustained": {**states["sustained"], "median_s": 0.2}})
    assert any("need at the measured roofs" in text for text in e2e.audit(scopes_of(fast), ops, roofs, SCORING))


def sc3(results):
    return workload_criteria.operations(results, read_roofs(results, SCORING), SCORING)


def sc4(results):
    return workload_criteria.end_to_end(results, read_roofs(results, SCORING), SCORING)


def timed(results, name, factor, family="04_workload_ops"):
    """One row `factor` times as slow."""
    found = results.row(family, name).get("states", "sustained")
    return edited(results, family, name, states={"sustained": {**found, "median_s": factor * found["median_s"]}})


def test_sc3(gpu, cpu):
    assert sc3(gpu).status == "PASS" and "19 kernels within" in sc3(gpu).reason
    slow = sc3(timed(gpu, "op/shared/ffn.linear2", 2.5))
    assert slow.status == "FAIL" and "ffn.linear2: 2.58 × its least time" in slow.reason
    fast = sc3(timed(gpu, "op/optimized/fused.qk_norm", 0.5))
    assert fast.status == "FAIL" and "faster than the roofs allow" in fast.reason
    tiny = sc3(timed(gpu, "op/optimized/glue.modulation", 50.0))
    assert tiny.status == "PASS", "least times of a few µs are judged from below only"
    assert sc3(cpu).status == "WARN_CPU"


def test_sc3_names_the_package_that_would_help(tmp_path):
    results = timed(make(tmp_path), "op/optimized/self_attn.flash", 2.2)
    assert sc3(results).status == "FAIL", "flash-attn-4 was there"
    rows = dict(results.records["04_workload_ops"])
    name = "attention/self_attn.flash/fa4"
    rows[name] = replace(rows[name], status="refused", reason="flash-attn-4 is not installed", result={})
    lacking = with_rows(results, "04_workload_ops", rows)
    assert sc3(lacking).status == "WARN" and "make setup EXTRAS=fa4" in sc3(lacking).reason


def test_sc3_without_rows_or_with_gaps(gpu):
    nothing = replace(gpu, records={k: v for k, v in gpu.records.items() if k < "04"})
    assert sc3(nothing).status == "SKIP" and "TESTCASE=workload" in sc3(nothing).reason
    rows = {k: v for k, v in gpu.records["04_workload_ops"].items() if k != "op/shared/ffn.linear2"}
    holed = sc3(with_rows(gpu, "04_workload_ops", rows))
    assert holed.status == "PASS" and "not judged: ffn.linear2" in holed.reason and "% of the least time is covered" in holed.reason


def test_sc4(gpu):
    assert sc4(gpu).status == "PASS"
    slower = timed(gpu, "e2e/default/compiled", 1.05, "05_e2e_mfu")
    assert sc4(slower).status == "FAIL" and "(-2.6 pp)" in sc4(slower).reason
    within = timed(gpu, "e2e/default/compiled", 1.025, "05_e2e_mfu")
    assert sc4(within).status == "PASS", "less than a point below eager"


def test_sc4_eager_far_from_the_sum_of_ops_needs_an_account(gpu):
    far = timed(gpu, "e2e/default/eager", 1.09, "05_e2e_mfu")
    far = timed(far, "e2e/default/compiled", 1.09, "05_e2e_mfu")
    assert sc4(far).status == "PASS" and "unexplained by the account" in sc4(far).reason
    situ = gpu.row("05_e2e_mfu", "e2e/default/eager").get("in_situ")
    open_ = edited(far, "05_e2e_mfu", "e2e/default/eager", in_situ={**situ, "unmarked_chunk_s": 1.2 * situ["unmarked_chunk_s"]})
    assert sc4(open_).status == "FAIL"


def test_sc4_skips_what_is_missing_and_warns_on_a_host(tmp_path, cpu):
    missing = sc4(make(tmp_path, refuse=("optimized/compiled",)))
    assert missing.status == "SKIP" and "optimized compiled missing" in missing.reason
    assert sc4(cpu).status == "SKIP" and "needs a GPU" in sc4(cpu).reason
    assert sc4(timed(cpu, "e2e/default/compiled", 1.2, "05_e2e_mfu")).status == "WARN_CPU"


def test_sc4_does_not_compare_what_is_not_covered(gpu):
    rows = {k: v for k, v in gpu.records["04_workload_ops"].items() if k != "op/shared/ffn.linear2"}
    found = sc4(with_rows(gpu, "04_workload_ops", rows))
    assert found.status == "SKIP" and "sum of ops not compared: it covers 8" in found.reason


def test_the_scorecard_holds_both(gpu):
    found = {c.id: c.status for c in scorecard.score(gpu, SCORING).criteria}
    assert (found["SC-3"], found["SC-4"]) == ("PASS", "PASS")
    assert not {"SC-3", "SC-4"} & set(criteria.UNBUILT_RULES)


def test_headlines(gpu, cpu):
    ops, chunks = (headlines.summarise(gpu, family) for family in ("04_workload_ops", "05_e2e_mfu"))
    assert ops["headline"]["ops_coverage_pct"] == (100, "%")
    assert ops["headline"]["attention_self_tflops"][0] == pytest.approx(633.15)
    scopes = scopes_of(gpu)
    for name, key in (("eager_mfu_sustained_pct", ("optimized", "eager")), ("compiled_default_mfu_sustained_pct", ("default", "compiled"))):
        assert chunks["headline"][name][0] == pytest.approx(100 * scopes[key].mfu_sustained)
    assert not any("aiter" in text and "rows gave no number" in text for text in ops["findings"])
    assert any("timed a part of the workload: 2 of 40 blocks" in text for text in headlines.summarise(cpu, "05_e2e_mfu")["findings"])


def test_what_if_is_the_floor_where_nothing_was_stretched(gpu):
    roofs, w = read_roofs(gpu, SCORING), load_workload("escher_14b_480p")
    one, two = (whatif.what_if(w, roofs, tp=tp, room_bytes=140e9) for tp in (1, 2))
    least = math.fsum(op.floor_s * op.kernel.count for op in ops_of(gpu))
    assert one.step_s == pytest.approx(least, rel=2e-3) and one.fits and one.comm_s == 0 and two.comm_s is None
    assert least / 2 < two.step_s < least, "norms run whole on every device"
    assert one.mfu * one.step_s == pytest.approx(2 * two.mfu * two.step_s, rel=1e-2), "products and attention are split"


def test_what_if_window_memory_and_degree(gpu):
    roofs, w = read_roofs(gpu, SCORING), load_workload("escher_14b_480p")
    short, long = (whatif.what_if(whatif.resized(w, 3, window), roofs) for window in (12, 24))
    ring = 3 * 12 * 1560 * 5120 * 40 * 2  # q, k, v of twelve more frames in every block
    assert long.memory_bytes - short.memory_bytes == ring
    assert whatif.tp_needed(w, 140e9) == 1 and whatif.tp_needed(w, 45e9) == 2 and whatif.tp_needed(w, 1e9) is None
    seconds = whatif.comm_s(w, 2, 100.0)
    assert seconds == pytest.approx(40 * 3 * 4680 * 5120 * 2 / 100e9)
    assert {(c.frames, c.window) for c in whatif.sweep(w, roofs)} >= {(3, 12), (1, 3), (6, 48)}
    assert not any(c.window % c.frames for c in whatif.sweep(w, roofs))
