"""Crew: the servers of a job, by replica, and those that are free."""

from collections.abc import Sequence

from rostam_py.fleet.goodput.long_job import LongJob


class Crew:
    """Servers of a job and the rest of the cluster.

    Model: a server that is down more than once at a time works again when all of its faults are repaired. Free ones are
        taken in order; a server that one replaces has its place in that order.
    """

    def __init__(self, job: LongJob, servers: Sequence[int]) -> None:
        self.job = job
        self.replicas = [[servers[k] for k in unit] for unit in job.units]
        self.free = list(servers[job.num_servers :])
        self._faults: dict[int, int] = {}
        self._replica_of = {server: replica for replica in self.replicas for server in replica}

    def has(self, server: int) -> bool:
        """Whether a server is one of the job's."""
        return server in self._replica_of

    def works(self, server: int) -> bool:
        """Whether a server has no fault."""
        return not self._faults.get(server)

    def fail(self, server: int) -> None:
        """Note a fault."""
        self._faults[server] = self._faults.get(server, 0) + 1

    def repair(self, server: int) -> None:
        """Note a repair."""
        self._faults[server] -= 1
        if not self._faults[server]:
            del self._faults[server]

    def missing(self) -> list[int]:
        """Return servers of the replicas that do not work."""
        if not any(map(self.has, self._faults)):
            return []
        return [server for replica in self.replicas for server in replica if not self.works(server)]

    def spares(self) -> list[int]:
        """Return free servers that work, in order."""
        return [server for server in self.free if self.works(server)]

    def replace(self, servers: Sequence[int]) -> None:
        """Put free servers that work in the places of all of these, or of none where they are too few."""
        spares = self.spares()
        if len(spares) < len(servers):
            return
        for server, taken in zip(servers, spares, strict=False):
            replica = self._replica_of.pop(server)
            replica[replica.index(server)] = taken
            self._replica_of[taken] = replica
            self.free[self.free.index(taken)] = server

    def drop(self, server: int) -> None:
        """Give up the replica of a server; all of its servers are free."""
        replica = self._replica_of[server]
        self.replicas.remove(replica)
        self.free += replica
        for one in replica:
            del self._replica_of[one]

    def shed(self, server: int) -> None:
        """Take a server out of its replica, or give up a replica that the job knows no share of without it."""
        replica = self._replica_of[server]
        if len(replica) - 1 not in self.job.parts:
            self.drop(server)
            return
        replica.remove(server)
        del self._replica_of[server]
        self.free.append(server)

    def can_mend(self) -> bool:
        """Whether free servers fill a replica that lost some, or are enough for one more."""
        return bool(self._short() and self.spares()) or self._can_add()

    def mend(self) -> None:
        """Give free servers to replicas that lost some, in order, then make further ones of those that are left."""
        for replica in self._short():
            self._take(replica, self.job.servers_of_replica - len(replica))
        while self._can_add():
            self.replicas.append([])
            self._take(self.replicas[-1], self.job.servers_of_replica)

    def _short(self) -> list[list[int]]:
        return [one for one in self.replicas if len(one) < self.job.servers_of_replica]

    def _can_add(self) -> bool:
        return len(self.replicas) < self.job.replicas and len(self.spares()) >= self.job.least_servers

    def _take(self, replica: list[int], most: int) -> None:
        """Put free servers that work into a replica, in order, as many as there are of those wanted."""
        taken = self.spares()[:most]
        replica += taken
        self._replica_of |= dict.fromkeys(taken, replica)
        self.free = [server for server in self.free if server not in taken]

    def can_grow(self) -> bool:
        """Whether free servers make a replica that the job has room for."""
        is_short = len(self.replicas) < self.job.replicas
        return is_short and len(self.spares()) >= self.job.servers_of_replica

    def grow(self) -> None:
        """Make a replica of free servers."""
        taken = self.spares()[: self.job.servers_of_replica]
        self.replicas.append(taken)
        self._replica_of |= dict.fromkeys(taken, taken)
        self.free = [server for server in self.free if server not in taken]
