"""The one list of packages."""

import re

import pytest
import yaml

from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.requirements import lacking, meets, read_requirements, release
from escherlib.files import ROOT


def test_the_flat_list_is_what_conda_reads():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    listed = next(entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict))
    assert read_requirements(tests=True) == listed


def test_torch_first_floors_only_and_tests_apart():
    base, full = read_requirements(), read_requirements(tests=True)
    assert base[0].startswith("torch>=")
    assert full[: len(base)] == base
    assert "pytest" in " ".join(full[len(base) :])
    assert "pytest" not in " ".join(base)
    assert all(re.fullmatch(r"-e \.|[A-Za-z0-9-]+>=\d[\d.]*", entry) for entry in full)


@pytest.mark.parametrize(
    "version, floor, answer",
    [
        ("2.9", "2.9.0", True), ("2.9.0a0+git1", "2.9", True), ("2.10.1+cu130", "2.9", True),
        ("2.8.1", "2.9", False),
        ("2.13.0+cpu", "2.13.0", True), ("10", "9.9", True),
    ],
)  # fmt: skip
def test_floors(version, floor, answer):
    assert meets(version, floor) is answer


def test_release():
    assert release("2.9.0a0+git1") == (2, 9, 0)
    assert release("weird") == ()


def test_what_an_interpreter_lacks():
    assert lacking(["-e .", "pytest>=1.0"]) == []
    (missing, none), (old, version) = lacking(["no-such-package>=1", "pytest>=999.0"])
    assert (missing, none, old) == ("no-such-package>=1", None, "pytest>=999.0")
    assert version


def test_a_list_that_is_not_there(tmp_path):
    with pytest.raises(SetupError, match="cannot be read"):
        read_requirements(path=tmp_path / "environment.yml")
    (tmp_path / "environment.yml").write_text("dependencies: []\n")
    with pytest.raises(SetupError, match="no pip list"):
        read_requirements(path=tmp_path / "environment.yml")
