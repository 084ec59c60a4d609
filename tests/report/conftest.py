"""Fake runs that tests of the report share. Built once a session: a build takes seconds."""

import pytest

from escherlib.judge import scorecard
from escherlib.parameters import load_scoring
from escherlib.report import build
from escherlib.run import load_results
from tests.report.factory import fake_run
from tests.report.notebooks import add_notebooks, hostile_notebook

MARKING = "Confidential - Distribution Under NDA"


@pytest.fixture(scope="session")
def gpu(tmp_path_factory):
    """Results of a whole fake run on a fake GPU, without notebooks."""
    return load_results(fake_run(tmp_path_factory.mktemp("gpu")))


@pytest.fixture(scope="session")
def cpu(tmp_path_factory):
    """Results of a whole fake run on a fake CPU host, without notebooks."""
    return load_results(fake_run(tmp_path_factory.mktemp("cpu"), "cpu"))


@pytest.fixture(scope="session")
def marked(tmp_path_factory):
    """(results, built): a report in all formats, with a marking, a failed family and a hostile notebook."""
    path = fake_run(tmp_path_factory.mktemp("marked"), failed=("02_memory_bandwidth",))
    results = load_results(path)
    add_notebooks(results, leave_out=("00_environment", "02_memory_bandwidth"))
    hostile_notebook(path / "00_environment.ipynb")
    score = scorecard.score(results, load_scoring())
    return results, build.build_report(results, score, marking=MARKING)
