"""``rostam collective``: one collective over a range of sizes, as a table of nccl-tests' columns, CSV or JSON."""

import csv
import difflib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import CollectiveConfig, SizeOptions, name_of
from rostam_py.collectives.rank_groups import collectives
from rostam_py.collectives.sizes import ELEMENT_BYTES, sizes_between, whole_elements
from rostam_py.documents import write_whole
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.fabric import Fabric
from rostam_py.simulation import CollectiveResult, run_collective
from rostam_py.units import parse_size

_FORMATS = (".csv", ".json")


@dataclass(frozen=True, slots=True)
class Row:
    """One size, as printed. count: elements, as nccl-tests count them (whole_elements)."""

    count: int
    type: str
    result: CollectiveResult

    def to_dict(self) -> dict[str, Any]:
        """Return the figures in SI units, as CSV and JSON have them."""
        result = self.result
        return {
            "num_bytes": result.num_bytes,
            "count": self.count,
            "type": self.type,
            "algorithm": result.algorithm,
            "protocol": result.protocol,
            "num_channels": result.num_channels,
            "time_s": result.time_s,
            "algorithm_bandwidth_bytes_per_s": result.algorithm_bandwidth_bytes_per_s,
            "bus_bandwidth_bytes_per_s": result.bus_bandwidth_bytes_per_s,
        }

    def line(self) -> str:
        """Return the line of the table: nccl-tests' columns of an out-of-place run."""
        result = self.result
        how = " ".join(filter(None, (result.algorithm, result.protocol)))
        how += f" x{result.num_channels}" if result.num_channels > 1 else ""
        rates = (result.algorithm_bandwidth_bytes_per_s, result.bus_bandwidth_bytes_per_s)
        return f"{result.num_bytes:14d}{self.count:14d}{self.type:>10}  {how:<24}{result.time_s * 1e6:12.2f}" + "".join(
            f"{rate * 1e-9:10.2f}" for rate in rates
        )


_HEAD = (
    f"#{'size':>13}{'count':>14}{'type':>10}  {'algorithm':<24}{'time':>12}{'algbw':>10}{'busbw':>10}\n"
    f"#{'(B)':>13}{'(elements)':>14}{'':>10}  {'':<24}{'(us)':>12}{'(GB/s)':>10}{'(GB/s)':>10}"
)


def collective_command(overrides: list[str], as_json: bool) -> int:
    """Run every size, print each as it is done, and write the file asked for. Returns the exit status."""
    config: CollectiveConfig = compose_config("collective", overrides)
    if config.out is not None and Path(config.out).suffix not in _FORMATS:
        raise ConfigError(f"out is {config.out!r}; it must end in one of: {', '.join(_FORMATS)}")
    if config.type not in ELEMENT_BYTES:
        raise UnknownNameError(f"unknown type {config.type!r}; types: {', '.join(ELEMENT_BYTES)}")
    if config.collective not in (known := collectives()):
        near = difflib.get_close_matches(config.collective, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UnknownNameError(f"unknown collective {config.collective!r}{hint}; choices: {', '.join(known)}")
    fabric = config.failures.applied_to(Fabric(name_of("fabric", config.fabric), config.fabric))
    ranks = _ranks(config.ranks, fabric)
    sizes = _sizes(config.sizes)
    count = _num_ranks(fabric, ranks)
    what = f"{config.collective} over {count:,} of {fabric.num_accelerators:,} accelerators on {fabric.describe()}"
    notes: tuple[str, ...] = ()
    rows: list[Row] = []
    for row in _rows(config, fabric, ranks, sizes, count):
        if not rows and not as_json:  # after the checks of the request
            print(f"# {what}; algorithm {config.algorithm}, {config.fidelity}, {config.routing}")
            print(f"# one collective at a time on idle links, out of place; {_what_counts(fabric)}")
            print(_HEAD)
        rows.append(row)
        notes = row.result.notes
        if not as_json:
            print(row.line(), flush=True)
    if not rows:
        raise ConfigError(
            f"the largest size is {max(sizes)} B, less than one {config.type} for each of {count:,} ranks;"
            " take larger sizes"
        )
    mean = sum(row.result.bus_bandwidth_bytes_per_s for row in rows) / len(rows)
    document = {
        "collective": config.collective, "fabric": fabric.describe(), "num_ranks": count, "routing": config.routing,
        "fidelity": config.fidelity, "seed": config.seed, "rows": [row.to_dict() for row in rows],
        "mean_bus_bandwidth_bytes_per_s": mean, "notes": list(notes),
        **({} if config.packets.is_none else {"packets": config.packets.to_dict()}),
    }  # fmt: skip
    text = json.dumps(document, indent=2) + "\n"
    if config.out is not None:
        path = Path(config.out)
        write_whole(path, (text if path.suffix == ".json" else _csv(document["rows"])).encode())
    if as_json:
        print(text, end="")
        return 0
    print(f"# mean bus bandwidth: {mean * 1e-9:.4g} GB/s" + (f"; {len(sizes) - len(rows)} sizes left out,"
          " with less than one element for each rank" if len(rows) < len(sizes) else ""))  # fmt: skip
    for note in notes:
        print(f"# note: {note}")
    if config.out is not None:
        print(f"# written to {config.out}")
    return 0


def _what_counts(fabric: Fabric) -> str:
    inside, between = fabric.config.link_classes
    if fabric.config.link_classes.are_ideal:
        return "kernel launches and arithmetic take no time"
    names = inside.name if inside == between else f"{inside.name} inside servers, {between.name} between them"
    return f"start-up, hops and achieved rates of {names}"


def _ranks(given: Any, fabric: Fabric) -> list[int] | None:
    """Return the accelerators named, or the first so many that work; None for all."""
    if given is None or isinstance(given, list):
        return given
    healthy = fabric.healthy_accelerators
    count = check_integer("ranks", given, 1)
    if count > len(healthy):
        raise ConfigError(f"ranks is {count}; the fabric has {len(healthy)} working accelerators")
    return [int(one) for one in healthy[:count]]


def _num_ranks(fabric: Fabric, ranks: list[int] | None) -> int:
    count = len(fabric.healthy_accelerators if ranks is None else ranks)
    if count < 2:
        raise ConfigError(f"a collective needs at least 2 ranks, here it has {count}; take more accelerators or ranks")
    return count


def _sizes(options: SizeOptions) -> list[int]:
    if options.list is not None:
        if not isinstance(options.list, list) or not options.list:
            raise ConfigError(f"sizes.list is {options.list!r}; it must be a list such as [1 MiB,64 MiB]")
        return [parse_size(one, f"sizes.list[{number}]") for number, one in enumerate(options.list)]
    begin, end = (parse_size(getattr(options, key), f"sizes.{key}") for key in ("begin", "end"))
    return sizes_between(begin, end, options.factor)


def _rows(
    config: CollectiveConfig, fabric: Fabric, ranks: list[int] | None, sizes: list[int], count: int
) -> Iterator[Row]:
    """Yield the rows of the sizes in which every rank has an element; of sizes that round to one, the first."""
    done = set()
    for size in sizes:
        whole, elements = whole_elements(config.collective, size, ELEMENT_BYTES[config.type], num_ranks=count)
        if elements == 0 or whole in done:
            continue
        done.add(whole)
        result = run_collective(
            fabric, config.collective, num_bytes=whole, algorithm=config.algorithm, ranks=ranks,
            fidelity=config.fidelity, routing=config.routing, fold=config.fold, seed=config.seed,
            group=config.group, protocol=config.protocol, tolerance=config.tolerance,
            packets=None if config.packets.is_none else config.packets,
        )  # fmt: skip
        yield Row(elements, config.type, result)


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
