"""Runs of schedules on real integers, and what must come out of them."""


def messages(schedule, rank, step):
    """What a rank sends in a step: transfers that travel together in one list."""
    found = []
    for transfer in schedule.sends(rank, step):
        if transfer.joins_last:
            assert transfer.peer == found[-1][0].peer
            found[-1].append(transfer)
        else:
            found.append([transfer])
    return found


def inputs_of(schedule, rng):
    """buffer[rank][chunk]: distinct enough that a wrong chunk, a lost or a doubled one shows."""
    return [[rng.randrange(1, 10**9) for _ in range(schedule.num_chunks)] for _ in range(schedule.num_ranks)]


def execute(schedule, buffers, rng):
    """Run the schedule with ranks in random order; return the output buffers.

    A rank sends a step's data as it stands when it begins the step; what comes in a step is applied when the
    rank has all of that step's messages, which it waits for ``lead`` steps later. Ranks run ahead of each other as far
    as the messages allow.
    """
    p, chunks, lead = schedule.num_ranks, schedule.num_chunks, schedule.lead
    outputs = buffers if schedule.is_in_place else [list(row) for row in buffers]
    inbox = [[[] for _ in range(schedule.num_steps)] for _ in range(p)]
    step, has_sent = [0] * p, [False] * p
    unfinished = list(range(p)) if schedule.num_steps else []
    while unfinished:
        can_go = []
        for rank in unfinished:
            at = step[rank] - lead
            if not has_sent[rank] or at < 0 or len(inbox[rank][at]) == schedule.num_receives(rank, at):
                can_go.append(rank)
        assert can_go, "the schedule deadlocks"
        rank = rng.choice(can_go)
        if not has_sent[rank]:
            for message in messages(schedule, rank, step[rank]):
                data = [[buffers[rank][(t.source_chunk + k) % chunks] for k in range(t.num_chunks)] for t in message]
                inbox[message[0].peer][step[rank]].append(list(zip(message, data, strict=True)))
            has_sent[rank] = True
            continue
        at = step[rank] - lead
        for t, data in [part for message in (inbox[rank][at] if at >= 0 else []) for part in message]:
            for k, value in enumerate(data):
                place = (t.target_chunk + k) % chunks
                outputs[rank][place] = value + (outputs[rank][place] if t.reduces else 0)
        step[rank], has_sent[rank] = step[rank] + 1, False
        if step[rank] == schedule.num_steps:
            unfinished.remove(rank)
    return outputs


def expected_chunks(collective, algorithm, inputs, rank):
    """{chunk: value} that `rank` must hold at the end; chunks left out may hold anything."""
    p, chunks = len(inputs), len(inputs[0])
    own = chunks // p  # reduce_scatter and all_gather: rank r owns the chunks from r * own on
    if collective == "all_reduce":
        return {c: sum(row[c] for row in inputs) for c in range(chunks)}
    if collective == "reduce_scatter":
        return {c: sum(row[c] for row in inputs) for c in range(rank * own, (rank + 1) * own)}
    if collective == "all_gather":
        return {c: inputs[c // own][c] for c in range(chunks)}
    if collective == "all_to_all":
        if algorithm == "bruck":  # what came from rank r stands at place 2 x rank - r
            return {(2 * rank - r) % p: inputs[r][rank] for r in range(p)}
        return {c: inputs[c % p][c - c % p + rank] for c in range(chunks)}  # piece by piece
    if collective in ("halo", "halo_up", "halo_down"):  # the first chunk from the rank before, the last from after it
        before = {0: inputs[rank - 1][0]} if rank > 0 and collective != "halo_down" else {}
        after = {chunks - 1: inputs[rank + 1][-1]} if rank < p - 1 and collective != "halo_up" else {}
        return before | after
    if collective in ("shift", "copy"):
        return {0: inputs[rank - 1][0]}
    if collective == "reduce":
        return {c: sum(row[c] for row in inputs) for c in range(chunks)} if rank == 0 else {}
    assert collective == "broadcast"
    return dict(enumerate(inputs[0]))


def check_receives_and_totals(schedule, sent):
    p, total = schedule.num_ranks, 0
    for step, of_ranks in enumerate(sent):
        arrivals = [0] * p
        for rank, of_rank in enumerate(of_ranks):
            for message in of_rank:
                assert message[0].peer != rank
                assert 0 <= message[0].peer < p
                assert all(1 <= t.num_chunks <= schedule.num_chunks for t in message)
                arrivals[message[0].peer] += 1
                total += sum(t.num_chunks for t in message)
        assert arrivals == [schedule.num_receives(rank, step) for rank in range(p)]
    assert schedule.total_chunks_sent == total


def check_distinct_steps(schedule, sent):
    counted = {}
    for of_ranks in sent:
        step = tuple(
            (rank, one[0].peer, sum(t.num_chunks for t in one)) for rank, made in enumerate(of_ranks) for one in made
        )
        counted[step] = counted.get(step, 0) + 1
    found = {
        tuple(zip(*(part.tolist() for part in parts), strict=True)): count
        for count, *parts in schedule.distinct_steps()
    }
    assert found == counted
