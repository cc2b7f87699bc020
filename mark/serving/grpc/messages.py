"""Messages of `inference.GRPCInferenceService` and of gRPC's health check, as their specifications number them.

The tables below are the .proto in fewer words: classes are made of them when this module is imported, so no
generated code has to fit the protobuf that is installed. They live in a pool of their own: a client's library in
the same process registers the same names. ModelConfig and ModelStatistics have the fields that a gateway fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
_STATISTICS = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)
_CONFIGURED: Mapping[int, str] = {1: "string name", 2: "DataType data_type"}

Fields: TypeAlias = Mapping[str, Mapping[int, str]]
FIELDS: Fields = MappingProxyType(
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
        "RepositoryIndexRequest": {1: "string repository_name", 2: "bool ready"},
        "RepositoryIndexResponse": {1: "repeated RepositoryIndexResponse.ModelIndex models"},
        "RepositoryIndexResponse.ModelIndex": {
            1: "string name",
            2: "string version",
            3: "string state",
            4: "string reason",
        },
        "ModelStatisticsRequest": _NAMED,
        "ModelStatisticsResponse": {1: "repeated ModelStatistics model_stats"},
        "ModelStatistics": {
            1: "string name",
            2: "string version",
            4: "uint64 inference_count",
            5: "uint64 execution_count",
            6: "InferStatistics inference_stats",
        },
        "InferStatistics": {number: f"StatisticDuration {name}" for number, name in enumerate(_STATISTICS, 1)},
        "StatisticDuration": {1: "uint64 count", 2: "uint64 ns"},
    }
)
"""By message and number: `TYPE NAME` with `repeated`, `oneof` or `map` (from strings) before it."""
DATA_TYPES = ("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
              "FP32", "FP64", "STRING", "BF16")  # fmt: skip
"""Of ModelConfig, in the order of their numbers."""


HEALTH_PACKAGE = "grpc.health.v1"
HEALTH = f"{HEALTH_PACKAGE}.Health"
HEALTH_FIELDS: Fields = MappingProxyType(
    {
        "HealthCheckRequest": {1: "string service"},
        "HealthCheckResponse": {1: "HealthCheckResponse.ServingStatus status"},
    }
)
"""Of gRPC's own health service, in the same words."""
SERVING = 1
ENUMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "DataType": tuple(f"TYPE_{name}" for name in DATA_TYPES),
        "HealthCheckResponse.ServingStatus": ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"),
    }
)
"""Names by enumeration, in the order of their numbers."""


class _File:
    """The descriptor of the file that a table is."""

    def __init__(self, package: str, fields: Fields, enums: Iterable[str]) -> None:
        self._package, self._fields = package, fields
        self.file = descriptor_pb2.FileDescriptorProto(
            name=f"mark/{package}.proto", package=package, syntax="proto3"
        )
        made: dict[str, Message] = {}
        for name in fields:
            outer, _, inner = name.rpartition(".")
            made[name] = (
                made[outer].nested_type.add(name=inner) if outer else self.file.message_type.add(name=name)
            )
        for name in enums:
            outer, _, inner = name.rpartition(".")
            types = (made[outer] if outer else self.file).enum_type.add(name=inner)
            for number, value in enumerate(ENUMS[name]):
                types.value.add(name=value, number=number)
        for name, texts in fields.items():
            for number, text in texts.items():
                self._add_field(made[name], name, number, text)

    def _add_field(self, message: Message, of: str, number: int, text: str) -> None:
        *kinds, named, name = text.split()
        if kinds == ["map"]:
            entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry", options={"map_entry": True})
            self._add_field(entry, of, 1, "string key")
            self._add_field(entry, of, 2, f"{named} value")
            named, kinds = f"{of}.{entry.name}", ["repeated"]
        field = message.field.add(name=name, number=number, label=_REPEATED if kinds == ["repeated"] else _SINGLE)
        if kinds == ["oneof"]:
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0
        if named in ENUMS:
            field.type, field.type_name = _Field.TYPE_ENUM, f".{self._package}.{named}"
        elif "." in named or named in self._fields:
            field.type, field.type_name = _MESSAGE, f".{self._package}.{named}"
        else:
            field.type = getattr(_Field, f"TYPE_{named.upper()}")


_Field = descriptor_pb2.FieldDescriptorProto
_SINGLE, _REPEATED, _MESSAGE = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
_pool = descriptor_pool.DescriptorPool()


def message_classes(package: str, fields: Fields, *enums: str) -> dict[str, Message]:
    """The classes of a package's messages, by name."""
    _pool.AddSerializedFile(_File(package, fields, enums).file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{package}.{name}")) for name in fields
    }


CLASSES: Mapping[str, Message] = MappingProxyType(
    message_classes(PACKAGE, FIELDS, "DataType")
    | message_classes(HEALTH_PACKAGE, HEALTH_FIELDS, "HealthCheckResponse.ServingStatus")
)
"""By message."""
