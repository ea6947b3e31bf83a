"""docs/protocol.md says what the tables say."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_when_a_table_changes_then_its_page_is_written_anew(monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader = SourceFileLoader("docs_tables", str(ROOT / "scripts" / "docs_tables"))
    script = module_from_spec(spec_from_loader("docs_tables", loader))
    loader.exec_module(script)

    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")

    assert page == script.render(), "docs/protocol.md is out of date; run scripts/docs_tables"
