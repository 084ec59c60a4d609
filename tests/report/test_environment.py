"""The chart of family 0 and the front door, on invented runs."""

from escherlib.files import write_json
from escherlib.report import browse, charts, theme
from escherlib.run import load_results
from tests.report.factory import fake_run

GIB = 2**30


def with_env(path, env):
    write_json(path / "env.json", env)
    return load_results(path)


def test_what_is_held_back_is_named(tmp_path):
    host = {
        "usable_cpus": 8,
        "online_cpus": 64,
        "memory_limit_bytes": 100 * GIB,
        "memory_total_bytes": 100 * GIB,
    }
    env = {"host": host, "power": {"cap_w": 500, "cap_default_w": 700}, "gpu": {"memory_used_bytes": 0}}
    spec = theme.spec_of(charts.usable(with_env(fake_run(tmp_path), env)))
    assert "CPUs" in spec["title"]["text"] and "power cap" in spec["title"]["text"]
    assert "host memory" not in spec["title"]["text"]
    assert "500 of 700 W" in spec["description"]


def test_a_whole_machine_says_so_and_an_unknown_one_too(tmp_path):
    host = {"usable_cpus": 2, "online_cpus": 2, "memory_limit_bytes": GIB, "memory_total_bytes": GIB}
    path = fake_run(tmp_path, kind="cpu")
    spec = theme.spec_of(charts.usable(with_env(path, {"host": host})))
    assert spec["title"]["text"] == "All of it may be used"
    assert "no limits" in charts.usable(with_env(path, {})).to_text()


def test_choices_lists_newest_first_and_opens_what_can_be_read(tmp_path):
    for name, day in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        path = fake_run(tmp_path / name)
        manifest = load_results(path).manifest | {"created": f"2026-03-0{day}T00:00:00+00:00"}
        write_json(path / "run.json", manifest)
    found = browse.choices(tmp_path)
    own = [path for path in found.values() if tmp_path in path.parents]
    assert [path.name for path in own] == ["two", "one"]
    results = browse.open_first(found)
    assert results.path == tmp_path / "two"
    assert "memory" in browse.headline_table(results).to_text().lower()
