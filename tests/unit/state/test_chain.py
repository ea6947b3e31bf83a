"""When a base is due, and when small files become one."""

from __future__ import annotations

from flowpoint.state.chain import DELTA_BYTES_FREE, FILES_MAX, SMALL_BYTES_MAX, SMALL_FILES_MAX, Chain, ChainFile


def chain(*deltas: int, base: int = 100 << 20) -> Chain:
    made = Chain()
    made.add(ChainFile(base, is_base=True), 0)
    for size in deltas:
        made.add(ChainFile(size, is_base=False, data=[b"x"]), 0)
    return made


def test_when_there_is_no_base_then_one_is_due() -> None:
    assert Chain().must_restart
    assert not chain().must_restart


def test_when_the_deltas_outgrow_the_base_then_a_new_one_is_due() -> None:
    base = 4 * DELTA_BYTES_FREE

    assert not chain(base // 2, base // 2, base=base).must_restart
    assert chain(base // 2, base // 2 + 1, base=base).must_restart


def test_when_the_base_is_tiny_then_some_deltas_are_free() -> None:
    assert not chain(DELTA_BYTES_FREE, base=1).must_restart
    assert chain(DELTA_BYTES_FREE + 1, base=1).must_restart


def test_when_there_are_many_small_deltas_then_they_become_one() -> None:
    assert chain(*[10] * (SMALL_FILES_MAX - 1)).absorbable() == []
    full = chain(*[10] * SMALL_FILES_MAX)
    assert len(full.absorbable()) == SMALL_FILES_MAX

    full.add(ChainFile(100, is_base=False, data=[b"x"]), SMALL_FILES_MAX)

    assert len(full) == 2
    assert full.absorbable() == []


def test_when_a_delta_is_big_then_it_is_not_kept_in_memory_and_ends_the_run_of_small_ones() -> None:
    some = chain(*[10] * 8, SMALL_BYTES_MAX + 1, *[10] * 8)

    assert some.absorbable() == []
    assert some._files[9].data is None


def test_when_there_are_very_many_files_all_the_same_then_a_base_is_due() -> None:
    big = SMALL_BYTES_MAX + 1

    assert not chain(*[big] * (FILES_MAX - 2)).must_restart
    assert chain(*[big] * (FILES_MAX - 1)).must_restart


def test_when_the_chain_is_broken_then_only_a_base_mends_it() -> None:
    some = chain(10)
    some.is_broken = True
    some.add(ChainFile(10, is_base=False), 0)
    assert some.must_restart

    some.add(ChainFile(10, is_base=True), 0)

    assert not some.must_restart
    assert len(some) == 1


def test_when_a_chain_is_made_of_several_then_each_base_allows_for_its_deltas() -> None:
    big = SMALL_BYTES_MAX + 1
    some = Chain()
    for _ in range(2):
        some.adopt(100 << 20, is_base=True)
        for _ in range(FILES_MAX - 2):
            some.adopt(big, is_base=False)

    assert not some.must_restart
    some.adopt(200 << 20, is_base=False)
    assert some.must_restart
