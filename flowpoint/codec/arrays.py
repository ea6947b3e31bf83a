"""numpy scalars and arrays to bytes and back, without needing numpy.

numpy is looked at only when a job has imported it, and imported only to read bytes that hold its values.
An array is stored as its dtype, its shape and its elements in C order; a scalar is an array without a shape. So one in
Fortran order comes back equal, in C order: how it lies in memory is not stored, and equal arrays are equal bytes.
"""

from __future__ import annotations

import sys
from typing import Any

from flowpoint.errors import BadRecordError


def is_numpy(value: object) -> bool:
    """Whether the value is a numpy scalar or a plain numpy array."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and (isinstance(value, numpy.generic) or type(value) is numpy.ndarray)


def take_array(value: Any) -> tuple[Any, bool, list[int], bytes]:
    """dtype description, whether it is a scalar, shape, elements.

    Raises:
        BadRecordError: the elements are Python objects.
    """
    import numpy

    if value.dtype.hasobject:
        raise BadRecordError(
            f"cannot serialise a numpy value of dtype {value.dtype}: its elements are Python objects; "
            f"use a list, or an array of a numeric or string dtype"
        )
    description = numpy.lib.format.dtype_to_descr(value.dtype)
    return description, isinstance(value, numpy.generic), list(value.shape), value.tobytes()


def make_array(description: Any, is_scalar: bool, shape: list[int], data: bytes) -> Any:
    """The reverse of `take_array`; arrays come back writable.

    Raises:
        BadRecordError: numpy is not installed.
    """
    try:
        import numpy
    except ImportError:
        raise BadRecordError("cannot read a stored numpy value: numpy is not installed here; install it") from None
    dtype = numpy.lib.format.descr_to_dtype(description)
    if dtype.itemsize == 0:
        # The empty text and the empty bytes: `frombuffer` does not take them, and `zeros` would give each element a
        # character, so that a few bytes of unknown origin could take all memory.
        return dtype.type() if is_scalar else numpy.ndarray(shape, dtype)
    array = numpy.frombuffer(data, dtype=dtype).reshape(shape)
    return array[()] if is_scalar else array.copy()
