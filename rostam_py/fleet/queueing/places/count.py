"""count: free accelerators are enough, wherever they are."""

from rostam_py.fleet.queueing.places.servers import Parts, Servers


class Count(Servers):
    """Any free accelerators: by best fit in servers where one has room, else split over those with the most room.

    Model: a job starts wherever as many accelerators are free as it asks for, so that when it starts depends on their
        number alone. That flatters machines whose servers are joined by slower links.
    Source: own, tests/fleet/queueing/test_places.py.
    """

    def _parts(self, size: int) -> Parts | None:
        found = super()._parts(size)
        if found is not None:
            return found
        parts = []
        for room in range(self.server_size, 0, -1):
            for server in self._with[room]:
                parts.append((server, min(room, size)))
                size -= parts[-1][1]
                if not size:
                    return tuple(parts)
        return None  # never: as many are free
