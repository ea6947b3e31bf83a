"""`flowpoint threads` by what it prints and does to a store."""

from __future__ import annotations

import json
import operator
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from flowpoint.agents.core import SaverCore
from flowpoint.agents.entry_names import Place
from flowpoint.agents.every_thread import EveryThread
from flowpoint.agents.migrations import Convert, Drop
from flowpoint.agents.reading import Reader, Saved
from flowpoint.agents.schema import Schema
from flowpoint.cli.main import execute
from tests.unit.agents.stores import SAVERS, THREAD, config, each_saver, open_saver, put

Captured = pytest.CaptureFixture[str]


class State(TypedDict):
    trail: Annotated[list[str], operator.add]
    route: str


def made() -> StateGraph:
    made = StateGraph(State)
    for name in ("a", "b", "c", "c_alt"):
        made.add_node(name, lambda state, name=name: {"trail": [name]})
    made.add_edge(START, "a")
    made.add_edge("a", "b")
    made.add_conditional_edges("b", lambda state: "c_alt" if state["route"] == "alt" else "c")
    return made


builder = made()


unsure = StateGraph(State).add_node("a", lambda state: {}).add_node("b", lambda state: {})
unsure.add_edge(START, "a").add_edge(START, "b")


def make_schema() -> Schema:
    return schema


def make_number() -> int:
    return 7


def needs_more(builder: StateGraph) -> Schema:
    return schema


def raises() -> Schema:
    raise ZeroDivisionError("division by zero")


schema = Schema.of(builder, version=2, migrations={1: [Drop("note")]})
HERE = f"{__name__}:builder"


@pytest.fixture(params=SAVERS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    with open_saver(request.param, tmp_path) as saver:
        builder.compile(checkpointer=saver).invoke({"trail": [], "route": "main"}, THREAD)
    return str(tmp_path / request.param)


def said(capsys: Captured, *arguments: str) -> Any:
    assert execute(["threads", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def data(capsys: Captured, *arguments: str) -> Any:
    return json.loads(said(capsys, *arguments, "--json"))


def at_step(capsys: Captured, store: str, step: int) -> str:
    return next(line["id"] for line in data(capsys, "history", store, "t") if line["step"] == step)


def test_threads_their_history_and_any_point_of_it_are_shown(store: str, capsys: Captured) -> None:
    assert [(one["thread"], one["checkpoints"], one["step"]) for one in data(capsys, "list", store)] == [("t", 5, 3)]
    history = data(capsys, "history", store, "t")
    assert [(one["step"], one["source"], one["head"]) for one in history][:2] == [(3, "loop", True), (2, "loop", False)]
    assert [one["parent"] for one in history[:-1]] == [one["id"] for one in history[1:]]

    shown = data(capsys, "show", store, "t", "--at", at_step(capsys, store, 2)[-12:])
    assert shown["values"]["trail"] == ["a", "b"]
    assert [write[1:] for write in shown["writes"]] == [["trail", ["c"]]]
    told = data(capsys, "diff", store, "t", at_step(capsys, store, 1), at_step(capsys, store, 3))
    assert told["trail"] == {"added": ["b", "c"]}
    assert "head" in said(capsys, "history", store, "t")
    assert "trail = ['a', 'b', 'c']" in said(capsys, "show", store, "t")


def test_a_thread_that_its_owner_deletes_while_it_is_listed_is_left_out(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_saver("folder", tmp_path) as owner:
        for thread in ("gone", "stays"):
            put(owner, config(thread), {"x": 1})
        threads = Reader.threads

        def and_then_one_goes(reader: Reader, every: EveryThread | None = None) -> list[str]:
            found = threads(reader, every)
            owner.delete_thread("gone")
            return found

        monkeypatch.setattr(Reader, "threads", and_then_one_goes)
        listed = data(capsys, "list", str(tmp_path / "folder"))

    assert [one["thread"] for one in listed] == ["stays"]


def test_a_checkpoint_that_its_owner_removes_while_it_is_looked_for_is_not_there(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_saver("folder", tmp_path) as owner:
        id = put(owner, config("t"), {"x": 1})["configurable"]["checkpoint_id"]
        get = SaverCore.get

        def removed_before_the_second_look(core: SaverCore, place: Place, id: str | None, **how: bool) -> Saved | None:
            saved = get(core, place, id, **how)
            return saved if id is None or len(id) < 10 else None

        monkeypatch.setattr(SaverCore, "get", removed_before_the_second_look)

        assert execute(["threads", "show", str(tmp_path / "folder"), "t", "--at", id[-6:]]) == 3
        assert f"checkpoint {id} of thread 't' has just been removed" in capsys.readouterr().err


def test_time_travel_makes_a_fork_that_the_graph_goes_on_from(store: str, capsys: Captured) -> None:
    before = data(capsys, "history", store, "t")
    step2 = at_step(capsys, store, 2)
    fork = ["fork", store, "t", "--at", step2, "--set", 'route="alt"']

    said(capsys, *fork, "--as-node", "b", "--graph", HERE)

    with open_saver(Path(store).name, Path(store).parent) as saver:
        assert builder.compile(checkpointer=saver).invoke(None, THREAD)["trail"] == ["a", "b", "c_alt"]
    after = data(capsys, "history", store, "t")
    assert [one["id"] for one in after if one in [{**old, "head": False} for old in before]] == [
        one["id"] for one in before
    ]
    plain = said(capsys, *fork).strip()
    assert data(capsys, "show", store, "t")["id"] == plain
    assert "fork" in said(capsys, "history", store, "t")


class Mood(Enum):
    GOOD = "good"


class Moody(State):
    mood: Any


moody = StateGraph(Moody)
moody.add_node("a", lambda state: {"mood": Mood.GOOD})
moody.add_node("b", lambda state: {"trail": [type(state["mood"]).__name__]})
moody.add_edge(START, "a")
moody.add_edge("a", "b")


def test_a_graph_that_forks_gets_no_stand_ins_for_classes_that_were_not_declared(
    tmp_path: Path, capsys: Captured
) -> None:
    with open_saver("rocks", tmp_path, types=[Mood]) as saver:
        moody.compile(checkpointer=saver).invoke({"trail": []}, THREAD)
    store = str(tmp_path / "rocks")
    fork = ["threads", "fork", store, "t", "--at", at_step(capsys, store, 1), "--as-node", "a", "--set", 'route="x"']
    fork += ["--graph", f"{__name__}:moody"]

    assert execute(fork) != 0
    assert "Mood, which is not declared" in capsys.readouterr().err
    assert len(data(capsys, "history", store, "t")) == 4
    assert execute([*fork, "--types", f"{__name__}:Mood"]) == 0
    with open_saver("rocks", tmp_path, types=[Mood]) as saver:
        assert saver.get_tuple(THREAD).checkpoint["channel_values"]["mood"] is Mood.GOOD


def test_a_fork_has_the_version_of_what_it_forks_and_is_migrated_no_second_time(
    tmp_path: Path, capsys: Captured
) -> None:
    doubled = Schema.of(builder, version=2, migrations={1: [Convert("route", lambda value: value * 2)]})
    sys.modules[__name__].doubled = doubled  # type: ignore[attr-defined]
    with open_saver("rocks", tmp_path, schema=doubled) as saver:
        builder.compile(checkpointer=saver).invoke({"trail": [], "route": "main"}, THREAD)
    store = str(tmp_path / "rocks")
    step2 = at_step(capsys, store, 2)

    said(capsys, "fork", store, "t", "--at", step2, "--set", 'trail=["x"]')
    with open_saver("rocks", tmp_path, schema=doubled) as saver:
        assert saver.get_tuple(THREAD).checkpoint["channel_values"]["route"] == "main"

    with_graph = ["fork", store, "t", "--at", step2, "--set", 'trail=["y"]', "--as-node", "b", "--graph", HERE]
    assert execute(["threads", *with_graph]) == 2
    assert "written with version 2 of a schema" in capsys.readouterr().err
    said(capsys, *with_graph, "--schema", f"{__name__}:doubled")
    with open_saver("rocks", tmp_path, schema=doubled) as saver:
        assert saver.get_tuple(THREAD).checkpoint["channel_values"]["route"] == "main"


def test_threads_are_copied_pruned_and_deleted(store: str, capsys: Captured) -> None:
    assert said(capsys, "copy", store, "t", "copy") == "thread 't' copied to 'copy', with 5 checkpoints\n"
    assert said(capsys, "prune", store, "t", "--keep-last", "1").startswith("4 checkpoints removed")
    assert {one["thread"]: one["checkpoints"] for one in data(capsys, "list", store)} == {"t": 1, "copy": 5}
    said(capsys, "prune", store, "--keep-last", "3", "--older-than", "0s")
    assert {one["thread"]: one["checkpoints"] for one in data(capsys, "list", store)} == {"t": 1, "copy": 3}
    assert said(capsys, "delete", store, "copy") == "thread 'copy' deleted, with 3 checkpoints\n"
    assert [one["thread"] for one in data(capsys, "list", store)] == ["t"]


def test_what_is_exported_can_be_imported(store: str, capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text(said(capsys, "export", store))
    said(capsys, "import", str(tmp_path / "new"), str(file))

    assert data(capsys, "show", str(tmp_path / "new"), "t") == data(capsys, "show", store, "t")
    assert said(capsys, "export", str(tmp_path / "new")) == file.read_text()
    assert execute(["threads", "import", store, str(file)]) == 2
    assert "has it already" in capsys.readouterr().err


def test_the_database_of_a_sqlite_saver_can_be_imported(capsys: Captured, tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as old:
        builder.compile(checkpointer=old, interrupt_before=["c"]).invoke({"trail": [], "route": "main"}, THREAD)

    said(capsys, "import", str(tmp_path / "rocks"), str(tmp_path / "old.db"))

    with open_saver("rocks", tmp_path) as saver:
        graph = builder.compile(checkpointer=saver)
        assert graph.get_state(THREAD).next == ("c",)
        assert graph.invoke(None, THREAD)["trail"] == ["a", "b", "c"]


def test_commands_that_change_something_tell_programs_what_they_did(
    store: str, capsys: Captured, tmp_path: Path
) -> None:
    step2 = at_step(capsys, store, 2)
    made = data(capsys, "fork", store, "t", "--at", step2, "--set", 'route="alt"')
    assert made == {"thread": "t", "ns": "", "id": data(capsys, "show", store, "t")["id"], "parent": step2}
    assert data(capsys, "copy", store, "t", "copy") == {"thread": "t", "copy": "copy", "checkpoints": 6}
    assert data(capsys, "prune", store, "copy", "--keep-last", "1")["removed"] == 5
    assert data(capsys, "delete", store, "copy") == {"deleted": "copy", "checkpoints": 1}
    lines = said(capsys, "export", store, "--json")
    assert lines == said(capsys, "export", store)
    (tmp_path / "lines").write_text(lines)
    assert data(capsys, "import", str(tmp_path / "new"), str(tmp_path / "lines")) == {"imported": 6}


def test_a_thread_whose_head_is_damaged_can_be_deleted(tmp_path: Path, capsys: Captured) -> None:
    store = str(tmp_path / "rocks")
    with open_saver("rocks", tmp_path) as saver:
        builder.compile(checkpointer=saver).invoke({"trail": [], "route": "main"}, THREAD)
        (key, commit), *_ = saver.core.kv.scan("t/t/c/", reverse=True)
        saver.core.kv.write([], [key])
        saver.core.kv.write([(key, commit[:-1])])
    assert execute(["threads", "show", store, "t"]) != 0
    said(capsys, "delete", store, "t")
    assert data(capsys, "list", store) == []


def test_a_schema_is_checked_against_every_head(store: str, capsys: Captured) -> None:
    report = data(capsys, "migrate", store, "--schema", f"{__name__}:schema", "--check")
    assert (report["threads"], report["migrated"], report["refused"]) == (1, 1, [])
    assert data(capsys, "migrate", store, "--schema", f"{__name__}:make_schema", "--check") == report


def test_a_store_that_is_open_is_not_changed_and_its_owner_is_named(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_saver("folder", tmp_path) as saver:
        builder.compile(checkpointer=saver).invoke({"trail": [], "route": "main"}, THREAD)
        assert execute(["threads", "delete", str(tmp_path / "folder"), "t"]) == 2
        assert "it is open in process" in capsys.readouterr().err
        assert data(capsys, "list", str(tmp_path / "folder"))


@pytest.mark.parametrize(
    ("arguments", "code", "seen"),
    [
        (["list", "nowhere"], 3, "no store of threads"),
        (["show", "STORE", "nobody"], 3, "no thread 'nobody'"),
        (["history", "STORE", "nobody"], 3, "no thread 'nobody'"),
        (["export", "STORE", "nobody"], 3, "no thread 'nobody'"),
        (["prune", "STORE", "nobody", "--keep-last", "1"], 3, "no thread 'nobody'"),
        (["copy", "STORE", "nobody", "copy"], 3, "no thread 'nobody'"),
        (["delete", "STORE", "nobody"], 3, "no thread 'nobody'"),
        (["migrate", "STORE", "nobody", "--check", "--schema", "HERE:schema"], 3, "no thread 'nobody'"),
        (["show", "STORE", "t", "--at", "1"], 3, "match '1'"),
        (["fork", "STORE", "t", "--as-node", "b"], 2, "what follows a node is in the code"),
        (["fork", "STORE", "t", "--set", 'route="x"', "--as-node", "b"], 2, "or leave --as-node out"),
        (["fork", "STORE", "t", "--schema", "x:y"], 2, "without --graph"),
        (["fork", "STORE", "t", "--set", "nothing=1"], 2, "cannot set 'nothing'"),
        (["fork", "STORE", "t", "--set", "route=alt"], 2, "channel=JSON"),
        (["fork", "STORE", "t", "--set", "rout=1"], 2, "the thread has route, trail; did you mean 'route'?"),
        (["fork", "STORE", "t", "--graph", "HERE:builder", "--set", "rout=1"], 2, "did you mean 'route'?"),
        (["fork", "STORE", "t", "--graph", "HERE:builder", "--set", "branch:to:a=1"], 2, "cannot set 'branch:to:a'"),
        (["fork", "STORE", "t", "--graph", "HERE:builder", "--as-node", "c_al"], 2, "did you mean 'c_alt'?"),
        (
            ["fork", "STORE", "t", "--graph", "HERE:builder", "--set", "trail=1", "--as-node", "a"],
            2,
            "raised TypeError",
        ),
        (["show", "STORE", "t", "--ns", "sub"], 3, "has no namespace 'sub'; give one of those it has with --ns: ''"),
        (["show", "STORE", "nobody", "--ns", "sub"], 3, "`flowpoint threads list` shows those there are"),
        (
            ["fork", "STORE", "t", "--graph", "HERE:builder", "--set", "route=7", "--as-node", "a"],
            2,
            "cannot set 'route': it is an int (7), not str",
        ),
        (["prune", "STORE"], 2, "nothing says what may go"),
        (["prune", "STORE", "--older-than", "often"], 2, "a duration"),
        (["prune", "STORE", "--older-than", "99999999999999d"], 2, "a duration"),
        (["prune", "STORE", "--keep-last", "0"], 2, "keep at least 1"),
        (["migrate", "STORE", "--schema", "HERE:schema"], 2, "pass --check"),
        (["migrate", "STORE", "--check", "--schema", "nothing:here"], 2, "cannot load"),
        (["migrate", "STORE", "--check", "--schema", ":"], 2, "write it as module:name"),
        (["migrate", "STORE", "--check", "--schema", "HERE:make_number"], 2, "it returned an int; name a schema"),
        (
            ["migrate", "STORE", "--check", "--schema", "HERE:needs_more"],
            2,
            "cannot be called without arguments; name a schema",
        ),
        (
            ["migrate", "STORE", "--check", "--schema", "HERE:raises"],
            2,
            "it raised ZeroDivisionError: division by zero",
        ),
        (["migrate", "STORE", "--check", "--schema", "HERE:THREAD"], 2, "it is a dict; name a schema"),
        (["fork", "STORE", "t", "--as-node", "b", "--graph", "HERE:schema"], 2, "it is a Schema; name a StateGraph"),
        (["fork", "STORE", "t", "--graph", "HERE:builder", "--types", "HERE:THREAD"], 2, "it is a dict; name a"),
        (["import", "NEW", "PICTURE"], 2, "cannot import line 1"),
        (["import", "NEW", "HALF"], 2, "cannot import line 1"),
        (["import", "NEW", "nowhere"], 2, "No such file"),
        (["import", "OTHER", "HALF"], 2, "there is something else"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    arguments: list[str], code: int, seen: str, store: str, capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "half").write_text('{"thread": "t", "channels": {}, "writes": []}\n')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    before = sorted(tmp_path.iterdir())
    head = data(capsys, "list", store)
    meant = {"STORE": store, **{name: str(tmp_path / name.lower()) for name in ("NEW", "PICTURE", "HALF", "OTHER")}}
    assert execute(["threads", *(meant.get(one, one.replace("HERE", __name__)) for one in arguments)]) == code
    error = capsys.readouterr().err
    assert seen in error
    assert "bug in FlowPoint" not in error
    assert sorted(tmp_path.iterdir()) == before
    assert data(capsys, "list", store) == head


def test_a_fork_without_the_graph_puts_values_in_place_of_the_old_and_with_it_through_the_reducer(
    store: str, capsys: Captured
) -> None:
    fork = ["fork", store, "t", "--at", at_step(capsys, store, 2), "--set", 'trail=["x"]']

    said(capsys, *fork)
    assert data(capsys, "show", store, "t")["values"]["trail"] == ["x"]
    with open_saver(Path(store).name, Path(store).parent) as saver:
        assert builder.compile(checkpointer=saver).get_state(THREAD).next == ("c",), "as before the fork"

    said(capsys, *fork, "--graph", HERE, "--as-node", "a")
    assert data(capsys, "show", store, "t")["values"]["trail"] == ["a", "b", "x"]
    with open_saver(Path(store).name, Path(store).parent) as saver:
        assert builder.compile(checkpointer=saver).get_state(THREAD).next == ("b",), "what follows the node"


def test_a_fork_stands_as_a_branch_in_the_history(store: str, capsys: Captured) -> None:
    plain = said(capsys, "fork", store, "t", "--at", at_step(capsys, store, 2)[-6:], "--set", 'route="alt"').strip()

    newest, branch, parent = said(capsys, "history", store, "t").splitlines()[1:4]

    assert newest.startswith(plain)
    assert branch.startswith("├─ ")
    assert branch.split()[2] == parent.split()[0] == newest.split()[1]


@dataclass
class Note:
    text: str


class Loud(Note):
    """A class that stands in no annotation."""


class Notes(TypedDict):
    notes: Annotated[list[Note], operator.add]
    any: Any


def noting(note: Note) -> StateGraph:
    def ask(state: Notes) -> Any:
        return {"any": interrupt(note)}

    made = StateGraph(Notes).add_node("note", lambda state: {"notes": [note]}).add_node("ask", ask)
    return made.add_edge(START, "note").add_edge("note", "ask")


class Last(Notes):
    last: Note


builder_of_notes = StateGraph(Last).add_node("note", lambda state: {"any": 1}).add_edge(START, "note")


def test_a_class_in_the_database_of_a_sqlite_saver_has_to_be_declared(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as old:
        noting(Note("x")).compile(checkpointer=old).invoke({"any": None}, THREAD)
    take_in = ["import", str(tmp_path / "rocks"), str(tmp_path / "old.db")]

    assert execute(["threads", *take_in]) == 2
    assert f"it holds {__name__}:Note, which is not declared" in capsys.readouterr().err
    assert not (tmp_path / "rocks").exists()

    said(capsys, *take_in, "--types", f"{__name__}:Note")
    with open_saver("rocks", tmp_path, types=[Note]) as saver:
        assert noting(Note("x")).compile(checkpointer=saver).get_state(THREAD).values["notes"] == [Note("x")]


note_schema = Schema.of(noting(Note("x")), version=1)


@each_saver
def test_a_check_knows_the_classes_of_the_graph_and_others_by_name(
    kind: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    store = str(tmp_path / kind)
    check = ["migrate", store, "--schema", f"{__name__}:note_schema", "--check"]
    with open_saver(kind, tmp_path, types=[Note, Loud], schema=note_schema) as saver:
        noting(Note("x")).compile(checkpointer=saver).invoke({"any": None}, THREAD)
        report = data(capsys, *check)
        assert (report["threads"], report["refused"]) == (1, [])
        noting(Loud("x")).compile(checkpointer=saver).invoke({}, {"configurable": {"thread_id": "loud"}})

    assert execute(["threads", *check]) == 1
    out = capsys.readouterr().out
    assert "Loud, which is not declared" in out
    assert "or give it with --types" in out
    assert "2 heads: 0 to be migrated on reading, 1 refused" in out
    assert data(capsys, *check, "--types", f"{__name__}:Loud")["refused"] == []


@each_saver
def test_objects_are_shown_with_their_class_and_fields(kind: str, tmp_path: Path, capsys: Captured) -> None:
    with open_saver(kind, tmp_path, types=[Note]) as saver:
        noting(Note("x")).compile(checkpointer=saver).invoke({"any": None}, THREAD)
    note = {"type": f"{__name__}:Note", "fields": {"text": "x"}}

    shown = data(capsys, "show", str(tmp_path / kind), "t")

    assert shown["values"]["notes"] == [note]
    [[_task, channel, [asked]]] = shown["writes"]
    assert (channel, asked["type"], asked["fields"]["value"]) == ("__interrupt__", "langgraph.types:Interrupt", note)


@each_saver
@pytest.mark.parametrize("graph", [[], ["--graph", f"{__name__}:builder_of_notes", "--as-node", "note"]])
def test_a_value_that_json_does_not_make_is_not_replaced_by_one_that_it_makes(
    graph: list[str], kind: str, tmp_path: Path, capsys: Captured
) -> None:
    with open_saver(kind, tmp_path, types=[Note]) as saver:
        builder_of_notes.compile(checkpointer=saver).invoke({"last": Note("x")}, THREAD)

    fork = ["threads", "fork", str(tmp_path / kind), "t", *graph]
    assert execute([*fork, "--set", 'last={"text": "y"}']) == 2
    assert "cannot set 'last': it" in (error := capsys.readouterr().err)
    assert "Note" in error and "graph.update_state" in error
    assert execute([*fork, "--set", 'any={"text": "y"}']) == 0


def test_only_what_no_later_checkpoint_has_taken_in_is_pending(store: str, capsys: Captured) -> None:
    with open_saver(Path(store).name, Path(store).parent, types=[Note]) as saver:
        noting(Note("x")).compile(checkpointer=saver).invoke({"any": None}, {"configurable": {"thread_id": "asks"}})

    assert [line["pending"] for line in data(capsys, "history", store, "t")] == [0] * 5
    assert [line["pending"] for line in data(capsys, "history", store, "asks")] == [1, 0, 0]
    assert "  pending: __interrupt__ = " in said(capsys, "show", store, "asks")
    old = at_step(capsys, store, 2)
    assert data(capsys, "show", store, "t", "--at", old)["pending"] == 0
    assert "  written: trail = ['c']" in said(capsys, "show", store, "t", "--at", old)


def test_an_import_into_an_empty_folder_makes_a_store_of_it(store: str, capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text(said(capsys, "export", store))
    (tmp_path / "empty").mkdir()

    assert said(capsys, "import", str(tmp_path / "empty"), str(file)) == "5 checkpoints imported\n"

    assert data(capsys, "show", str(tmp_path / "empty"), "t") == data(capsys, "show", store, "t")


def test_a_fork_of_which_the_graph_cannot_tell_the_node_asks_for_it(tmp_path: Path, capsys: Captured) -> None:
    with open_saver("rocks", tmp_path) as saver:
        unsure.compile(checkpointer=saver).invoke({"trail": []}, THREAD)

    fork = ["threads", "fork", str(tmp_path / "rocks"), "t", "--graph", f"{__name__}:unsure", "--set", 'route="x"']
    assert execute(fork) == 2
    assert "Ambiguous update" in (error := capsys.readouterr().err)
    assert "say with --as-node" in error
