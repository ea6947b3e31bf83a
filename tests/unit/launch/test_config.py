"""Settings from file, job, environment and shell: who wins, what is refused, and that the shown file is true."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from flowpoint.errors import ConfigError
from flowpoint.launch import config
from flowpoint.launch.config import available_cores, load_settings
from flowpoint.launch.settings_keys import PARSERS
from flowpoint.model.settings import Settings

SHOWN_FILE = Path(__file__).parents[3] / "config" / "flowpoint.toml"


def flat(tables: dict, prefix: str = "") -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in tables.items():
        values |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return values


def from_shell(*overrides: str) -> Settings:
    return load_settings(None, {}, {}, overrides)


@pytest.fixture
def toml(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "own.toml"
        path.write_text(text)
        return str(path)

    return write


def settled(settings: Settings) -> Settings:
    return replace(settings, parallelism=available_cores(), workers=available_cores())


# ------------------------------------------------------------------ keys


def test_there_is_a_parser_for_exactly_the_fields_of_settings():
    assert list(PARSERS) == list(flat(Settings().to_data()))


def test_the_shown_file_has_every_key_in_order_with_its_default():
    shown = tomllib.loads(SHOWN_FILE.read_text())

    assert list(flat(shown)) == list(PARSERS)
    assert load_settings(str(SHOWN_FILE), {}, {}, []) == settled(Settings())


def test_the_shown_file_explains_every_key_on_its_line():
    lines = [line for line in SHOWN_FILE.read_text().splitlines() if re.match(r"\w+ = ", line)]

    assert len(lines) == len(PARSERS)
    assert all(re.search(r" # \S.{10,}", line) for line in lines)


def test_every_default_is_a_value_that_its_key_takes():
    defaults = flat(Settings().to_data())

    assert {key: parse(defaults[key]) for key, parse in PARSERS.items()} == defaults


# ------------------------------------------------------------------ layers


def test_without_any_layer_the_defaults_hold():
    assert load_settings(None, {}, {}, []) == settled(Settings())


def test_later_layers_win(toml):
    layers = {
        "file": toml("batch_size = 1\n[checkpoint]\nretained = 1\ninterval = 1\nmin_pause = 1"),
        "job_config": {"checkpoint": {"retained": 2, "interval": 2, "min_pause": 2}},
        "environ": {"FLOWPOINT_CHECKPOINT_INTERVAL": "3s", "FLOWPOINT_CHECKPOINT_MIN_PAUSE": "3s"},
        "overrides": ["checkpoint.min_pause=4s"],
    }

    settings = load_settings(**layers)

    assert settings.batch_size == 1
    assert settings.checkpoint.retained == 2
    assert settings.checkpoint.interval == 3.0
    assert settings.checkpoint.min_pause == 4.0


def test_the_last_of_two_overrides_wins():
    assert from_shell("batch_size=1", "batch_size=2").batch_size == 2


def test_a_job_may_use_dotted_keys():
    assert load_settings(None, {"state.backend": "heap"}, {}, []).state.backend == "heap"


def test_the_environment_names_keys_with_underscores_and_ignores_other_programs():
    environ = {"FLOWPOINT_MAX_PARALLELISM": "64", "FLOWPOINT_HOME": "/elsewhere", "PATH": "/bin", "FLOWPOINTX": "1"}

    assert load_settings(None, {}, environ, []).max_parallelism == 64


def test_an_override_may_contain_an_equals_sign():
    assert from_shell("checkpoint.storage=/data/a=b").checkpoint.storage == "/data/a=b"


def test_a_bad_value_is_refused_even_if_a_later_layer_wins(toml):
    with pytest.raises(ConfigError, match="batch_size = 0 in .*own.toml cannot be used"):
        load_settings(toml("batch_size = 0"), {}, {}, ["batch_size=5"])


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("checkpoint.interval=0", 0.0),
        ("checkpoint.interval=250ms", 0.25),
        ("checkpoint.timeout=5m", 300.0),
        ("checkpoint.mode=at_least_once", "at_least_once"),
        ("checkpoint.incremental=no", False),
        ("checkpoint.unaligned=false", False),
        ("checkpoint.unaligned=true", True),
        ("checkpoint.aligned_timeout=0s", 0.0),
        ("checkpoint.aligned_timeout=1s", 1.0),
        ("checkpoint.memory_limit=1GB", 1 << 30),
        ("checkpoint.storage=memory", "memory"),
        ("checkpoint.storage=file:///var/checkpoints", "file:///var/checkpoints"),
        ("checkpoint.max_concurrent=2", 2),
        ("state.backend=heap", "heap"),
        ("state.cache_bytes=64MB", 64 << 20),
        ("restart.factor=2", 2.0),
        ("restart.strategy=none", "none"),
        ("heartbeat.timeout=1h", 3600.0),
        ("max_parallelism=32768", 32768),
    ],
)
def test_values_are_read(override, expected):
    key = override.partition("=")[0]

    assert flat(from_shell(override).to_data())[key] == expected


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("parallelism=-1", "a whole number, at least 0 and at most 32768"),
        ("parallelism=two", "a whole number, at least 0"),
        ("parallelism=1.5", "a whole number"),
        ("max_parallelism=0", "a whole number, at least 1 and at most 32768"),
        ("max_parallelism=32769", "a whole number, at least 1 and at most 32768"),
        ("batch_size=", "a whole number, at least 1"),
        ("checkpoint.interval=soon", "a duration: seconds as a number"),
        ("checkpoint.timeout=0", "a duration longer than 0"),
        ("checkpoint.mode=twice", "exactly_once or at_least_once"),
        ("checkpoint.incremental=maybe", "true or false"),
        ("checkpoint.memory_limit=big", "a size: bytes as a whole number"),
        ("checkpoint.storage=file://relative", "a file:// address with an absolute path"),
        ("state.backend=disk", "rocksdb or heap"),
        ("restart.jitter=2", "a number, at least 0 and at most 1"),
        ("restart.factor=0.5", "a number, at least 1"),
        ("restart.factor=nan", "a number, at least 1"),
        ("restart.factor=inf", "a number, at least 1"),
    ],
)
def test_a_bad_value_says_what_was_wanted_and_where_it_stood(override, wanted):
    key, _, value = override.partition("=")

    with pytest.raises(ConfigError) as caught:
        from_shell(override)

    assert str(caught.value).startswith(f"{key} = {value!r} in --set cannot be used: wanted {wanted}")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [({"batch_size": True}, "a whole number"), ({"batch_size": 2.0}, "a whole number"), ({"workers": [1]}, "a whole")],
)
def test_values_of_a_wrong_type_are_refused(value, wanted):
    with pytest.raises(ConfigError, match=rf"in Job\(config=...\) cannot be used: wanted {wanted}"):
        load_settings(None, value, {}, [])


def test_values_that_are_not_built_yet_are_refused_and_not_ignored():
    with pytest.raises(ConfigError, match="in --set is not supported yet: use"):
        from_shell("checkpoint.storage=s3://bucket/path")


@pytest.mark.parametrize("how", ["checkpoint.unaligned=true", "checkpoint.aligned_timeout=1s"])
@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ("checkpoint.max_concurrent=2", "max_concurrent = 2 cannot be used with checkpoint"),
        ("checkpoint.mode=at_least_once", "mode = at_least_once cannot be used with checkpoint"),
    ],
)
def test_unaligned_checkpoints_are_taken_one_at_a_time_and_exactly_once(how, other, complaint):
    with pytest.raises(ConfigError, match=complaint):
        from_shell(how, other)


# ------------------------------------------------------------------ keys that are wrong


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("checkpoint.intervall=1s", "unknown key checkpoint.intervall in --set: did you mean checkpoint.interval?"),
        ("chekpoint.interval=1s", "unknown key chekpoint.interval in --set: did you mean checkpoint.interval?"),
        ("heartbeet.interval=1s", "unknown key heartbeet.interval in --set: did you mean heartbeat.interval?"),
        ("interval=1s", "unknown key interval in --set: did you mean checkpoint.interval or heartbeat.interval?"),
        ("retained=1", "unknown key retained in --set: did you mean checkpoint.retained?"),
        ("paralelism=1", "unknown key paralelism in --set: did you mean parallelism?"),
        ("checkpoint=1", "checkpoint in --set is a group of keys, not a key: use one of checkpoint.interval,"),
        ("zzzzzz=1", "unknown key zzzzzz in --set: the keys are parallelism, max_parallelism,"),
        ("checkpoint.interval", "--set checkpoint.interval: wanted KEY=VALUE"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_right_one(override, message):
    with pytest.raises(ConfigError) as caught:
        from_shell(override)

    assert str(caught.value).startswith(message)


def test_an_unknown_key_in_a_file_names_the_file(toml):
    path = toml("[checkpoint]\nintervall = 1")

    with pytest.raises(ConfigError, match=re.escape(f"unknown key checkpoint.intervall in {path}: did you mean")):
        load_settings(path, {}, {}, [])


def test_an_unknown_key_of_a_job_says_so():
    with pytest.raises(
        ConfigError, match=r"unknown key state.backand in Job\(config=...\): did you mean state.backend"
    ):
        load_settings(None, {"state": {"backand": "heap"}}, {}, [])


def test_an_unknown_variable_is_refused_by_its_own_name():
    with pytest.raises(
        ConfigError,
        match="unknown key FLOWPOINT_CHECKPOINT_INTERVALL in the environment: did you mean FLOWPOINT_CHECKPOINT_INTERVAL",
    ):
        load_settings(None, {}, {"FLOWPOINT_CHECKPOINT_INTERVALL": "1s"}, [])


def test_a_bad_variable_is_called_by_its_own_name():
    with pytest.raises(ConfigError, match="FLOWPOINT_BATCH_SIZE = 'x' in the environment cannot be used"):
        load_settings(None, {}, {"FLOWPOINT_BATCH_SIZE": "x"}, [])


# ------------------------------------------------------------------ files that are wrong


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"configuration file .*none.toml does not exist: looked for"):
        load_settings(str(tmp_path / "none.toml"), {}, {}, [])


def test_a_file_that_is_not_toml_is_named_with_the_place(toml):
    with pytest.raises(ConfigError, match=r"configuration file .*own.toml is not TOML: .*line 2"):
        load_settings(toml("workers = 1\nworkers = = 2\n"), {}, {}, [])


def test_a_job_config_that_is_no_dict_is_refused():
    with pytest.raises(ConfigError, match=r"Job\(config=...\) is a list: give a dict"):
        load_settings(None, ["workers"], {}, [])


# ------------------------------------------------------------------ what depends on each other


def test_parallelism_zero_is_the_cores_and_workers_follow_it(monkeypatch):
    monkeypatch.setattr(config, "available_cores", lambda: 6)

    settings = from_shell()
    assert (settings.parallelism, settings.workers) == (6, 6)

    settings = from_shell("parallelism=4")
    assert (settings.parallelism, settings.workers) == (4, 4)

    settings = from_shell("parallelism=4", "workers=2")
    assert (settings.parallelism, settings.workers) == (4, 2)


def test_more_cores_than_max_parallelism_are_not_used(monkeypatch):
    monkeypatch.setattr(config, "available_cores", lambda: 6)

    assert from_shell("max_parallelism=2").parallelism == 2


def test_the_cores_are_those_the_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert available_cores() == 3

    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["parallelism=3", "max_parallelism=2"], "parallelism = 3 cannot be used: it is more than max_parallelism"),
        (["heartbeat.timeout=1s"], "heartbeat.timeout = 1s cannot be used: it must be longer than heartbeat.interval"),
        (["restart.delay=2s", "restart.delay_max=1s"], "restart.delay_max = 1s cannot be used: it is less than"),
    ],
)
def test_values_that_contradict_each_other_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        from_shell(*overrides)


def test_a_delay_above_the_default_greatest_delay_raises_that():
    assert from_shell("restart.delay=5m").restart.delay_max == 300.0


def test_what_a_flag_says_is_told_by_the_flag() -> None:
    with pytest.raises(ConfigError, match="^-p 100000 cannot be used: wanted"):
        load_settings(None, {}, {}, [], parallelism=100_000)


def test_a_flag_wins_over_set() -> None:
    assert load_settings(None, {}, {}, ["parallelism=2", "workers=2"], parallelism=3, workers=1).parallelism == 3
