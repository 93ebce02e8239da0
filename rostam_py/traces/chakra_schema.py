"""Chakra's messages: an execution trace is a GlobalMetadata and Nodes, each behind its length, in protobuf.

Descriptors are built here from the format's field numbers; protobuf's runtime reads and writes the bytes.
Source: MLCommons Chakra, execution traces of schemas 0.0.4 and 1.0.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from rostam_py.errors import ConfigError
from rostam_py.extras import Need, require

INVALID, METADATA, MEM_LOAD, MEM_STORE, COMP, COMM_SEND, COMM_RECV, COMM_COLL = range(8)
COMM_TYPES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter_block", "barrier",
)  # fmt: skip
MOST_NODES = 2**22  # of one file
_SCALARS = {  # field of AttributeProto's value; that of a list of them follows it
    "double": 3, "float": 5, "int32": 7, "int64": 9, "uint32": 11, "uint64": 13, "sint32": 15, "sint64": 17,
    "fixed32": 19, "fixed64": 21, "sfixed32": 23, "sfixed64": 25, "bool": 27, "string": 29, "bytes": 31,
}  # fmt: skip
_NODE = {
    "id": (1, "uint64", False), "name": (2, "string", False), "type": (3, "int32", False),
    "ctrl_deps": (4, "uint64", True), "data_deps": (5, "uint64", True), "start_time_micros": (6, "uint64", False),
    "duration_micros": (7, "uint64", False), "inputs": (8, "IOInfo", False), "outputs": (9, "IOInfo", False),
    "attr": (10, "AttributeProto", True),
}  # fmt: skip


class Messages(NamedTuple):
    """Classes of the messages."""

    metadata: Any
    node: Any
    attribute: Any


@cache
def messages() -> Messages:
    """Return the classes of Chakra's messages. Raises: MissingPackageError without protobuf."""
    require(Need("a Chakra trace", "traces", ("protobuf",)))
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="rostam/chakra.proto", package="rostam.chakra", syntax="proto3")

    def field(message: Any, name: str, number: int, kind: str, is_list: bool = False) -> Any:
        made = message.field.add(name=name, number=number, label=3 if is_list else 1)
        scalar = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind.upper()}", None)
        if scalar is None:
            made.type, made.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, f".rostam.chakra.{kind}"
        else:
            made.type = scalar
        return made

    attribute = descriptor_pb2.DescriptorProto(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    field(attribute, "name", 1, "string")
    field(attribute, "doc_string", 2, "string")
    for kind, number in _SCALARS.items():
        field(file.message_type.add(name=f"{kind}List"), "values", 1, kind, True)
        field(attribute, f"{kind}_val", number, kind).oneof_index = 0
        field(attribute, f"{kind}_list", number + 1, f"{kind}List").oneof_index = 0
    file.message_type.append(attribute)
    inputs = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), 1):
        field(inputs, name, number, "string")
    node = file.message_type.add(name="Node")
    for name, (number, kind, is_list) in _NODE.items():
        field(node, name, number, kind, is_list)
    head = file.message_type.add(name="GlobalMetadata")
    field(head, "version", 1, "string")
    field(head, "attr", 2, "AttributeProto", True)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    found = (message_factory.GetMessageClass(pool.FindMessageTypeByName(f"rostam.chakra.{one}")) for one in names)
    return Messages(*found)


def attributes(record: Any, where: str) -> dict[str, Any]:
    """Return the attributes of a message by name, whatever their types; lists are tuples.

    Raises: ConfigError for a name that two of them have.
    """
    found: dict[str, Any] = {}
    for one in record.attr:
        if one.name in found:
            raise ConfigError(f"{where} has two attributes {one.name!r}; a name is given once")
        kind = one.WhichOneof("value")
        value: Any = getattr(one, kind) if kind else None
        found[one.name] = tuple(value.values) if kind and kind.endswith("_list") else value
    return found


def set_attributes(record: Any, values: Mapping[str, Any]) -> None:
    """Add attributes to a message: integers as int64, lists of integers or texts as lists of their type."""
    for name, value in values.items():
        one = record.attr.add(name=name)
        if isinstance(value, tuple | list):
            kind = "string" if value and isinstance(value[0], str) else "int64"
            getattr(one, f"{kind}_list").values.extend(value)
        else:
            kind = {bool: "bool", str: "string", int: "int64"}[type(value)]
            setattr(one, f"{kind}_val", value)


def framed(record: Any) -> bytes:
    """Return a message behind its length."""
    data: bytes = record.SerializeToString(deterministic=True)
    size, head = len(data), bytearray()
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes(head) + bytes([size]) + data


def records(data: bytes, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the place of each message in a file and its bytes.

    Raises: ConfigError with the byte at which the file is damaged, and for more than MOST_NODES messages.
    """
    place = count = 0
    while place < len(data):
        begin, size, shift = place, 0, 0
        while True:
            if place >= len(data) or shift > 28:
                raise ConfigError(f"{path}, byte {begin}: no length of a message stands here; the file is damaged")
            byte = data[place]
            place, size, shift = place + 1, size | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        if place + size > len(data):
            raise ConfigError(f"{path}, byte {begin}: a message of {size} bytes, but {len(data) - place} are left")
        count += 1
        if count > MOST_NODES:
            raise ConfigError(f"{path} has more than {MOST_NODES} messages, the most that are read of a trace")
        yield begin, data[place : place + size]
        place += size
