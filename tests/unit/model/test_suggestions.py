"""A name that there is not is answered with the nearest one that there is."""

from __future__ import annotations

import pytest

from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink
from flowpoint.model.suggestions import suggestion

number = 1


class Odd:
    def __dir__(self):
        raise ValueError("no")


def no_method():
    Job("j").source(CollectionSource([1])).mapp(str)


def no_method_of_a_keyed_stream():
    Job("j").source(CollectionSource([1])).key_by(str).cont()


def no_attribute():
    "a".uper()


def no_name():
    numbre  # noqa: B018, F821


def no_local():
    wanted = 1
    return wantde + wanted  # noqa: F821


def no_import():
    from flowpoint.connectors import FileSnk  # noqa: F401


def no_parameter():
    FileSink("out", fromat="jsonl")


def no_parameter_of_a_method():
    Job("j").source(CollectionSource([1])).map(str, uidd="x")


def nothing_near():
    "a".zzz()


def private():
    Job("j")._grap()


def not_to_be_listed():
    Odd().x()


@pytest.mark.parametrize(
    ("does", "meant"),
    [
        (no_method, "map"),
        (no_method_of_a_keyed_stream, "count"),
        (no_attribute, "upper"),
        (no_name, "number"),
        (no_local, "wanted"),
        (no_import, "FileSink"),
        (no_parameter, "format"),
        (no_parameter_of_a_method, "uid"),
        (nothing_near, ""),
        (private, "_graph"),
        (not_to_be_listed, ""),
        (lambda: int("x"), ""),
    ],
)
def test_what_was_meant_is_said(does, meant):
    with pytest.raises(Exception) as caught:
        does()

    assert suggestion(caught.value) == (f"; did you mean {meant!r}?" if meant else "")
