"""Values of numpy and pydantic, where these are installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from flowpoint.codec.keys import canonical
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import BadRecordError


def test_neither_is_imported_without_need() -> None:
    code = (
        "import sys; from flowpoint.codec.values import Codec; from flowpoint.codec.keys import canonical;"
        "Codec().encode([1, ('a',)]); canonical(1.5);"
        "print([name for name in ('numpy', 'pydantic', 'msgspec') if name in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class TestNumpy:
    @pytest.fixture(autouse=True)
    def _need_numpy(self) -> None:
        self.np = pytest.importorskip("numpy")

    def test_scalars_come_back_equal_and_of_the_same_type(self) -> None:
        np: Any = self.np
        values = [
            np.int64(5), np.int8(-1), np.uint64(2**64 - 1), np.float64(1.5), np.float32(0.1), np.bool_(True),
            np.str_("ä"), np.str_(""), np.bytes_(b"x"), np.complex128(1 + 2j), np.datetime64("2024-01-01T00:00:00.5"),
            np.timedelta64(5, "ms"), np.float16("inf"),
        ]  # fmt: skip

        for value in values:
            for back in (
                Codec().decode(Codec().encode(value)),
                Codec().decode_column(Codec().encode_column([value]))[0],
            ):
                assert type(back) is type(value)
                assert back == value
                assert back.dtype == value.dtype

    def test_arrays_come_back_equal_writable_and_of_the_same_dtype_and_shape(self) -> None:
        np: Any = self.np
        arrays = [
            np.arange(6).reshape(2, 3), np.array([]), np.array(5.0), np.zeros((2, 0, 3), "f4"), np.array(["a", "bcd"]),
            np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(10)[::2], np.array([1, 2], ">i4"),
            np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), np.array(["2024-01-01"], "M8[D]"),
        ]  # fmt: skip

        for array in arrays:
            back = Codec().decode(Codec().encode({"a": (array,)}))["a"][0]
            assert back.dtype == array.dtype
            assert back.shape == array.shape
            assert (back == array).all()
            assert back.flags.writeable

    def test_an_array_is_copied_for_the_state(self) -> None:
        array = self.np.arange(3)

        copied = Codec().copy(array)
        copied[0] = 7

        assert list(array) == [0, 1, 2]

    def test_arrays_of_objects_and_subclasses_of_arrays_are_refused(self) -> None:
        with pytest.raises(BadRecordError, match="elements are Python objects"):
            Codec().encode(self.np.array([object()]))
        with pytest.raises(BadRecordError, match="MaskedArray"):
            Codec().encode(self.np.ma.array([1]))

    def test_scalars_are_the_same_keys_as_python_values(self) -> None:
        np: Any = self.np

        for scalar, plain in [
            (np.int64(1), 1), (np.bool_(True), 1), (np.float64(2.0), 2), (np.float64(0.1), 0.1), (np.str_("a"), "a"),
            (np.bytes_(b"a"), b"a"), (np.float32(0.5), 0.5), (np.uint64(2**64 - 1), 2**64 - 1),
        ]:  # fmt: skip
            assert canonical(scalar) == canonical(plain)
            assert canonical((scalar,)) == canonical((plain,))
        with pytest.raises(BadRecordError, match="NaN"):
            canonical(np.float64("nan"))
        for refused in (np.datetime64("2024-01-01"), np.complex128(1), np.arange(2)):
            with pytest.raises(BadRecordError, match="numpy"):
                canonical(refused)


class TestPydantic:
    @pytest.fixture(autouse=True)
    def _need_pydantic(self) -> None:
        self.pydantic = pytest.importorskip("pydantic")

    def test_models_come_back_equal_with_what_was_set_extra_and_private(self) -> None:
        pydantic: Any = self.pydantic

        class Address(pydantic.BaseModel):
            street: str

        class User(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(extra="allow", frozen=True)
            name: str
            addresses: list[Address] = []  # noqa: RUF012  pydantic copies it
            _seen: int = pydantic.PrivateAttr(default=0)

        user = User(name="x", addresses=[Address(street="s")], other=(1,))
        object.__setattr__(user, "__pydantic_private__", {"_seen": 5})
        codec = Codec(TypeRegistry([User, Address]))

        for back in (codec.decode(codec.encode(user)), codec.decode_column(codec.encode_column([user, user]))[1]):
            assert back == user
            assert type(back) is User
            assert back._seen == 5
            assert back.model_fields_set == user.model_fields_set
            assert back.other == (1,)

    def test_a_new_field_takes_its_default(self) -> None:
        pydantic: Any = self.pydantic
        before = pydantic.create_model("Model", a=(int, ...))
        after = pydantic.create_model("Model", a=(int, ...), b=(int, 7))

        back = Codec(TypeRegistry([after])).decode(Codec(TypeRegistry([before])).encode(before(a=1)))

        assert back == after(a=1, b=7)
