"""Loading job files: what is executed, how the job is found, and what each mistake says."""

from __future__ import annotations

import sys
import traceback

import pytest

from flowpoint.errors import ConfigError, PlanError, UsageError
from flowpoint.host.module_path import JOB_MODULE
from flowpoint.launch.jobfile import JobSource, build_job, is_loading, load_source
from flowpoint.plan.compile import compile_graph

JOB = "from flowpoint import Job\njob = Job('demo')\n"


@pytest.fixture(autouse=True)
def clean_interpreter(monkeypatch):
    """Loading a job file changes the interpreter, as running a script does; take that back after each test."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        if name == JOB_MODULE or name.startswith("neighbour"):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    def write_file(text: str | bytes, name: str = "my-job.py") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write_file


@pytest.fixture
def build(write):
    def build_text(text: str | bytes, **params: str):
        return build_job(load_source(write(text)), params)

    return build_text


def message_of(build, text, **params) -> str:
    with pytest.raises(UsageError) as caught:
        build(text, **params)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------ reading


def test_a_file_is_read_with_its_absolute_path(write, monkeypatch, tmp_path):
    write(JOB)
    monkeypatch.chdir(tmp_path)

    source = load_source("my-job.py")

    assert source == JobSource(str(tmp_path / "my-job.py"), JOB.encode())
    assert JobSource.from_data(source.to_data()) == source


def test_a_missing_file_is_named_with_the_place_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError) as caught:
        load_source("none.py")
    assert str(caught.value) == f"job file none.py does not exist: looked for {tmp_path}/none.py"


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is a folder: give the Python file in it"):
        load_source(str(tmp_path))


def test_a_path_below_a_file_cannot_be_read(write):
    with pytest.raises(UsageError, match="cannot be read: Not a directory"):
        load_source(write(JOB) + "/deeper.py")


# ------------------------------------------------------------------ finding the job


def test_the_modules_job_is_used(build):
    assert build(JOB).name == "demo"


def test_a_build_function_is_called(build):
    assert build("from flowpoint import Job\ndef build():\n    return Job('built')\n").name == "built"


def test_a_build_function_with_an_argument_gets_the_params(build):
    job = build("from flowpoint import Job\ndef build(params):\n    return Job(params['name'])\n", name="given")

    assert job.name == "given"


def test_a_build_function_may_ask_for_params_that_were_not_given(build):
    job = build("from flowpoint import Job\ndef build(params):\n    return Job(params.get('name', 'default'))\n")

    assert job.name == "default"


def test_a_missing_param_tells_the_person_at_the_shell(build):
    message = message_of(build, "def build(params):\n    return params['input']\n")

    assert message.endswith("my-job.py needs a value for 'input': add --param input=VALUE")


@pytest.mark.parametrize(
    ("reading", "ending"),
    [
        ("params.get('input', '*.txt')", "never asks for it; did you mean input?"),
        ("'input' in params", "never asks for it; did you mean input?"),
        ("params.pop('input', None)", "never asks for it; did you mean input?"),
        ("params.setdefault('input', 'x')", "never asks for it"),
        ("None", "never asks for it"),
    ],
)
def test_a_param_that_is_never_asked_for_is_told_with_the_nearest_name(write, reading, ending):
    text = f"from flowpoint import Job\ndef build(params):\n    params['n']\n    {reading}\n    return Job('a')\n"
    said: list[str] = []

    build_job(load_source(write(text)), {"inptu": "a", "n": "1"}, said.append)

    assert len(said) == 1
    assert said[0].startswith("--param inptu is not used: build() in ") and said[0].endswith(ending)


@pytest.mark.parametrize("reading", ["dict(params)", "{**params}", "list(params)", "params.items()", "params['inptu']"])
def test_params_that_are_all_looked_at_are_used(write, reading):
    text = f"from flowpoint import Job\ndef build(params):\n    {reading}\n    return Job('a')\n"
    said: list[str] = []

    build_job(load_source(write(text)), {"inptu": "a"}, said.append)

    assert said == []


def test_a_missing_param_that_was_mistyped_is_told_as_that(build):
    message = message_of(build, "def build(params):\n    return params['input']\n", inptu="a")

    assert message.endswith("add --param input=VALUE; you gave inptu, which it does not ask for")


def test_no_job_at_all_says_what_to_write(build):
    assert message_of(build, "x = 1\n").endswith(
        "has no job: define job = Job(...), or a function build() that returns one"
    )


def test_a_job_by_another_name_is_pointed_out(build):
    message = message_of(build, "from flowpoint import Job\nmine = Job('a')\nyours = Job('b')\n")

    assert message.endswith("has no job: found a Job called mine, yours; call it job")


def test_a_job_that_is_something_else_is_refused(build):
    assert message_of(build, "job = 'wordcount'\n").endswith("is a str, not a Job: write job = Job(...)")


def test_the_class_itself_is_no_job(build):
    assert message_of(build, "from flowpoint import Job as job\n").endswith(
        "is a type, not a Job: write job = Job(...)"
    )


def test_a_build_that_returns_nothing_is_refused(build):
    message = message_of(build, "def build():\n    pass\n")

    assert message.endswith("returned a NoneType, not a Job: end it with return job")


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        (JOB, "takes no parameters, but --param x y was given: define build(params) instead of job"),
        ("def build():\n    pass\n", "takes no parameters, but --param x y was given: define build(params)"),
    ],
)
def test_params_that_nobody_takes_are_refused(build, text, ending):
    assert message_of(build, text, x="1", y="2").endswith(ending)


# ------------------------------------------------------------------ executing


def test_the_file_runs_as_a_module_of_its_own_name_and_not_as_main(build):
    job = build("from flowpoint import Job\nassert __name__ != '__main__'\njob = Job(__name__)\n")

    assert job.name == JOB_MODULE
    assert sys.modules[JOB_MODULE].job is job


def test_dataclasses_and_annotations_work_in_it(build):
    job = build(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from flowpoint import Job, Sink, Source\n"
        "@dataclass\n"
        "class Point:\n"
        "    zero: ClassVar[int] = 0\n"
        "    x: int\n"
        "def point(x: int) -> Point:\n"
        "    return Point(x)\n"
        "class Numbers(Source): pass\n"
        "class Nowhere(Sink): pass\n"
        "job = Job('demo')\n"
        "job.source(Numbers(), uid='a').map(point, uid='b').sink(Nowhere(), uid='c')\n"
    )

    compiled = compile_graph(job.graph(), 1, 128)

    assert [tp.__name__ for tp in compiled.operators["b"].types] == ["Point"]


def test_it_may_import_its_neighbours_and_go_on_doing_so_later(write, build):
    write("NAME = 'beside'\n", "neighbour_a.py")
    write("NAME = 'later'\n", "neighbour_b.py")
    text = (
        "from flowpoint import Job\nfrom neighbour_a import NAME\njob = Job(NAME)\n"
        "def later():\n    import neighbour_b\n    return neighbour_b.NAME\n"
    )

    assert build(text).name == "beside"
    assert sys.modules[JOB_MODULE].later() == "later"


@pytest.fixture
def in_package(tmp_path, write):
    """Two packages, one in the other, with a module in each."""
    inner = tmp_path / "neighbour_pkg" / "inner"
    inner.mkdir(parents=True)
    for folder, name in ((inner.parent, "upper"), (inner, "beside")):
        (folder / "__init__.py").touch()
        (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    return lambda text: write(f"from flowpoint import Job\n{text}\njob = Job(NAME)\n", "neighbour_pkg/inner/job.py")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from .beside import NAME", "beside"),
        ("from ..upper import NAME", "upper"),
        ("from neighbour_pkg.inner.beside import NAME", "beside"),
        ("from neighbour_pkg.upper import NAME", "upper"),
        ("from beside import NAME", "beside"),
    ],
)
def test_it_may_import_what_is_in_its_package(in_package, text, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path.parent)

    assert build_job(load_source(in_package(text)), {}).name == name

    sys.modules.pop("beside", None)


def test_a_relative_import_outside_of_a_package_says_what_to_do(build, tmp_path):
    said = message_of(build, "from .beside import x")

    assert f"; {tmp_path} is no package, as it has no __init__.py: add one, or write `from sibling import ...`" in said


def test_a_package_that_is_one_only_from_the_working_directory_says_where_modules_are_looked_for(
    write, tmp_path, monkeypatch
):
    (tmp_path / "neighbour_folder").mkdir()
    monkeypatch.chdir(tmp_path)
    path = write("from neighbour_folder.beside import x", "neighbour_folder/job.py")

    with pytest.raises(
        UsageError, match=r"No module named 'neighbour_folder'; modules are looked for beside .*__init__"
    ):
        build_job(load_source(path), {})


def test_a_name_that_there_is_not_is_answered_with_the_one_that_was_meant(build):
    text = "from flowpoint import Job\nfrom flowpoint.connectors import CollectionSource\njob = Job('j')\n"

    said = message_of(build, text + "job.source(CollectionSource([1])).mapp(str)\n")

    assert said.endswith("AttributeError: 'Stream' object has no attribute 'mapp'; did you mean 'map'?")


def test_the_bytes_that_were_read_are_executed_even_if_the_file_has_changed(write):
    source = load_source(write(JOB))
    write("raise RuntimeError('new text')\n")

    assert build_job(source, {}).name == "demo"


def test_each_build_is_a_fresh_one(build):
    text = "from flowpoint import Job\nn = globals().get('n', 0) + 1\njob = Job(f'demo-{n}')\n"

    assert build(text).name == build(text).name == "demo-1"


def test_two_processes_that_build_the_same_bytes_get_the_same_plan(write):
    source = load_source(
        write(
            "from flowpoint import Job, Sink, Source\n"
            "class Numbers(Source): pass\n"
            "class Nowhere(Sink): pass\n"
            "job = Job('demo')\n"
            "job.source(Numbers()).key_by(lambda n: n).count().sink(Nowhere())\n"
        )
    )

    first, second = (compile_graph(build_job(source, {}).graph(), 2, 128).plan for _ in range(2))

    assert first == second


def test_running_the_job_while_its_file_is_loading_is_refused(build):
    message = message_of(build, JOB + "job.run()\n")

    assert "job.run() at my-job.py:3 was called while the job file is being loaded" in message
    assert not is_loading()


# ------------------------------------------------------------------ mistakes in it


def test_a_syntax_error_is_named_with_its_line(build):
    assert "my-job.py, line 2: " in message_of(build, "x = 1\ndef f(:\n")


@pytest.mark.parametrize("content", [b"x = '\0'\n", b"x = '\xff'\n"])
def test_bytes_that_are_no_python_are_refused(build, content):
    assert "my-job.py" in message_of(build, content)


def test_an_import_error_keeps_the_authors_traceback_and_nothing_above_it(write):
    path = write("import sys\n\nimport no_such_module\n")

    with pytest.raises(UsageError) as caught:
        build_job(load_source(path), {})

    assert str(caught.value) == (
        f"job file {path}, line 3 could not be loaded: ModuleNotFoundError: No module named 'no_such_module'"
    )
    cause = caught.value.__cause__
    assert isinstance(cause, ModuleNotFoundError)
    assert [frame.lineno for frame in traceback.extract_tb(cause.__traceback__)] == [3]


def test_the_traceback_shows_the_lines_that_were_executed(write):
    source = load_source(write("def boom():\n    raise ValueError('bad day')\nboom()\n"))
    write("# something else by now\n")

    with pytest.raises(UsageError, match="line 3 could not be loaded: ValueError: bad day") as caught:
        build_job(source, {})

    shown = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [frame.line for frame in shown] == ["boom()", "raise ValueError('bad day')"]


def test_an_exception_in_build_is_named_with_its_line(build):
    message = message_of(build, "def build(params):\n    return int(params['n'])\n", n="many")

    assert message.endswith(
        "my-job.py, line 2 could not build its job: ValueError: invalid literal for int() with base 10: 'many'"
    )


def test_an_exception_without_text_is_named_by_its_class(build):
    assert message_of(build, "assert False\n").endswith("line 1 could not be loaded: AssertionError")


def test_a_file_that_exits_does_not_end_the_process(build):
    assert message_of(build, "import sys\nsys.exit(3)\n").endswith("line 2 could not be loaded: SystemExit: 3")


@pytest.mark.parametrize("error", [PlanError, ConfigError])
def test_what_flowpoint_says_about_the_job_passes_through(build, error):
    text = f"from flowpoint.errors import {error.__name__}\nraise {error.__name__}('said before')\n"

    with pytest.raises(error, match="^said before$"):
        build(text)


def test_its_folder_comes_after_the_library_and_what_is_installed(write, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)  # as PYTHONPATH or a checkout that is installed in place may have it

    build_job(load_source(write(JOB, "numbers.py")), {})

    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


def test_a_neighbour_that_is_not_what_is_imported_is_named(write):
    write("", "queue.py")
    write("", "click.py")
    write("", "neighbour_a.py")
    source = load_source(
        write("import click, random\nfrom queue import Queue\nimport neighbour_a\n" + JOB, "random.py")
    )

    said: list[str] = []
    build_job(source, {}, said.append)

    assert [text.partition(" takes ")[0] for text in said] == [
        f"`import click` in {source.path}",
        f"`import queue` in {source.path}",
    ]
    assert "takes Python's own, not queue.py beside it" in said[1]
    assert "site-packages" in said[0]


def test_whatever_a_file_raises_is_named_with_its_line_except_a_persons_interrupt(build):
    text = "class Unusual(BaseException): pass\nraise Unusual('odd')\n"

    assert message_of(build, text).endswith("line 2 could not be loaded: Unusual: odd")
    with pytest.raises(KeyboardInterrupt):
        build("raise KeyboardInterrupt\n")
