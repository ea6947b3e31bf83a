"""Paths and texts that are not UTF-8, as every file system and every exception may have them."""

from __future__ import annotations

import os

from tests.e2e.shell import Shell

FILES = """
from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource

def build(params):
    job = Job("files")
    job.source(FileSource(params["input"]), uid="in").sink(FileSink(params["output"], format="lines"), uid="out")
    return job
"""

FAILING = """
from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink

def fail(n):
    raise FileNotFoundError("/data/" + chr(0xDCFF))

job = Job("failing")
job.source(CollectionSource([5]), uid="in").map(fail, uid="m").sink(FileSink("out", format="jsonl"), uid="out")
"""


def test_input_files_and_output_folders_need_not_have_utf8_names(shell: Shell) -> None:
    odd = os.fsdecode(b"odd-\xff")
    shell.write("files.py", FILES)
    shell.write(f"{odd}/{odd}.txt", "one\ntwo\n")

    shell.run_ok("run", "files.py", "--param", f"input={odd}", "--param", f"output=out-{odd}")

    (part,) = (shell.folder / f"out-{odd}").glob("[!.]*")
    assert part.read_text() == "one\ntwo\n"


def test_an_exception_whose_text_is_not_utf8_is_told_as_any_other(shell: Shell) -> None:
    shell.write("failing.py", FAILING)

    done = shell.run("run", "failing.py", "--set", "restart.strategy=none")

    assert done.code == 1, done
    assert r"operator 'm' (map) failed on record 5: FileNotFoundError: /data/\udcff" in done.sentence, done


def test_a_home_whose_path_is_not_utf8_is_refused_before_anything_is_started(shell: Shell) -> None:
    shell.write("failing.py", FAILING)
    shell.move_home(os.fsdecode(b"home-\xff"))

    done = shell.run("run", "failing.py")

    assert done.code == 2, done
    assert "as FLOWPOINT_HOME: its path is not UTF-8" in done.sentence, done
