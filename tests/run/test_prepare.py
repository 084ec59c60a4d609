"""PREPARE_SYS on a made-up tree: settings are written, refusals are told."""

from escherlib.run.prepare import prepare_system


def test_settings_are_written_and_missing_ones_are_told(tmp_path):
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/numa_balancing").write_text("1")
    outcome = prepare_system(tmp_path)
    assert (tmp_path / "proc/sys/kernel/numa_balancing").read_text() == "0"
    assert outcome[str(tmp_path / "proc/sys/kernel/numa_balancing")] == "set to 0"
    assert outcome[str(tmp_path / "proc/sys/vm/drop_caches")].startswith("not set: ")
