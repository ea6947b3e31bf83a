"""Small files that a person names at the shell: read whole, or refused at once."""

from __future__ import annotations

import os

import pytest

from flowpoint.errors import ConfigError, UsageError
from flowpoint.launch.config import load_settings
from flowpoint.launch.given_files import GIVEN_BYTES_MAX, read_given
from flowpoint.launch.jobfile import load_source


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path, make):
    make(tmp_path / "odd")

    with pytest.raises(UsageError, match="odd is not a regular file"):
        read_given(str(tmp_path / "odd"), "job file")


def test_a_device_without_an_end_is_refused_as_job_file_and_as_configuration():
    with pytest.raises(UsageError, match="^job file /dev/zero is not a regular file"):
        load_source("/dev/zero")
    with pytest.raises(ConfigError, match="^configuration file /dev/zero is not a regular file"):
        load_settings("/dev/zero", {}, {}, [])


def test_a_file_of_data_is_refused_with_the_limit(tmp_path):
    with (tmp_path / "data").open("wb") as file:
        file.truncate(GIVEN_BYTES_MAX + 1)

    with pytest.raises(UsageError, match="data has more than 16 MiB"):
        read_given(str(tmp_path / "data"), "job file")


def test_a_regular_file_is_read_whole(tmp_path):
    (tmp_path / "small").write_bytes(b"job = 1\r\n")

    assert read_given(str(tmp_path / "small"), "job file") == b"job = 1\r\n"
