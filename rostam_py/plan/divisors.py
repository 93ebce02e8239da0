"""Divisors: degrees and micro-batches must divide what they split."""


def divisors(count: int) -> list[int]:
    """Return the divisors of a count, ascending."""
    return [d for d in range(1, count + 1) if count % d == 0]


def largest_divisor(count: int, limit: int) -> int | None:
    """Return the largest divisor of ``count`` that is at most ``limit``, None if there is none."""
    return max((d for d in divisors(count) if d <= limit), default=None)
