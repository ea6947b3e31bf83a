"""The tab key offers what can stand at the cursor, whatever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowpoint.cli.main import execute
from flowpoint.launch.home import Home
from tests.unit.cli.fake_job import claimed

Captured = pytest.CaptureFixture[str]
SNAPSHOT = Path(__file__).parents[2] / "fixtures" / "snapshots" / "format-2" / "unaligned" / "chk-4-a1"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("status wo", ["plain,words"]),
        ("forget li", ["plain,lines"]),
        ("run jo", ["file,jo"]),
        ("sto", ["plain,stop"]),
        ("run job.py --config flow", ["file,flow"]),
        ("run job.py --from sav", ["dir,sav"]),
        ("savepoint words --to back", ["dir,back"]),
        ("stop words --to back", ["dir,back"]),
        ("verify sav", ["dir,sav"]),
        ("edit sp --out chi", ["dir,chi"]),
        ("run job.py --set state.b", ["plain,state.backend=rocksdb", "plain,state.backend=heap"]),
        ("run job.py --set checkpoint.ret", ["plain,checkpoint.retained=3"]),
        ("run job.py --set paral", ["plain,parallelism=0"]),
        ("inspect nowhere --operator w", []),
        ("threads list st", ["file,st"]),
    ],
)
def test_the_shell_completes_names_files_folders_and_settings(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch, line: str, wanted: list[str]
) -> None:
    for name in ("words", "lines"):
        claimed(home, name).release("finished", ended=1)
    assert completed(line, capsys, monkeypatch) == wanted


@pytest.mark.parametrize("home", ["/proc/no-\udcff", "/dev/null"])
def test_where_there_can_be_no_home_no_names_are_offered(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("FLOWPOINT_HOME", home)

    assert completed("status wo", capsys, monkeypatch) == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("inspect SNAPSHOT --operator rule-", ["plain,rule-numbers"]),
        ("inspect SNAPSHOT --operator everything --state acc", ["plain,account"]),
        ("edit SNAPSHOT --out child --drop every", ["plain,everything"]),
    ],
)
def test_the_shell_completes_what_is_in_a_snapshot(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch, line: str, wanted: list[str]
) -> None:
    assert completed(line.replace("SNAPSHOT", str(SNAPSHOT)), capsys, monkeypatch) == wanted


def completed(line: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is offered at the end of a line."""
    words = ["flowpoint", *line.split(), *([""] if line.endswith(" ") else [])]
    monkeypatch.setenv("_FLOWPOINT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))

    with pytest.raises(SystemExit):
        execute([])

    return capsys.readouterr().out.split()
