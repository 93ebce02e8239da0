"""Pieces of segments by hand, as CUDACachingAllocator.cpp divides them, and drawn ones against what must hold."""

import random

import pytest

from rostam_py.capturing.allocator import CachingAllocator, expands, rounded

MIB = 2**20


def test_segments_are_as_large_as_pytorchs():
    """1 MiB takes half of a small segment of 2 MiB, 1 B the rest; 5 MiB a part of 20, 30.5 MiB a segment of 32."""
    allocator = CachingAllocator(is_expandable=False)
    held = []
    for size in (MIB, 1, 5 * MIB, 30 * MIB + MIB // 2, 14 * MIB):
        allocator.take(size, 0)
        held.append(allocator.held_bytes // MIB)
    # 14 MiB fit into what is left of 20; the 1.5 MiB that are left of 32 had been split off.
    assert held == [2, 2, 22, 54, 54]


def test_a_rest_of_up_to_a_mebibyte_stays_with_a_large_piece():
    allocator = CachingAllocator(is_expandable=False)
    first = allocator.take(20 * MIB, 0)
    allocator.free(first)
    whole = allocator.take(19 * MIB, 0)
    assert (whole.size, allocator.held_bytes) == (20 * MIB, 20 * MIB)


def test_neighbours_that_are_free_become_one():
    allocator = CachingAllocator(is_expandable=False)
    pieces = [allocator.take(4 * MIB, 0) for _ in range(5)]
    for place in (0, 2, 4, 1, 3):
        allocator.free(pieces[place])
    allocator.take(20 * MIB, 0)
    assert allocator.held_bytes == 20 * MIB


def test_a_stream_has_memory_of_its_own():
    allocator = CachingAllocator(is_expandable=False)
    allocator.free(allocator.take(40 * MIB, 0))
    allocator.take(40 * MIB, 1)
    assert allocator.held_bytes == 80 * MIB


@pytest.mark.parametrize(("is_expandable", "held"), [(False, 30 + 40 + 50), (True, 60 + 20)])
def test_an_expandable_segment_grows_by_what_is_missing(is_expandable, held):
    """30, 40 and 50 MiB, each freed before the next: three segments, or one of 40 (2 x 20), then 60 (3 x 20)."""
    allocator = CachingAllocator(is_expandable=is_expandable)
    for size in (30 * MIB, 40 * MIB, 50 * MIB):
        allocator.free(allocator.take(size, 0))
    if is_expandable:  # 60; what lives at its beginning leaves 30 at its end, and 45 more need 15: one unit of 20
        allocator.take(30 * MIB, 0)
        allocator.take(45 * MIB, 0)
    assert allocator.held_bytes == held * MIB


@pytest.mark.parametrize("is_expandable", [False, True])
def test_drawn_pieces_never_overlap_and_held_bytes_are_between_bounds(is_expandable):
    rng = random.Random(5)
    allocator, alive, most = CachingAllocator(is_expandable=is_expandable), [], 0
    for _ in range(800):
        if alive and rng.random() < 0.48:
            allocator.free(alive.pop(rng.randrange(len(alive))))
        else:
            alive.append(allocator.take(int(10 ** rng.uniform(0, 8.5)), rng.randrange(2)))
        live = sum(piece.size for piece in alive)
        most = max(most, live)
        assert live <= allocator.held_bytes
    assert not any(piece.is_free for piece in alive)
    for piece in alive:
        allocator.free(piece)
    # All is free and every segment is one piece again: no bytes were lost or counted twice.
    free = sum(size for pool in allocator._pools.values() for size, _, _ in pool._free)
    assert free == allocator.held_bytes >= most
    ends = [piece for pool in allocator._pools.values() for _, _, piece in pool._free]
    assert not any(piece.before or piece.after for piece in ends)


def test_the_environment_says_whether_segments_grow(monkeypatch):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128, expandable_segments:True")
    assert expands()
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    assert not expands()
    assert rounded(1, 512) == 512
