"""Every file in jobs/ loads, compiles without a warning, and stays as short as its reader hopes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flowpoint.host.module_path import JOB_MODULE
from flowpoint.launch.jobfile import build_job, load_source
from flowpoint.plan.compile import compile_graph

JOBS = sorted((Path(__file__).parents[3] / "jobs").glob("*.py"))


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_is_short_and_says_how_to_run_it(path):
    text = path.read_text()

    assert len(text.splitlines()) <= 60
    assert f"flowpoint run jobs/{path.name} --param" in text


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_compiles_without_warning(path, monkeypatch, tmp_path):
    pytest.importorskip("flowpoint.connectors")
    pytest.importorskip("flowpoint.state.kinds")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, JOB_MODULE, raising=False)

    job = build_job(load_source(str(path)), {"input": str(tmp_path / "*.txt"), "output": str(tmp_path / "out")})

    compiled = compile_graph(job.graph(), 2, 128)
    assert compiled.warnings == ()
    assert len(compiled.plan.tasks) > 1
