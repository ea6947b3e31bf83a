"""Puts the settings of a job together: file < Job(config=) < environment < --set < -p, --workers; later ones win.

Each layer becomes a list of `Given` (key, raw value, where it stood), each of which is judged even if a later one wins:
a wrong line in a file is an error at once, not on the day the override goes away. Then numbers that depend on the
machine or on each other are settled, here and nowhere else.

Invariant: in the result `parallelism` and `workers` are at least 1.

Not here: what each key takes (`launch.settings_keys`), defaults (`model.settings`), FLOWPOINT_HOME (the launcher).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from flowpoint.errors import ConfigError
from flowpoint.launch.given_files import read_given
from flowpoint.launch.settings_keys import PARSERS, NotSupportedError, Value
from flowpoint.model.settings import CheckpointSettings, Settings
from flowpoint.model.texts import alike, with_article

ENVIRONMENT_PREFIX: Final = "FLOWPOINT_"
_NOT_SETTINGS: Final = frozenset({"FLOWPOINT_HOME"})


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave. `called` is the key as it stood there, `where` says where."""

    key: str
    called: str
    value: object
    where: str

    def __str__(self) -> str:
        """As a person gave it."""
        return (
            f"{self.called} {self.value}"
            if self.called.startswith("-")
            else f"{self.called} = {self.value!r} {self.where}"
        )


def load_settings(
    file: str | None,
    job_config: Mapping[str, Any],
    environ: Mapping[str, str],
    overrides: Sequence[str],
    *,
    parallelism: int | None = None,
    workers: int | None = None,
) -> Settings:
    """The settings a job runs with.

    Args:
        file: A TOML file, or None.
        job_config: The job's own, nested or with dotted keys.
        environ: The environment; FLOWPOINT_CHECKPOINT_INTERVAL is `checkpoint.interval`.
        overrides: `KEY=VALUE`, as given to `--set`.
        parallelism, workers: As given to `-p` and `--workers`.

    Raises:
        ConfigError: An unknown key, a bad value, or one that is not supported yet.

    Example:
        >>> load_settings(None, {"checkpoint": {"interval": "1m"}}, {}, ["parallelism=2"]).checkpoint.interval
        60.0
    """
    values: dict[str, Value] = {}
    flags = [Given(key, flag, value, "") for key, flag, value in _flags(parallelism, workers) if value is not None]
    for given in (
        *_from_file(file),
        *_from_job(job_config),
        *_from_environment(environ),
        *_from_shell(overrides),
        *flags,
    ):
        values[given.key] = _judge(given)
    return _settle(_build(values), chosen=values)


def available_cores() -> int:
    """The cores this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _from_file(path: str | None) -> Iterator[Given]:
    if path is None:
        return
    content = read_given(path, "configuration file", error=ConfigError)
    try:
        table = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} is not TOML: {error}") from error
    yield from _from_tables(table, f"in {path}")


def _from_job(config: Mapping[str, Any]) -> Iterator[Given]:
    if not isinstance(config, Mapping):
        raise ConfigError(f"Job(config=...) is {with_article(type(config).__name__)}: give a dict of keys and values")
    yield from _from_tables(config, "in Job(config=...)")


def _from_tables(tables: Mapping[Any, object], where: str, prefix: str = "") -> Iterator[Given]:
    for name, value in tables.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _from_tables(value, where, f"{key}.")
        else:
            yield Given(_known(key, key, PARSERS, where), key, value, where)


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    key_of = {_variable(key): key for key in PARSERS}
    for name, value in sorted(environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_SETTINGS:
            yield Given(key_of[_known(name, name, key_of, "in the environment")], name, value, "in the environment")


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def _from_shell(overrides: Iterable[str]) -> Iterator[Given]:
    for override in overrides:
        key, equals, value = override.partition("=")
        key = key.strip()
        if not equals:
            raise ConfigError(f"--set {override}: wanted KEY=VALUE, such as --set checkpoint.interval=1s")
        yield Given(_known(key, key, PARSERS, "in --set"), key, value.strip(), "in --set")


def _flags(parallelism: int | None, workers: int | None) -> Iterator[tuple[str, str, int | None]]:
    yield "parallelism", "-p", parallelism
    yield "workers", "--workers", workers


def _known(name: str, called: str, names: Iterable[str], where: str) -> str:
    names = list(names)
    if name in names:
        return name
    group = [other for other in names if other.startswith(f"{name}.")]
    if group:
        raise ConfigError(f"{called} {where} is a group of keys, not a key: use one of {', '.join(group)}")
    same_ending = [other for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]]
    # A right name in a wrong group is nearer than any name that is spelled alike. Without any group, it may be in each.
    nearest = same_ending if "." not in name else get_close_matches(name, same_ending, n=1, cutoff=0)
    nearest = nearest or alike(name, names)
    advice = f"did you mean {' or '.join(nearest)}?" if nearest else f"the keys are {', '.join(names)}"
    raise ConfigError(f"unknown key {called} {where}: {advice}")


def _judge(given: Given) -> Value:
    try:
        return PARSERS[given.key](given.value)
    except NotSupportedError as error:
        raise ConfigError(f"{given} is not supported yet: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{given} cannot be used: wanted {error}") from None


def _build(values: Mapping[str, Value]) -> Settings:
    data = Settings().to_data()
    for key, value in values.items():
        group, _, name = key.rpartition(".")
        (data[group] if group else data)[name] = value
    return Settings.from_data(data)


def _judge_overtaking(checkpoint: CheckpointSettings) -> None:
    """Unaligned checkpoints: one at a time, and only where records after a barrier are kept out of its snapshot."""
    if not checkpoint.may_overtake:
        return
    cause = "checkpoint.unaligned" if checkpoint.unaligned else "checkpoint.aligned_timeout"
    if checkpoint.max_concurrent != 1:
        raise ConfigError(
            f"checkpoint.max_concurrent = {checkpoint.max_concurrent} cannot be used with {cause}: unaligned"
            " checkpoints are taken one at a time; use 1, or aligned checkpoints"
        )
    if checkpoint.mode != "exactly_once":
        raise ConfigError(
            f"checkpoint.mode = {checkpoint.mode} cannot be used with {cause}: at least once, no channel waits for a"
            " barrier, so there is nothing to overtake; use one or the other"
        )


def _settle(settings: Settings, chosen: Mapping[str, Value]) -> Settings:
    """Fill in what depends on the machine, and judge what depends on each other."""
    if settings.parallelism > settings.max_parallelism:
        raise ConfigError(
            f"parallelism = {settings.parallelism} cannot be used: it is more than max_parallelism,"
            f" which is {settings.max_parallelism}"
        )
    if settings.heartbeat.timeout <= settings.heartbeat.interval:
        raise ConfigError(
            f"heartbeat.timeout = {settings.heartbeat.timeout:g}s cannot be used: it must be longer than"
            f" heartbeat.interval, which is {settings.heartbeat.interval:g}s"
        )
    _judge_overtaking(settings.checkpoint)
    restart = settings.restart
    if restart.delay_max < restart.delay and "restart.delay_max" not in chosen:
        restart = replace(restart, delay_max=restart.delay)
    if restart.delay_max < restart.delay:
        raise ConfigError(
            f"restart.delay_max = {restart.delay_max:g}s cannot be used: it is less than restart.delay,"
            f" which is {restart.delay:g}s"
        )
    parallelism = settings.parallelism or min(available_cores(), settings.max_parallelism)
    return replace(settings, parallelism=parallelism, workers=settings.workers or parallelism, restart=restart)
