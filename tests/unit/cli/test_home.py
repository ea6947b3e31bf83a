"""Job folders, `run.json`, and who owns a job."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from flowpoint.errors import NotFoundError, StorageError, UsageError
from flowpoint.host.short_folder import ADDRESS_BYTES_MAX, address_for
from flowpoint.launch.claim import claim_job, owner_of
from flowpoint.launch.forget import forget
from flowpoint.launch.home import Home, ProcessId, RunRecord
from tests.unit.cli.fake_job import claimed, record_run, this_process

CLAIM_AND_WAIT = """
import os, sys
from pathlib import Path
from flowpoint.launch.claim import claim_job
from flowpoint.launch.home import Home, ProcessId
from flowpoint.errors import UsageError
import psutil
try:
    claim_job(Home(Path(sys.argv[1])), "words", ProcessId(os.getpid(), psutil.Process().create_time()))
except UsageError as error:
    print("refused", error, flush=True)
else:
    print("owner", os.getpid(), flush=True)
    sys.stdin.read()
"""


def start_claimer(home: Home) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CLAIM_AND_WAIT, str(home.root)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_home_is_what_the_environment_says() -> None:
    assert Home.from_environment({"FLOWPOINT_HOME": "/srv/fp"}).root == Path("/srv/fp")
    assert Home.from_environment({}).root == Path("~/.flowpoint").expanduser()
    assert Home.from_environment({"FLOWPOINT_HOME": ""}).root == Path("~/.flowpoint").expanduser()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".hidden", "a b", "x" * 101, "é" * 51, "a\n"])
def test_a_name_that_cannot_be_a_folder_is_refused(home: Home, name: str) -> None:
    with pytest.raises(UsageError, match="as the name of a job"):
        home.job(name)


def test_folders_and_files_are_private(home: Home) -> None:
    claim = claimed(home)

    for folder in (home.root, home.root / "jobs", claim.folder.path):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in (claim.folder.lock_file, claim.folder.run_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    claim.release("finished", ended=1)


def test_a_home_that_cannot_be_made_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"cannot use .*file/home as FLOWPOINT_HOME"):
        Home(tmp_path / "file" / "home").create_job("words")


def test_a_record_comes_back_as_it_was_written(home: Home) -> None:
    claim = claimed(home)
    claim.record_workers((ProcessId(10, 1.5), ProcessId(11, 2.5)))

    record = claim.folder.read_run()

    assert record is not None
    assert record.workers == (ProcessId(10, 1.5), ProcessId(11, 2.5))
    assert record.state == "RUNNING"
    assert RunRecord.from_json(record.to_json()) == record
    claim.release("finished", ended=1)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "workers": [{}]}', "null"])
def test_a_torn_record_counts_as_none(home: Home, text: str) -> None:
    folder = home.create_job("words")
    folder.run_file.write_text(text)

    assert folder.read_run() is None


def test_a_released_job_tells_how_it_ended_and_can_be_run_again(home: Home) -> None:
    claimed(home).release("failed", ended=7, reason="operator 'x' raised")

    record = home.job("words").read_run()
    again = claimed(home)

    assert record is not None
    assert (record.state, record.ended, record.reason) == ("FAILED", 7, "operator 'x' raised")
    assert again.previous == record
    again.release("finished", ended=8)


def test_a_second_run_is_refused_and_told_the_pid_of_the_first(home: Home) -> None:
    owner = start_claimer(home)
    pid = first_line(owner).split()[1]

    with pytest.raises(UsageError, match=rf"already running \(pid {pid}\).*flowpoint stop words"):
        claim_job(home, "words", this_process())

    end(owner)


def test_an_owner_whose_folder_was_removed_takes_the_name_again_when_it_has_something_to_tell(home: Home) -> None:
    claim = claimed(home)
    shutil.rmtree(home.job("words").path)

    claim.record_workers((this_process(),))

    record = home.job("words").read_run()
    assert record is not None
    assert record.workers == (this_process(),)
    with pytest.raises(UsageError, match=rf"already running \(pid {os.getpid()}\)"):
        claim_job(home, "words", this_process())
    claim.release("finished", ended=8)
    claimed(home).release("finished", ended=9)


def test_an_owner_whose_folder_was_removed_writes_nothing_when_another_has_the_name_by_then(home: Home) -> None:
    claim = claimed(home)
    shutil.rmtree(home.job("words").path)
    other = start_claimer(home)
    pid = first_line(other).split()[1]

    with pytest.raises(StorageError, match=rf"its folder was removed meanwhile: .* already running \(pid {pid}\)"):
        claim.record_workers((this_process(),))
    claim.release("failed", ended=7)

    assert home.job("words").read_run() is None
    assert owner_of(home.job("words")) is not None
    end(other)


def test_when_the_owner_is_killed_the_job_is_free_at_once(home: Home) -> None:
    owner = start_claimer(home)
    first_line(owner)
    end(owner)

    claimed(home).release("finished", ended=1)


@pytest.mark.parametrize("text", ["", "5", "[1]", '[1, "x"]', '["1", 2]', "[99999999999999999999, 1]", "[-1, 1]"])
def test_a_lock_file_that_names_nobody_names_nobody(home: Home, text: str) -> None:
    folder = home.create_job("words")
    folder.lock_file.write_text(text)

    assert owner_of(folder) is None


def test_a_second_run_does_not_name_a_dead_owner(home: Home) -> None:
    claim = claimed(home)
    claim.folder.lock_file.write_text("[999999999, 1.0]")

    with pytest.raises(UsageError, match="just starting"):
        claim_job(home, "words", this_process())

    claim.release("finished", ended=1)


def test_of_many_that_start_at_once_one_becomes_the_owner(home: Home) -> None:
    claimers = [start_claimer(home) for _ in range(6)]
    lines = [first_line(claimer) for claimer in claimers]

    assert sorted(line.split()[0] for line in lines) == ["owner"] + ["refused"] * 5

    for claimer in claimers:
        end(claimer)


def test_a_child_process_does_not_inherit_the_ownership(home: Home) -> None:
    claim = claimed(home)
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False, text=True)
    first_line(child)
    claim.release("finished", ended=1)

    claimed(home).release("finished", ended=2)

    end(child)


def test_a_killed_coordinator_shows_as_killed(home: Home) -> None:
    folder = home.create_job("words")
    record = RunRecord(name="words", process=ProcessId(os.getpid(), 1.0), job_file="/jobs/words.py")
    folder.run_file.write_text(record.to_json())

    assert record.state == "KILLED"  # the pid is in use, but by a process that started at another time


def test_the_socket_lies_in_the_job_folder_when_that_is_short_enough(home: Home) -> None:
    claim = claimed(home)

    assert Path(claim.socket_address()) == claim.folder.path / "socket"
    claim.release("finished", ended=1)


def test_a_long_home_gets_a_short_private_folder_for_its_socket_which_is_removed_again(tmp_path: Path) -> None:
    home = Home(tmp_path / ("long" * 30))
    claim = claimed(home)
    record = claim.folder.read_run()
    assert record is not None
    folder = Path(record.socket).parent

    assert len(os.fsencode(record.socket)) <= ADDRESS_BYTES_MAX
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    Path(record.socket).touch()
    claim.release("finished", ended=1)
    assert not folder.exists()


def test_the_next_owner_removes_the_socket_of_one_that_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path / ("long" * 30))
    claim = claimed(home)
    killed = claim.folder.read_run()
    assert killed is not None
    os.close(claim._lock)  # as the kernel does

    claimed(home).release("finished", ended=1)

    assert not Path(killed.socket).parent.exists()


@pytest.mark.parametrize("parent", ["home", "long" * 30], ids=["beside-the-job", "in-the-short-folder"])
def test_the_next_owner_removes_all_sockets_that_a_killed_run_has_left(tmp_path: Path, parent: str) -> None:
    home = Home(tmp_path / parent)
    claim = claimed(home)
    # What its coordinator and its workers listened at.
    left = [Path(address_for(str(claim.folder.path), name)) for name in ("c-1f", "w0-2f", "s-3f")]
    for path in left:
        path.touch()
    os.close(claim._lock)  # as the kernel does

    claimed(home).release("finished", ended=1)

    assert not any(path.exists() for path in left)


def test_a_record_that_cannot_be_written_has_told_nobody(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claim_job(home, "words", this_process())
    (claim.folder.path / ".run.json.new").mkdir()  # in the way of what is written

    with pytest.raises(StorageError, match=r"cannot write .*run\.json"):
        record_run(claim)

    assert claim.is_unrecorded
    claim.let_go()
    assert home.known_jobs() == []


@pytest.mark.parametrize("how_often", [1, 1000])
def test_a_lock_on_a_file_that_was_forgotten_meanwhile_does_not_count(
    home: Home, monkeypatch: pytest.MonkeyPatch, how_often: int
) -> None:
    flock, forgotten = fcntl.flock, []

    def forget_first(lock: int, how: int) -> None:
        if len(forgotten) < how_often:
            forgotten.append(lock)
            shutil.rmtree(home.job("words").path)
        flock(lock, how)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", forget_first)
        if how_often > 1:
            with pytest.raises(StorageError, match="it was removed 10 times while it was taken"):
                claim_job(home, "words", this_process())
            return
        claim = claim_job(home, "words", this_process())

    with pytest.raises(UsageError, match="already running"):
        claim_job(home, "words", this_process())
    claim.let_go()


def test_whoever_takes_the_name_of_a_job_that_is_being_forgotten_keeps_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.checkpoints("words").mkdir(parents=True)
    rmdir, next_ones = Path.rmdir, []

    def take_the_name(path: Path) -> None:
        if path == home.job("words").path:
            next_ones.append(claim_job(home, "words", this_process()))
            next_ones[0].folder.log.touch()
        rmdir(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rmdir", take_the_name)
        forget(home, "words", keep_checkpoints=False)

    assert [claim.folder.log.exists() for claim in next_ones] == [True]
    with pytest.raises(UsageError, match="already running"):
        claim_job(home, "words", this_process())
    next_ones[0].let_go()


def test_a_record_that_cannot_be_read_is_an_error_that_names_it(home: Home) -> None:
    folder = home.create_job("words")
    folder.run_file.mkdir()

    with pytest.raises(StorageError, match=r"cannot read .*run\.json: Is a directory; .* remove it"):
        folder.read_run()
    with pytest.raises(StorageError, match="cannot read"):
        claimed(home)
    folder.run_file.rmdir()
    claimed(home).release("finished", ended=1)  # the job was given up


def test_known_jobs_are_those_with_a_folder_or_with_checkpoints(home: Home) -> None:
    assert home.known_jobs() == []
    home.create_job("b")
    home.checkpoints("a").mkdir(parents=True)
    (home.root / "jobs" / ".tmp").mkdir()

    assert home.known_jobs() == ["a", "b"]


def test_a_job_that_is_not_known_is_an_error_that_lists_those_that_are(home: Home) -> None:
    with pytest.raises(NotFoundError, match="no job was ever run here"):
        home.find("words")
    home.create_job("other")
    with pytest.raises(NotFoundError, match="known jobs: other"):
        home.find("words")


@pytest.mark.parametrize(
    ("module", "step", "error", "said"),
    [
        (fcntl, "flock", errno.ENOLCK, r"cannot lock .*jobs/words/lock: .*; set FLOWPOINT_HOME"),
        (os, "pwrite", errno.ENOSPC, r"cannot write .*jobs/words/lock: No space left on device"),
    ],
)
def test_a_claim_that_the_disk_refuses_says_so_and_holds_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str, error: int, said: str
) -> None:
    def refused(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patched, pytest.raises(StorageError, match=said):
        patched.setattr(module, step, refused)
        claim_job(home, "words", this_process())

    claim_job(home, "words", this_process()).let_go()
