"""Goodput second by second: a second computation of ``replay`` that shares nothing with it but the job's settings.

All times are whole seconds. In each second: repairs and faults that are due, then what the job does.
"""

from collections import Counter

from rostam_py.fleet.goodput import Pace


class Seconds:
    """A job stepped through its window one second at a time."""

    def __init__(self, job, trace, policy, spares):
        self.job, self.policy = job, policy
        size = job.num_servers // job.replicas
        self.size = size
        self.replicas = [list(unit) for unit in job.units]
        self.pool = job.num_servers + spares
        self.bench = list(range(job.num_servers, self.pool))
        self.faults = [one for one in trace.faults if one.server < self.pool and one.end_s > one.start_s]
        self.window = int(trace.window_s)
        self.log = []  # (what, replicas) of each second; iterations are marked later
        self.causes = Counter()
        self.samples = 0.0
        self.mode, self.left = "run", 0
        self.done = self.into = 0  # iterations since the checkpoint, seconds into the present one or into a checkpoint
        self.held = []  # what a checkpoint has that is being written: the same, and the seconds of its stop
        self.stays = policy == "rejoin"  # nothing goes back
        self.open = []  # [seconds, replicas, is whole iteration] since the checkpoint
        self.num_cuts = 0

    def down(self, server, t):
        return any(one.server == server and one.start_s <= t < one.end_s for one in self.faults)

    def used(self):
        return {server for replica in self.replicas for server in replica}

    def free(self, t):
        return [s for s in self.bench if not self.down(s, t)]

    def take(self, t):
        """Return a replica of free servers."""
        taken = self.free(t)[: self.size]
        self.bench = [s for s in self.bench if s not in taken]
        return taken

    def give_up(self, gone):
        self.replicas = [replica for replica in self.replicas if not gone(replica)]

    def pace(self):
        whole = self.job.pace(len(self.replicas))
        if self.policy != "ragged":
            return whole
        shares = [1.0 if len(one) == self.size else self.job.parts[len(one)] for one in self.replicas]
        return Pace(whole.iteration_s, whole.share * sum(shares) / len(shares))

    # Ragged replicas: any number of servers with a share, whose others are on the bench.

    def tear(self, server):
        """Take a server off; a replica with too few left is taken apart."""
        for replica in list(self.replicas):
            if server in replica:
                left = [s for s in replica if s != server]
                place = self.replicas.index(replica)
                if len(left) in self.job.parts:
                    self.bench.append(server)
                    self.replicas[place] = left
                else:
                    self.bench += replica
                    del self.replicas[place]

    def planned(self):
        """A stop that is planned lasts until the checkpoint is written."""
        self.count_all(self.held)
        self.held = []

    def tear_all(self, t):
        for server in [s for replica in self.replicas for s in replica if self.down(s, t)]:
            self.tear(server)
        self.patch(t)

    def patch(self, t):
        """Fill replicas one server at a time, the first one first; then make new ones while enough are free."""
        changed = False
        for replica in self.replicas:
            while len(replica) < self.size and self.free(t):
                spare = self.free(t)[0]
                self.bench.remove(spare)
                replica.append(spare)
                changed = True
        least = min([*self.job.parts, self.size])
        while len(self.replicas) < self.job.replicas and len(self.free(t)) >= least:
            self.replicas.append(self.take(t))
            changed = True
        return changed

    def run(self):
        for t in range(self.window):
            cut = self.events(t)
            if cut:
                self.begin_detection(t)
            elif self.mode == "run":
                self.maybe_grow(t)
            self.settle(t)
            self.second(t)
        self.finish()
        return self

    def events(self, t):
        """Faults at t, in order of servers' numbers; later ones of the same second hit what the first left."""
        cut = False
        for one in sorted(self.faults, key=lambda one: one.server):
            if one.start_s == t and one.server in self.used() and one.cuts:
                self.num_cuts += 1
                self.lose(one.server)
                cut = True
        return cut

    def lose(self, server):
        if self.policy == "ragged":
            self.tear(server)
        if self.policy in ("shrink", "rejoin"):
            self.bench += next(replica for replica in self.replicas if server in replica)
            self.give_up(lambda replica: server in replica)
        if self.policy != "rejoin" or not self.replicas:
            for one in [*self.held, *self.open]:
                self.causes["redone"] += one[0] if isinstance(one, tuple) else one
            self.causes["redone"] += self.into
            self.held, self.open, self.done = [], [], 0
            self.restart = self.job.reshard if self.policy == "ragged" else self.job.restart
        else:
            self.causes["redone"] += self.into
            self.restart = 0
        self.into = 0

    def begin_detection(self, t):
        self.mode, self.left = "detection", self.job.detection

    def maybe_grow(self, t):
        if self.policy == "ragged" and not self.into and not self.done and self.patch(t):
            self.mode, self.restart = "waiting", self.job.reshard
            self.planned()
            return
        if self.policy not in ("shrink", "rejoin") or len(self.replicas) == self.job.replicas:
            return
        if len(self.free(t)) < self.size or self.into:
            return
        if self.policy == "shrink" and self.done:
            return
        while len(self.replicas) < self.job.replicas and len(self.free(t)) >= self.size:
            self.replicas.append(self.take(t))
        self.mode, self.restart = "waiting", self.job.restart if self.policy == "shrink" else self.job.rejoin
        self.planned()

    def fill(self, t):
        if self.policy == "ragged":
            self.tear_all(t)
        if self.policy == "spares":
            wanted = [s for replica in self.replicas for s in replica if self.down(s, t)]
            if len(wanted) <= len(self.free(t)):
                for server in wanted:
                    spare = self.free(t)[0]
                    for replica in self.replicas:
                        replica[:] = [spare if s == server else s for s in replica]
                    self.bench[self.bench.index(spare)] = server
        if self.policy == "shrink":
            for replica in list(self.replicas):
                if any(self.down(s, t) for s in replica):
                    self.bench += replica
                    self.replicas.remove(replica)
        if self.policy == "shrink" or (self.policy == "rejoin" and not self.replicas):
            while len(self.replicas) < self.job.replicas and len(self.free(t)) >= self.size:
                self.replicas.append(self.take(t))
                if self.policy == "rejoin":
                    break

    def ready(self, t):
        self.fill(t)
        if self.policy == "rejoin":
            return bool(self.replicas)
        return bool(self.replicas) and not any(self.down(s, t) for s in self.used())

    def settle(self, t):
        """Go on to the next mode where one takes no more time."""
        if self.mode == "detection" and self.left == 0:
            self.mode = "waiting"
        if self.mode == "waiting" and self.ready(t):
            self.mode, self.left = "restart", self.restart
        if self.mode == "restart" and self.left == 0:
            self.mode = "run"
            self.maybe_grow(t)
            if self.mode == "waiting":
                self.settle(t)

    def second(self, t):
        if self.mode != "run":
            self.causes[self.mode] += 1
            self.left -= self.mode != "waiting"
            return
        self.into += 1
        if self.done == self.job.checkpoint_iterations and self.job.checkpoint:
            if self.into == self.job.checkpoint:
                self.save(self.job.checkpoint)
        elif self.into == self.duration():
            self.open.append((self.into, self.pace(), True))
            self.done, self.into = self.done + 1, 0
            self.settle_held()
            if self.done == self.job.checkpoint_iterations and not self.job.checkpoint:
                self.save(0)

    def duration(self):
        """Seconds of the iteration under way; the first ones behind a checkpoint are those in which it is written."""
        slow = self.job.write_stretch if self.done < self.job.write_iterations else 1
        return self.pace().iteration_s * slow

    def save(self, seconds):
        """Take a checkpoint; where it has to be written, it stands only once its iterations are through."""
        self.held = [*self.held, *self.open, seconds]
        self.open, self.done, self.into = [], 0, 0
        self.settle_held()

    def settle_held(self):
        """Count what a checkpoint has that is written."""
        if self.done >= self.job.write_iterations or self.stays:
            self.count_all(self.held)
            self.held = []

    def count(self):
        self.count_all([*self.held, *self.open])
        self.held, self.open = [], []

    def count_all(self, entries):
        for one in entries:
            if not isinstance(one, tuple):
                self.causes["checkpoint"] += one
                continue
            seconds, pace, _ = one
            useful = pace.share * self.job.iteration
            self.causes["useful"] += useful
            self.causes["slower"] += pace.iteration_s - useful
            self.causes["checkpoint"] += seconds - pace.iteration_s
            self.samples += pace.share

    def finish(self):
        self.count()
        if self.mode == "run" and self.into:
            if self.done == self.job.checkpoint_iterations and self.job.checkpoint:
                self.causes["checkpoint"] += self.into
            else:
                done = self.into / self.duration()
                share = done * self.pace().share
                self.samples += share
                self.causes["useful"] += share * self.job.iteration
                self.causes["slower"] += done * self.pace().iteration_s - share * self.job.iteration
                self.causes["checkpoint"] += self.into - done * self.pace().iteration_s
