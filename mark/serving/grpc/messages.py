"""Messages of `inference.GRPCInferenceService`, as the Open Inference Protocol's specification numbers them.

The tables below are the .proto in fewer words: classes are made of them when this module is imported, so no
generated code has to fit the protobuf that is installed. They live in a pool of their own: a client's library in
the same process registers the same names. ModelConfig has the fields that a gateway fills.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
Message: TypeAlias = Any
"""An object of one of the classes: protobuf's have no static types."""

_PARAMETERS = "map InferParameter parameters"
_NAMED: Mapping[int, str] = {1: "string name", 2: "string version"}
_TENSOR: Mapping[int, str] = {
    1: "string name",
    2: "string datatype",
    3: "repeated int64 shape",
    4: _PARAMETERS,
    5: "InferTensorContents contents",
}
_CONFIGURED: Mapping[int, str] = {1: "string name", 2: "DataType data_type"}

FIELDS: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "ServerLiveRequest": {},
        "ServerLiveResponse": {1: "bool live"},
        "ServerReadyRequest": {},
        "ServerReadyResponse": {1: "bool ready"},
        "ModelReadyRequest": _NAMED,
        "ModelReadyResponse": {1: "bool ready"},
        "ServerMetadataRequest": {},
        "ServerMetadataResponse": {1: "string name", 2: "string version", 3: "repeated string extensions"},
        "ModelMetadataRequest": _NAMED,
        "ModelMetadataResponse": {
            1: "string name",
            2: "repeated string versions",
            3: "string platform",
            4: "repeated ModelMetadataResponse.TensorMetadata inputs",
            5: "repeated ModelMetadataResponse.TensorMetadata outputs",
        },
        "ModelMetadataResponse.TensorMetadata": {
            1: "string name",
            2: "string datatype",
            3: "repeated int64 shape",
        },
        "InferParameter": {
            1: "oneof bool bool_param",
            2: "oneof int64 int64_param",
            3: "oneof string string_param",
            4: "oneof double double_param",
            5: "oneof uint64 uint64_param",
        },
        "InferTensorContents": {
            1: "repeated bool bool_contents",
            2: "repeated int32 int_contents",
            3: "repeated int64 int64_contents",
            4: "repeated uint32 uint_contents",
            5: "repeated uint64 uint64_contents",
            6: "repeated float fp32_contents",
            7: "repeated double fp64_contents",
            8: "repeated bytes bytes_contents",
        },
        "ModelInferRequest": {
            1: "string model_name",
            2: "string model_version",
            3: "string id",
            4: _PARAMETERS,
            5: "repeated ModelInferRequest.InferInputTensor inputs",
            6: "repeated ModelInferRequest.InferRequestedOutputTensor outputs",
            7: "repeated bytes raw_input_contents",
        },
        "ModelInferRequest.InferInputTensor": _TENSOR,
        "ModelInferRequest.InferRequestedOutputTensor": {1: "string name", 2: _PARAMETERS},
        "ModelInferResponse": {
            1: "string model_name",
            2: "string model_version",
            3: "string id",
            4: _PARAMETERS,
            5: "repeated ModelInferResponse.InferOutputTensor outputs",
            6: "repeated bytes raw_output_contents",
        },
        "ModelInferResponse.InferOutputTensor": _TENSOR,
        "ModelConfigRequest": _NAMED,
        "ModelConfigResponse": {1: "ModelConfig config"},
        "ModelConfig": {
            1: "string name",
            2: "string platform",
            3: "ModelVersionPolicy version_policy",
            4: "int32 max_batch_size",
            5: "repeated ModelInput input",
            6: "repeated ModelOutput output",
            11: "ModelDynamicBatching dynamic_batching",
            14: "map ModelParameter parameters",
            17: "string backend",
        },
        "ModelVersionPolicy": {
            1: "oneof ModelVersionPolicy.Latest latest",
            2: "oneof ModelVersionPolicy.All all",
        },
        "ModelVersionPolicy.Latest": {1: "uint32 num_versions"},
        "ModelVersionPolicy.All": {},
        "ModelInput": {**_CONFIGURED, 4: "repeated int64 dims"},
        "ModelOutput": {**_CONFIGURED, 3: "repeated int64 dims"},
        "ModelDynamicBatching": {
            1: "repeated int32 preferred_batch_size",
            2: "uint64 max_queue_delay_microseconds",
        },
        "ModelParameter": {1: "string string_value"},
    }
)
"""By message and number: `TYPE NAME` with `repeated`, `oneof` or `map` (from strings) before it."""
DATA_TYPES = ("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
              "FP32", "FP64", "STRING", "BF16")  # fmt: skip
"""Of ModelConfig, in the order of their numbers."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of the file that the tables are."""
    file = descriptor_pb2.FileDescriptorProto(name="mark/inference.proto", package=PACKAGE, syntax="proto3")
    types = file.enum_type.add(name="DataType")
    for number, name in enumerate(DATA_TYPES):
        types.value.add(name=f"TYPE_{name}", number=number)
    made: dict[str, Message] = {}
    for name, fields in FIELDS.items():
        outer, _, inner = name.rpartition(".")
        message = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
        made[name] = message
        for number, text in fields.items():
            _add_field(message, name, number, text)
    return file


def _add_field(message: Message, of: str, number: int, text: str) -> None:
    *kinds, named, name = text.split()
    if kinds == ["map"]:
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry", options={"map_entry": True})
        _add_field(entry, of, 1, "string key")
        _add_field(entry, of, 2, f"{named} value")
        named, kinds = f"{of}.{entry.name}", ["repeated"]
    field = message.field.add(name=name, number=number, label=_REPEATED if kinds == ["repeated"] else _SINGLE)
    if kinds == ["oneof"]:
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    if "." in named or named in FIELDS:
        field.type, field.type_name = _MESSAGE, f".{PACKAGE}.{named}"
    elif named == "DataType":
        field.type, field.type_name = _Field.TYPE_ENUM, f".{PACKAGE}.{named}"
    else:
        field.type = getattr(_Field, f"TYPE_{named.upper()}")


_Field = descriptor_pb2.FieldDescriptorProto
_SINGLE, _REPEATED, _MESSAGE = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_file().SerializeToString())
CLASSES: Mapping[str, Message] = MappingProxyType(
    {name: message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS}
)
"""By message."""
