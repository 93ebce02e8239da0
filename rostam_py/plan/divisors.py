"""Divisors: degrees and micro-batches must divide what they split."""


def divisors(count: int) -> list[int]:
    """Return the divisors of a count, ascending."""
    return [d for d in range(1, count + 1) if count % d == 0]
