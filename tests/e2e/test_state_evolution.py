"""A job whose types change: the document's three versions run one after the other, and what is refused is refused early."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.shell import Done, Shell, committed

DOCUMENT = Path(__file__).parents[2] / "docs" / "state-evolution.md"
VERSIONS = re.findall(r"```python\n(# accounts\.py, version \d\n.*?)```", DOCUMENT.read_text(), re.DOTALL)


def run_for_a_while(shell: Shell, text: str, *options: str) -> Done:
    """Run a version of the job until it has emitted more, and stop it."""
    shell.write("accounts.py", text)
    running = shell.start("run", "accounts.py", "-p", "2", "--plain", *options)
    shell.wait_for_status("accounts", lambda status: status["records_out"])
    shell.run_ok("stop", "accounts")
    return running.wait()


def newest_checkpoint(shell: Shell) -> str:
    path: str = shell.run_ok("checkpoints", "accounts", "--json").json()[-1]["path"]
    return path


def assert_totals_are_exact(shell: Shell) -> None:
    """Every total of every key, as if the code had never changed."""
    rows = committed(shell.folder / "out")
    for key in range(10):
        totals = sorted(total for other, total in rows if other == key)
        assert totals == [key * n for n in range(1, len(totals) + 1)]


@pytest.mark.timeout(180)
def test_the_documents_three_versions_go_on_from_each_other_without_a_loss(shell: Shell) -> None:
    first, second, third = VERSIONS

    assert "warning: state" not in run_for_a_while(shell, first).out
    told = run_for_a_while(shell, second).out
    shell.write("accounts.py", third)
    trial = shell.run_ok("migrate", newest_checkpoint(shell), "accounts.py", "--check", "--json").json()
    migrated = run_for_a_while(shell, third).out
    again = run_for_a_while(shell, third).out

    assert told.count("warning: state 'account' of operator 'book' is taken over as it is declared now: ") == 1
    for what in ("'total' was widened from int to float", "'note' was added and has its default", "in another order"):
        assert what in told
    account = next(state for state in trial["states"] if state["state"] == "account")
    assert (account["values"], account["changed"], account["failed"]) == (10, 10, 0)
    assert migrated.count("migrated from version 1 to version 2") == 1
    assert "warning: state" not in again
    assert_totals_are_exact(shell)


def test_what_cannot_be_taken_over_is_refused_before_a_record_is_read_and_nothing_is_lost(shell: Shell) -> None:
    first, _, _ = VERSIONS
    run_for_a_while(shell, first)
    renamed = first.replace("bookings", "count").replace("total: int", "total: int = 0")
    renamed = renamed.replace("total: int = 0\n    count: int", "total: int\n    count: int = 0")
    written = committed(shell.folder / "out")

    shell.write("accounts.py", renamed)
    trial = shell.run("migrate", newest_checkpoint(shell), "accounts.py", "--check")
    refused = shell.run("run", "accounts.py", "-p", "2", "--plain")

    assert trial.code == refused.code == 1
    for said in (trial.out, refused.err):
        assert "cannot restore state 'account' of operator 'book'" in said
        assert "the field 'bookings' (stored as int) is gone and the field 'count' (wanted as int) is new" in said
    assert committed(shell.folder / "out") == written
    assert "warning: state" not in run_for_a_while(shell, first).out
    assert_totals_are_exact(shell)


def test_a_removed_state_and_a_removed_operator_are_left_behind_only_when_told_to_and_by_name(shell: Shell) -> None:
    first, _, _ = VERSIONS
    extra = 'account = ValueState("account", Account)\n    extra = ValueState("extra", default=0)'
    more = first.replace('account = ValueState("account", Account)', extra).replace(
        "        yield ctx.key", "        self.extra.value += 1\n        yield ctx.key"
    )
    more = more.replace(
        '    .process(Book(), uid="book")', '    .process(Book(), uid="book")\n    .key_by(min).count(uid="n")'
    )
    run_for_a_while(shell, more)
    shell.write("accounts.py", first)

    refused = shell.run("run", "accounts.py", "-p", "2", "--plain")
    allowed = run_for_a_while(shell, first, "--allow-non-restored")
    later = run_for_a_while(shell, first)

    assert refused.code == 1
    assert "allow-non-restored" in refused.err
    assert "state 'extra' of operator 'book' is left behind" in allowed.out
    assert "the state of operator 'n' is left behind" in allowed.out
    assert "left behind" not in later.out


def test_the_check_says_what_it_sees_of_a_changed_key_function_that_the_run_then_refuses(shell: Shell) -> None:
    first, _, _ = VERSIONS
    run_for_a_while(shell, first)
    keyed_by_text = first.replace("key_by(lambda amount: amount)", "key_by(lambda amount: str(amount))")

    same = shell.run_ok("migrate", newest_checkpoint(shell), "accounts.py", "--check")
    shell.write("accounts.py", keyed_by_text)
    trial = shell.run_ok("migrate", newest_checkpoint(shell), "accounts.py", "--check")
    refused = shell.run("run", "accounts.py", "-p", "2", "--plain")

    assert "key_by" not in same.out
    assert "note: the key_by of operator 'book' has changed: keys are stored as number" in trial.out
    assert refused.code == 1
    assert "its keys are stored as number, and its changed key_by gives str" in refused.err
